package upstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// ListError is an upstream that answered a list request with an error.
type ListError struct {
	Kind wire.ListKind
	// Answer is the upstream's answer: a Failure.
	Answer *wire.Message
}

// Error names the request and the code.
func (e *ListError) Error() string {
	return fmt.Sprintf("reading %s: the upstream answered with error %d", e.Kind.Method(), e.Answer.ErrorCode)
}

const (
	// minTTL is how long a list is kept at least: each call looks at one.
	minTTL = time.Second
	// maxTTL is how long a list is kept at most, however long the upstream says.
	maxTTL = 24 * time.Hour
)

// listCache keeps the snapshot of one kind of list.
type listCache struct {
	kept    atomic.Pointer[snapshot] // nil: there is none; each call reads it, and waits for nobody
	mu      sync.Mutex               // guards what follows, and is held to change what is kept
	current *fetch                   // under way, and begun after the last change
	last    *fetch                   // under way; the newest
}

// snapshot is a list as it was read. It is never changed.
type snapshot struct {
	list *wire.List
	read time.Time
	ttl  time.Duration // how long the upstream says that it may be kept; 0: nothing
}

// fetch is one reading of all pages. list, ttl and err are set when done closes.
type fetch struct {
	done chan struct{}
	list *wire.List
	ttl  time.Duration
	err  error
}

// List returns all that the upstream offers of a kind, from the snapshot where
// there is a valid one. Callers at the same time share one fetch, which goes on
// when a caller's ctx ends. Where the upstream has not advertised the
// capability the list is empty and nothing is asked. The error is a
// [*wire.CallError], a [*ListError], or says what is wrong with the list.
//
// A snapshot is dropped when the upstream says that the list has changed. Where
// it does not promise that, or has no way to say so now (Streamable HTTP
// without a stream of its own), the list is read again after [Config.ListTTL]; where
// the upstream says how long it may be kept (ttlMs), after that time.
func (c *Conn) List(ctx context.Context, kind wire.ListKind) (*wire.List, error) {
	if l := c.Cached(kind); l != nil {
		return l, nil
	}
	f := c.fetch(kind)
	select {
	case <-f.done:
		return f.list, f.err
	case <-ctx.Done():
		return nil, &wire.CallError{Sent: true, Err: ctx.Err()}
	}
}

// Cached returns the snapshot that [Conn.List] would return without asking the
// upstream, nil where there is none. It does not wait.
func (c *Conn) Cached(kind wire.ListKind) *wire.List {
	if !c.caps[kind].offered {
		return emptyLists[kind]
	}
	kept := c.lists[kind].kept.Load()
	if kept == nil {
		return nil
	}
	ttl := kept.ttl
	if ttl == 0 && !(c.caps[kind].changes && c.listening(kind)) {
		ttl = c.srv.cfg.ListTTL
	}
	if ttl > 0 && time.Since(kept.read) >= ttl {
		return nil
	}
	return kept.list
}

var emptyLists = func() (lists [wire.Templates + 1]*wire.List) {
	for kind := range wire.Templates + 1 {
		page, err := wire.Read(wire.ResultAnswer([]byte("0"), []byte(`{"`+kind.String()+`":[]}`)), wire.FromUpstream)
		if err == nil {
			lists[kind], err = wire.NewList(kind, []*wire.Message{page})
		}
		if err != nil {
			panic(err)
		}
	}
	return lists
}()

// listening reports whether the upstream can tell now that a list has changed.
func (c *Conn) listening(kind wire.ListKind) bool {
	if c.Era() == wire.Modern {
		return c.listener.agreed.Load()&listBit(kind) != 0
	}
	return c.link.listening()
}

// listBit is the bit of a list. Templates change with the resources.
func listBit(kind wire.ListKind) uint32 {
	if kind == wire.Templates {
		kind = wire.Resources
	}
	return 1 << kind
}

// dropLists forgets all snapshots: a change may not have been told of.
func (c *Conn) dropLists() {
	for i := range c.lists {
		c.lists[i].drop()
	}
}

// drop forgets the snapshot. A fetch under way may have read what was before: it is not kept.
func (l *listCache) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept.Store(nil)
	l.current = nil
}

// fetch joins the fetch under way, or begins one, which waits for the end of an
// outdated one.
func (c *Conn) fetch(kind wire.ListKind) *fetch {
	l := &c.lists[kind]
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil {
		return l.current
	}
	f, before := &fetch{done: make(chan struct{})}, l.last
	if f.list = c.Cached(kind); f.list != nil { // since the caller has looked
		close(f.done)
		return f
	}
	read := func() {
		defer close(f.done)
		if before != nil {
			<-before.done
		}
		f.list, f.ttl, f.err = c.readList(kind)
		l.settle(f)
	}
	if !c.spawn(read) {
		f.err = &wire.CallError{Err: c.Err()}
		close(f.done)
		return f
	}
	l.current, l.last = f, f
	return f
}

