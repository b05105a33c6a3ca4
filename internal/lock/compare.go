package lock

import "github.com/fsm-proxy/fsm-proxy/internal/wire"

// Drift is what is no longer as it was locked in one list of tools. It does not
// change.
type Drift struct {
	lock    *Lock
	changed map[string]Changes
	listed  map[string]Definition // of the changed ones
}

// Compare compares a list of tools with the lock; a nil Lock has none.
func (l *Lock) Compare(list *wire.List) *Drift {
	d := &Drift{lock: l, changed: map[string]Changes{}, listed: map[string]Definition{}}
	found := make(map[string]Definition, len(list.Items))
	for _, item := range list.Items {
		definition, err := Define(item.Raw)
		before, again := found[item.Name]
		switch {
		case err != nil || again && before != definition:
			d.changed[item.Name] = Changes{Ambiguous}
		case !again:
			d.compare(item.Name, definition)
		}
		if !again {
			found[item.Name] = definition
		}
		if d.changed[item.Name] != nil {
			d.listed[item.Name] = definition
		}
	}
	return d
}

func (d *Drift) compare(name string, definition Definition) {
	locked, ok := d.lock.tool(name)
	if !ok {
		d.changed[name] = Changes{Unlocked}
	} else if changes := locked.Differ(definition); changes != nil {
		d.changed[name] = changes
	}
}

func (l *Lock) tool(name string) (Definition, bool) {
	if l == nil {
		return Definition{}, false
	}
	d, ok := l.Tools[name]
	return d, ok
}

// Of returns what is wrong with a listed tool, nil if it is what was locked.
// A nil Drift has nothing wrong.
func (d *Drift) Of(tool string) Changes {
	if d == nil {
		return nil
	}
	return d.changed[tool]
}

// Definition is what a changed tool is now.
func (d *Drift) Definition(tool string) Definition { return d.listed[tool] }

// Changed returns the tools with which something is wrong, in no order.
func (d *Drift) Changed() map[string]Changes { return d.changed }
