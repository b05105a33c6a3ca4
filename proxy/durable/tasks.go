package durable

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// taskObject is the kind of what is kept of a task that has the turn of its run, by the run's id and the number of the
// entry by which its call began. It goes with the entry that ends the call. What is in it is for the run alone: no reader
// of the store is shown it.
const taskObject = "task"

// maxTask is how many bytes are kept of a task.
const maxTask = 64 << 10

// KeepTask has it kept that a task has come of the call that has begun by an entry. The ticket tells when it is durable;
// nil: it is too large.
func (r *Run) KeepTask(begun uint64, text []byte) (*journal.Ticket, error) {
	if r.dropped {
		return nil, journal.ErrConflict
	}
	if len(text) > maxTask {
		return nil, nil
	}
	t, err := r.s.write.Submit(journal.Change{Run: r.id, Tenure: r.under, Objects: []journal.Object{r.task(begun, text)}}, journal.Must)
	if err != nil {
		return nil, err
	}
	if r.tasks == nil {
		r.tasks = make(map[uint64][]byte)
	}
	r.tasks[begun], r.last = text, t
	return t, nil
}

func (r *Run) task(begun uint64, text []byte) journal.Object {
	return journal.Object{Kind: taskObject, Name: r.id + "/" + strconv.FormatUint(begun, 10), Run: r.id, Bytes: text}
}

// Tasks is what is kept of the run's tasks, by the numbers of the entries by which their calls began.
func (r *Run) Tasks() map[uint64][]byte { return r.tasks }

// over has nothing be kept any more of the task of a call that an entry ends.
func (r *Run) over(e *run.Entry, c *journal.Change) {
	if _, kept := r.tasks[e.Begun]; kept && (e.Type == run.Ended || e.Type == run.Unsent) {
		c.Objects = append(c.Objects, r.task(e.Begun, nil))
		delete(r.tasks, e.Begun)
	}
}

// readTasks reads what is kept of the run's tasks.
func (r *Run) readTasks(ctx context.Context) error {
	all, err := r.s.cfg.Journal.Objects(ctx, r.id)
	for _, o := range all {
		if o.Kind != taskObject {
			continue
		}
		if begun, err := strconv.ParseUint(strings.TrimPrefix(o.Name, r.id+"/"), 10, 64); err == nil {
			if r.tasks == nil {
				r.tasks = make(map[uint64][]byte)
			}
			r.tasks[begun] = o.Bytes
		}
	}
	return err
}

// WithTasks returns the keys of the runs that have a task, but for those that another process has.
func (s *Store) WithTasks(ctx context.Context) (keys []journal.Key, err error) {
	others, err := s.others(ctx)
	if err != nil {
		return nil, err
	}
	for o, err := range s.objects(ctx, taskObject, "") {
		if err != nil {
			return nil, err
		}
		id, _, _ := strings.Cut(o.Name, "/")
		row, err := s.cfg.Journal.Row(ctx, id)
		switch {
		case errors.Is(err, journal.ErrNone):
		case err != nil:
			return nil, err
		case row.Ended.IsZero() && others[row.Tenure.Lease] == "":
			keys = append(keys, row.Key)
		}
	}
	return keys, nil
}

// Exported is a journal as it is exported: what is kept of tasks is the running server's, and of use to nobody but it.
func Exported(j journal.Reader) journal.Reader { return exported{j} }

type exported struct{ journal.Reader }

// Objects implements [journal.Reader].
func (x exported) Objects(ctx context.Context, of string) (out []journal.Object, err error) {
	all, err := x.Reader.Objects(ctx, of)
	for _, o := range all {
		if o.Kind != taskObject {
			out = append(out, o)
		}
	}
	return out, err
}
