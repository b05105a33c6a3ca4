package config

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/auth"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/service"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Run is all that a run of fsm-proxy can be told.
type Run struct {
	service.Config
	LogLevel, LogFormat string
}

// setting is one thing that can be set: by its flag, its environment variable, its
// key in the file. What help, schema, documentation and completion say of it, and
// what is checked, comes from its row in table.
type setting struct {
	key  string // "listen.tls.cert"
	flag string // "" for the command behind the --
	at   any    // points to its place in Run
	def  string // what is built in, as the flag takes it; "": the zero value
	// usage is what the flag is for, with what its value is in backquotes.
	usage string
	// doc is usage for the file; "": the same.
	doc string
	// kind is how the file has it; zero: as the type of its place has it.
	kind kind
	// needs are flags without which it means nothing, or NeedsCommand or NeedsServer.
	needs []string
	// zero is true of a number or time that may be 0.
	zero bool
}

// What a setting needs, beside flags.
const (
	NeedsCommand = "command" // a command is wrapped
	NeedsServer  = "server"  // a command, or --upstream
)

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

// keys are all settings, of no run.
var keys = table(new(Run))

// table is all settings of a run, in the order of the page that explains them. A
// new setting takes one row here, and a field.
func table(r *Run) []setting {
	server, listen, oidc, runs, limits := &r.Server, &r.Listen, &r.Listen.OIDC, &r.Runs, &r.Limits
	atURL, atCommand, listening := []string{"upstream"}, []string{NeedsCommand}, []string{"listen"}
	oauth, issuer := []string{"upstream", "upstream-oauth-client-id"}, []string{"listen", "oidc-issuer"}
	return []setting{
		{key: "policy", flag: "policy", at: &r.PolicyFile, kind: file, usage: "the policy `FILE` to enforce, or a folder with one; changes are followed"},
		{key: "lock", flag: "lock", at: &r.LockFile, kind: file, usage: "the lock `FILE` of the policy's tools (default: the policy's name with .lock.yaml, beside it)"},
		{key: "mode", flag: "mode", at: &r.Mode, kind: word(modes), usage: "the `MODE`: enforce the policy, or shadow, to refuse nothing and log what would have been"},

		{key: "upstream.command", at: &server.Command, kind: command, doc: "The wrapped server's program and its arguments, each an item."},
		{key: "upstream.env", flag: "env", at: &server.Env, kind: variables, needs: atCommand,
			usage: "`NAME=VALUE` for the command's environment; may be repeated",
			doc:   "Variables for the command's environment, by name."},
		{key: "upstream.pass_env", flag: "pass-env", at: &server.PassEnv, needs: atCommand,
			usage: "a `NAME` of the proxy's environment that the command gets too, where it does not get all; may be repeated",
			doc:   "Names of the proxy's own variables that the command gets too, where it does not get all."},
		{key: "upstream.url", flag: "upstream", at: &server.URL, usage: "the `URL` of the server to wrap, instead of -- COMMAND", doc: "The URL of the wrapped server, instead of a command."},
		{key: "upstream.headers", flag: "upstream-header", at: &server.Headers, kind: headers, needs: atURL,
			usage: "`'Name: value'` for every request to --upstream; may be repeated",
			doc:   "Headers of every request to the URL, by name."},
		{key: "upstream.bearer_file", flag: "upstream-bearer-file", at: &server.BearerFile, kind: file, needs: atURL,
			usage: "a `FILE` that holds the bearer token for --upstream",
			doc:   "A file that holds the bearer token for the URL."},
		{key: "upstream.oauth.client_id", flag: "upstream-oauth-client-id", at: &server.OAuth.ClientID, needs: []string{"upstream", "upstream-oauth-client-secret-file"},
			usage: "get tokens for --upstream by OAuth client credentials, as the client of this `ID`",
			doc:   "The id of the OAuth client whose credentials get tokens for the URL."},
		{key: "upstream.oauth.client_secret_file", flag: "upstream-oauth-client-secret-file", at: &server.OAuth.SecretFile, kind: file, needs: oauth, usage: "a `FILE` that holds the OAuth client's secret"},
		{key: "upstream.oauth.metadata_url", flag: "upstream-oauth-metadata-url", at: &server.OAuth.MetadataURL, needs: oauth,
			usage: "the `URL` where the authorization server describes itself (default: found through --upstream)",
			doc:   "Where the authorization server describes itself; found through the URL if it is not given."},
		{key: "upstream.oauth.scopes", flag: "upstream-oauth-scope", at: &server.OAuth.Scopes, needs: oauth, usage: "an OAuth `SCOPE` to ask for; may be repeated", doc: "OAuth scopes to ask for."},
		{key: "upstream.sse", flag: "upstream-sse", at: &server.SSE, needs: atURL, usage: "--upstream speaks the old HTTP+SSE transport", doc: "The URL speaks the old HTTP+SSE transport."},
		{key: "upstream.protocol", flag: "upstream-protocol", at: &server.Protocol, kind: word(eras), needs: []string{NeedsServer},
			usage: "the `PROTOCOL` to speak with the server: legacy (with sessions), modern (2026-07-28),\nor auto, which is its client's where the server speaks that, and else the other"},
		{key: "upstream.share", flag: "share-upstream", at: &r.Share, usage: "one connection to the server for all clients"},
		{key: "upstream.on_restart", flag: "on-upstream-restart", at: &r.OnRestart, def: "keep", kind: word(restarts), usage: "`WHAT` becomes of a run whose server process died: keep or restart"},
		{key: "upstream.ping", flag: "upstream-ping", at: &server.Ping, def: "30s", needs: atCommand, zero: true,
			usage: "how long a command that left a call unanswered may say nothing when it is pinged, before it is ended; 0: it is not pinged",
			doc:   "How long a command that left a call unanswered may say nothing when it is pinged, before it is ended; 0s: it is not pinged."},

		{key: "listen.address", flag: "listen", at: &listen.Address,
			usage: "serve Streamable HTTP at this `ADDR` instead of standard input and output",
			doc:   "Where to serve Streamable HTTP, like 127.0.0.1:8080; standard input and output if it is not given."},
		{key: "listen.path", flag: "path", at: &listen.Path, def: "/mcp", usage: "the `PATH` to serve under --listen", doc: "The path to serve; /mcp if it is not given."},
		{key: "listen.allowed_hosts", flag: "allowed-host", at: &listen.AllowedHosts, needs: listening, usage: "a `HOST` to accept; may be repeated", doc: "Host headers to accept."},
		{key: "listen.allowed_origins", flag: "allowed-origin", at: &listen.AllowedOrigins, needs: listening,
			usage: "an `ORIGIN` to accept, like https://example.com; may be repeated",
			doc:   "Origins to accept, like https://example.com."},
		{key: "listen.bearer_file", flag: "bearer-file", at: &listen.BearerFile, kind: file, needs: listening, usage: "a `FILE` that holds the bearer token which clients must send"},
		{key: "listen.insecure", flag: "insecure-listen", at: &listen.Insecure, needs: listening, usage: "listen beyond loopback without authentication"},
		{key: "listen.tls.cert", flag: "tls-cert", at: &listen.TLS.Cert, kind: file, needs: []string{"listen", "tls-key"},
			usage: "serve https with the certificate in this PEM `FILE`, and those between it and its root; changes are followed",
			doc:   "A PEM file with the certificate, and those between it and its root."},
		{key: "listen.tls.key", flag: "tls-key", at: &listen.TLS.Key, kind: file, needs: []string{"listen", "tls-cert"},
			usage: "the PEM `FILE` with the certificate's key"},
		{key: "listen.tls.client_ca", flag: "client-ca", at: &listen.ClientCA, kind: file, needs: []string{"listen", "tls-cert"},
			usage: "accept clients whose certificate leads to an authority in this PEM `FILE`, with --tls-cert; changes are followed",
			doc:   "A PEM file with the authorities to which the certificates of clients lead that are accepted."},
		{key: "listen.tokens", flag: "tokens", at: &listen.Tokens, kind: file, needs: listening, usage: "a `FILE` of names and the SHA-256 of their bearer tokens; changes are followed"},
		{key: "listen.oidc.issuer", flag: "oidc-issuer", at: &oidc.Issuer, needs: listening,
			usage: "accept access tokens (JWTs) of the issuer at this `URL`, letter by letter as its tokens have it",
			doc:   "The URL of the issuer whose access tokens are accepted."},
		{key: "listen.oidc.audiences", flag: "oidc-audience", at: &oidc.Audiences, needs: issuer,
			usage: "an `AUDIENCE` that tokens may be for (default --resource-url); may be repeated",
			doc:   "Whom access tokens may be for; resource_url if it is not given."},
		{key: "listen.oidc.jwks", flag: "oidc-jwks", at: &oidc.JWKS, kind: file, needs: issuer, usage: "a `FILE` with the issuer's keys, instead of asking it for them; changes are followed"},
		{key: "listen.oidc.algorithms", flag: "oidc-algorithms", at: &oidc.Algorithms, def: strings.Join(auth.DefaultAlgorithms, ","), needs: issuer, usage: "the `SIGNATURES` that are accepted"},
		{key: "listen.oidc.skew", flag: "oidc-skew", at: &oidc.Skew, def: "1m", needs: issuer, zero: true, usage: "how far the issuer's clock may be off"},
		{key: "listen.oidc.required_scopes", flag: "required-scope", at: &oidc.Scopes, needs: issuer,
			usage: "a `SCOPE` that access tokens must have; may be repeated",
			doc:   "Scopes that access tokens must have."},
		{key: "listen.oidc.resource_url", flag: "resource-url", at: &oidc.Resource, needs: issuer,
			usage: "the `URL` at which clients find this proxy, for their tokens (default that of the request)",
			doc:   "The URL at which clients find the proxy; that of the request if it is not given."},

		{key: "protocol", flag: "protocol", at: &r.Protocol, kind: word(protocols),
			usage: "the `PROTOCOL` that clients may speak: legacy (with sessions), modern (2026-07-28), both, or auto: both, but with\n--listen clients that know both have a session, unless --run-key names modern=KEY",
			doc:   "The protocol that clients may speak: legacy is with sessions, modern is 2026-07-28, both is either, and auto is both, but has clients that know both begin a session where modern ones would need a handle."},
		{key: "runs.key", flag: "run-key", at: &runs.Keys,
			usage: "how requests of an era find their run, `ERA=KEY`: process, session (legacy), principal, header:NAME, path or handle (modern);\nprocess, principal, header and path hold for both eras where one is named (default legacy=session,modern=handle with --listen, process without)",
			doc:   "How requests of an era find their run: legacy=KEY, modern=KEY."},
		{key: "runs.trusted_proxies", flag: "trusted-proxies", at: &runs.Trusted,
			usage: "`ADDRESSES` of gateways whose header says which run it is, like 10.0.0.0/8; may be repeated",
			doc:   "Addresses, or networks, of gateways whose header says which run it is."},
		{key: "runs.handle_arg", flag: "handle-arg", at: &runs.HandleArgument, def: handle.DefaultArgument, usage: "`NAME` of the argument in which calls carry their run's handle"},
		{key: "runs.path_create", flag: "path-create", at: &runs.PathCreate,
			usage: "with --run-key path: an unknown id in the path begins a run, if nobody can guess it",
			doc:   "With the key path: an unknown id begins a run, if nobody can guess it."},
		{key: "runs.max", flag: "max-runs", at: &runs.Max, usage: "runs that are found by a key at a time (default 10000, or one fewer than --max-upstreams where each has a process)"},
		{key: "runs.max_per_principal", flag: "max-runs-per-principal", at: &runs.MaxPerPrincipal, usage: "such runs of one principal (default 1000, or half of --max-runs where each has a process)"},
		{key: "runs.idle", flag: "run-idle", at: &runs.Idle, usage: "after how long without a request such a run expires (default 24h, or 1h where each has a process)"},
		{key: "runs.age", flag: "run-age", at: &runs.Age, usage: "after how long such a run expires that nobody uses just then (default 720h; with --store never)"},
		{key: "store.url", flag: "store", at: &r.Store.URL,
			usage: "keep runs in this `STORE`, so that a restart goes on with them: sqlite:PATH, sqlite:FOLDER/ (a file a run name),\npostgres://HOST/DATABASE (the password in PGPASSWORD), or memory (default memory)",
			doc:   "Where runs are kept: sqlite:PATH, sqlite:FOLDER/, postgres://HOST/DATABASE; memory if it is not given."},
		{key: "store.run", flag: "run", at: &r.Store.Run, needs: []string{"store"},
			usage: "the `NAME` of the process's run in the store, with --run-key process and without --listen (default the policy file's)",
			doc:   "What the run of the process is called in the store."},
		{key: "store.timeout", flag: "store-timeout", at: &r.Store.Timeout, def: "10s", usage: "how long a call waits until the store has written that it begins, or ended"},
		{key: "store.lease", flag: "lease", at: &r.Store.Lease, def: "5s",
			usage: "how long a database is still this process's after it has last said so: another one waits that long when this one is killed",
			doc:   "How long a database is still this process's after it has last said so."},
		{key: "store.peer_listen", flag: "peer-listen", at: &r.Store.PeerListen, // what it needs the service says
			usage: "share a database with other processes, and take the requests for this one's runs that they pass on at this `ADDR`",
			doc:   "Share a database with other processes, and take the requests for this one's runs that they pass on at this address."},
		{key: "store.advertise", flag: "advertise", at: &r.Store.Advertise, needs: []string{"peer-listen"},
			usage: "the `ADDR` at which other processes find that, HOST:PORT (default where it listens)",
			doc:   "The address at which other processes find that; where it listens if it is not given."},
		{key: "store.keep_completed", flag: "keep-completed", at: &r.Store.KeepCompleted, def: "30d", zero: true,
			usage: "how long the store keeps a run that has ended; 0: for ever",
			doc:   "How long the store keeps a run that has ended; 0s: for ever."},
		{key: "store.keep_idle", flag: "keep-idle", at: &r.Store.KeepIdle, zero: true,
			usage: "how long the store keeps a run that nobody uses; 0: for ever (default 0)",
			doc:   "How long the store keeps a run that nobody uses; 0s: for ever."},
		{key: "store.keep_entries", flag: "keep-entries", at: &r.Store.KeepEntries, def: "10000", zero: true,
			usage: "how many entries of a run the store keeps before its last checkpoint; 0: all",
			doc:   "How many entries of a run the store keeps before its last checkpoint; 0: all."},
		{key: "store.max_runs", flag: "max-stored-runs", at: &r.Store.MaxRuns, def: "1000000", zero: true,
			usage: "how many runs the store keeps: beyond it those go that ended first, and then no more begin; 0: any number",
			doc:   "How many runs the store keeps: beyond it those go that ended first, and then no more begin; 0: any number."},
		{key: "store.max_size", flag: "max-store-size", at: &r.Store.MaxSize, needs: []string{"store"},
			usage: "what a store of SQLite may take, likewise: its file grows by little beyond it (default: any size)",
			doc:   "What a store of SQLite may take, likewise: its file grows by little beyond it."},
		{key: "store.record_key", flag: "record-key", at: &r.Store.RecordKey, kind: file, needs: []string{"store"},
			usage: "a `FILE` that holds the key with which records are hashed, so that nobody without it can write them anew",
			doc:   "A file that holds the key with which records are hashed."},
		{key: "record.arguments", flag: "record-arguments", at: &r.Record.Arguments, needs: []string{"store"},
			usage: "have the store keep the arguments of calls, which may hold secrets, up to 64 KiB of each",
			doc:   "Have the store keep the arguments of calls, which may hold secrets, up to 64 KiB of each."},
		{key: "record.redact", flag: "record-redact", at: &r.Record.Redact, kind: pointers,
			usage: "a JSON `POINTER` (/password) to what of calls' arguments neither the store, the audit nor a webhook is to tell; may be repeated",
			doc:   "JSON pointers (/password) to what of calls' arguments neither the store, the audit nor a webhook is to tell."},
		{key: "surface", flag: "surface", at: &r.Surface, kind: word(surfaces), usage: "the `SURFACE` that clients are shown: auto, dynamic or static"},
		{key: "annotate", flag: "annotate", at: &r.Annotate, kind: word(annotates), usage: "`WHAT` is added to results: auto, off, meta or text"},
		{key: "refusals", flag: "refusals", at: &r.Refusals, kind: word(refusals), usage: "the `FORM` of refusals: error, plain or opaque"},
		{key: "hint", flag: "no-hint", at: &r.NoHint, kind: negated,
			usage: "do not tell clients in the instructions that tools appear and disappear",
			doc:   "Tell clients in the instructions that tools appear and disappear; true if it is not given."},

		{key: "timeouts.turn", flag: "turn-timeout", at: &r.Timeouts.Turn, def: "1m", usage: "how long a call may wait for its run's turn"},
		{key: "timeouts.approval_hold", flag: "approval-hold", at: &r.Timeouts.Approval, def: "45s", usage: "how long a call is held that waits for an approval, before its client is to ask again"},
		{key: "timeouts.call", flag: "call-timeout", at: &r.Timeouts.Call, def: "5m", usage: "how long a call may take, not counting what a person takes to answer"},
		{key: "timeouts.ask", flag: "ask-timeout", at: &r.Timeouts.Ask, def: "10m", usage: "how long a client may take to answer what the server asks it in the middle of a call"},
		{key: "timeouts.task", flag: "task-timeout", at: &r.Timeouts.Task, def: "1h", usage: "how long a task may run whose end moves its run"},
		{key: "timeouts.cancel_grace", flag: "cancel-grace", at: &r.Timeouts.CancelGrace, def: "5s", usage: "how long a cancelled call may still be answered"},
		{key: "timeouts.connect", flag: "connect-timeout", at: &server.ConnectTimeout, usage: "how long a connection to the server may take (default 30s; 2m for a command, which may first fetch itself)"},
		{key: "timeouts.drain", flag: "drain", at: &r.Timeouts.Drain, def: "25s", zero: true,
			usage: "how long calls under way may still take when the proxy is told to end; 0: no time at all",
			doc:   "How long calls under way may still take when the proxy is told to end; 0s: no time at all."},

		{key: "health.address", flag: "health", at: &r.Operators.Health,
			usage: "answer probes and give metrics at this `ADDR`, to everybody: /livez, /readyz, /startupz, /metrics",
			doc:   "Where to answer probes and give metrics, to everybody."},
		{key: "admin.address", flag: "admin", at: &r.Operators.Admin.Address,
			usage: "let operators look inside at this `ADDR`, a loopback one, or unix:PATH",
			doc:   "Where operators may look inside: a loopback address, or unix:PATH."},
		{key: "admin.bearer_file", flag: "admin-bearer-file", at: &r.Operators.Admin.BearerFile, kind: file, needs: []string{"admin"},
			usage: "a `FILE` that holds the bearer token which operators must send; with it --admin may be any address",
			doc:   "A file that holds the bearer token which operators must send."},
		{key: "admin.tokens", flag: "admin-tokens", at: &r.Operators.Admin.Tokens, kind: file, needs: []string{"admin"},
			usage: "a `FILE` of operators' names and the SHA-256 of the bearer tokens which they must send; changes are followed; with it --admin may be any address"},
		{key: "admin.verbs", flag: "admin-verbs", at: &r.Operators.Admin.Verbs, kind: some, needs: []string{"admin"},
			usage: "what operators may do, of the `VERBS` start, reset, end, fork, annotate, accept, release, signal, approve and migrate; none: nothing (default all)",
			doc:   "What operators may do: start, reset, end, fork, annotate, accept, release, signal, approve, migrate, or none alone; all if it is not given."},
		{key: "approvals.webhook", flag: "approval-webhook", at: &r.Operators.Webhook.URL, needs: []string{"approval-webhook-key"},
			usage: "post each approval that is wanted to this `URL`",
			doc:   "A URL to which each approval that is wanted is posted."},
		{key: "approvals.webhook_key", flag: "approval-webhook-key", at: &r.Operators.Webhook.KeyFile, kind: file, needs: []string{"approval-webhook"},
			usage: "a `FILE` that holds the key, whsec_…, with which that is signed",
			doc:   "A file that holds the key, whsec_…, with which that is signed."},

		{key: "reload.debounce", flag: "reload-debounce", at: &r.Reload.Debounce, def: "200ms", usage: "how long a watched file's folder must rest before a change is read"},
		{key: "reload.poll", flag: "reload-poll", at: &r.Reload.Poll, def: "45s", usage: "how often a watched file is read besides, where no change was noticed"},
		{key: "reload.max_stranded", flag: "max-stranded", at: &r.Reload.MaxStranded, def: "24h", usage: "how long a run may go on whose state a reload took away"},

		{key: "telemetry.audit", flag: "audit", at: &r.Audit.Path, kind: destination,
			usage: "append a line of JSON for each decision to this `FILE`, or to stderr; calls wait while it cannot be written",
			doc:   "A file to which a line is appended for each decision, or stderr."},
		{key: "telemetry.audit_arguments", flag: "audit-arguments", at: &r.Audit.Arguments, needs: []string{"audit"},
			usage: "have the audit tell the arguments of calls, which may hold secrets"},

		{key: "log.level", flag: "log-level", at: &r.LogLevel, def: "info", kind: word(logLevels), usage: "the least `LEVEL` to log: trace, debug, info, warn, error or off"},
		{key: "log.format", flag: "log-format", at: &r.LogFormat, def: "text", kind: word(logForms), usage: "the `FORMAT` of the log: text or json"},

		{key: "limits.message", flag: "max-message", at: &limits.Message, def: "4MiB", usage: "the size of a message from a client"},
		{key: "limits.body_memory", flag: "max-body-memory", at: &limits.Bodies, def: "64MiB", usage: "what the bodies of requests may take, all together"},
		{key: "limits.upstream_message", flag: "max-upstream-message", at: &limits.UpstreamMessage, def: "64MiB", usage: "the size of a message from the server"},
		{key: "limits.list_size", flag: "max-list-size", at: &limits.ListBytes, def: "32MiB", usage: "the size of a list, all pages together"},
		{key: "limits.list_pages", flag: "max-list-pages", at: &limits.ListPages, def: "1000", usage: "the pages of a list"},
		{key: "limits.in_flight", flag: "max-in-flight", at: &limits.InFlight, def: "256", usage: "requests of one session at a time"},
		{key: "limits.queue", flag: "max-queue", at: &limits.Queue, def: "64", usage: "calls that wait for one run's turn"},
		{key: "limits.registers", flag: "max-registers", at: &limits.Registers, def: "256KiB", usage: "what the registers of one run may hold"},
		{key: "limits.subscriptions", flag: "max-subscriptions", at: &limits.Subscriptions, def: "1000", usage: "resource subscriptions of one session"},
		{key: "limits.outbound", flag: "max-outbound", at: &limits.Outbound, def: "4MiB", usage: "what may wait for a client on one stream before the stream closes"},
		{key: "limits.resume", flag: "max-resume", at: &limits.Store, def: "1MiB", usage: "what a session keeps for streams that are resumed"},
		{key: "limits.resume_time", flag: "resume-time", at: &limits.StoreTime, def: "1m", usage: "how long a session keeps what streams may resume"},
		{key: "limits.connections", flag: "max-connections", at: &limits.Connections, usage: "connections of clients at a time (default what the limits on open files and memory leave, at most 65536)"},
		{key: "limits.connections_per_address", flag: "max-connections-per-address", at: &limits.ConnectionsPerAddress,
			usage: "of them, those of one remote address that carried no request which was let in (default half of all; loopback and --trusted-proxies: all)"},
		{key: "limits.header", flag: "max-header", at: &limits.Header, def: "32KiB", usage: "the size of a request's headers"},
		{key: "limits.header_timeout", flag: "header-timeout", at: &limits.HeaderTimeout, def: "10s", usage: "how long a request may take to arrive: its headers, and a body of up to 64 KiB"},
		{key: "limits.depth", flag: "max-depth", at: &limits.Depth, def: strconv.Itoa(wire.MaxDepth), usage: "how deeply a message from a client may nest"},
		{key: "limits.batch", flag: "max-batch", at: &limits.Batch, def: strconv.Itoa(wire.MaxBatch), usage: "the messages of a JSON-RPC batch"},
		{key: "limits.sessions", flag: "max-sessions", at: &limits.Sessions, usage: "sessions at a time (default 10000, or --max-upstreams where each has a process)"},
		{key: "limits.sessions_per_address", flag: "max-sessions-per-address", at: &limits.SessionsPerAddress, usage: "sessions of one remote address that is not loopback (default half of all)"},
		{key: "limits.sessions_per_principal", flag: "max-sessions-per-principal", at: &limits.SessionsPerPrincipal, usage: "sessions of one principal, where clients are told apart (default half of all)"},
		{key: "limits.requests", flag: "max-requests", at: &limits.Requests, def: "10000", usage: "requests without a session at a time; one remote address that is not loopback may have half"},
		{key: "limits.listen_streams", flag: "max-listen-streams", at: &limits.Listens, def: "10000", usage: "subscriptions/listen streams at a time; one remote address that is not loopback may have half"},
		{key: "limits.upstreams", flag: "max-upstreams", at: &limits.Processes, def: "64", usage: "processes of the wrapped server at a time"},
		{key: "limits.session_idle", flag: "session-idle", at: &limits.Idle, def: "1h", usage: "after how long without a request a session ends"},
		{key: "limits.session_unused", flag: "session-unused", at: &limits.Unused, def: "1m", usage: "how long a session may take from initialize to its next request"},
		{key: "limits.write_timeout", flag: "write-timeout", at: &limits.WriteTimeout, def: "30s", usage: "how long a client may take to accept what is written"},
	}
}

