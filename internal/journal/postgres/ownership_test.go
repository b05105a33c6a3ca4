package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A model of how processes share the runs of a database (lease.go, owner.go): by leases, fences, takeovers, and by giving away.
// It has one run, three processes, and a database that executes statements in any order, whoever has crashed, is paused, or did
// not hear the answer. Each statement is atomic; but what it looks up beside the row that it updates it sees as that was when it
// began (READ COMMITTED, https://www.postgresql.org/docs/current/transaction-iso.html).
//
// A process acts by its lease for less time than the database keeps it, as of before it asked for that. To append, to take, and
// to give away is to update the run's row under the owner and fence that were seen before. Who takes over ends the owner's lease
// first, which works only past its end; and a lease that was ended is not renewed.
//
// A process may begin to drain at any time. From then on it sends no call, has the one under way come to its end, gives the run
// away, for others to take at once, and takes it only where it is still its own; at last it lets its lease go. To give away is a
// statement for whose answer nobody waits: it may come late. Clients make a call once more only where they hear that it was not
// sent: not where they hear its outcome, nor where they hear nothing of it, since its process has gone.
//
// How a run begins, or is removed, is not modelled, nor how requests find their way, nor tasks.

// mistakes are ways to get it wrong. The zero value makes none.
type mistakes struct {
	leaseBeside     bool // to append looks the lease up, and does not update the run's row under owner and fence
	anyLease        bool // an owner acts under any lease that it has, and not by the one by which it loaded the run
	noLook          bool // between begun and sending nobody looks at the lease
	takesBlind      bool // to take over does not compare owner and fence
	leaseStays      bool // who takes over leaves the lease row, which is renewed afterwards
	openTransaction bool // to append takes two round trips
	lostIsFailed    bool // a commit without confirmation is taken for one that has failed
	givesUnderCall  bool // who begins to drain gives the run away, whatever is under way
	givesUnwritten  bool // who drains gives the run away once the outcome of its last call has come, so that its end is not written
	releaseByLease  bool // to give away does not compare the fence
	neverReleases   bool // who drains leaves the run to the end of its lease
	toldUnwritten   bool // a client hears the outcome of its call before that is confirmed
	sendsLate       bool // a call is sent when its beginning is confirmed late, and its client has heard that it was not sent
	goneIsUnsent    bool // a call whose process has gone is taken for one that was not sent
}

const (
	lease  = 4             // ticks from when the database writes it to its end
	trust  = lease * 3 / 4 // ticks for which its owner acts by it, from before it asked
	renews = lease / 4
)

// fact is an entry of the run.
type fact struct {
	what string // begun, ended, unsent or unknown
	call int
	by   int // as whom it was written
}

// statement is one that is under way.
type statement struct {
	what     string // open, renew, end, look, take, append, release or leave
	of       *process
	life     int // of the process, when it was sent
	asked    int // when
	no       int // the lease that it is about
	owner    int // as whom it updates the run's row, or, of take, whom it takes it from
	fence    int
	expected int
	fact     fact

	waits               int // until when the database does not go on with it
	begun, locked, done bool
	beside              bool // what it looked up when it began
	answer              reply
}

// reply is what the database answers.
type reply struct {
	ok    bool
	no    int // the lease that was opened
	row   row
	facts []fact
	there bool // the owner's lease has a row
	past  bool // and is past its end
}

// row is the run's. Owner 0 is nobody.
type row struct{ owner, fence int }

// process is one that wants to have the run.
type process struct {
	life         int
	paused       bool
	drains       bool // until it has ended, and is started again
	no           int  // its lease; 0: none
	asked, until int  // when it asked for it last, and up to when it acts by it
	leases, runs *statement
	has          bool // it has loaded the run
	under, fence int  // as whom
	facts        []fact
	call         int // that it has begun to make; 0: none
	begun, sent  bool
	came         bool // its outcome
	unsure       *fact
	seen         *reply // the run's row, as it was
}

