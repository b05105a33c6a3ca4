// Package demo plays the Crossroads walk: it is an MCP client that connects to a
// proxy in front of the Crossroads upstream, calls one tool after the other, and
// prints each call, verdict, state and notification as it happens.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Options say how the walk is printed.
type Options struct {
	Out    io.Writer
	Colour bool
}

// Play walks through the Crossroads at the proxy's URL. The error tells that the
// walk did not go as it should: the proxy, or the server behind it, is broken.
// The proxy must add the state to results (annotate: meta).
func Play(ctx context.Context, url string, o Options) error {
	p := &printer{out: o.Out, colour: o.Colour}
	c, err := dial(ctx, url, p)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", url, err)
	}
	defer c.close()
	tools, err := c.tools(ctx)
	if err != nil {
		return err
	}
	p.begin(url, tools)
	w := &walker{client: c, printer: p, state: "entry", tools: tools}
	for i, s := range walk {
		if err := w.step(ctx, i+1, s); err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, s.tool, err)
		}
	}
	p.end(len(walk))
	return nil
}

// walker is where the walk is.
type walker struct {
	client  *client
	printer *printer
	state   string
	tools   []string // shown in that state
	key     string   // that was picked up
}

// step makes one call, prints what came of it, and compares that with what was
// to come.
func (w *walker) step(ctx context.Context, number int, s step) error {
	arguments := s.arguments(w.key)
	w.printer.call(number, s.tool, arguments)
	r, err := w.client.call(ctx, s.tool, arguments)
	if err != nil {
		return err
	}
	from := w.state
	w.state = r.state
	w.printer.verdict(r)
	if id, ok := keyIn(r.text); ok {
		w.key = id
	}
	if err := w.relist(ctx); err != nil {
		return err
	}
	w.printer.moved(from, r, w.tools)
	return s.compare(r)
}

// relist lists again where the server said that the list has changed.
func (w *walker) relist(ctx context.Context) error {
	if !w.client.takeChanged() {
		return nil
	}
	before := w.tools
	var err error
	if w.tools, err = w.client.tools(ctx); err != nil {
		return err
	}
	if slices.Equal(before, w.tools) {
		return errors.New("the list of tools was said to have changed, and had not")
	}
	return nil
}
