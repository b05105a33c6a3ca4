//go:build long && unix

package runs

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// of is the id of the one run, as an operator sees it.
func (h *house) of() string {
	h.t.Helper()
	all := h.known()
	if len(all) != 1 {
		h.t.Fatalf("there are %d runs: %+v", len(all), all)
	}
	return all[0].ID
}

// owned reports whether somebody has the one run of the store.
func (r *replicas) owned() bool {
	r.t.Helper()
	return one[int64](r.t, r.store, "SELECT owner FROM fsm_proxy.runs WHERE ended IS NULL") != 0
}

// An operator looks at a run, and has each verb done, at a replica that does not have it: the owner does it, and writes down
// who has had it be done.
func TestOperatorsAtAnyReplica(t *testing.T) {
	t.Parallel()
	k := key{"modern", "handle"}
	_, url := mcptest.HTTP(t, server())
	r := replicate(t, k, approving, databases(t)(t), "--admin-tokens", tokensOf(t, "olga"), "--upstream", url)
	c := r.enter(k, "")
	if x := c.call("once", ""); x.verdict != "success" {
		t.Fatal(x.raw)
	}
	owner, others := r.owner()
	id, at := r.of(), others[0]
	want := owner.show(id)
	for _, h := range r.all {
		if s := h.show(id); fmt.Sprint(s) != fmt.Sprint(want) || s.State != "waiting" {
			t.Errorf("%+v, want %+v", s, want)
		}
		if out := h.does(0, "ls"); !strings.Contains(out, "PROCESS") || !strings.Contains(out, fmt.Sprintf("process %d ", owner.process.Process.Pid)) {
			t.Errorf("who has the run is not listed: %s", out)
		}
		var page struct {
			Items []struct {
				Process  string
				Sessions *int
				AtRest   bool `json:"at_rest"`
			}
		}
		h.operator(http.MethodGet, "/v1/runs", &page)
		if len(page.Items) != 1 || !strings.HasPrefix(page.Items[0].Process, fmt.Sprintf("process %d ", owner.process.Process.Pid)) || page.Items[0].AtRest || (page.Items[0].Sessions != nil) != (h == owner) {
			t.Errorf("a run of another process is listed as %+v", page.Items)
		}
	}
	for _, stranger := range []string{"", "Bearer wrong"} {
		for _, path := range []string{"/end", "/reset", "/signals/approved", "/release"} {
			if s := at.posts("/v1/runs/"+id+path, "", "Authorization", stranger, "Fsm-Proxy-Door", "operators", "Fsm-Proxy-Who", `{"issuer":"admin","subject":"olga"}`); s.status != http.StatusUnauthorized {
				t.Errorf("%s by %q: %d %s", path, stranger, s.status, s.text)
			}
		}
	}
	if s := at.approves(id, "approved", `{"seq":0}`); s.status != http.StatusConflict || s.Code != "run_moved" || s.Seq != want.Seq {
		t.Errorf("by what was before: %d %s", s.status, s.text)
	}
	if s := at.approves(id, "approved", fmt.Sprintf(`{"note":"fine","seq":%d}`, want.Seq)); s.status != http.StatusOK || s.State != "applying" {
		t.Errorf("%d %s", s.status, s.text)
	}
	owner.process.Log().Await(t, "subject=olga run="+id+" signal=approved note=fine")
	at.does(0, "annotate", id, "stopped here")
	if out := at.does(0, "fork", id, "--reason", "another"); !strings.Contains(out, id) {
		t.Error(out)
	}
	if out := at.does(1, "accept", id); !strings.Contains(out, "not_accepted") {
		t.Error(out)
	}
	at.does(0, "reset", id, "--reason", "anew")
	if x := c.call("once", ""); x.verdict != "success" {
		t.Error(x.raw)
	}
	at.does(0, "end", id, "--reason", "over")
	if x := c.call("once", ""); x.verdict != "run_expired" {
		t.Error(x.raw)
	}
	if is := one[string](t, r.store, "SELECT l.holder FROM fsm_proxy.runs r JOIN fsm_proxy.leases l ON l.no = r.owner WHERE r.id = '"+id+"'"); is != "" && !strings.HasPrefix(is, fmt.Sprintf("process %d ", owner.process.Process.Pid)) {
		t.Errorf("%s has the run", is)
	}
	r.end()
	all := notedOf(t, r.store, id)
	for kind, text := range map[string]string{"reset": "anew", "finished": "over", "annotated": "stopped here"} {
		if !slices.ContainsFunc(all, func(e noted) bool {
			return e.Type == kind && e.Who == "admin|olga" && (e.Reason == text || e.Text == text)
		}) {
			t.Errorf("there is no entry %s %q by olga: %+v", kind, text, all)
		}
	}
}