// world is all of it.
type world struct {
	mistakes
	now, numbers, calls int
	again               []int       // calls that clients make once more
	sent                map[int]int // how often, by call
	told                []fact      // outcomes that clients have heard
	ends                map[int]int // by lease; one that was ended is not there
	run                 row
	facts               []fact
	lock                *statement
	flying              []*statement
	all                 []*process
	wrong               error // the first promise that was broken
}

func newWorld(m mistakes) *world {
	return &world{mistakes: m, ends: map[int]int{}, sent: map[int]int{}, all: []*process{{}, {}, {}}}
}

func (w *world) breaks(format string, args ...any) {
	if w.wrong == nil {
		w.wrong = fmt.Errorf(format, args...)
	}
}

// moves makes one move of the schedule.
func (w *world) moves(x int) {
	p := w.all[x/100%len(w.all)]
	var s *statement
	if n := len(w.flying); n > 0 {
		s = w.flying[x/100%n]
	}
	switch x %= 100; {
	case x < 8:
		w.now++
	case x < 10:
		w.now += lease
	case x < 50: // and what it waits for is answered
		w.step(p, x%4)
		for _, s := range slices.Clone(w.flying) {
			if s == p.leases || s == p.runs {
				w.execute(s)
				w.execute(s)
				w.deliver(s, false)
			}
		}
	case x < 65:
		w.step(p, x%4)
	case x < 73 && s != nil:
		w.execute(s)
	case x < 75 && s != nil:
		if s.waits = w.now + 2*lease; !s.begun { // its backend does not go on
			s.begins(w)
		}
	case x < 83 && s != nil:
		w.deliver(s, false)
	case x < 86 && s != nil:
		w.deliver(s, true)
	case x < 91:
		p.paused = true
	case x < 98:
		p.paused = false
	case x < 99:
		w.crash(p)
	case !p.drains:
		if p.drains = true; p.has && w.givesUnderCall {
			w.releases(p)
		}
	}
}

func (w *world) crash(p *process) {
	if p.call != 0 && w.goneIsUnsent {
		w.again = append(w.again, p.call)
	}
	*p = process{life: p.life + 1}
	if w.lock != nil && w.lock.of == p {
		w.lock.done, w.lock = true, nil
	}
}

// acts reports whether a process may list, decide and send now.
func (w *world) acts(p *process) bool {
	return p.no != 0 && w.now < p.until && (p.under == p.no || w.anyLease)
}

// asks sends a statement.
func (w *world) asks(s statement, p *process) *statement {
	s.of, s.life, s.asked = p, p.life, w.now
	w.flying = append(w.flying, &s)
	return &s
}

func (w *world) append(p *process, f fact) {
	p.runs = w.asks(statement{what: "append", no: p.no, owner: p.under, fence: p.fence, expected: len(p.facts), fact: f}, p)
}

func (w *world) releases(p *process) {
	if !w.neverReleases {
		w.asks(statement{what: "release", owner: p.under, fence: p.fence}, p)
	}
}

// step has a process do what it does next.
func (w *world) step(p *process, choice int) {
	if p.paused {
		return
	}
	switch {
	case choice == 0 && p.leases == nil && p.no == 0:
		p.leases = w.asks(statement{what: "open"}, p)
	case choice == 0 && p.leases == nil && w.now >= p.asked+renews:
		p.leases = w.asks(statement{what: "renew", no: p.no}, p)
	case choice == 1 && p.has && w.acts(p):
		w.decides(p)
	case p.runs != nil:
		if p.runs.locked && !p.runs.done {
			w.commits(p.runs)
		}
	case choice == 3 && p.drains && !p.has:
		w.asks(statement{what: "leave", no: p.no}, p)
		w.crash(p)
	case p.unsure != nil || !p.has && p.seen == nil:
		if w.now < p.until {
			p.runs = w.asks(statement{what: "look"}, p)
		}
	case !p.has:
		w.takes(p)
	case p.drains && p.call == 0 && choice != 2: // lists may be under way
	default:
		w.goesOn(p)
	}
}

