package journal

import (
	"bufio"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"iter"
	"unicode/utf8"
)

// exported is one line of an export: a run, or one of what follows it.
type exported struct {
	Run    *Row            `json:"run,omitzero"` // less its Last
	Record *exportedRecord `json:"record,omitzero"`
	Object *exportedObject `json:"object,omitzero"`
	End    string          `json:"end,omitzero"` // the id of the run that is whole; without it an export was cut off
}

type exportedRecord struct {
	Seq   uint64 `json:"seq"`
	Hash  Hash   `json:"hash"`
	Text  string `json:"text,omitzero"`  // the bytes that were hashed
	Bytes []byte `json:"bytes,omitzero"` // those, where they are no text: somebody has edited them
}

type exportedObject struct {
	Kind  string `json:"kind"`
	Name  []byte `json:"name"`
	OfRun bool   `json:"of_run,omitzero"`
	Bytes []byte `json:"bytes"`
}

// Exporter writes what is kept as lines of JSON, as [Import] reads them. It is not safe for concurrent use.
type Exporter struct {
	From Reader
	To   io.Writer
	// Needs are the kinds and names of the objects of no run by which a record is read.
	Needs func(record []byte) []Object

	written map[[2]string]bool // objects of no run, by kind and name
}

// Objects writes the objects of no run.
func (x *Exporter) Objects(ctx context.Context) error {
	objects, err := x.From.Objects(ctx, "")
	for _, o := range objects {
		if err == nil {
			err = x.object(&o)
		}
	}
	return err
}

func (x *Exporter) object(o *Object) error {
	if o.Run == "" {
		if x.written == nil {
			x.written = make(map[[2]string]bool)
		}
		x.written[[2]string{o.Kind, o.Name}] = true
	}
	return line(x.To, exported{Object: &exportedObject{o.Kind, []byte(o.Name), o.Run != "", o.Bytes}})
}

// Run writes a run, its records and its objects, behind the objects that it needs and that are not written yet. What is
// written to the run meanwhile may be in it or not. The error is an [ErrNone] for a run that is not in the store, or no longer.
func (x *Exporter) Run(ctx context.Context, run string) error {
	r, objects, records, err := whole(ctx, x.From, run)
	for i := range records {
		if err == nil {
			err = x.needs(ctx, records[i].Bytes)
		}
	}
	if err == nil {
		r.Last = Point{}
		err = line(x.To, exported{Run: &r})
	}
	for i := range records {
		if err == nil {
			err = x.record(&records[i])
		}
	}
	for i := range objects {
		if err == nil {
			err = x.object(&objects[i])
		}
	}
	if err == nil {
		err = line(x.To, exported{End: run})
	}
	return err
}

// whole reads a run, its objects, and its records up to the last one that its row knows.
func whole(ctx context.Context, s Reader, run string) (r Row, objects []Object, records []Record, err error) {
	if r, err = s.Row(ctx, run); err != nil {
		return r, nil, nil, err
	}
	err = Whole(ctx, s, r, func(row *Row, all iter.Seq2[Record, error]) (err error) {
		r, records = *row, nil
		if objects, err = s.Objects(ctx, run); err != nil {
			return err
		}
		for x, err := range all {
			if err != nil || x.Seq > r.Last.Seq {
				return err
			}
			records = append(records, x)
		}
		return nil
	})
	return r, objects, records, err
}

// needs writes the objects that a record needs. One that is missing is missing in the store.
func (x *Exporter) needs(ctx context.Context, record []byte) error {
	for _, o := range x.Needs(record) {
		if x.written[[2]string{o.Kind, o.Name}] {
			continue
		}
		bytes, err := x.From.Object(ctx, o.Kind, o.Name)
		if err == nil {
			err = x.object(&Object{Kind: o.Kind, Name: o.Name, Bytes: bytes})
		}
		if err != nil && !errors.Is(err, ErrNone) {
			return err
		}
	}
	return nil
}

