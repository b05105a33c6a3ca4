package wire

import "slices"

// Era is which of the two ways of MCP a message goes.
type Era uint8

const (
	// Legacy are the revisions up to 2025-11-25: initialize, sessions.
	Legacy Era = iota
	// Modern is 2026-07-28: no handshake and no session, each request says in its
	// _meta what it needs to be understood.
	Modern
)

// String names the era in one word.
func (e Era) String() string {
	if e == Modern {
		return "modern"
	}
	return "legacy"
}

// ModernRevision is the revision of the modern era, LatestLegacy the newest of the
// legacy era.
const (
	ModernRevision = "2026-07-28"
	LatestLegacy   = "2025-11-25"
)

var legacyRevisions = []string{"2024-11-05", "2025-03-26", "2025-06-18", LatestLegacy}

// LegacyRevisions are those of the legacy era, oldest first.
func LegacyRevisions() []string { return slices.Clone(legacyRevisions) }

// IsLegacyRevision reports whether a revision is one of the legacy era.
func IsLegacyRevision(revision string) bool { return slices.Contains(legacyRevisions, revision) }

// Members of _meta (2026-07-28, basic/index, "_meta").
const (
	metaPrefix       = "io.modelcontextprotocol/"
	MetaVersion      = metaPrefix + "protocolVersion"
	MetaCapabilities = metaPrefix + "clientCapabilities"
	MetaClientInfo   = metaPrefix + "clientInfo"
	MetaServerInfo   = metaPrefix + "serverInfo"
	MetaLogLevel     = metaPrefix + "logLevel"
	MetaSubscription = metaPrefix + "subscriptionId"
	// MetaRun carries a run's handle, in place of an argument.
	MetaRun = "fsm-proxy/run"
)

// What a result of the modern era can be (2026-07-28, basic/index, "ResultType").
const (
	ResultComplete      = "complete"
	ResultInputRequired = "input_required"
	ResultTask          = "task" // of the tasks extension
)

// ModernParams is what _meta of a request says in the modern era. Strings are
// empty where the member is absent or not a string, and the Span says which.
type ModernParams struct {
	Version, LogLevel, Run       string
	VersionAt, LogLevelAt, RunAt Span
	Capabilities, ClientInfo     Span
	Subscription                 Span // subscriptionId of a notification
}

// Era is the era of a request or a notification by what it carries: modern iff
// _meta has a protocol version.
func (m *Message) Era() Era {
	if m.P.Modern != nil && m.P.Modern.VersionAt.Present() {
		return Modern
	}
	return Legacy
}

// Principal is who is asking, as authentication has found out. The zero value is
// nobody: all who are not told apart. It is comparable.
type Principal struct {
	Issuer  string // who vouches for the subject
	Subject string // who it is to the issuer
}

// BearerIssuer is the issuer of all who have the one token of a bearer file: they
// are one principal.
const BearerIssuer = "bearer-file"

// Known reports whether it is anybody.
func (p Principal) Known() bool { return p != Principal{} }

// Shared reports whether several clients may be it, who know no secret of each other.
func (p Principal) Shared() bool { return p.Issuer == BearerIssuer }

// ServerInfo is how a server introduces itself in a result: in its answer to
// initialize, or in _meta in the modern era. Nil where it does not.
func (m *Message) ServerInfo() (info []byte) {
	if info = Member(m.Bytes(m.R.Meta), MetaServerInfo); info == nil {
		info = Member(m.Bytes(m.Result), "serverInfo")
	}
	return info
}
