package admin

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// JournalRecord is a [journal.Record].
type JournalRecord struct {
	Seq  uint64       `json:"seq"`
	Hash journal.Hash `json:"hash"`
	Text journal.Text `json:"text"` // the bytes that were hashed
}

// JournalObject is a [journal.Object], its bytes in base64.
type JournalObject struct {
	Kind  string       `json:"kind"`
	Name  journal.Text `json:"name"`
	Run   string       `json:"run,omitempty"`
	Bytes []byte       `json:"bytes"`
}

// JournalPage is a page of a journal. More says that there is another one behind it, where it is shorter than it was to be.
type JournalPage[T journal.Row | JournalRecord | JournalObject] struct {
	Items []T  `json:"items"`
	More  bool `json:"more,omitempty"`
}

// The codes of refusals that are about a journal.
const (
	NoStore = "no_store" // the proxy keeps no runs
	NotKept = "not_kept" // it is not in the store
)

// JournalQuery is a query as a URL has it.
func JournalQuery(q *journal.Query) url.Values {
	v := url.Values{"limit": {strconv.Itoa(q.Page())}}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("after", q.After)
	set("prefix", q.Prefix)
	if q.Owner != nil {
		v.Set("issuer", q.Owner.Issuer)
		v.Set("subject", q.Owner.Subject)
	}
	for name, at := range map[string]time.Time{"due_by": q.DueBy, "used_before": q.UsedBefore, "ended_before": q.EndedBefore} {
		if !at.IsZero() {
			v.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return v
}

func queryOf(v url.Values) (q journal.Query, err error) {
	q = journal.Query{After: v.Get("after"), Prefix: v.Get("prefix")}
	if v.Has("subject") {
		q.Owner = &journal.Principal{Issuer: v.Get("issuer"), Subject: v.Get("subject")}
	}
	for name, into := range map[string]*time.Time{"due_by": &q.DueBy, "used_before": &q.UsedBefore, "ended_before": &q.EndedBefore} {
		if text := v.Get(name); text != "" && err == nil {
			if *into, err = time.Parse(time.RFC3339Nano, text); err != nil {
				err = errors.New(name + " is a time like 2026-11-21T10:00:00Z")
			}
		}
	}
	if err == nil {
		q.Limit, err = limitOf(v)
	}
	return q, err
}

func limitOf(v url.Values) (int, error) {
	n, err := strconv.Atoi(cmp.Or(v.Get("limit"), strconv.Itoa(pageSize)))
	if err != nil || n < 1 || n > maxPageSize {
		return 0, errors.New("limit is a number from 1 to 1000")
	}
	return n, nil
}

const (
	journalTime  = 8 * time.Second // for as long as a store is waited for
	journalBytes = 1 << 20         // a page has no more records and objects behind this many bytes
	journalChunk = 100             // records that are read from the store at once
	maxJournals  = 4               // requests that read it at once
)

var errNoStore = &Refusal{Status: http.StatusConflict, Text: "this proxy keeps no runs: give it --store", Code: NoStore}

// journal has f read the store, and answers with what it returns.
func (a *Admin) journal(f func(ctx context.Context, path string, v url.Values) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, stop := context.WithTimeout(r.Context(), journalTime)
		defer stop()
		if a.Journal == nil {
			fail(w, errNoStore)
			return
		}
		said, err := f(ctx, r.URL.Path, r.URL.Query())
		no, _ := errors.AsType[*Refusal](err)
		switch {
		case err == nil:
			answer(w, said)
		case no != nil:
			fail(w, no)
		case errors.Is(err, journal.ErrNone):
			fail(w, &Refusal{Status: http.StatusNotFound, Text: "it is not in the store: GET /v1/journal/runs lists what is", Code: NotKept})
		default:
			fail(w, &Refusal{Status: http.StatusServiceUnavailable, Text: "the store cannot be read now: " + err.Error(), Code: "store_unavailable"})
		}
	}
}

func badRequest(err error) error { return &Refusal{Status: http.StatusBadRequest, Text: err.Error()} }

// journals are the handlers of what is kept, for no more at once than are good for the store.
func (a *Admin) journals(r routes) {
	room := make(chan struct{}, maxJournals)
	for path, f := range map[string]func(ctx context.Context, path string, v url.Values) (any, error){
		"/v1/journal/runs": a.journalRuns, journalRunPath: a.journalRun, journalRecordsPath: a.journalRecords,
		journalOfRunPath: a.journalOfRun, "/v1/journal/objects": a.journalObjects, "/v1/journal/object": a.journalObject,
	} {
		r.get(path, a.journal(func(ctx context.Context, path string, v url.Values) (any, error) {
			select {
			case room <- struct{}{}:
				defer func() { <-room }()
				return f(ctx, path, v)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}))
	}
}

func (a *Admin) journalRuns(ctx context.Context, _ string, v url.Values) (any, error) {
	q, err := queryOf(v)
	if err != nil {
		return nil, badRequest(err)
	}
	rows, err := a.Journal.List(ctx, q)
	return JournalPage[journal.Row]{Items: append([]journal.Row{}, rows...)}, err
}

func (a *Admin) journalRun(ctx context.Context, path string, _ url.Values) (any, error) {
	return a.Journal.Row(ctx, parameters(journalRunPath, path)[0])
}

func (a *Admin) journalRecords(ctx context.Context, path string, v url.Values) (any, error) {
	limit, err := limitOf(v)
	after, wrong := strconv.ParseUint(cmp.Or(v.Get("after"), "0"), 10, 64)
	if wrong != nil {
		err = errors.New("after is the number of the last record that is known")
	}
	if err != nil {
		return nil, badRequest(err)
	}
	out, run := JournalPage[JournalRecord]{Items: []JournalRecord{}}, parameters(journalRecordsPath, path)[0]
	for size := 0; len(out.Items) < limit; {
		chunk := min(journalChunk, limit-len(out.Items))
		records, err := a.Journal.Records(ctx, run, after, chunk)
		if err != nil {
			return nil, err
		}
		for i := range records {
			x := &records[i]
			if size > journalBytes {
				out.More = true
				return out, nil
			}
			out.Items = append(out.Items, JournalRecord{x.Seq, x.Hash, journal.Text(x.Bytes)})
			size, after = size+len(x.Bytes), x.Seq
		}
		if len(records) < chunk {
			return out, nil
		}
	}
	return out, nil
}

func (a *Admin) journalOfRun(ctx context.Context, path string, v url.Values) (any, error) {
	return a.objects(ctx, parameters(journalOfRunPath, path)[0], v)
}

func (a *Admin) journalObjects(ctx context.Context, _ string, v url.Values) (any, error) {
	return a.objects(ctx, "", v)
}

// objects are those of a run behind after_kind and after_name.
func (a *Admin) objects(ctx context.Context, run string, v url.Values) (any, error) {
	all, err := a.Journal.Objects(ctx, run)
	out, size := JournalPage[JournalObject]{Items: []JournalObject{}}, 0
	kind, name := v.Get("after_kind"), v.Get("after_name")
	for _, o := range all {
		if cmp.Or(cmp.Compare(o.Kind, kind), cmp.Compare(o.Name, name)) <= 0 {
			continue
		}
		if size > journalBytes {
			out.More = true
			break
		}
		out.Items = append(out.Items, JournalObject{o.Kind, journal.Text(o.Name), o.Run, o.Bytes})
		size += len(o.Bytes)
	}
	return out, err
}

func (a *Admin) journalObject(ctx context.Context, _ string, v url.Values) (any, error) {
	bytes, err := a.Journal.Object(ctx, v.Get("kind"), v.Get("name"))
	return JournalObject{Kind: v.Get("kind"), Name: journal.Text(v.Get("name")), Bytes: bytes}, err
}
