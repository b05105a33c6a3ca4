package service

import (
	"context"
	"encoding/json"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/secret"
	"github.com/fsm-proxy/fsm-proxy/internal/visible"
	"github.com/fsm-proxy/fsm-proxy/internal/webhook"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/operator"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// approvals are the calls that wait for an operator.
func (s *service) approvals() []admin.Approval {
	out := []admin.Approval{}
	for _, x := range s.relay.Operators().Approvals() {
		out = append(out, adminApproval(x))
	}
	return out
}

func adminApproval(x runs.Asked) admin.Approval {
	out := admin.Approval{ID: x.ID, Run: runName(x.Info), Seq: x.Info.Seq, State: x.Info.State, Kind: x.Kind.String(), Name: x.Name,
		Arguments: json.RawMessage(x.Arguments), Registers: x.Registers.AppendJSON(nil), Who: x.Who, Message: x.Message, Rule: x.Rule.String(),
		Asked: x.AskedAt, Expires: x.ExpireAt}
	if len(out.Arguments) == 0 {
		out.Arguments = []byte("{}")
	}
	return out
}

// approve takes an operator's answer to a call that waits.
func (s *service) approve(ctx context.Context, said admin.ApprovalAnswer) (admin.Approved, error) {
	a := operator.Answer{ID: said.ID, Said: approval.Denied, Note: said.Note, Seq: said.Seq,
		From: observe.Peer{Remote: said.Remote, Principal: wire.Principal{Issuer: "admin", Subject: said.From}}}
	if said.Allow {
		a.Said = approval.Allowed
	}
	asked, err := s.relay.Operators().Approve(ctx, a)
	if err != nil {
		return admin.Approved{}, adminRefusal(err)
	}
	return admin.Approved{ID: asked.ID, Run: runName(asked.Info), Name: asked.Name, Answer: a.String()}, nil
}

// asked tells of an approval that is wanted.
func (s *service) asked(id string) {
	x, ok := s.relay.Operators().Approval(id)
	if !ok {
		return
	}
	s.log.Info("a call waits for an approval", "approval", id, "run", runName(x.Info), x.Kind.String(), wire.Clip(x.Name), "state", x.Info.State, "rule", x.Rule.String())
	if s.hook == nil {
		return
	}
	said := adminApproval(x)
	said.Arguments = s.cfg.Record.ofWebhook(said.Arguments)
	body, err := json.Marshal(wanted{"approval.wanted", x.AskedAt, said})
	if err != nil {
		s.log.Error("writing a webhook", "error", err)
		return
	}
	answered := func() bool {
		_, open := s.relay.Operators().Approval(id)
		return !open
	}
	s.hook.Send(webhook.Event{ID: id, Body: visible.JSON(body), Void: answered})
}

// wanted is what a webhook says.
type wanted struct {
	Type string         `json:"type"`
	At   time.Time      `json:"timestamp"`
	Data admin.Approval `json:"data"`
}

// openHook opens the webhook, if there is one.
func (s *service) openHook() (err error) {
	w := &s.cfg.Operators.Webhook
	if w.URL == "" {
		return nil
	}
	key, err := secret.Open("approval-webhook-key", w.KeyFile, s.log)
	if err != nil {
		return err
	}
	if s.hook, err = webhook.New(webhook.Config{URL: w.URL, Key: key.Get, Log: s.log}); err != nil {
		return exit.Usagef("--approval-webhook: %w", err)
	}
	s.onClose(s.hook.Close)
	return nil
}
