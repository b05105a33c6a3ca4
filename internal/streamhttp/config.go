package streamhttp

import (
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// PeerInfo is what is known of a client when its session begins, or with its
// request.
type PeerInfo struct {
	// Session is the session's name in the log. It is no secret, other than the
	// session's id.
	Session string
	// ID is the session's id, a secret, where it is to be begun or gone on with. Nobody else is told of it.
	ID string
	// RemoteAddr is the address the request came from, "host:port".
	RemoteAddr string
	// Run is the run that the path names, "" for none.
	Run string
	// Header are the headers of the initialize request. They must not be
	// changed.
	Header http.Header
	// Principal is who is asking, as [ServerConfig.Authenticate] has found out, by name.
	Principal wire.Principal

	who    *asker.Who // with all that is known of it; nil: nobody is known
	passed bool       // another process has passed the request on

	until time.Time // see [wire.HurriedStream]
}

// ServerConfig configures a [Server]. But for Open and Modern, of which one is
// needed, zero values are good ones.
type ServerConfig struct {
	// Open begins the session of a client that sends initialize. own carries
	// what belongs to no request: it goes out on the session's GET stream and
	// waits, up to Store bytes, while there is none. Open must not block. Its error
	// tells the client why it gets no session; a [NotNowError] has it try again. Nil: there are no sessions, and none
	// of the legacy era's requests are served.
	Open func(own wire.Stream, info PeerInfo) (wire.Session, error)
	// Resume goes on with a session, by from.ID, that there is not any more since the server was started anew, and has
	// it negotiated; own is as for Open. It may block. Nil, or a nil session without an error: it has ended. The error
	// is why it cannot go on just now, which is for whoever returns it to log: the client is told to try again, and nothing else.
	Resume func(own wire.Stream, from PeerInfo) (wire.Session, error)
	// Unanswered is the answer to a request by its id that was under way when Resume went on with its session: its client
	// comes back for it. Nil: who does is refused.
	Unanswered func(id []byte) []byte
	// Modern takes a request or a notification of the modern era, as
	// [wire.Session].Handle does; from has no Session. out is a
	// [wire.FailingStream] of a request. What it returns, if it is a
	// [wire.Cancellable], is cancelled when the client closes its response. Nil:
	// the era is not served, so that clients of both fall back to sessions.
	Modern func(m *wire.Message, out wire.Stream, from PeerInfo) wire.Pending
	// PassOn serves a request, whole, in another process, and answers it: one of which Open or Resume returns a
	// [wire.ElsewhereError], or whose stream is moved ([wire.MovingStream]). again says that nothing was written,
	// and that the request is to be tried here once more; who passes on bounds how often. The context of r ends
	// when the client goes, and that of a stream without an end (GET, subscriptions/listen) with the server. Nil:
	// such an error is any error, and no stream is moved.
	PassOn func(w http.ResponseWriter, r *http.Request, p Passed) (again bool)
	// Path is the path served, all others are not found; "": "/mcp".
	Path string
	// Runs says that PATH/runs/ID is served as well, for each ID: see PeerInfo.Run.
	Runs bool
	// Key is what else a session goes by than its id, its URL and its principal: a
	// request that has not the one that its session was begun with finds no session.
	// Nil: nothing.
	Key func(from PeerInfo) string
	// Loopback says that the server listens on a loopback address: then Host
	// must be a loopback name or address, or one of AllowedHosts, and an
	// Origin must be one of this machine or of AllowedOrigins. Otherwise
	// Host is checked only where there are AllowedHosts.
	Loopback bool
	// AllowedHosts are names ("example.com": any port) or names with a port.
	AllowedHosts []string
	// AllowedOrigins are web origins, "https://example.com".
	AllowedOrigins []string
	// Public answers requests that anybody may make, and reports whether it was one;
	// Host and Origin are looked at before. Nil: there are none.
	Public func(w http.ResponseWriter, r *http.Request) bool
	// Authenticate finds out who is asking, for each request. Where nobody is let in
	// it answers the request, having told whom Refused tells, and returns false. A
	// session belongs to the principal that began it, whatever else is known of it: to all
	// others it is not there. What it finds out is for this request alone.
	// Nil: everybody is let in, and nobody told apart.
	Authenticate func(w http.ResponseWriter, r *http.Request) (who *asker.Who, ok bool)

	// Refused is told of a request that is refused before any session sees what it says,
	// with the status of the answer, which it may hold up; nil: nobody is. The request must
	// not be changed.
	Refused func(why Reason, status int, r *http.Request)

	// Polls reports whether what is behind may end a request's stream before its
	// answer, for clients to come back: then the rest of a request of 2025-11-25 waits
	// on a goroutine of its own, so that its response can end likewise: see
	// [wire.Pauser]. Nil: it never does.
	Polls func() bool

	// MaxMessage is how many bytes a request body may have; 0: 4 MiB.
	MaxMessage int
	// Bodies bounds what the bodies of requests take, of all servers that have it; nil:
	// 64 MiB for this one. Who may have all sessions (Share, PrincipalShare) may have
	// all of it, others half.
	Bodies *httpserver.BodyBudget
	// Limits bound what a message may hold; zero values are wire's.
	Limits wire.Limits
	// Queue is how many bytes may wait for a client on one stream, beyond
	// which the stream closes; 0: 4 MiB.
	Queue int
	// Store is how many bytes a session keeps for streams to be resumed;
	// 0: 1 MiB. StoreTime is for how long; 0: 60 s. StoreTotal is how many all
	// sessions keep together, before those that keep the most forget their oldest;
	// 0: 64 MiB.
	Store, StoreTotal int
	StoreTime         time.Duration
	// Sessions is how many sessions there may be at a time; 0: 10,000.
	Sessions int
	// Share is how many of them one remote address (IPv6: one /64 network)
	// may have, so that a flood locks out itself; 0: half of them. Loopback
	// addresses, behind which many clients or a whole proxy may stand, may
	// have all.
	Share int
	// PrincipalShare is how many of them one principal may have; 0: half of them.
	// Who may have half may have half of the requests under way as well, and who may
	// have all may have all of those.
	PrincipalShare int
	// Requests is how many requests of the modern era may be under way at a time,
	// and Listens how many subscriptions/listen streams besides; 0: 10,000. One
	// remote address, counted as with Share, may have half of them.
	Requests, Listens int
	// Idle is after how long without a request, a running call or a GET
	// stream a session ends; 0: 1 h.
	Idle time.Duration
	// Unused is how long a session may take from initialize to the next
	// request; 0: 60 s.
	Unused time.Duration
	// Patience is after how long without an answer a POST becomes an event
	// stream, where the client takes one, so that nothing on the way times
	// out and the client can resume it; 0: 2 s.
	Patience time.Duration
	// KeepAlive is how long an event stream may be silent; 0: 25 s.
	KeepAlive time.Duration
	// Log gets what an operator may want to know; nil: nothing is logged.
	// Session ids are logged as the first 8 hex digits of their SHA-256.
	Log hclog.Logger
}

func (c *ServerConfig) tell(why Reason, status int, r *http.Request) {
	if c.Refused != nil {
		c.Refused(why, status, r)
	}
}

func (c *ServerConfig) fill() {
	if c.Path == "" {
		c.Path = "/mcp"
	}
	orElse(&c.MaxMessage, 4<<20)
	orElse(&c.Queue, 4<<20)
	orElse(&c.Store, 1<<20)
	orElse(&c.StoreTotal, 64<<20)
	orElse(&c.StoreTime, time.Minute)
	orElse(&c.Sessions, 10_000)
	orElse(&c.Share, half(c.Sessions))
	orElse(&c.PrincipalShare, half(c.Sessions))
	orElse(&c.Requests, 10_000)
	orElse(&c.Listens, 10_000)
	orElse(&c.Idle, time.Hour)
	orElse(&c.Unused, time.Minute)
	orElse(&c.Patience, 2*time.Second)
	orElse(&c.KeepAlive, 25*time.Second)
	if c.Bodies == nil {
		c.Bodies = httpserver.NewBodyBudget(0)
	}
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
}

func orElse[T int | time.Duration](value *T, def T) {
	if *value <= 0 {
		*value = def
	}
}

func half(n int) int { return (n + 1) / 2 }

// ofPrincipal is how many of limit one principal may have.
func (c *ServerConfig) ofPrincipal(limit int) int {
	if c.PrincipalShare >= c.Sessions {
		return limit
	}
	return half(limit)
}

// NotNowError is why a session cannot begin just now, in words for its client: it can later.
type NotNowError struct{ Text string }

func (e *NotNowError) Error() string { return e.Text }

// Reason is why a request was refused before any session saw what it says.
type Reason uint8

// The reasons.
const (
	ReasonHost          Reason = iota // its Host is not served
	ReasonOrigin                      // its Origin is not
	ReasonBearerMissing               // it has no bearer token
	ReasonBearerWrong                 // it has one that is not accepted
	ReasonScope                       // it has one that does not reach as far as here
	ReasonCertificate                 // its certificate is not accepted
	ReasonUnverified                  // it has one that cannot be looked at: the issuer's keys are not known yet
	ReasonSession                     // it names a session that there is not
	ReasonUnavailable                 // it is of a session that cannot be had, or ended, just now
	ReasonNoSession                   // it names no session, and begins none
	ReasonNoRun                       // its initialize lacks what its run is found by
	ReasonCrowded                     // there are too many sessions, requests under way, or bytes of bodies, for another one
	ReasonMessage                     // it belongs to no session, and cannot be read, or lacks what it must have
	ReasonHeader                      // its header does not fit its body (modern era), or its session
	ReasonTooLarge                    // its body is larger than a message may be
	ReasonMedia                       // it is no JSON, or takes neither JSON nor event streams
	ReasonPath                        // nothing is served at its path
	ReasonVersion                     // it is of a revision that is not spoken
	ReasonMethod                      // its HTTP method is not served
	ReasonEnding                      // the server is ending
)

// reasons are a word for each reason, and words for an operator, with what to do.
var reasons = [...]struct{ word, text string }{
	ReasonHost:          {"host_not_allowed", "its Host is not served here; --allowed-host allows one"},
	ReasonOrigin:        {"origin_not_allowed", "its Origin is not served here; --allowed-origin allows one"},
	ReasonBearerMissing: {"bearer_missing", "it has no bearer token"},
	ReasonBearerWrong:   {"bearer_wrong", "its bearer token is not accepted"},
	ReasonScope:         {"scope_missing", "its access token has not the scope, or the audience, for this URL"},
	ReasonCertificate:   {"certificate_wrong", "it has no client certificate that is accepted"},
	ReasonUnverified:    {"keys_unavailable", "its access token cannot be verified yet: the issuer's keys have not come"},
	ReasonSession:       {"session_unknown", "there is no such session: it has ended, was begun at another process, or is somebody else's; clients begin a new one"},
	ReasonUnavailable:   {"session_unavailable", "its session cannot be had, or ended, just now: the store (--store) is away or full, or the server behind the proxy is away; another line says why, and clients try again"},
	ReasonNoSession:     {"session_missing", "it names no session and is no initialize: its client has lost the Mcp-Session-Id, or speaks a revision that --protocol leaves out"},
	ReasonNoRun:         {"session_refused", "its initialize lacks what finds its run (--run-key); another line says what"},
	ReasonCrowded:       {"sessions_full", "there is no room for it: too many sessions, requests or bytes of bodies"},
	ReasonMessage:       {"message_unreadable", "its body is no message that can be read, or lacks what one must have; its client was told what"},
	ReasonHeader:        {"header_mismatch", "its header contradicts its body or its session"},
	ReasonTooLarge:      {"body_too_large", "its body is larger than a message may be; --max-message raises that"},
	ReasonMedia:         {"media_type", "its Content-Type, Content-Encoding or Accept is none that is served"},
	ReasonPath:          {"path_unknown", "nothing is served at its path; MCP is served at /mcp, or where --path says"},
	ReasonVersion:       {"version_unsupported", "it is of a revision that is not spoken here; --protocol says which are"},
	ReasonMethod:        {"method_not_allowed", "its HTTP method is none that is served: POST, and with a session GET and DELETE"},
	ReasonEnding:        {"ending", "the proxy is ending"},
}

// String is the reason in a word.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r].word
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Text is the reason in words, for an operator.
func (r Reason) Text() string {
	if int(r) < len(reasons) {
		return reasons[r].text
	}
	return r.String()
}

// Authentication reports whether it was refused for who sends it, or from where.
func (r Reason) Authentication() bool { return r <= ReasonUnverified }
