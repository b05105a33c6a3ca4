package run_test

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/redact"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// What is noted of arguments is what is left of them, as far as all read it alike.
func TestNote(t *testing.T) {
	secret, err := redact.New([]string{"/password"})
	if err != nil {
		t.Fatal(err)
	}
	digest := func(text string) string {
		sum, err := guard.Digest([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	long := `{"a":"` + strings.Repeat("x", 64<<10) + `"}`
	for _, x := range []struct {
		as   run.Recording
		sent string
		want run.Noted
	}{
		{run.Recording{}, `{"password":"x"}`, run.Noted{Digest: digest(`{"password":"x"}`)}},
		{run.Recording{Redact: secret}, `{"password":"x"}`, run.Noted{Digest: digest(`{"password":"[redacted]"}`)}},
		{run.Recording{Arguments: true}, `{"password": "x"}`, run.Noted{Digest: digest(`{"password":"x"}`), Arguments: []byte(`{"password": "x"}`)}},
		{run.Recording{Arguments: true, Redact: secret}, `{"password":"x","b":1}`, run.Noted{Digest: digest(`{"password":"[redacted]","b":1}`), Arguments: []byte(`{"password":"[redacted]","b":1}`)}},
		{run.Recording{Arguments: true, Redact: secret}, ``, run.Noted{Digest: digest(`{}`), Arguments: []byte(`{}`)}},
		{run.Recording{Arguments: true}, long, run.Noted{Digest: digest(long), Bytes: len(long)}},
		{run.Recording{Arguments: true, Redact: secret}, `{"password":"x","password":"y"}`, run.Noted{Bytes: 31}},
		{run.Recording{Arguments: true}, `{"a":"x","a":"y"}`, run.Noted{Bytes: 17}},
		{run.Recording{Arguments: true}, "{\"a\":\"\xff\"}", run.Noted{Bytes: 9}},
		{run.Recording{Redact: secret}, `{"password":"x","password":"y"}`, run.Noted{}},
	} {
		c := run.Call{Request: run.Request{Arguments: splitArgs(x.sent)}}
		c.Note(&x.as)
		if got := c.Noted; got.Digest != x.want.Digest || string(got.Arguments) != string(x.want.Arguments) || got.Bytes != x.want.Bytes {
			t.Errorf("of %.40s is noted %+v, and not %+v", x.sent, got, x.want)
		}
	}
}
