package service

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/peers"
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

// soon is for how long processes are asked what they have.
const soon = 2 * time.Second

// othersApprovals are those of the other processes that share the store, and which of these have not answered.
func (s *service) othersApprovals(ctx context.Context, from string) (all []admin.Approval, absent []string) {
	ctx, stop := context.WithTimeout(ctx, soon)
	defer stop()
	others, err := s.replica.others(ctx)
	if err != nil {
		return nil, []string{"all processes but this one, since the store does not tell which there are"}
	}
	said := make([][]admin.Approval, len(others))
	failed := make([]error, len(others))
	var asking sync.WaitGroup
	for i := range others {
		asking.Go(func() { said[i], failed[i] = s.approvalsOf(ctx, others[i], operatorPassenger(from, "")) })
	}
	asking.Wait()
	for i := range others {
		if failed[i] != nil {
			s.log.Warn("another process does not say which calls wait for an approval", "process", others[i].Holder, "error", failed[i])
			absent = append(absent, others[i].Holder)
		}
		all = append(all, said[i]...)
	}
	return all, absent
}

// maxApprovals is how many bytes of approvals are read of another process at a time.
const maxApprovals = 64 << 20

// approvalsOf are those of another process.
func (s *service) approvalsOf(ctx context.Context, of journal.Peer, who peers.Passenger) (all []admin.Approval, err error) {
	for after, more := "", true; more; {
		said, err := s.replica.peers.Ask(ctx, of, "/v1/approvals?limit=1000&after="+after, who, maxApprovals)
		if err != nil {
			return nil, err
		}
		var page struct {
			Next  string
			Items []admin.Approval
		}
		if err := json.Unmarshal(said, &page); err != nil {
			return nil, fmt.Errorf("reading its approvals: %w", err)
		}
		all, after, more = append(all, page.Items...), url.QueryEscape(page.Next), page.Next != ""
	}
	return all, nil
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
