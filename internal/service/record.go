package service

import (
	"encoding/json"
	"fmt"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/redact"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Record says what is written down of the arguments of calls.
type Record struct {
	Arguments bool     // the store has them
	Redact    []string // JSON pointers to what neither the store, the audit nor a webhook has
}

// check says what is wrong; told reports whether anything tells of arguments.
func (f *Record) check(lasts, told bool) error {
	_, err := redact.New(f.Redact)
	switch {
	case err != nil:
		return exit.Usagef("--record-redact: %w", err)
	case f.Arguments && !lasts:
		return exit.Usagef("--record-arguments needs --store: nothing is recorded without one")
	case len(f.Redact) > 0 && !lasts && !told:
		return exit.Usagef("--record-redact needs --store, --audit-arguments or --approval-webhook: nothing tells of arguments without one")
	}
	return nil
}

// redaction is what takes out of arguments what nobody is to read; nil: nothing.
func (f *Record) redaction() *redact.Redaction {
	r, _ := redact.New(f.Redact) // which check has looked at
	return r
}

// admit refuses a policy that keeps in a register what is taken out of arguments.
func (f *Record) admit(p *policy.Policy) error {
	for _, pointer := range f.Redact {
		if at, ok := p.SetsFrom(redact.Tokens(pointer)); ok {
			return fmt.Errorf("%s:%d:%d: set reads %q of the arguments, which --record-redact keeps out of the store: take it out of set, or out of --record-redact", p.File(), at.Line, at.Column, pointer)
		}
	}
	return nil
}

// ofWebhook is what a webhook has of arguments.
func (f *Record) ofWebhook(arguments json.RawMessage) json.RawMessage {
	told, err := f.redaction().Of(arguments)
	if err != nil { // others may read them otherwise
		return json.RawMessage(`"` + redact.Placeholder + `"`)
	}
	return told
}
