package proxy

import (
	"bytes"
	"context"
	"sync"

	"github.com/yosida95/uritemplate/v3"

	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// view is what an upstream offers of one kind: the list, and for resources the
// templates that may serve URIs that are not listed.
type view struct {
	list      *wire.List
	templates *wire.List // nil but for resources
}

// list answers a list request from the cached bytes.
func (c *call) list(k wire.ListKind) wire.Pending {
	h := c.s.hello.Load()
	if !h.lists[k] && k == wire.Tools && c.s.p.handles != nil && c.modern() {
		return c.result(c.s.give(view{list: noTools}, k, c.dress()))
	}
	if !h.lists[k] {
		return c.fail(wire.CodeMethodNotFound, "the upstream server offers no "+k.String())
	}
	if c.m.P.Cursor != "" {
		return c.fail(wire.CodeInvalidParams, "unknown cursor: the whole list comes in one page")
	}
	c.s.listed(k)
	if conn := c.s.link.live(); conn != nil {
		if v, ok := c.s.cached(conn, k); ok {
			return c.result(c.s.give(v, k, c.dress()))
		}
	}
	return c.later(func() { c.listFetched(k) })
}

func (c *call) listFetched(k wire.ListKind) {
	conn, err := c.connect()
	var v view
	if err == nil {
		v, err = c.view(conn, k)
	}
	if err != nil {
		c.blame(Fault{Code: policy.UpstreamUnavailable})
		c.fail(wire.CodeInternal, "listing "+k.String()+" of the upstream: "+c.s.p.endedBy(err).Error())
		return
	}
	c.result(c.s.give(v, k, c.dress()))
}

// view is fetch for the call, which waits for it.
func (c *call) view(conn Upstream, k wire.ListKind) (view, error) {
	defer c.waiting()()
	return c.s.fetch(conn, k)
}

// give renders a view for the client, and remembers what it was given.
func (s *session) give(v view, k wire.ListKind, d dress) []byte {
	s.mu.Lock()
	s.refreshes[k].shown = v
	s.mu.Unlock()
	at := s.run.where()
	return s.rendered(v, policyKind(k), at, s.p.pinsIn(at), d)
}

// templates refuses what a finite automaton cannot bind.
func (c *call) templates() wire.Pending {
	if c.s.policyNow().Templates() == policy.TemplatesEmpty {
		return c.result(c.s.forEra([]byte(`{"resourceTemplates":[]}`)))
	}
	if c.opaquely() {
		return c.fail(wire.CodeMethodNotFound, "resource templates are not offered here. Use resources/list")
	}
	return c.fail(wire.CodeMethodNotFound, "resource templates are not offered: a policy binds concrete URIs. "+
		"Use resources/list; to answer this request with an empty list, set 'templates: empty' in the policy")
}

// show renders a view as the session sees it now.
func (s *session) show(v view, k wire.ListKind) []byte {
	at := s.run.where()
	return s.rendered(v, policyKind(k), at, s.p.pinsIn(at), s.dress())
}

// rendered is a view as the session would see it in a snapshot of its run, with the pins
// that hold there.
func (s *session) rendered(v view, k policy.Kind, at run.Snapshot, pins *pins, d dress) []byte {
	if s.era == wire.Modern {
		return s.p.shown.result(v, k, at, pins, s.static(), d, s.forEra)
	}
	return s.p.shown.result(v, k, at, pins, s.static(), d, nil)
}

// forEra is a result of the proxy's own that may be kept, as a client of the
// session's era reads it.
func (s *session) forEra(result []byte) []byte {
	if s.era == wire.Legacy {
		return result
	}
	return s.modernResult(result, s.freshList())
}

func (s *session) static() bool {
	h := s.hello.Load()
	return h != nil && h.static
}

// needsTemplates reports whether a policy binds URIs that the upstream does not
// list, so that its templates matter.
func needsTemplates(p *policy.Policy, k wire.ListKind, l *wire.List) bool {
	if k != wire.Resources || p == nil {
		return false
	}
	for _, uri := range p.Exact(policy.Resource) {
		if !l.Has(uri) {
			return true
		}
	}
	return false
}

// cached returns the view of a kind if it is at hand.
func (s *session) cached(conn Upstream, k wire.ListKind) (v view, ok bool) {
	if v.list = conn.Cached(k); v.list == nil {
		return v, false
	}
	if needsTemplates(s.policyNow(), k, v.list) {
		v.templates = conn.Cached(wire.Templates)
		return v, v.templates != nil
	}
	return v, true
}

// fetch returns the view of a kind, from the upstream if need be.
func (s *session) fetch(conn Upstream, k wire.ListKind) (v view, err error) {
	ctx, stop := s.p.drain.listContext(s.p.cfg.CallTimeout)
	defer stop()
	return s.fetchUntil(ctx, conn, k)
}

func (s *session) fetchUntil(ctx context.Context, conn Upstream, k wire.ListKind) (v view, err error) {
	if v.list, err = conn.List(ctx, k); err != nil {
		return v, err
	}
	if n := v.list.Unnamed; n > 0 {
		s.log.Warn("items without a single name are hidden", "list", k.String(), "count", n)
	}
	if needsTemplates(s.policyNow(), k, v.list) {
		v.templates, err = conn.List(ctx, wire.Templates)
	}
	if err == nil {
		s.p.notice(k, v)
	}
	return v, err
}

var gatedLists = [...]wire.ListKind{wire.Tools, wire.Resources, wire.Prompts}

// atHand reports whether all that a refusal names is cached.
func (s *session) atHand(conn Upstream) bool {
	h := s.hello.Load()
	for _, k := range gatedLists {
		if !h.lists[k] {
			continue
		}
		if _, ok := s.cached(conn, k); !ok {
			return false
		}
	}
	return true
}

// fetchAll is the session's for the call, which waits for it.
func (c *call) fetchAll(conn Upstream) {
	defer c.waiting()()
	c.s.fetchAll(conn)
}

// fetchAll gets what a refusal or an annotation names. It waits no longer than a
// refusal may.
func (s *session) fetchAll(conn Upstream) {
	ctx, stop := context.WithTimeout(s.p.drain.lasting, s.p.cfg.CancelGrace)
	defer stop()
	h := s.hello.Load()
	for _, k := range gatedLists {
		if h.lists[k] {
			if _, err := s.fetchUntil(ctx, conn, k); err != nil {
				s.log.Warn("listing what could be named", "list", k.String(), "error", err)
			}
		}
	}
}

// lastKnown returns the view of a kind without waiting: the one at hand, or else
// the one that the client was given last. The list is nil where there is neither.
func (s *session) lastKnown(k wire.ListKind) view {
	if conn := s.link.live(); conn != nil {
		if v, ok := s.cached(conn, k); ok {
			return v
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refreshes[k].shown
}

// names returns what is listed and allowed in a snapshot, in the upstream's order;
// by the policy alone where no list is known.
func (s *session) names(at run.Snapshot, k policy.Kind) (names []string) {
	v := s.lastKnown(listKind(k))
	if v.list == nil {
		return at.Exact(k)
	}
	drift, misfits := s.p.pinsIn(at).drift(v.list), s.misfits(v.list)
	own := k == policy.Tool && s.dress().again && at.MayRestart()
	for _, item := range v.list.Items {
		if own && item.Name == handle.StartName {
			continue // the proxy's has the name
		}
		if at.Visible(k, item.Name) && drift.Of(item.Name) == nil && misfits[item.Name] == handle.Fits {
			names = append(names, item.Name)
		}
	}
	v.served(at.Exact(k), func(uri string, _ []byte) { names = append(names, uri) })
	return names
}

// served calls f for each URI that is not listed but that a template serves,
// with an item made of the template's metadata.
func (v view) served(uris []string, f func(uri string, item []byte)) {
	if v.templates == nil {
		return
	}
	for _, uri := range uris {
		if v.list.Has(uri) {
			continue
		}
		if item := fromTemplate(v.templates, uri); item != nil {
			f(uri, item)
		}
	}
}

// fromTemplate makes the item of a URI from the first template that serves it.
func fromTemplate(templates *wire.List, uri string) []byte {
	for _, t := range templates.Items {
		tmpl, err := uritemplate.New(t.Name)
		if err != nil || tmpl.Match(uri) == nil {
			continue
		}
		return wire.Pick(t.Raw, func(name string, value []byte) []byte {
			if name == "uriTemplate" {
				return nil
			}
			return value
		})
	}
	return nil
}

// renderings caches list results: they are the same for every run that is in
// the same place over the same upstream lists. It is safe for concurrent use.
type renderings struct {
	opaque bool // descriptions name no states

	mu    sync.Mutex // guards what follows
	bytes map[rendering][]byte
	size  int
}

// maxRendered bounds the cached bytes.
const maxRendered = 64 << 20

type rendering struct {
	list, templates [32]byte
	at              run.Snapshot
	pins            *pins
	kind            policy.Kind
	static, modern  bool
	dress           dress
}

// result renders a view, tools in their dress. era, where there is one, puts the fields of the modern era
// into what was rendered.
func (r *renderings) result(v view, k policy.Kind, at run.Snapshot, pins *pins, static bool, d dress, era func([]byte) []byte) []byte {
	if at.Shadow || k != policy.Tool {
		d = dress{}
	}
	switch {
	case at.Shadow:
		at, pins, static = run.Snapshot{Shadow: true}, nil, false
	case static:
		at = run.Snapshot{Policy: at.InForce()}
	}
	key := rendering{list: v.list.Digest, at: at, pins: pins, kind: k, static: static, modern: era != nil, dress: d}
	if v.templates != nil {
		key.templates = v.templates.Digest
	}
	r.mu.Lock()
	out, ok := r.bytes[key]
	r.mu.Unlock()
	if ok {
		return out
	}
	if static {
		out = v.renderStatic(k, at, pins.drift(v.list), d, !r.opaque)
	} else {
		out = v.render(k, at, pins.drift(v.list), d)
	}
	if era != nil {
		out = era(out)
	}
	r.keep(key, out)
	return out
}

// forget drops all renderings: those of policies that came and went would keep
// them in memory.
func (r *renderings) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes, r.size = nil, 0
}

func (r *renderings) keep(key rendering, out []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes == nil {
		r.bytes = make(map[rendering][]byte)
	}
	for old, b := range r.bytes {
		if r.size+len(out) <= maxRendered {
			break
		}
		r.size -= len(b)
		delete(r.bytes, old)
	}
	if _, there := r.bytes[key]; !there {
		r.size += len(out)
	}
	r.bytes[key] = out
}

// render filters a list.
func (v view) render(k policy.Kind, at run.Snapshot, drift *lock.Drift, d dress) []byte {
	d.again = d.again && at.MayRestart()
	items := d.own(at.At.Complete)
	for _, item := range v.list.Items {
		if at.Visible(k, item.Name) && drift.Of(item.Name) == nil {
			items = d.append(items, item)
		}
	}
	v.served(at.Exact(k), func(uri string, item []byte) { items = append(items, withURI(item, uri)) })
	return v.list.Result(items)
}

// renderStatic is the one list of the static surface: all that a policy binds
// anywhere. tells puts where that is allowed at the end of every description.
func (v view) renderStatic(k policy.Kind, at run.Snapshot, drift *lock.Drift, d dress, tells bool) []byte {
	p := at.Policy
	d.again = d.again && at.MayRestart()
	items := d.own(d.again)
	for _, item := range v.list.Items {
		if in := p.BoundIn(k, item.Name, true); len(in) > 0 && drift.Of(item.Name) == nil {
			if tells {
				item.Raw = describe(item.Raw, whereAllowed(p, in))
			}
			items = d.append(items, item)
		}
	}
	v.served(p.Exact(k), func(uri string, item []byte) {
		item = withURI(item, uri)
		if tells {
			item = describe(item, whereAllowed(p, p.BoundIn(k, uri, false)))
		}
		items = append(items, item)
	})
	return v.list.Result(items)
}

// withURI puts the URI into an item made from a template.
func withURI(item []byte, uri string) []byte {
	return wire.Splice(item, wire.Edit{At: wire.Span{Start: 1, End: 1}, With: uriMember(uri, len(item) > 2)})
}

func uriMember(uri string, more bool) []byte {
	out := wire.AppendString([]byte(`"uri":`), uri)
	if more {
		out = append(out, ',')
	}
	return out
}

// differs reports whether two snapshots show other bytes of a kind, going by the
// list that is at hand, or else by the one that the client was given last.
func (s *session) differs(from, to run.Snapshot, k wire.ListKind) bool {
	static := s.static()
	if k == wire.Tools && s.dress().again && from.At.Complete != to.At.Complete && !static {
		return true
	}
	if static && from.Shadow == to.Shadow && from.InForce() == to.InForce() || !static && !from.Differs(to, policyKind(k)) {
		return false
	}
	return s.shows(k, from, s.p.pinsIn(from), to, s.p.pinsIn(to))
}

// shows reports whether a session is shown other bytes of a kind in one snapshot, with
// some pins, than in another with others.
func (s *session) shows(k wire.ListKind, from run.Snapshot, was *pins, to run.Snapshot, is *pins) bool {
	v, kind := s.lastKnown(k), policyKind(k)
	if v.list == nil || v.lacksTemplates(from, k) || v.lacksTemplates(to, k) {
		return true
	}
	d := s.dress()
	return !bytes.Equal(s.rendered(v, kind, from, was, d), s.rendered(v, kind, to, is, d))
}

// lacksTemplates reports whether what is shown in a snapshot hangs on templates that
// the view is without.
func (v view) lacksTemplates(at run.Snapshot, k wire.ListKind) bool {
	return v.templates == nil && !at.Shadow && (needsTemplates(at.Policy, k, v.list) || needsTemplates(at.InForce(), k, v.list))
}

func policyKind(k wire.ListKind) policy.Kind {
	switch k {
	case wire.Resources:
		return policy.Resource
	case wire.Prompts:
		return policy.Prompt
	}
	return policy.Tool
}
