package admin

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/visible"
)

// Policy is the policy in force, and how it came to be.
type Policy struct {
	Name     string    `json:"name,omitempty"`
	Digest   string    `json:"digest"`
	States   int       `json:"states"`
	Mode     string    `json:"mode"`
	LoadedAt time.Time `json:"loaded_at"`
	Source
	Parts []string `json:"parts,omitempty"` // the files of its parts
	// Configuration is the configuration file, nil where there is none.
	Configuration *Source `json:"configuration,omitempty"`
}

// Source is a file that is followed, and what has become of it since the start.
type Source struct {
	File string `json:"file"`
	// LastReload is the last attempt, nil where there was none.
	LastReload *Reload `json:"last_reload,omitempty"`
	Succeeded  uint64  `json:"reloads_succeeded"`
	Failed     uint64  `json:"reloads_failed"`
}

// Reload is one attempt to put what the file says in force.
type Reload struct {
	At      time.Time `json:"at"`
	Success bool      `json:"success"`
	// Errors say where the file is wrong, as `fsm-proxy check` does.
	Errors []string `json:"errors,omitempty"`
}

// Session is one client. Ids are hashes: with them nobody can act as the client.
type Session struct {
	ID       string  `json:"id"`
	Remote   string  `json:"remote,omitempty"`
	Client   string  `json:"client,omitempty"` // the name that it gave itself
	Version  string  `json:"client_version,omitempty"`
	Protocol string  `json:"protocol_version,omitempty"`
	State    string  `json:"state"`
	Age      float64 `json:"age_seconds"`
	InFlight int     `json:"in_flight"`
	Run      string  `json:"run"`
}

// Run is where one walk through the automaton stands.
type Run struct {
	ID       string     `json:"id"`
	Key      string     `json:"key"`
	Owner    string     `json:"owner,omitempty"`
	Sessions *int       `json:"sessions,omitempty"` // nil: another process has it
	State    string     `json:"state"`
	Complete bool       `json:"complete"`
	Policy   string     `json:"policy_digest"`
	Stranded *time.Time `json:"stranded_since,omitempty"`
	Refused  bool       `json:"refused,omitempty"`
	Shut     bool       `json:"shut,omitempty"` // the store has something else of it than it has confirmed
	TurnHeld bool       `json:"turn_held"`
	Queued   int        `json:"queued"`
	AtRest   bool       `json:"at_rest,omitempty"` // nobody uses it here: it is in the store alone
	Process  string     `json:"process,omitempty"` // which of those that share the store has it; "": none
}

// RunsQuery says which runs are listed.
type RunsQuery struct {
	After         string // the last id of the page before
	Limit         int
	Owner, Issuer string // whose they are, and who says that; "": everybody's
}

// RunDetail is all that there is to see of a run before one decides on it.
type RunDetail struct {
	Run
	// Seq is the number of the last thing that has become of it.
	Seq uint64 `json:"seq"`
	// Registers are what it remembers, an object by their names, and Counts what it has counted.
	Registers json.RawMessage `json:"registers"`
	Counts    json.RawMessage `json:"counts"`
	// Signals are those that an operator may send now.
	Signals []Sendable `json:"signals"`
	// Approvals are the calls that wait for a yes or a no.
	Approvals []Approval `json:"approvals"`
}

// Approval is a call that waits for a yes or a no.
type Approval struct {
	ID        string          `json:"id"`
	Run       string          `json:"run"`
	Seq       uint64          `json:"seq"`
	State     string          `json:"state"`
	Kind      string          `json:"kind"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"` // as they were sent, whole
	Registers json.RawMessage `json:"registers"`
	Who       string          `json:"who,omitempty"` // on whose behalf the call comes
	Message   string          `json:"message,omitempty"`
	Rule      string          `json:"rule"`
	Asked     time.Time       `json:"asked"`
	Expires   time.Time       `json:"expires"`
}

// ApprovalAnswer is what an operator says of a call that waits.
type ApprovalAnswer struct {
	Signal // with what comes with one; Run and Name are empty
	ID     string
	Allow  bool
}

// Approved is an approval that was answered.
type Approved struct {
	ID     string `json:"id"`
	Run    string `json:"run"`
	Name   string `json:"name"`
	Answer string `json:"answer"` // allow, or deny
}

// Sendable is a signal that an operator may send, and where it leads.
type Sendable struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	From        string `json:"from"` // who else may: "agent", or nobody but an "operator"
	To          string `json:"to"`
	Completes   bool   `json:"completes,omitempty"` // the run
}

