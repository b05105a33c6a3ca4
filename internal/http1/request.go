package http1

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Field is one line of a request's header. Name is in its canonical form.
type Field struct{ Name, Value string }

// Prepared is a request without its body: what many requests have in common, checked
// and put together once.
type Prepared struct {
	req  *http.Request
	addr string // of the server
	head []byte // the request line and the header, up to the length
}

// Prepare takes the request line and the header of a request. What would not be read as
// that very line by every server is an error.
func Prepare(req *http.Request) (*Prepared, error) {
	target := req.URL.RequestURI()
	switch {
	case req.URL.Scheme != "http":
		return nil, errTLS
	case !isToken(req.Method):
		return nil, fmt.Errorf("the method %q is no HTTP method", req.Method)
	case slices.ContainsFunc([]byte(target), func(c byte) bool { return c <= ' ' || c == 0x7f }):
		return nil, errors.New("the path or query of the URL holds a space or a control character: escape it (%20)")
	case !isHost(req.URL.Host):
		return nil, fmt.Errorf("the host %q has a character that no host has: write an international name in its ASCII form (xn--…)", req.URL.Host)
	}
	b := append(append([]byte(req.Method), ' '), target...)
	b = appendLine(append(b, " HTTP/1.1\r\n"...), "Host", req.URL.Host)
	for name, values := range req.Header {
		for _, value := range values {
			if err := CheckField(name, value); err != nil {
				return nil, err
			}
			b = appendLine(b, name, value)
		}
	}
	return &Prepared{req, address(req.URL), b}, nil
}

// address is where the server of a URL listens.
func address(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), "80")
}

// appendLine appends a line of a header that [CheckField] has nothing against.
func appendLine(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	return append(append(b, value...), "\r\n"...)
}

const (
	alphanumeric = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	// tokenMarks are what a token may have besides (RFC 9110, section 5.6.2), and hostMarks a host (RFC 3986, section 3.2.2).
	tokenMarks = "!#$%&'*+-.^_`|~"
	hostMarks  = "!$%&'()*+,-.:;=[]_~"
)

// isToken reports whether text can be a method, or the name of a header.
func isToken(text string) bool {
	return text != "" && strings.Trim(text, alphanumeric+tokenMarks) == ""
}

// isHost reports whether text can be a Host header.
func isHost(text string) bool { return text != "" && strings.Trim(text, alphanumeric+hostMarks) == "" }

// framing are the header names that say where a request ends or to whom it goes:
// a client writes them itself, once.
var framing = []string{"Content-Length", "Host", "Trailer", "Transfer-Encoding"}

// CheckField says why a line of a header cannot be sent: it is not one line of
// one name, or it is one that the client writes itself. The error repeats nothing
// that may be a secret.
func CheckField(name, value string) error {
	switch {
	case !isToken(name):
		return errors.New("the header's name has a character that no header name has")
	case slices.Contains(framing, http.CanonicalHeaderKey(name)):
		return fmt.Errorf("the header %s is written by the HTTP client itself: leave it out", name)
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return fmt.Errorf("the value of the header %s has a line break or another control character", name)
	}
	return nil
}
