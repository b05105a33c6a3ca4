package kept

import (
	"cmp"
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/admin/client"
	"github.com/fsm-proxy/fsm-proxy/internal/cli/arguments"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/internal/visible"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

func newShow(console Console) *cobra.Command {
	c := &command{Console: console}
	return c.colored(c.asJSON(&cobra.Command{
		Use:   "show RUN --store STORE|--admin ADDR",
		Short: "Show where a run stands, what it remembers, and which signals it takes",
		Long: "Show where a run stands, and what it remembers. Of a run that a running proxy has, named as\n" +
			"its log and its admin interface name it, that is how it stands there, and the signals that\n" +
			"it takes. Of one that a store keeps, whose id begins with RUN, it is what its entries come to.",
		Example: "  fsm-proxy runs show 5c1f0e9b2a7d4486 --admin unix:/run/fsm-proxy/admin.sock\n" +
			"  fsm-proxy runs show DMTFEK --store sqlite:runs.db",
		Args: arguments.AsUsed,
		RunE: func(cmd *cobra.Command, args []string) error {
			if there, err := c.showLive(cmd.Context(), args[0]); there {
				return err
			}
			return c.read(cmd.Context(), func(s journal.Reader) error { return c.show(cmd.Context(), s, args[0]) })
		},
	}))
}

// liveTime is how long a proxy may take to say how a run stands.
const liveTime = 30 * time.Second

// showLive shows a run that a running proxy has under this name. there reports whether that is all there is to show: not
// where the proxy may keep one whose id begins so.
func (c *command) showLive(ctx context.Context, id string) (there bool, err error) {
	if c.admin.Address == "" || c.url != "" {
		return false, nil
	}
	asked, stop := context.WithTimeout(ctx, liveTime)
	defer stop()
	said, err := c.admin.Read(asked, http.MethodGet, "/v1/runs/"+url.PathEscape(id), "")
	if client.Refused(said).Code == "run_not_found" && c.keeps(ctx) {
		return false, nil
	}
	text := string(said)
	if err == nil && !c.json {
		text, err = client.Words[admin.RunDetail](said)
	}
	if err == nil || c.json {
		_, wrong := io.WriteString(c.Out, text)
		err = cmp.Or(err, wrong)
	}
	return true, err
}

// keeps reports whether the running proxy has a store.
func (c *command) keeps(ctx context.Context) bool {
	j := client.NewJournal(&c.admin)
	defer j.Close()
	_, err := j.List(ctx, journal.Query{Limit: 1})
	return err == nil
}

// shown is a run as it is shown.
type shown struct {
	ID         string    `json:"id"`
	Key        string    `json:"key"`
	Issuer     string    `json:"issuer,omitzero"`
	Subject    string    `json:"subject,omitzero"`
	Parent     string    `json:"parent,omitzero"`
	Fork       uint64    `json:"fork,omitzero"`
	Began      time.Time `json:"began"`
	Used       time.Time `json:"used"`
	Ended      time.Time `json:"ended,omitzero"`
	State      string    `json:"state"`
	Complete   bool      `json:"complete,omitzero"`
	Policy     string    `json:"policy"`
	Due        time.Time `json:"due,omitzero"`
	Base       uint64    `json:"base,omitzero"`
	Last       point     `json:"last"`
	remembered           // what its entries come to
	Unreadable string    `json:"unreadable,omitzero"` // why that is not known
}

type point struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"`
}

// remembered is what a run is by its entries.
type remembered struct {
	Name      string         `json:"policy_name,omitzero"`
	Registers jsontext.Value `json:"registers,omitzero"`
	Counts    jsontext.Value `json:"counts,omitzero"`
	Open      []openCall     `json:"open,omitzero"`
}

// openCall is a call that has begun and has no end.
type openCall struct {
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time,omitzero"`
	Kind string    `json:"kind"`
	Name string    `json:"name"`
	Case string    `json:"case,omitzero"`
}

// utc is a time as it is printed; the zero time stays zero.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