// Signal is what an operator says to a run.
type Signal struct {
	Run, Name    string
	Note         string
	Seq          *uint64 // of the run, as the operator has seen it; nil: whatever it is
	From, Remote string  // who says it, and from which address
}

// Signalled is where a run stands after a signal.
type Signalled struct {
	ID        string    `json:"id"`
	State     string    `json:"state"`
	Complete  bool      `json:"complete"`
	Restarted bool      `json:"restarted,omitempty"` // the signal completed the run, which began anew
	Seq       uint64    `json:"seq"`
	Next      ValidNext `json:"valid_next"`
}

// ValidNext is what may be sent next.
type ValidNext struct {
	Signals []string `json:"signals"`
}

// Refusal is why nothing was done, and where the run stands, if there is one.
type Refusal struct {
	Status int        `json:"-"` // of HTTP
	Text   string     `json:"error"`
	Code   string     `json:"code"`
	Kind   string     `json:"kind,omitempty"`
	State  string     `json:"state,omitempty"`
	Seq    *uint64    `json:"seq,omitempty"`
	Next   *ValidNext `json:"valid_next,omitempty"`
	Why    error      `json:"-"` // what else there is to know of it, for who passes requests on; nil: nothing
}

// Error is the text.
func (r *Refusal) Error() string { return r.Text }

// Unwrap is why.
func (r *Refusal) Unwrap() error { return r.Why }

// NoApproval is the code of a refusal where no call waits for an approval.
const NoApproval = "approval_not_found"

// Start says which run an operator has begin.
type Start struct {
	Key          string `json:"key"`     // the kind of its key; "": path
	Value        string `json:"value"`   // of header: what the gateway says
	Issuer       string `json:"issuer"`  // whose it is
	Subject      string `json:"subject"` // likewise
	Reason       string `json:"reason"`
	From, Remote string `json:"-"` // who has it begin, "" where nobody knows, and from which address
}

// Started is a run that was begun for an operator.
type Started struct {
	// ID is the secret by which the run is found, of handle and path, and stands in no log. Path is the URL's.
	ID    string `json:"id,omitempty"`
	Path  string `json:"path,omitempty"`
	Key   string `json:"key"`
	Run   string `json:"run"` // the run's id, as operators know it
	State string `json:"state"`
}

// Verb is what an operator has be done to a run.
type Verb struct {
	Run          string
	Text         string // why; of an annotation, what
	From, Remote string // who has it be done, and from which address
}

// Fork says which run an operator has forked, and where.
type Fork struct {
	Verb   `json:"-"`
	At     *uint64 `json:"at"` // the number of the entry; nil: the last one
	Reason string  `json:"reason"`
}

// Forked is a run that was forked of another.
type Forked struct {
	Started
	Seq    uint64 `json:"seq"`
	Parent string `json:"parent"`
	Fork   uint64 `json:"fork"` // the number of the parent's entry
	// Since are the calls of the parent that were not over after that entry: the run does not know of them. More is how many
	// there are beside.
	Since []SentCall `json:"since"`
	More  int        `json:"more,omitempty"`
}

// SentCall is a call that was sent.
type SentCall struct {
	Seq     uint64 `json:"seq"`             // of the entry that tells how it has ended
	Begun   uint64 `json:"begun,omitempty"` // of the one by which it began
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Case    string `json:"case,omitempty"`
	Outcome string `json:"outcome,omitempty"` // "": it is under way
}

// Stands is where a run stands since.
type Stands struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	Complete bool   `json:"complete"`
	Seq      uint64 `json:"seq"`
}

// Released says how many runs a process has given away.
type Released struct {
	Runs int `json:"runs"`
	Stay int `json:"stay"` // in which something is under way or waits for an approval, which are shut, or of which the store could not be told in time
}

// Migrated says what a migration did.
type Migrated struct {
	Runs      int `json:"runs"`
	Restarted int `json:"restarted"`
	Unwritten int `json:"unwritten"` // stranded still: it could not be written, or not in time, that they begin anew
}

// answer answers with a JSON object.
func answer(w http.ResponseWriter, v any) { write(w, http.StatusOK, v) }

// refusal is what is answered in place of what was asked for.
type refusal struct {
	Error string `json:"error"`
}

// refuse answers with what is wrong, and what to do.
func refuse(w http.ResponseWriter, status int, text string) { write(w, status, refusal{text}) }

// write answers with JSON in which nothing is that people do not see: what agents have sent may be in it.
func write(w http.ResponseWriter, status int, v any) {
	var body bytes.Buffer
	out := json.NewEncoder(&body)
	out.SetIndent("", "  ")
	if err := out.Encode(v); err != nil {
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(visible.JSON(body.Bytes())) // whoever has gone needs no answer
}
