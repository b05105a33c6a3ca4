package client

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// Journal reads what a running proxy keeps of runs, as [journal.Reader] has it.
type Journal struct{ of Client }

// NewJournal returns the journal of the proxy that a client asks.
func NewJournal(c *Client) *Journal {
	j := &Journal{*c}
	j.of.connections = j.of.connect()
	return j
}

// Close closes its connections.
func (j *Journal) Close() { j.of.connections.CloseIdleConnections() }

const (
	journalTime = 30 * time.Second
	maxJournal  = 256 << 20 // bytes of an answer: a record has 64 MiB at most, some of which are escaped
	maxPage     = 1000
)

// get asks for what is below /v1/journal.
func (j *Journal) get(ctx context.Context, path string, query url.Values, into any) error {
	return j.ask(ctx, "/v1/journal/"+path, query, into)
}

func (j *Journal) ask(ctx context.Context, path string, query url.Values, into any) error {
	ctx, stop := context.WithTimeout(ctx, journalTime)
	defer stop()
	said, err := j.of.read(ctx, http.MethodGet, path+"?"+query.Encode(), "", maxJournal)
	if err != nil {
		if Refused(said).Code == admin.NotKept {
			return journal.ErrNone
		}
		return err
	}
	if err := json.Unmarshal(said, into); err != nil {
		return fmt.Errorf("reading the proxy's answer: %w; is it of this version?", err)
	}
	return nil
}

// Refused is the refusal that an answer is, the zero Refusal for what is none.
func Refused(said []byte) (r admin.Refusal) {
	if json.Unmarshal(said, &r) != nil {
		return admin.Refusal{}
	}
	return r
}

// Processes are those that share the proxy's store and have runs that have not ended, by the ids of these; nil: none has one.
func (j *Journal) Processes(ctx context.Context) (by map[string]string, err error) {
	for after, more := "", true; more; {
		var page struct {
			Next  string      `json:"next"`
			Items []admin.Run `json:"items"`
		}
		if err := j.ask(ctx, "/v1/runs", url.Values{"limit": {strconv.Itoa(maxPage)}, "after": {after}}, &page); err != nil {
			return nil, err
		}
		for i := range page.Items {
			if x := &page.Items[i]; x.Process != "" {
				if by == nil {
					by = make(map[string]string)
				}
				by[x.ID] = x.Process
			}
		}
		after, more = page.Next, page.Next != ""
	}
	return by, nil
}

// Row implements [journal.Reader].
func (j *Journal) Row(ctx context.Context, run string) (r journal.Row, err error) {
	if run == "" || strings.Contains(run, "/") {
		return r, journal.ErrNone
	}
	err = j.get(ctx, "runs/"+url.PathEscape(run), nil, &r)
	return r, err
}

// List implements [journal.Reader].
func (j *Journal) List(ctx context.Context, q journal.Query) (rows []journal.Row, err error) {
	for want := q.Page(); len(rows) < want; {
		var page admin.JournalPage[journal.Row]
		q.Limit = min(want-len(rows), maxPage)
		if err := j.get(ctx, "runs", admin.JournalQuery(&q), &page); err != nil {
			return nil, err
		}
		rows = append(rows, page.Items...)
		if len(page.Items) < q.Limit {
			break
		}
		q.After = rows[len(rows)-1].ID
	}
	return rows, nil
}

// Records implements [journal.Reader].
func (j *Journal) Records(ctx context.Context, run string, after uint64, limit int) (records []journal.Record, err error) {
	for len(records) < limit {
		var page admin.JournalPage[admin.JournalRecord]
		most := min(limit-len(records), maxPage)
		query := url.Values{"after": {strconv.FormatUint(after, 10)}, "limit": {strconv.Itoa(most)}}
		if err := j.get(ctx, "runs/"+url.PathEscape(run)+"/records", query, &page); err != nil {
			return nil, err
		}
		for i := range page.Items {
			x := &page.Items[i]
			records = append(records, journal.Record{Seq: x.Seq, Hash: x.Hash, Bytes: []byte(x.Text)})
			after = x.Seq
		}
		if len(page.Items) == 0 || len(page.Items) < most && !page.More {
			break
		}
	}
	return records, nil
}

// Object implements [journal.Reader].
func (j *Journal) Object(ctx context.Context, kind, name string) ([]byte, error) {
	var o admin.JournalObject
	if err := j.get(ctx, "object", url.Values{"kind": {kind}, "name": {name}}, &o); err != nil {
		return nil, err
	}
	return o.Bytes, nil
}

// Objects implements [journal.Reader].
func (j *Journal) Objects(ctx context.Context, run string) (all []journal.Object, err error) {
	path := "objects"
	if run != "" {
		path = "runs/" + url.PathEscape(run) + "/objects"
	}
	query := url.Values{}
	for {
		var page admin.JournalPage[admin.JournalObject]
		if err := j.get(ctx, path, query, &page); err != nil {
			return nil, err
		}
		for _, o := range page.Items {
			all = append(all, journal.Object{Kind: o.Kind, Name: string(o.Name), Run: o.Run, Bytes: o.Bytes})
			query = url.Values{"after_kind": {o.Kind}, "after_name": {string(o.Name)}}
		}
		if !page.More || len(page.Items) == 0 {
			return all, nil
		}
	}
}