// A client is no operator by what it says, in headers or as replicas say it, at whichever replica.
func TestAttackByAClientAtTheOperatorsDoor(t *testing.T) {
	t.Parallel()
	k := key{"modern", "handle"}
	_, url := mcptest.HTTP(t, server())
	r := replicate(t, k, approving, databases(t)(t), "--admin-tokens", tokensOf(t, "olga"), "--upstream", url)
	c := r.enter(k, "")
	if x := c.call("once", ""); x.verdict != "success" {
		t.Fatal(x.raw)
	}
	id := r.of()
	passenger := `{"who":{"subject":"b2xnYQ==","issuer":"YWRtaW4=","scopes":[],"claims":""},"remote":"","run":"","door":"operators"}`
	number := one[string](t, r.store, "SELECT owner::text FROM fsm_proxy.runs LIMIT 1")
	for _, h := range r.all {
		base := strings.TrimSuffix(h.url, "/mcp")
		for _, at := range []string{"/v1/runs/" + id + "/end", "/mcp/../v1/runs/" + id + "/end", "/mcp", "/mcp/v1/runs/" + id + "/end"} {
			for _, before := range []string{"", string(binary.BigEndian.AppendUint32(nil, uint32(len(passenger)))) + passenger} {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+at, strings.NewReader(before+"{}"))
				if err != nil {
					t.Fatal(err)
				}
				claims(request.Header, "olga", number)
				request.Header.Set("Fsm-Proxy-Door", "operators")
				answer, err := http.DefaultClient.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				if answer.Body.Close(); answer.StatusCode < http.StatusBadRequest {
					t.Errorf("%s: %s", at, answer.Status)
				}
			}
		}
	}
	if s := r.show(id); s.State != "waiting" {
		t.Errorf("%+v", s)
	}
	if x := c.call("ok", ""); x.verdict != "success" || x.state != "waiting" {
		t.Error(x.raw)
	}
}

// Calls that wait for an operator are listed, shown and answered at each replica.
func TestApprovalsAtAnyReplica(t *testing.T) {
	t.Parallel()
	k := key{"modern", byHeader}
	upstream, url := mcptest.HTTP(t, server())
	r := replicate(t, k, paying, databases(t)(t), "--tokens", tokensOf(t, "ann"), "--admin-tokens", tokensOf(t, "olga"), "--upstream", url)
	var clients []*client
	var calls []int
	for i := range r.all { // a run at each
		c := r.all[i].as(k, "ann", fmt.Sprint("run ", i))
		clients, calls = append(clients, c), append(calls, c.begins("once", fmt.Sprintf(`"n":%d`, i)))
	}
	want := r.approvals(len(r.all))
	if !slices.IsSortedFunc(want, func(a, b asked) int { return strings.Compare(a.ID, b.ID) }) {
		t.Errorf("%+v", want)
	}
	for _, h := range r.all {
		if all := h.approvals(len(want)); fmt.Sprint(all) != fmt.Sprint(want) {
			t.Errorf("%+v, want %+v", all, want)
		}
		var page struct {
			Next  string
			Items []asked
		}
		if h.operator(http.MethodGet, "/v1/approvals?limit=1&after="+want[0].ID, &page); len(page.Items) != 1 || page.Items[0].ID != want[1].ID || page.Next != want[1].ID {
			t.Errorf("a page: %+v", page)
		}
		for _, x := range want {
			var one asked
			if h.operator(http.MethodGet, "/v1/approvals/"+x.ID, &one); one.ID != x.ID || one.Run != x.Run || one.Seq != x.Seq || one.Expires != x.Expires {
				t.Errorf("%+v, want %+v", one, x)
			}
			if s := h.posts("/v1/approvals/"+x.ID+"/allow", ""); s.status != http.StatusUnauthorized {
				t.Errorf("without a token: %d %s", s.status, s.text)
			}
		}
		if s := h.answers("no-such", "allow", ""); s.status != http.StatusNotFound || s.Code != "approval_not_found" {
			t.Errorf("no approval: %d %s", s.status, s.text)
		}
	}
	if s := r.all[0].answers(want[0].ID, "deny", fmt.Sprintf(`{"note":"no","seq":%d}`, want[0].Seq)); s.status != http.StatusOK {
		t.Errorf("%d %s", s.status, s.text)
	}
	for _, h := range r.all { // a no is known as long as its run is in the state, at its owner
		if s := h.answers(want[0].ID, "allow", ""); s.status != http.StatusConflict || s.Code != "approval_answered" {
			t.Errorf("after a no: %d %s", s.status, s.text)
		}
	}
	for _, x := range want[1:] { // the others' too
		if s := r.all[0].answers(x.ID, "allow", fmt.Sprintf(`{"note":"fine","seq":%d}`, x.Seq)); s.status != http.StatusOK {
			t.Errorf("%d %s", s.status, s.text)
		}
	}
	if s := r.all[1].answers(want[1].ID, "allow", ""); s.status != http.StatusNotFound && s.status != http.StatusConflict {
		t.Errorf("again: %d %s", s.status, s.text)
	}
	came := map[string]int{}
	for i, c := range clients {
		came[c.answered(calls[i]).verdict]++
	}
	if fmt.Sprint(came) != "map[approval_denied:1 success:2]" || upstream.Count("tools/call", "once") != 2 {
		t.Errorf("%v, %d were sent", came, upstream.Count("tools/call", "once"))
	}
	r.approvals(0)
}

