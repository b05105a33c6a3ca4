package runs

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// inShadow opens a proxy in shadow, by whose policy what leads on from the second state cannot be undone.
func inShadow(t *testing.T) (k key, url string, h *house) {
	t.Helper()
	const final = ", irreversible: true"
	k, url = key{"legacy", byHeader}, store(t)
	return k, url, counted(t, k, fmt.Sprintf(forkable, final, final), "--mode", "shadow", "--store", url)
}

// In shadow a call that cannot be undone is kept before it is sent, too: so that it is there though the proxy is killed behind
// it, and has an end. One that the policy would have refused is sent all the same, and is kept likewise.
func TestIrreversibleCallsAreKeptInShadow(t *testing.T) {
	t.Parallel()
	k, url, h := inShadow(t)
	c := h.enter(k, "")
	for _, tool := range []string{"once", "elsewhere"} {
		if r := c.call(tool, ""); strings.Contains(r.raw, `"error"`) {
			t.Errorf("%s: %s", tool, r.raw)
		}
	}
	const before = "began@start ended:once:success@start begun:elsewhere@after ended:elsewhere:success@after"
	if got := summary(only(t, url, "ended", 2)); got != before {
		t.Errorf("%s\nand not\n%s", got, before)
	}
	c.Request("tools/call", mcptest.ToolParams("hold", `{"who":"me"}`))
	h.upstream.Await(t, 1, "tools/call", "hold")
	if got := summary(only(t, url, "begun", 2)); got != before+" begun:hold@after" {
		t.Errorf("it was sent, and the entries are %s", got)
	}
	h.again(os.Kill)
	h.enter(k, "").call("ok", "")
	if got := summary(only(t, url, "stayed", 1)); got != before+" begun:hold@after ended:hold:unknown@after stayed:ok:success@after" {
		t.Errorf("after it was killed the entries are %s", got)
	}
	verified(t, url)
}

// What a call would have been refused for stands in its entries, whether the policy's binding says it or not. So does a call that
// asks for a task where there are none: it is sent all the same, and is kept likewise.
func TestWhyCallsWouldBeRefusedIsKeptInShadow(t *testing.T) {
	t.Parallel()
	k, url, h := inShadow(t)
	c := h.enter(k, "")
	c.Call("tools/call", `{"name":"once","arguments":{},"task":{}}`)
	c.call("once", "")
	c.Call("tools/call", `{"name":"elsewhere","arguments":{},"task":{}}`)
	const want = "began@start stayed:once:not_available:success@start ended:once:success@start begun:elsewhere:not_available@after ended:elsewhere:success@after"
	if got := summary(only(t, url, "ended", 2)); got != want {
		t.Errorf("%s\nand not\n%s", got, want)
	}
	verified(t, url)
}

// Nobody follows a task in shadow: a call that cannot be undone and became one was sent, and nobody knows how it ends.
func TestTasksThatAreIrreversibleInShadow(t *testing.T) {
	t.Parallel()
	w := works(t, key{"legacy", byHeader}, false, "--mode", "shadow")
	w.begins("other", `"n":1`)
	const want = "began@start begun:other@start ended:other:unknown@start"
	if got := summary(only(t, w.store, "ended", 1)); got != want {
		t.Errorf("%s\nand not\n%s", got, want)
	}
	verified(t, w.store)
}
