package outcome

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

func answer(t *testing.T, rest string) *wire.Message {
	t.Helper()
	m, err := wire.Read([]byte(`{"jsonrpc":"2.0","id":1,`+rest+`}`), wire.FromUpstream)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestOfAnswers: only a result that is all there is, or an error, says what was done.
func TestOfAnswers(t *testing.T) {
	done, failed := answer(t, `"result":{"content":[]}`), answer(t, `"result":{"content":[],"isError":true}`)
	for _, tt := range []struct {
		m       *wire.Message
		meaning bridge.Meaning
		want    policy.Outcome
	}{
		{done, bridge.Complete, policy.Success},
		{failed, bridge.Complete, policy.Error},
		{done, bridge.Task, None},
		{failed, bridge.InputRequired, None},
		{done, bridge.Unfitting, policy.Unknown},
		{failed, bridge.Unknown, policy.Unknown},
	} {
		if got := Of(tt.m, tt.meaning, nil); got != tt.want {
			t.Errorf("%s, %d: got %s, want %s", tt.m.Raw, tt.meaning, got, tt.want)
		}
	}
	for code, want := range map[int]policy.Outcome{
		wire.CodeMethodNotFound: None, wire.CodeURLElicitation: None, wire.CodeHeaderMismatch: None, wire.CodeMissingCapability: None, wire.CodeUnsupportedVersion: None,
		wire.CodeInvalidParams: policy.Error, wire.CodeInternal: policy.Error, wire.CodeResourceNotFound: policy.Error, 0: policy.Error, 17: policy.Error,
	} {
		m := answer(t, fmt.Sprintf(`"error":{"code":%d,"message":""}`, code))
		if got := Of(m, bridge.Complete, nil); got != want {
			t.Errorf("code %d: got %s, want %s", code, got, want)
		}
	}
}

// TestOfNoAnswer: what is not known to be harmless may have happened.
func TestOfNoAnswer(t *testing.T) {
	for status, want := range map[int]policy.Outcome{
		0: policy.Unknown, 200: policy.Unknown, 202: policy.Unknown, 302: policy.Unknown, 408: policy.Unknown, 409: policy.Unknown, 500: policy.Unknown, 502: policy.Unknown, 504: policy.Unknown,
		400: None, 401: None, 403: None, 404: None, 405: None, 406: None, 413: None, 415: None, 429: None,
	} {
		lost := &wire.CallError{Sent: true, Status: status, Err: errors.New("odd")}
		if got := Of(nil, bridge.Complete, fmt.Errorf("asking: %w", lost)); got != want {
			t.Errorf("status %d: got %s, want %s", status, got, want)
		}
		if lost.Sent = false; Of(nil, bridge.Complete, lost) != None {
			t.Errorf("status %d, never sent: it steps the run", status)
		}
	}
	for _, err := range []error{errors.New("odd"), ErrNoObject, ErrUnfitting, ErrTaskOfNoRun} {
		if got := Of(nil, bridge.Complete, err); got != policy.Unknown {
			t.Errorf("%v: got %s", err, got)
		}
	}
}