func (c *command) show(ctx context.Context, s journal.Reader, prefix string) error {
	r, err := find(ctx, s, prefix)
	if err != nil {
		return err
	}
	from := &durable.Reader{Journal: s, Compile: policyfile.Unpack}
	owner, err := from.Owner(ctx, &r)
	if err != nil {
		return err
	}
	var x shown
	err = journal.Whole(ctx, s, r, func(r *journal.Row, records iter.Seq2[journal.Record, error]) (err error) {
		x = shown{
			ID: r.ID, Key: r.Key.Kind, Issuer: owner.Issuer, Subject: owner.Subject, Parent: r.Parent, Fork: r.Fork, Began: utc(r.Began), Used: utc(r.Used), Ended: utc(r.Ended),
			State: r.State, Complete: r.Complete, Policy: r.Policy, Due: utc(r.Due), Base: r.Base.Seq, Last: point{r.Last.Seq, r.Last.Hash.String()},
		}
		x.remembered, err = remember(ctx, from, r, records)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, journal.ErrNone):
		return err
	case err != nil:
		x.Unreadable = unreadable(err)
	}
	if c.json {
		return c.line(x)
	}
	return c.print(func(p *printer) { p.shown(&x) })
}

// remember makes of a run's entries what it is, and does nothing that would come of that.
func remember(ctx context.Context, from *durable.Reader, r *journal.Row, records iter.Seq2[journal.Record, error]) (out remembered, err error) {
	p, err := from.Policy(ctx, r.Policy)
	if err != nil {
		return out, err
	}
	since := map[uint64]time.Time{} // of calls that have begun
	now := time.Now()
	stands := run.Replay(run.Config{Policy: p, Lasts: true}, func(yield func(run.Entry) bool) {
		for e, wrong := range from.Entries(ctx, r, records) {
			if err = wrong; err != nil || !yield(e) {
				return
			}
			switch {
			case e.Type == run.Begun:
				since[e.Seq] = e.Time.UTC()
			case e.Begun != 0:
				delete(since, e.Begun)
			}
		}
	}, now)
	if err != nil {
		return out, err
	}
	out = remembered{Name: p.Name(), Registers: stands.Registers().AppendJSON(nil), Counts: stands.Counts(now)}
	for _, e := range stands.Made() { // what would come of calls that have no end
		if e.Resumed {
			s := e.Call.Verdict.Symbol
			out.Open = append(out.Open, openCall{e.Begun, since[e.Begun], s.Kind.String(), s.Name, s.Case})
		}
	}
	return out, nil
}

// shown prints a run in lines.
func (p *printer) shown(x *shown) {
	owner := x.Subject
	if x.Issuer != "" {
		owner += " of " + x.Issuer
	}
	state := p.state(x.State)
	switch {
	case !x.Ended.IsZero():
		state += " (ended)"
	case x.Complete:
		state += " (complete)"
	}
	p.line("run", x.ID)
	p.line("key", x.Key)
	p.line("owner", owner)
	if x.Parent != "" {
		p.line("parent", fmt.Sprintf("%s, at entry %d", x.Parent, x.Fork))
	}
	p.time("began", x.Began)
	p.time("used", x.Used)
	p.time("ended", x.Ended)
	p.raw("state", state)
	p.line("policy", strings.TrimSpace(x.Policy+" "+x.Name))
	p.time("due", x.Due)
	if x.Base > 0 {
		p.line("base", fmt.Sprintf("entries from %d on are kept", x.Base+1))
	}
	p.line("last", fmt.Sprintf("entry %d, %s", x.Last.Seq, x.Last.Hash))
	if x.Unreadable != "" {
		p.raw("memory", p.Paint(bad, "unknown: "+strictyaml.Printable(x.Unreadable)))
		return
	}
	p.json("registers", x.Registers)
	var counts []struct {
		Limit, Span string
		AtMost      int `json:"at_most"`
		Taken       int
	}
	_ = json.Unmarshal(x.Counts, &counts, json.MatchCaseInsensitiveNames(true)) // which this program has written
	for _, n := range counts {
		p.line("counted", fmt.Sprintf("%d of %d a %s: %s", n.Taken, n.AtMost, n.Span, n.Limit))
	}
	for _, o := range x.Open {
		p.line("open", fmt.Sprintf("%s, begun by entry %d at %s, and nobody knows yet how it ended", call(o.Kind, o.Name, o.Case), o.Seq, stamp(o.Time)))
	}
}

// json prints a value that is not empty, in a line.
func (p *printer) json(name string, text jsontext.Value) {
	if err := text.Compact(); err != nil || string(text) == "{}" || string(text) == "[]" {
		return
	}
	p.raw(name, string(visible.JSON(text)))
}

func (p *printer) time(name string, t time.Time) {
	if !t.IsZero() {
		p.line(name, stamp(t))
	}
}

func (p *printer) line(name, value string) { p.raw(name, strictyaml.Printable(value)) }

// raw prints a value that is fit to be printed.
func (p *printer) raw(name, value string) {
	if value != "" {
		fmt.Fprintf(p.out, "%-10s %s\n", name, value)
	}
}