// A run in which a call waits for an approval is not released: who goes on with it would ask anew. Once it has its answer it is.
func TestReleaseOfARunThatWaitsForAnApproval(t *testing.T) {
	t.Parallel()
	k := key{"modern", byHeader}
	_, url := mcptest.HTTP(t, server())
	r := replicate(t, k, paying, databases(t)(t), "--approval-hold", "20ms", "--admin-tokens", tokensOf(t, "olga"), "--upstream", url)
	c := r.enter(k, "")
	if x := c.call("once", ""); x.verdict != "approval_pending" {
		t.Fatal(x.raw)
	}
	x := r.approvals(1)[0]
	_, others := r.owner()
	if s := others[0].posts("/v1/runs/"+x.Run+"/release", "", "Authorization", "Bearer "+token("olga")); s.status != http.StatusConflict || s.Code != "busy" {
		t.Errorf("%d %s", s.status, s.text)
	}
	if s := others[0].answers(x.ID, "deny", ""); s.status != http.StatusOK {
		t.Errorf("%d %s", s.status, s.text)
	}
	if x := c.call("once", ""); x.verdict != "approval_denied" {
		t.Error(x.raw)
	}
	if s := others[0].posts("/v1/runs/"+x.Run+"/release", "", "Authorization", "Bearer "+token("olga")); s.status != http.StatusOK {
		t.Errorf("%d %s", s.status, s.text)
	}
}

// A run that is released, at whichever replica, goes on at another one than its owner, but not while a call is under way in it.
func TestReleaseOfRuns(t *testing.T) {
	database := databases(t)
	each(t, []key{{"modern", "handle"}, {"legacy", "session"}}, func(t *testing.T, k key) {
		upstream, url := mcptest.HTTP(t, server())
		r := replicate(t, k, steps, database(t), "--admin-tokens", tokensOf(t, "olga"), "--upstream", url)
		c := r.enter(k, "")
		if x := c.call("once", ""); x.verdict != "success" || x.state != "after" {
			t.Fatal(x.raw)
		}
		owner, others := r.owner()
		id := one[string](t, r.store, "SELECT id FROM fsm_proxy.runs WHERE ended IS NULL")
		if k.kind == "session" {
			c.web.Listen()
		}
		for _, release := range []func(){
			func() { others[0].does(0, "release", id, "--reason", "ticket 12") },
			func() {
				if out := owner.does(0, "release", "--all", "--reason", "ticket 12"); out != "given away: 1\n" {
					t.Error(out)
				}
			},
		} {
			was := owner
			release()
			was.process.Log().Await(t, "release")
			if r.owned() {
				t.Error("somebody has the run still")
			}
			r.come(was)
			if x := c.call("ok", ""); x.verdict != "success" || x.state != "after" {
				t.Errorf("after a release: %s", x.raw)
			}
			if owner, others = r.owner(); owner == was {
				t.Error("who has given the run away has it again")
			}
			r.come(r.all...)
		}
		call := c.begins("hold_open", "")
		upstream.Await(t, 1, "tools/call", "hold_open")
		if s := others[0].posts("/v1/runs/"+id+"/release", "", "Authorization", "Bearer "+token("olga")); s.status != http.StatusConflict || s.Code != "busy" {
			t.Errorf("while a call is under way: %d %s", s.status, s.text)
		}
		if out := owner.does(0, "release", "--all"); !strings.HasPrefix(out, "given away: 0; 1 stay") {
			t.Error(out)
		}
		upstream.Open("hold_open")
		if x := c.answered(call); x.verdict != "success" {
			t.Error(x.raw)
		}
		if is, _ := r.owner(); is != owner {
			t.Error("the run has gone all the same")
		}
		r.end()
	})
}