// settle keeps what was fetched, unless the list has changed meanwhile.
func (l *listCache) settle(f *fetch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == f {
		l.last = nil
	}
	if l.current != f {
		return
	}
	l.current = nil
	if f.err == nil {
		l.kept.Store(&snapshot{f.list, time.Now(), f.ttl})
	}
}

func (c *Conn) readList(kind wire.ListKind) (*wire.List, time.Duration, error) {
	pages, err := c.readPages(kind)
	if e, ok := errors.AsType[*ListError](err); ok && kind == wire.Templates && e.Answer.ErrorCode == wire.CodeMethodNotFound {
		return emptyLists[kind], 0, nil // resources without templates need no such method
	}
	if err != nil {
		return nil, 0, err
	}
	l, err := wire.NewList(kind, pages)
	if err == nil && kind == wire.Tools && c.Era() == wire.Modern && c.link.streams() {
		l = c.keepToolHeaders(l)
	}
	return l, ttlOf(pages), err
}

// ttlOf is how long a list may be kept as its pages say (ttlMs), 0 where not all of
// them say so, or say 0: then the connection decides by itself (2026-07-28,
// server/utilities/caching).
func ttlOf(pages []*wire.Message) (ttl time.Duration) {
	for _, page := range pages {
		ms, err := strconv.ParseFloat(string(page.Bytes(page.R.TTL)), 64)
		if err != nil || ms <= 0 {
			return 0
		}
		d := max(minTTL, time.Duration(min(ms, float64(maxTTL/time.Millisecond)))*time.Millisecond)
		if ttl == 0 || d < ttl {
			ttl = d
		}
	}
	return ttl
}

// readPages asks for one page after the other. A cursor that comes again would
// go round for ever.
func (c *Conn) readPages(kind wire.ListKind) (pages []*wire.Message, err error) {
	seen, size := make(map[string]bool), 0
	params := c.ownParams(nil)
	for {
		page, err := c.readPage(kind, params)
		if err != nil {
			return nil, err
		}
		pages, size = append(pages, page), size+len(page.Raw)
		cursor := page.Bytes(page.R.NextCursorAt)
		switch {
		case size > c.srv.cfg.MaxListBytes:
			return nil, fmt.Errorf("reading %s: more than %d bytes", kind.Method(), c.srv.cfg.MaxListBytes)
		case len(cursor) == 0 || string(cursor) == "null":
			return pages, nil
		case seen[wire.Key(cursor)]:
			return nil, fmt.Errorf("reading %s: the upstream gave the same cursor twice", kind.Method())
		case len(pages) >= c.srv.cfg.MaxPages:
			return nil, fmt.Errorf("reading %s: more than %d pages", kind.Method(), c.srv.cfg.MaxPages)
		}
		seen[wire.Key(cursor)] = true
		params = c.ownParams(cursor)
	}
}

// ownParams returns the params of the connection's own requests, nil where there are none.
func (c *Conn) ownParams(cursor []byte) []byte {
	var out []byte
	if c.meta != nil {
		out = append(append(out, `,"_meta":`...), c.meta...)
	}
	if cursor != nil {
		out = append(append(out, `,"cursor":`...), cursor...)
	}
	if out == nil {
		return nil
	}
	out[0] = '{'
	return append(out, '}')
}

func (c *Conn) readPage(kind wire.ListKind, params []byte) (*wire.Message, error) {
	request, err := wire.Read(wire.RequestMessage(0, kind.Method(), params), wire.FromUpstream)
	if err != nil {
		return nil, fmt.Errorf("reading %s: the cursor cannot be sent back: %w", kind.Method(), err)
	}
	ctx, stop := context.WithTimeout(c.ctx, c.srv.cfg.PageTimeout)
	defer stop()
	k := c.Start(request, nil)
	answer, err := k.Wait(ctx)
	if err != nil && ctx.Err() == context.DeadlineExceeded {
		k.Cancel(nil)
		err = &wire.CallError{Sent: true, Err: fmt.Errorf("no answer to %s in %s: see whether the upstream hangs; the next request asks it again", kind.Method(), c.srv.cfg.PageTimeout)}
		c.Suspect()
	}
	if err != nil {
		return nil, err
	}
	if answer.Kind == wire.Failure {
		return nil, &ListError{Kind: kind, Answer: answer}
	}
	return answer, nil
}
