package admin

import (
	"encoding/json"
	"net/http"
	"time"
)

// Policy is the policy in force, and how it came to be.
type Policy struct {
	Name     string    `json:"name,omitempty"`
	Digest   string    `json:"digest"`
	States   int       `json:"states"`
	Mode     string    `json:"mode"`
	LoadedAt time.Time `json:"loaded_at"`
	Source
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
	Sessions int        `json:"sessions"`
	State    string     `json:"state"`
	Complete bool       `json:"complete"`
	Policy   string     `json:"policy_digest"`
	Stranded *time.Time `json:"stranded_since,omitempty"`
	Refused  bool       `json:"refused,omitempty"`
	TurnHeld bool       `json:"turn_held"`
	Queued   int        `json:"queued"`
}

// Started is a run that was begun for an operator: its id is the secret by which it
// is found, and stands in no log.
type Started struct {
	ID   string `json:"id"`
	Path string `json:"path"`
}

// Restarted says that a run was begun anew.
type Restarted struct {
	ID string `json:"id"`
}

// Migrated says what a migration did.
type Migrated struct {
	Runs      int `json:"runs"`
	Restarted int `json:"restarted"`
}

// answer answers with a JSON object.
func answer(w http.ResponseWriter, v any) { write(w, http.StatusOK, v) }

// refusal is what is answered in place of what was asked for.
type refusal struct {
	Error string `json:"error"`
}

// refuse answers with what is wrong, and what to do.
func refuse(w http.ResponseWriter, status int, text string) { write(w, status, refusal{text}) }

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	_ = out.Encode(v) // whoever has gone needs no answer
}