// isAnothers reports whether somebody else has the run of a process.
func (w *world) isAnothers(p *process) bool {
	return w.run.owner != 0 && (w.run.owner != p.under || w.run.fence != p.fence)
}

// decides lists, decides or sends what stays: by the state that all entries come to.
func (w *world) decides(p *process) {
	switch waits := p.unsure != nil || p.runs != nil && p.runs.what == "append"; {
	case w.isAnothers(p):
		w.breaks("it decides for a run that is another's")
	case len(p.facts) != len(w.facts) && !waits:
		w.breaks("it decides by an old state")
	}
}

// takes has a process have the run, if that is its own or nobody's, or once its owner's lease has ended.
func (w *world) takes(p *process) {
	seen := p.seen
	p.seen = nil
	switch take := (statement{what: "take", no: p.no, owner: seen.row.owner, fence: seen.row.fence}); {
	case w.now >= p.until || p.drains && seen.row.owner != p.no:
	case seen.row.owner == p.no, !seen.there || seen.past && w.leaseStays:
		p.runs = w.asks(take, p)
	case seen.past:
		p.runs = w.asks(statement{what: "end", no: seen.row.owner}, p)
	}
}

func (w *world) loads(p *process, r *reply) {
	p.has, p.under, p.fence, p.facts = true, p.no, r.row.fence, slices.Clone(r.facts)
	p.call, p.begun, p.sent, p.came, p.unsure = 0, false, false, false, nil
}

func (w *world) drops(p *process) {
	w.over(p)
	p.has, p.unsure, p.seen = false, nil, nil
}

// over has the client of a call hear that it was not sent, if that is so. Then it makes it once more.
func (w *world) over(p *process) {
	if p.call != 0 && !p.sent {
		w.again = append(w.again, p.call)
	}
	p.call = 0
}

// goesOn makes calls one after the other, or gives the run away.
func (w *world) goesOn(p *process) {
	open := 0 // the call that has begun and not ended
	for _, f := range p.facts {
		if open = f.call; f.what != "begun" {
			open = 0
		}
	}
	switch {
	case p.under != p.no && !w.anyLease:
		w.drops(p)
	case open != 0 && open != p.call:
		w.append(p, fact{"unknown", open, p.under})
	case p.drains && (p.call == 0 || p.came && w.givesUnwritten):
		w.releases(p)
		w.drops(p)
	case p.call == 0 && w.acts(p):
		w.calls++
		p.call, p.begun, p.sent, p.came = w.calls, false, false, false
		if len(w.again) > 0 {
			p.call, w.again = w.again[0], w.again[1:]
		}
		w.append(p, fact{"begun", p.call, p.under})
	case p.call == 0:
	case p.begun && !p.sent && !p.drains && (w.acts(p) || w.noLook):
		w.sends(p)
	case p.begun && !p.sent:
		w.append(p, fact{"unsent", p.call, p.under})
	case p.sent && !p.came:
		p.came = true
	case p.came:
		ended := fact{"ended", p.call, p.under}
		if w.append(p, ended); w.toldUnwritten {
			w.told = append(w.told, ended)
		}
	}
}

// sends sends the call of a process.
func (w *world) sends(p *process) {
	p.sent = true
	w.sent[p.call]++
	switch last := w.last(); {
	case w.sent[p.call] > 1:
		w.breaks("a call is sent twice")
	case last.what != "begun" || last.call != p.call:
		w.breaks("a call is sent that has not begun, or has an end")
	case w.isAnothers(p):
		w.breaks("a call is sent for a run that is another's")
	}
}

func (w *world) last() (f fact) {
	if n := len(w.facts); n > 0 {
		f = w.facts[n-1]
	}
	return f
}

// begins has a statement look up what it does beside the row that it updates: to take over whether the owner's lease was ended,
// and, by mistake, to append whether its own process' is there.
func (s *statement) begins(w *world) {
	s.begun = true
	if ends, there := w.ends[s.owner]; s.what == "take" {
		s.beside = !there || s.owner == s.no || w.leaseStays && ends <= w.now
		return
	}
	ends, there := w.ends[s.no]
	s.beside = there && ends > w.now
}

