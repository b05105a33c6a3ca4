// Package hostile tests what goes wrong in proxies like this one, through the real binary: messages that two
// parsers read in two ways, clients that race and reach around, session ids that belong to nobody, servers
// that die, hang and make noise. Behind the proxy stands a raw upstream that counts what reached it.
package hostile