// A run that is released goes on at another replica though one of the others cannot be reached, whichever is asked first.
func TestReleaseBesideAReplicaThatIsCutOff(t *testing.T) {
	t.Parallel()
	k := key{"modern", "handle"}
	_, url := mcptest.HTTP(t, server())
	r := lined(t, k, steps, databases(t)(t), "--admin-tokens", tokensOf(t, "olga"), "--upstream", url)
	c := r.enter(k, "")
	if x := c.call("once", ""); x.state != "after" {
		t.Fatal(x.raw)
	}
	for i := range 8 { // each time one of the others is asked first by chance
		was, others := r.owner()
		cut, goesOn := others[i%2], others[1-i%2]
		r.doors[cut].cut()
		was.does(0, "release", was.of())
		r.come(was)
		if x := c.call("ok", ""); x.verdict != "success" || x.state != "after" {
			t.Errorf("after a release: %s", x.raw)
		}
		if is, _ := r.owner(); is != goesOn {
			t.Errorf("release %d: the run is not where it could go on", i)
		}
		r.doors[cut].mend()
		r.come(r.all...)
	}
}

// The last replica goes on with what it has given away, and a process that shares its store with none gives nothing away.
func TestReleaseToNobody(t *testing.T) {
	t.Parallel()
	k := key{"modern", "handle"}
	_, url := mcptest.HTTP(t, server())
	flags := []string{"--annotate", "meta", "--admin-tokens", tokensOf(t, "olga"), "--upstream", url, "--store", databases(t)(t)}
	h := open(t, k, steps, append(flags, "--peer-listen", "127.0.0.1:0")...)
	c := h.enter(k, "")
	if x := c.call("once", ""); x.state != "after" {
		t.Fatal(x.raw)
	}
	h.does(0, "release", h.of())
	if x := c.call("ok", ""); x.verdict != "success" || x.state != "after" {
		t.Error(x.raw)
	}
	alone := open(t, k, steps, "--admin-tokens", tokensOf(t, "olga"), "--upstream", url, "--store", store(t))
	alone.enter(k, "")
	for _, args := range [][]string{{"release", alone.of()}, {"release", "--all"}} {
		if out := alone.does(1, args...); !strings.Contains(out, "not_available") || !strings.Contains(out, "--peer-listen") {
			t.Error(out)
		}
	}
}

// Who asks a replica for what the run's owner has switched off is told which process that is.
func TestVerbThatTheOwnerHasSwitchedOff(t *testing.T) {
	t.Parallel()
	k := key{"modern", "handle"}
	_, url := mcptest.HTTP(t, server())
	flags := []string{"--annotate", "meta", "--admin-tokens", tokensOf(t, "olga"), "--upstream", url, "--store", databases(t)(t), "--peer-listen", "127.0.0.1:0"}
	owner := open(t, k, steps, append(flags, "--admin-verbs", "none")...)
	owner.enter(k, "").call("once", "")
	asked := open(t, k, steps, flags...)
	if said, want := asked.does(1, "reset", owner.of()), fmt.Sprintf("reset is switched off in process %d on ", owner.process.Process.Pid); !strings.Contains(said, want) {
		t.Errorf("it is said: %s\nwant: %s", said, want)
	}
}

