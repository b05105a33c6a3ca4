package config

import (
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// key is one key of the file. A new flag of run takes one line below.
type key struct {
	path string // "listen.tls.cert"
	flag string // the flag that it stands for, "" for the command behind the --
	kind kind
	doc  string
}

// The words of closed sets, as the flags take them.
var (
	modes     = []string{"enforce", "shadow"}
	protocols = []string{"auto", "both", "legacy", "modern"}
	eras      = []string{"auto", "legacy", "modern"}
	surfaces  = []string{"auto", "dynamic", "static"}
	annotates = []string{"auto", "off", "meta", "text"}
	refusals  = []string{"error", "plain", "opaque"}
	restarts  = []string{"keep", "restart"}
	logLevels = []string{"trace", "debug", "info", "warn", "error", "off"}
	logForms  = []string{"text", "json"}
)

// keys are all keys but version, in the order of the page that explains them.
var keys = []key{
	{"policy", "policy", file, "The policy file to enforce, or a folder with one."},
	{"lock", "lock", file, "The lock file of the policy's tools; the policy's name with .lock.yaml, beside it, if it is not given."},
	{"mode", "mode", word(modes), "Whether the policy is enforced, or in shadow, where nothing is refused and what would have been is logged."},

	{"listen.address", "listen", text, "Where to serve Streamable HTTP, like 127.0.0.1:8080; standard input and output if it is not given."},
	{"listen.path", "path", text, "The path to serve; /mcp if it is not given."},
	{"listen.allowed_hosts", "allowed-host", list, "Host headers to accept."},
	{"listen.allowed_origins", "allowed-origin", list, "Origins to accept, like https://example.com."},
	{"listen.bearer_file", "bearer-file", file, "A file that holds the bearer token which clients must send."},
	{"listen.insecure", "insecure-listen", boolean, "Listen beyond loopback without authentication."},
	{"listen.tls.cert", "tls-cert", file, "A PEM file with the certificate, and those between it and its root."},
	{"listen.tls.key", "tls-key", file, "A PEM file with the certificate's key."},
	{"listen.tls.client_ca", "client-ca", file, "A PEM file with the authorities to which the certificates of clients lead that are accepted."},
	{"listen.tokens", "tokens", file, "A file of names and the SHA-256 of their bearer tokens."},
	{"listen.oidc.issuer", "oidc-issuer", text, "The URL of the issuer whose access tokens are accepted."},
	{"listen.oidc.audiences", "oidc-audience", list, "Whom access tokens may be for; resource_url if it is not given."},
	{"listen.oidc.jwks", "oidc-jwks", file, "A file with the issuer's keys, instead of asking it for them."},
	{"listen.oidc.algorithms", "oidc-algorithms", list, "The signatures that are accepted."},
	{"listen.oidc.skew", "oidc-skew", duration, "How far the issuer's clock may be off."},
	{"listen.oidc.required_scopes", "required-scope", list, "Scopes that access tokens must have."},
	{"listen.oidc.resource_url", "resource-url", text, "The URL at which clients find the proxy; that of the request if it is not given."},

	{"upstream.command", "", command, "The wrapped server's program and its arguments, each an item."},
	{"upstream.env", "env", variables, "Variables for the command's environment, by name."},
	{"upstream.pass_env", "pass-env", list, "Names of the proxy's own variables that the command gets too, where it does not get all."},
	{"upstream.url", "upstream", text, "The URL of the wrapped server, instead of a command."},
	{"upstream.headers", "upstream-header", headers, "Headers of every request to the URL, by name."},
	{"upstream.bearer_file", "upstream-bearer-file", file, "A file that holds the bearer token for the URL."},
	{"upstream.oauth.client_id", "upstream-oauth-client-id", text, "The id of the OAuth client whose credentials get tokens for the URL."},
	{"upstream.oauth.client_secret_file", "upstream-oauth-client-secret-file", file, "A file that holds the OAuth client's secret."},
	{"upstream.oauth.metadata_url", "upstream-oauth-metadata-url", text, "Where the authorization server describes itself; found through the URL if it is not given."},
	{"upstream.oauth.scopes", "upstream-oauth-scope", list, "OAuth scopes to ask for."},
	{"upstream.sse", "upstream-sse", boolean, "The URL speaks the old HTTP+SSE transport."},
	{"upstream.protocol", "upstream-protocol", word(eras), "The protocol to speak with the server: legacy is with sessions, modern is 2026-07-28, auto is its client's where the server speaks that, and else the other."},
	{"upstream.share", "share-upstream", boolean, "One connection to the server for all clients."},
	{"upstream.on_restart", "on-upstream-restart", word(restarts), "What becomes of a run whose server process died."},
	{"upstream.ping", "upstream-ping", duration, "How long a command that left a call unanswered may say nothing when it is pinged, before it is ended; 0s: it is not pinged."},

	{"protocol", "protocol", word(protocols), "The protocol that clients may speak: legacy is with sessions, modern is 2026-07-28, both is either, and auto is both, but has clients that know both begin a session where modern ones would need a handle."},
	{"runs.key", "run-key", list, "How requests of an era find their run: legacy=KEY, modern=KEY."},
	{"runs.trusted_proxies", "trusted-proxies", list, "Addresses, or networks, of gateways whose header says which run it is."},
	{"runs.handle_arg", "handle-arg", text, "Name of the argument in which calls carry their run's handle."},
	{"runs.path_create", "path-create", boolean, "With the key path: an unknown id begins a run, if nobody can guess it."},
	{"runs.max", "max-runs", number, "Runs that are found by a key at a time."},
	{"runs.max_per_principal", "max-runs-per-principal", number, "Such runs of one principal."},
	{"runs.idle", "run-idle", duration, "After how long without a request such a run expires."},
	{"runs.age", "run-age", duration, "After how long such a run expires that nobody uses just then."},
	{"surface", "surface", word(surfaces), "The surface that clients are shown."},
	{"annotate", "annotate", word(annotates), "What is added to results."},
	{"refusals", "refusals", word(refusals), "The form of refusals."},
	{"hint", "no-hint", negated, "Tell clients in the instructions that tools appear and disappear; true if it is not given."},

	{"timeouts.turn", "turn-timeout", duration, "How long a call may wait for its run's turn."},
	{"timeouts.call", "call-timeout", duration, "How long a call may take, not counting what a person takes to answer."},
	{"timeouts.ask", "ask-timeout", duration, "How long a client may take to answer what the server asks it in the middle of a call."},
	{"timeouts.task", "task-timeout", duration, "How long a task may run whose end moves its run."},
	{"timeouts.cancel_grace", "cancel-grace", duration, "How long a cancelled call may still be answered."},
	{"timeouts.connect", "connect-timeout", duration, "How long a connection to the server may take."},
	{"timeouts.drain", "drain", duration, "How long calls under way may still take when the proxy is told to end; 0s: no time at all."},

	{"health.address", "health", text, "Where to answer probes and give metrics, to everybody."},
	{"admin.address", "admin", text, "Where operators may look inside: a loopback address, or unix:PATH."},
	{"admin.bearer_file", "admin-bearer-file", file, "A file that holds the bearer token which operators must send."},

	{"reload.debounce", "reload-debounce", duration, "How long a watched file's folder must rest before a change is read."},
	{"reload.poll", "reload-poll", duration, "How often a watched file is read besides, where no change was noticed."},
	{"reload.max_stranded", "max-stranded", duration, "How long a run may go on whose state a reload took away."},

	{"telemetry.audit", "audit", destination, "A file to which a line is appended for each decision, or stderr."},
	{"telemetry.audit_arguments", "audit-arguments", boolean, "Have the audit tell the arguments of calls."},

	{"log.level", "log-level", word(logLevels), "The least level to log."},
	{"log.format", "log-format", word(logForms), "The form of the log."},

	{"limits.message", "max-message", size, "The size of a message from a client."},
	{"limits.body_memory", "max-body-memory", size, "What the bodies of requests may take, all together."},
	{"limits.upstream_message", "max-upstream-message", size, "The size of a message from the server."},
	{"limits.list_size", "max-list-size", size, "The size of a list, all pages together."},
	{"limits.list_pages", "max-list-pages", number, "The pages of a list."},
	{"limits.in_flight", "max-in-flight", number, "Requests of one session at a time."},
	{"limits.queue", "max-queue", number, "Calls that wait for one run's turn."},
	{"limits.subscriptions", "max-subscriptions", number, "Resource subscriptions of one session."},
	{"limits.outbound", "max-outbound", size, "What may wait for a client on one stream before the stream closes."},
	{"limits.resume", "max-resume", size, "What a session keeps for streams that are resumed."},
	{"limits.resume_time", "resume-time", duration, "How long a session keeps what streams may resume."},
	{"limits.connections", "max-connections", number, "Connections of clients at a time."},
	{"limits.connections_per_address", "max-connections-per-address", number, "Of them, those of one remote address that carried no request which was let in."},
	{"limits.header", "max-header", size, "The size of a request's headers."},
	{"limits.header_timeout", "header-timeout", duration, "How long a request's headers, and a body of up to 64 KiB, may take."},
	{"limits.depth", "max-depth", number, "How deeply a message from a client may nest."},
	{"limits.batch", "max-batch", number, "The messages of a JSON-RPC batch."},
	{"limits.sessions", "max-sessions", number, "Sessions at a time."},
	{"limits.sessions_per_address", "max-sessions-per-address", number, "Sessions of one remote address that is not loopback."},
	{"limits.sessions_per_principal", "max-sessions-per-principal", number, "Sessions of one principal, where clients are told apart."},
	{"limits.requests", "max-requests", number, "Requests without a session at a time."},
	{"limits.listen_streams", "max-listen-streams", number, "The subscriptions/listen streams at a time."},
	{"limits.upstreams", "max-upstreams", number, "Processes of the wrapped server at a time."},
	{"limits.session_idle", "session-idle", duration, "After how long without a request a session ends."},
	{"limits.session_unused", "session-unused", duration, "How long a session may take from initialize to its next request."},
	{"limits.write_timeout", "write-timeout", duration, "How long a client may take to accept what is written."},
}

// A group is a mapping of keys that belong together.
type group struct {
	doc      string
	required []string            // keys without which the group means nothing
	needs    map[string][]string // keys that belong to another one
	oneOf    []string            // exactly one of these
}

// groups are what is said of each group beside its keys.
var groups = map[string]group{
	"listen":     {doc: "The address for clients. Left out, or without an address, the one client is at standard input and output."},
	"listen.tls": {doc: "Serve https. Changed files are followed, for new connections.", required: []string{"cert", "key"}},
	"upstream": {
		doc: "The wrapped server: a command, or a URL, with what belongs to it. " +
			"A server on the command line, or in FSM_PROXY_UPSTREAM, takes the place of all of it.",
		oneOf: []string{"command", "url"},
		needs: map[string][]string{
			"env": {"command"}, "pass_env": {"command"}, "ping": {"command"},
			"headers": {"url"}, "bearer_file": {"url"}, "oauth": {"url"}, "sse": {"url"},
		},
	},
	"upstream.oauth": {doc: "OAuth client credentials for the URL.", required: []string{"client_id", "client_secret_file"}},
	"runs":           {doc: "How requests find their run, and how long runs live that are found by a key."},
	"timeouts":       {doc: "How long things may take."},
	"limits":         {doc: "What clients and servers can take, all of it refused clearly. Sizes are bytes, or written with KiB, MiB, GiB."},
	"health":         {doc: "The address for probes and metrics: /livez, /readyz, /startupz, /metrics."},
	"telemetry":      {doc: "Who is told what is decided, beside the log. Metrics belong to health, and traces are configured by the OTEL_ variables."},
	"admin":          {doc: "The address for operators."},
	"reload":         {doc: "How what is in force follows the files it came from."},
	"log":            {doc: "How much is logged to standard error, and in which form."},
}

// Keys returns the path of each key by the flag that it stands for.
func Keys() map[string]string {
	paths := make(map[string]string, len(keys))
	for _, k := range keys {
		if k.flag != "" {
			paths[k.flag] = k.path
		}
	}
	return paths
}

// Written is how the file says what a flag says with a value, its path in front; "" where no
// key stands for the flag.
func Written(flag, value string) string {
	for _, k := range keys {
		switch {
		case k.flag == "" || k.flag != flag:
		case k.kind.many:
			return k.path + ": [" + value + "]"
		default:
			return k.path + ": " + value
		}
	}
	return ""
}

type (
	field  = strictyaml.Field[*strictyaml.Reader, reading]
	entry  = strictyaml.Entry
	schema = strictyaml.Schema
)

// fieldsOf is the table of one group; "" is the file itself, which has version
// as well.
func fieldsOf(parent string) []field {
	var fields []field
	if parent == "" {
		fields = append(fields, field{Name: "version", Doc: "The version of the configuration file: 1.", Schema: strictyaml.Const(1), Read: readVersion})
	}
	seen := map[string]bool{}
	for _, k := range keys {
		rest, ok := beneath(k.path, parent)
		name, _, deeper := strings.Cut(rest, ".")
		if !ok || seen[name] {
			continue
		}
		seen[name] = true
		if deeper {
			fields = append(fields, groupField(name, join(parent, name)))
		} else {
			fields = append(fields, keyField(name, k))
		}
	}
	return fields
}

func keyField(name string, k key) field {
	return field{Name: name, Doc: k.doc, Schema: k.kind.schema,
		Read: func(r *strictyaml.Reader, e entry, into *reading) { into.setting(r, e, k) }}
}

func groupField(name, path string) field {
	return field{Name: name, Doc: groups[path].doc, Schema: func() *schema { return groupSchema(path) },
		Read: func(r *strictyaml.Reader, e entry, into *reading) { into.group(r, e, path) }}
}

// beneath returns what of a path stands below its parent.
func beneath(path, parent string) (string, bool) {
	if parent == "" {
		return path, true
	}
	return strings.CutPrefix(path, parent+".")
}

func join(parent, name string) string {
	if parent == "" {
		return name
	}
	return parent + "." + name
}