// execute has the database begin with a statement, or go on with it.
func (w *world) execute(s *statement) {
	switch {
	case s.done, w.now < s.waits:
	case !s.begun:
		s.begins(w)
	case s.locked || w.lock != nil && slices.Contains([]string{"take", "append", "release", "leave"}, s.what):
		// it waits for who has the row
	case s.what == "append" && w.openTransaction:
		s.locked, w.lock = true, s
	default:
		w.commits(s)
	}
}

// commits has a statement be over.
func (w *world) commits(s *statement) {
	a := &s.answer
	s.done = true
	if w.lock == s {
		w.lock = nil
	}
	switch ends, there := w.ends[s.no]; s.what {
	case "open":
		w.numbers++
		w.ends[w.numbers] = w.now + lease
		a.ok, a.no = true, w.numbers
	case "renew":
		if a.ok = there; there {
			w.ends[s.no] = w.now + lease
		}
	case "end":
		if a.ok = there && ends <= w.now; a.ok {
			delete(w.ends, s.no)
		}
	case "take":
		if a.ok = s.beside && (w.run.owner == s.owner && w.run.fence == s.fence || w.takesBlind); a.ok {
			w.run.owner, w.run.fence = s.no, w.run.fence+1
		}
	case "release":
		if w.run.owner == s.owner && (w.run.fence == s.fence || w.releaseByLease) {
			w.run.owner = 0
		}
	case "leave":
		if delete(w.ends, s.no); w.run.owner == s.no {
			w.run.owner = 0
		}
	case "append":
		a.ok = len(w.facts) == s.expected && w.run.owner == s.owner && w.run.fence == s.fence
		if w.leaseBeside {
			a.ok = len(w.facts) == s.expected && s.beside
		}
		if a.ok && s.fact.what == "unknown" && w.ends[w.last().by] > w.now {
			w.breaks("a call is unknown whose process has its lease")
		}
		if a.ok {
			w.facts = append(w.facts, s.fact)
		}
	}
	ends, there := w.ends[w.run.owner]
	a.row, a.facts, a.there, a.past = w.run, slices.Clone(w.facts), there, there && ends <= w.now
}

// deliver has a process hear an answer, or hear that its connection is lost. Where it is lost the statement goes on.
func (w *world) deliver(s *statement, lost bool) {
	p := s.of
	gone := p.life != s.life
	if !lost && !s.done || p.paused && !gone {
		return
	}
	if !lost || s.done {
		w.flying = slices.DeleteFunc(w.flying, func(x *statement) bool { return x == s })
	}
	if gone || p.leases != s && p.runs != s {
		return
	}
	if w.lock == s && lost { // the database rolls back what nobody commits
		s.done, w.lock = true, nil
	}
	if p.leases == s {
		p.leases = nil
		w.leased(p, s, lost)
		return
	}
	p.runs = nil
	switch a := &s.answer; {
	case s.what == "append":
		w.appended(p, s, lost)
	case lost:
	case s.what == "look" && p.unsure != nil:
		w.settles(p, a)
	case s.what == "look":
		p.seen = a
	case s.what == "take" && a.ok && s.no == p.no:
		w.loads(p, a)
	}
}

func (w *world) leased(p *process, s *statement, lost bool) {
	switch a := &s.answer; {
	case lost:
	case s.what == "open":
		p.no, p.asked, p.until = a.no, s.asked, s.asked+trust
	case a.ok:
		p.asked, p.until = s.asked, s.asked+trust
	default:
		if p.no = 0; !w.anyLease {
			w.drops(p)
		}
	}
}

// appended has what was written count.
func (w *world) appended(p *process, s *statement, lost bool) {
	switch {
	case lost && !w.lostIsFailed:
		if p.unsure = &s.fact; s.fact.what == "begun" && w.sendsLate {
			w.again = append(w.again, p.call)
		}
	case lost:
		w.over(p)
	case s.answer.ok:
		w.counts(p, s.fact)
	case p.unsure != nil: // it was made before it was made again
	default:
		w.drops(p)
	}
}