// A group is a mapping of keys that belong together.
type group struct {
	title    string // of its flags in a help
	doc      string
	required []string            // keys without which the group means nothing
	needs    map[string][]string // keys that belong to another one
	oneOf    []string            // exactly one of these
}

// groups are what is said of each group beside its keys.
var groups = map[string]group{
	"listen":     {title: "HTTP, with --listen", doc: "The address for clients. Left out, or without an address, the one client is at standard input and output."},
	"listen.tls": {doc: "Serve https. Changed files are followed, for new connections.", required: []string{"cert", "key"}},
	"upstream": {
		title: "The wrapped server",
		doc: "The wrapped server: a command, or a URL, with what belongs to it. " +
			"A server on the command line, or in FSM_PROXY_UPSTREAM, takes the place of all of it.",
		oneOf: []string{"command", "url"},
		needs: map[string][]string{
			"env": {"command"}, "pass_env": {"command"}, "ping": {"command"},
			"headers": {"url"}, "bearer_file": {"url"}, "oauth": {"url"}, "sse": {"url"},
		},
	},
	"upstream.oauth": {doc: "OAuth client credentials for the URL.", required: []string{"client_id", "client_secret_file"}},
	"runs":           {title: "Runs", doc: "How requests find their run, and how long runs live that are found by a key."},
	"store":          {title: "The store", doc: "Where runs are kept, so that they go on after a restart.", required: []string{"url"}},
	"record":         {title: "The store", doc: "What is written down of the arguments of calls."},
	"timeouts":       {title: "Timeouts", doc: "How long things may take."},
	"limits":         {title: "Limits", doc: "What clients and servers can take, all of it refused clearly. Sizes are bytes, or written with KiB, MiB, GiB."},
	"health":         {title: "Operators", doc: "The address for probes and metrics: /livez, /readyz, /startupz, /metrics."},
	"telemetry":      {title: "Audit", doc: "Who is told what is decided, beside the log. Metrics belong to health, and traces are configured by the OTEL_ variables."},
	"approvals":      {title: "Approvals", doc: "Who is told that a call waits for an approval."},
	"admin":          {title: "Operators", doc: "The address for operators."},
	"reload":         {title: "Reload", doc: "How what is in force follows the files it came from."},
	"log":            {doc: "How much is logged to standard error, and in which form."},
}

