package runs

import (
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Beginning says which run somebody has begin before its first client comes.
type Beginning struct {
	Key   string         // the word of its kind
	Value string         // of header: what the gateway says
	Owner wire.Principal // of principal: whose it is; of header, path and handle: who alone may come, zero: who comes first
	By    run.Remark
}

// Why no run is begun for somebody.
var (
	errNoKey       = &Missing{Code: policy.NotAvailable, Text: "No --run-key of this proxy is of that kind: none of its clients would find the run."}
	errOfSession   = &Missing{Code: policy.NotAvailable, Text: "A session's run begins with its session, and with nothing else: have a client begin one."}
	errNoPrincipal = &Missing{Code: policy.NotAvailable, Text: "Whose run it is has to be said: give issuer and subject, as the proxy knows them; of --tokens the issuer is 'tokens'."}
	errNoHeader    = &Missing{Code: policy.NotAvailable, Text: "What the header says has to be said: give a value of 1 to 256 bytes."}
	errNoValue     = &Missing{Code: policy.NotAvailable, Text: "A key of this kind has no value: leave it out."}
	errThere       = &Missing{Code: policy.NotAvailable, Text: "There is such a run, and it has not ended: reset has it begin anew."}
	errUnconfirmed = &Missing{Code: policy.StoreUnavailable, Text: "Whether the run is kept is not known: the store is too slow, or cannot be written."}
)

// StartBy begins a run before its first client comes, and returns it with what finds it where that is a secret. An
// error is a [*Missing].
func (g *Registry) StartBy(b Beginning) (r *Run, secret string, err error) {
	key, id, why := g.keyFor(&b)
	if why != nil {
		return nil, "", why
	}
	at := g.at(key.Kind, id)
	if why := g.lockRead(at); why != nil {
		return nil, "", why
	}
	var w written
	switch {
	case g.found[at] != nil, key.Kind == Process && g.process.Load() != nil:
		why = errThere
	case key.Kind != Process:
		r, w, why = g.beginLocked(key, id, b.Owner, key.Kind != Principal && !b.Owner.Known(), b.By)
	case g.cfg.Store != nil && g.cfg.Store.Down() != nil:
		why = errStore
	default:
		r, w = g.beginProcessLocked(b.By)
	}
	g.mu.Unlock()
	if why == nil {
		why = g.begun(r, w)
	}
	switch {
	case why != nil:
		return nil, "", why
	case key.Kind == Path || key.Kind == Handle:
		return r, id, nil
	}
	return r, "", nil
}

// begun waits until a run that begins is kept, and says why that is not so; nil: it is. One that can never be written has
// not begun: nobody finds it.
func (g *Registry) begun(r *Run, w written) *Missing {
	switch {
	case !g.awaits(w):
		return errUnconfirmed
	case !r.unmade(w):
		return nil
	}
	g.forsake(r)
	return errStore
}

// unmade reports whether what was handed over can never be written; then the run is shut.
func (r *Run) unmade(w written) bool {
	if w.ticket == nil || w.ticket.Err() == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shutLocked(w.ticket.Err())
	return true
}

// keyFor is the key, and what it says, of a run that is to begin.
func (g *Registry) keyFor(b *Beginning) (key Key, id string, why *Missing) {
	kind := kindOf(b.Key)
	key = g.keyOf(kind)
	switch {
	case kind == Session:
		return key, "", errOfSession
	case g.cfg.Keys[0] != key && g.cfg.Keys[1] != key, kind == Default:
		return key, "", errNoKey
	case kind == Header && (b.Value == "" || len(b.Value) > 256):
		return key, "", errNoHeader
	case kind != Header && b.Value != "":
		return key, "", errNoValue
	case kind == Principal && !b.Owner.Known(), (b.Owner.Issuer == "") != (b.Owner.Subject == ""): // nobody is one without the other
		return key, "", errNoPrincipal
	}
	switch kind {
	case Principal:
		id = ofPrincipal(b.Owner)
	case Header:
		id = b.Value
	case Process:
		id = g.cfg.Process
	case Default, Session, Path, Handle:
		id = NewID()
	}
	return key, id, nil
}

// ofPrincipal is what the key principal says of somebody.
func ofPrincipal(who wire.Principal) string { return who.Issuer + "\x00" + who.Subject }