func (w *world) counts(p *process, f fact) {
	p.facts, p.unsure = append(p.facts, f), nil
	switch f.what {
	case "begun":
		p.begun = true
	case "ended":
		w.told = append(w.told, f)
		p.call = 0
	case "unsent":
		w.over(p)
	}
}

// settles finds out what has become of a commit without confirmation, and makes it again where it was not made.
func (w *world) settles(p *process, a *reply) {
	n := len(p.facts)
	switch {
	case a.row.owner != p.under || a.row.fence != p.fence:
		w.drops(p)
	case len(a.facts) > n && a.facts[n] == *p.unsure:
		w.counts(p, *p.unsure)
	case len(a.facts) > n:
		w.drops(p)
	default:
		w.append(p, *p.unsure)
	}
}

// survives ends all processes but those that are paused, and has one answer a call in time. Then that one drains, and another
// one answers a call at once.
func (w *world) survives() {
	first, next := w.all[0], w.all[1]
	for _, p := range w.all {
		if p == first || !p.paused {
			w.crash(p)
		}
	}
	w.answers(3*lease, first)
	w.crash(next)
	first.drains = true
	w.answers(0, first, next)
}

// answers has the last of processes answer a call within a time.
func (w *world) answers(within int, all ...*process) {
	last := all[len(all)-1]
	has := func(f fact) bool { return last.no != 0 && f.by == last.no }
	for until := w.now + within; w.wrong == nil && !slices.ContainsFunc(w.told, has); w.now++ {
		if w.now > until {
			w.breaks("a run is not to be had")
		}
		for range 12 {
			for _, p := range all {
				w.step(p, 0)
				w.step(p, 2)
			}
			for _, s := range slices.Clone(w.flying) {
				w.execute(s)
				w.execute(s)
				w.deliver(s, false)
			}
		}
	}
}

// lives plays a schedule, and returns which promise was broken.
func lives(m mistakes, schedule []int) error {
	w := newWorld(m)
	for _, x := range schedule {
		if w.moves(x); w.wrong != nil {
			return w.wrong
		}
	}
	w.survives()
	for _, f := range w.told {
		if !slices.Contains(w.facts, f) {
			w.breaks("an outcome that was told is lost")
		}
	}
	return w.wrong
}

// scheduled are moves that are chosen evenly. Of those that break a promise rapid finds the fewest.
func scheduled(seed uint64, moves int) []int {
	chosen := rand.New(rand.NewPCG(seed, 0))
	all := make([]int, moves)
	for i := range all {
		all[i] = chosen.IntN(600)
	}
	return all
}

// TestOwnership: whatever crashes, pauses, drains or is lost, nobody decides for a run that is another's or by an old state, no call
// is sent for one, or that has not begun or has an end, or twice, none is unknown whose process has its lease, no outcome that was
// told is lost, and the run is to be had again: at once, where its process has drained.
func TestOwnership(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for range 10 {
			if err := lives(mistakes{}, scheduled(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 600).Draw(t, "moves"))); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestOwnershipMistakes: the model finds each mistake.
func TestOwnershipMistakes(t *testing.T) {
	for name, m := range map[string]mistakes{
		"a lease looked up beside": {leaseBeside: true}, "any lease": {anyLease: true}, "no look": {noLook: true}, "a take that compares nothing": {takesBlind: true}, "the lease stays": {leaseStays: true},
		"an open transaction": {openTransaction: true}, "lost is failed": {lostIsFailed: true}, "given away under a call": {givesUnderCall: true}, "given away unwritten": {givesUnwritten: true},
		"given away by the lease alone": {releaseByLease: true}, "never given away": {neverReleases: true}, "told unwritten": {toldUnwritten: true}, "sends late": {sendsLate: true},
		"gone is unsent": {goneIsUnsent: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(100_000) {
				if err := lives(m, scheduled(seed, 600)); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("nothing that is promised is broken")
		})
	}
}