// What is known of an operator's signal whose owner is killed while it waits for the turn is that it may have counted: it is not
// sent again by itself. A look is asked of the next owner.
func TestOperatorsWhoseOwnerIsKilled(t *testing.T) {
	t.Parallel()
	k := key{"modern", "handle"}
	upstream, url := mcptest.HTTP(t, server())
	r := replicate(t, k, approving, databases(t)(t), "--admin-tokens", tokensOf(t, "olga"), "--upstream", url)
	c := r.enter(k, "")
	if x := c.call("once", ""); x.verdict != "success" {
		t.Fatal(x.raw)
	}
	owner, others := r.owner()
	id, at := r.of(), others[0]
	r.come(others...)
	hold := c.begins("hold", "")
	upstream.Await(t, 1, "tools/call", "hold")
	came := make(chan said, 1)
	go func() {
		s, err := at.signals(t.Context(), id, "approved", "", "Authorization", "Bearer "+token("olga"))
		if err != nil {
			t.Error(err)
		}
		came <- s
	}()
	mcptest.Await(t, "the signal waits for the turn", func() bool { return at.show(id).Queued == 1 })
	owner.ends(os.Kill)
	if s := <-came; s.status != http.StatusBadGateway || s.Code != "outcome_unknown" || !strings.Contains(s.text, "The request was passed on") {
		t.Errorf("%d %s", s.status, s.text)
	}
	if s := at.show(id); s.State != "waiting" {
		t.Errorf("%+v", s)
	}
	if x := c.answered(hold); x.verdict != "outcome_unknown" {
		t.Error(x.raw)
	}
	if s := at.approves(id, "approved", ""); s.status != http.StatusOK || s.State != "applying" {
		t.Errorf("%d %s", s.status, s.text)
	}
	upstream.Open("hold")
}

// A replica that does not answer does not hold up the list of approvals, which names it.
func TestApprovalsBesideAReplicaThatIsStopped(t *testing.T) {
	t.Parallel()
	k := key{"modern", "handle"}
	_, url := mcptest.HTTP(t, server())
	r := replicate(t, k, paying, databases(t)(t), "--admin-tokens", tokensOf(t, "olga"), "--upstream", url, "--lease", "20s")
	c := r.enter(k, "")
	call := c.begins("once", "")
	x := r.approvals(1)[0]
	owner, others := r.owner()
	goOn := others[0].pauses()
	for _, h := range []*house{owner, others[1]} {
		var page struct {
			Count  *int
			Items  []asked
			Absent []string
		}
		h.operator(http.MethodGet, "/v1/approvals", &page)
		if len(page.Items) != 1 || page.Items[0].ID != x.ID || page.Count != nil || len(page.Absent) != 1 || !strings.HasPrefix(page.Absent[0], fmt.Sprintf("process %d ", others[0].process.Process.Pid)) {
			t.Errorf("%+v", page)
		}
	}
	goOn()
	if s := others[1].answers(x.ID, "allow", ""); s.status != http.StatusOK {
		t.Errorf("%d %s", s.status, s.text)
	}
	if x := c.answered(call); x.verdict != "success" {
		t.Error(x.raw)
	}
}

// An answer that is lost on the way to a replica in which the call does not wait is taken where it waits. Where it may have been lost
// with the call, it is not known whether it was taken.
func TestAnswersOfWhichAReplicaHeardNothing(t *testing.T) {
	t.Parallel()
	k := key{"modern", "handle"}
	_, url := mcptest.HTTP(t, server())
	r := lined(t, k, paying, databases(t)(t), "--admin-tokens", tokensOf(t, "olga"), "--upstream", url)
	asks, loses, has := r.all[1], r.all[0], r.all[2] // in the order in which they are asked
	r.come(has)
	c := r.enter(k, "")
	garbled := func(p []byte) []byte { p[len(p)-1] ^= 1; return p } // upon which the connection ends
	for _, x := range []struct {
		lose, status int
		code         string
	}{{1, http.StatusOK, ""}, {2, http.StatusBadGateway, "outcome_unknown"}} {
		call := c.begins("once", fmt.Sprintf(`"n":%d`, x.lose))
		id := asks.approvals(1)[0].ID // over connections that the answer takes, too
		for _, h := range []*house{loses, has}[:x.lose] {
			r.doors[h].alters(garbled)
		}
		if s := asks.answers(id, "deny", ""); s.status != x.status || s.Code != x.code {
			t.Errorf("%d are lost: %d %s", x.lose, s.status, s.text)
		}
		for _, door := range r.doors {
			door.alters(nil)
		}
		if x.status != http.StatusOK {
			if s := has.answers(id, "deny", ""); s.status != http.StatusOK {
				t.Errorf("at the call's replica: %d %s", s.status, s.text)
			}
		}
		if x := c.answered(call); x.verdict != "approval_denied" {
			t.Error(x.raw)
		}
	}
}