func (x *Exporter) record(r *Record) error {
	out := exportedRecord{Seq: r.Seq, Hash: r.Hash, Text: string(r.Bytes)}
	if !utf8.Valid(r.Bytes) {
		out.Text, out.Bytes = "", r.Bytes
	}
	return line(x.To, exported{Record: &out})
}

// line writes a value as one line of JSON.
func line(w io.Writer, x any) error {
	text, err := json.Marshal(x)
	if err == nil {
		_, err = w.Write(append(text, '\n'))
	}
	return err
}

// ErrThere means that a run to be imported is in the store already and is not the same there, or that another one of its key is.
var ErrThere = errors.New("it is in the store already with other entries, or another run of its key is: take it into another store")

// Imported are the runs of an import.
type Imported struct {
	Runs  []string // that are in the store whole since
	There []string // that were in it already, with the same last record: they are as they were
}

// Import reads what an [Exporter] has written, and writes it to a store. Of a run that is cut off nothing is written,
// and the error says where; what was broken off goes on when it is imported again. Hashes are copied and not looked at;
// [Chain.Verify] does.
func Import(ctx context.Context, s Store, r io.Reader) (done Imported, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	var c Change
	for n := 1; lines.Scan(); n++ {
		var x exported
		err := json.Unmarshal(lines.Bytes(), &x, json.RejectUnknownMembers(true))
		if err == nil {
			err = x.into(&c)
		}
		there := false
		if err == nil && (x.End != "" || x.Object != nil && !x.Object.OfRun) {
			there, err = commitOne(ctx, s, &c)
			c = Change{}
		}
		switch {
		case err != nil:
			return done, fmt.Errorf("line %d: %w", n, err)
		case there:
			done.There = append(done.There, x.End)
		case x.End != "":
			done.Runs = append(done.Runs, x.End)
		}
	}
	if err := lines.Err(); err != nil {
		return done, err
	}
	if c.Run != "" {
		return done, fmt.Errorf("the end of run %s is missing: the export was cut off", c.Run)
	}
	return done, nil
}

// maxLine bounds a line of an export: a record has 64 MiB at most.
const maxLine = 128 << 20

// commitOne writes a run, unless the same is there, or objects.
func commitOne(ctx context.Context, s Store, c *Change) (there bool, err error) {
	if c.Begin != nil {
		c.Tenure = Beginning(s)
	}
	each, err := s.Commit(ctx, []Change{*c})
	if err != nil || c.Begin == nil || !errors.Is(each[0], ErrConflict) {
		return false, errors.Join(append(each, err)...)
	}
	row, err := s.Row(ctx, c.Run)
	last := c.Begin.Base
	if n := len(c.Records); n > 0 {
		last = Point{c.Records[n-1].Seq, c.Records[n-1].Hash}
	}
	switch {
	case err == nil && row.Last == last:
		return true, nil
	case err == nil || errors.Is(err, ErrNone):
		err = ErrThere
	}
	return false, fmt.Errorf("run %s: %w", c.Run, err)
}

// into adds what a line says to a change.
func (x *exported) into(c *Change) (err error) {
	inRun := c.Run != ""
	switch {
	case x.Run != nil && !inRun && x.Record == nil && x.Object == nil && x.End == "":
		if *c = (Change{Run: x.Run.ID, Begin: x.Run, Head: &x.Run.Head}); c.Run == "" {
			err = errors.New("a run has no id")
		}
	case x.Record != nil && inRun && x.Run == nil && x.Object == nil && x.End == "":
		c.Records = append(c.Records, Record{x.Record.Seq, x.Record.Hash, append([]byte(x.Record.Text), x.Record.Bytes...)})
	case x.Object != nil && x.Object.OfRun == inRun && x.Run == nil && x.Record == nil && x.End == "":
		o := Object{Kind: x.Object.Kind, Name: string(x.Object.Name), Run: c.Run, Bytes: append([]byte{}, x.Object.Bytes...)}
		c.Objects = append(c.Objects, o)
	case x.End != "" && x.End == c.Run && x.Run == nil && x.Record == nil && x.Object == nil:
	default:
		err = errors.New("it does not follow what stands before it")
	}
	return err
}