// Keys returns the path of each key by the flag that it stands for.
func Keys() map[string]string {
	paths := make(map[string]string, len(keys))
	for _, k := range keys {
		if k.flag != "" {
			paths[k.flag] = k.key
		}
	}
	return paths
}

// find returns the setting of a flag.
func find(flag string) (k setting, ok bool) {
	i := slices.IndexFunc(keys, func(k setting) bool { return k.flag == flag && flag != "" })
	if i < 0 {
		return setting{}, false
	}
	return keys[i], true
}

// Written is how the file says what a flag says with a value, its path in front; "" where no
// key stands for the flag.
func Written(flag, value string) string {
	k, ok := find(flag)
	switch {
	case !ok:
		return ""
	case k.of().many:
		return k.key + ": [" + value + "]"
	}
	return k.key + ": " + value
}

// placeholder is the name of a flag's value within its usage.
var placeholder = regexp.MustCompile("`[^`]+`")

// about says what a key is for: what its flag is for, less what is built in, as a sentence.
func (k setting) about() string {
	if k.doc != "" {
		return k.doc
	}
	usage, _, _ := strings.Cut(k.usage, " (default")
	text := placeholder.ReplaceAllStringFunc(usage, func(name string) string { return strings.ToLower(strings.Trim(name, "`")) })
	return strings.ReplaceAll(strings.ToUpper(text[:1])+text[1:], "\n", " ") + "."
}

// of is how the file has a setting.
func (k setting) of() kind {
	if k.kind.read != nil {
		return k.kind
	}
	switch k.at.(type) {
	case *bool:
		return boolean
	case *int:
		if k.zero {
			return count
		}
		return number
	case *service.Size:
		return size
	case *time.Duration:
		return duration
	case *[]string:
		return list
	}
	return text
}

type (
	field  = strictyaml.Field[reading]
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
		rest, ok := beneath(k.key, parent)
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

func keyField(name string, k setting) field {
	return field{Name: name, Doc: k.about(), Schema: k.of().schema,
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
