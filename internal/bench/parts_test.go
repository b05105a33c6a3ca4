package main

import (
	"context"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestScanEnvelope(t *testing.T) {
	for msg, want := range map[string][2]string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`:                      {`1`, `"ping"`},
		`{"method":"ping","params":{"id":9,"method":"x"},"id":"a\"b,"}`: {`"a\"b,"`, `"ping"`},
		"{ \"id\" :\t-7 ,\n\"method\": \"tools/call\" }":                {`-7`, `"tools/call"`},
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`:        {``, `"notifications/initialized"`},
		`{"params":["id",{"id":1}],"x":"id","method":"m","id":2}`:       {`2`, `"m"`},
		`{"id":3,"result":{"method":"no"}}`:                             {`3`, ``},
		`{"id`:                                                          {``, ``},
		``:                                                              {``, ``},
	} {
		e := scanEnvelope([]byte(msg))
		if string(e.id) != want[0] || string(e.method) != want[1] {
			t.Errorf("%s: id %s, method %s", msg, e.id, e.method)
		}
	}
}

func TestHTTPReader(t *testing.T) {
	const stream = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nMcp-Session-Id: s1\r\n\r\nhello" +
		"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" +
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n" +
		"POST /mcp HTTP/1.1\r\n\r\n"
	for name, src := range map[string]io.Reader{"whole": strings.NewReader(stream), "bytes": iotest.OneByteReader(strings.NewReader(stream))} {
		in := newHTTPReader(src)
		var bodies []string
		for {
			m, err := in.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			bodies = append(bodies, string(m.body)+"/"+m.session)
		}
		if got := strings.Join(bodies, " "); got != "hello/s1 / abc0123456789/ /" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, wrong := range []string{"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n"} {
		if m, err := newHTTPReader(strings.NewReader(wrong)).next(); err == nil {
			t.Errorf("%q: %+v", wrong, m)
		}
	}
}

func TestHTTPReaderGrows(t *testing.T) {
	body := strings.Repeat("y", 100_000)
	in := newHTTPReader(strings.NewReader("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + body))
	if m, err := in.next(); err != nil || string(m.body) != body {
		t.Errorf("%v", err)
	}
}

func TestQuestionID(t *testing.T) {
	q := newQuestion(askCall, "text", false)
	putID(q.body[q.idAt:q.idAt+idDigits], firstID+7*idsEach)
	if e := scanEnvelope(q.body); string(e.id) != "1070000000" {
		t.Errorf("%s: id %s", q.body, e.id)
	}
}

func TestPercentileAndMedian(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	if percentile(hundred, 50) != 50 || percentile(hundred, 99) != 99 || percentile([]int{7}, 99) != 7 || percentile([]int(nil), 50) != 0 {
		t.Error("percentile")
	}
	if median([]float64{3, math.NaN(), 1, 2}) != 2 || median([]float64{4, 1}) != 2.5 || !math.IsNaN(median(nil)) {
		t.Error("median")
	}
}

func TestSample(t *testing.T) {
	s := newSample([]time.Duration{3000, 1000, 2000}, time.Second, 6*time.Microsecond)
	if s.rate() != 3 || s.cpuPerCall() != 2 || s.p50Micros() != 2 || s.p99Micros() != 3 {
		t.Errorf("%+v", s)
	}
	if s.cpu = -1; !math.IsNaN(s.cpuPerCall()) {
		t.Error("unknown CPU time is a number")
	}
}

// judged is a cell in which fsm-proxy does half as well as nginx.
func judged() *cell {
	rounds := func(calls ...int) []sample {
		var all []sample
		for _, n := range calls {
			all = append(all, sample{calls: n, took: time.Second, p50: time.Duration(n), cpu: time.Duration(n) * 30 * time.Microsecond})
		}
		return all
	}
	return &cell{path: httpToJSON, callers: 32, rows: []*row{
		{contestant: contestant{subject{name: nginx}, askCall}, samples: rounds(100, 200, 1000)},
		{contestant: contestant{subject{name: fsmProxy}, askCall}, samples: rounds(50, 100, 900)},
		{contestant: contestant{subject{name: typedProxy}, askCall}, err: io.EOF},
	}}
}

func TestRatioIsPaired(t *testing.T) {
	c := judged()
	if got := c.ratio(fsmProxy, nginx, sample.rate); got != 0.5 {
		t.Errorf("ratio %v", got)
	}
	if !math.IsNaN(c.ratio(fsmProxy, typedProxy, sample.rate)) || !math.IsNaN(c.ratio(fsmProxy, "nobody", sample.rate)) {
		t.Error("a missing subject has a ratio")
	}
}

func TestReport(t *testing.T) {
	r := &report{builds: []string{fsmProxy}, cells: []*cell{judged()},
		idle:     []idleFigure{{build: fsmProxy, count: 2000, bytes: 3000}, {build: fsmProxy, kind: idleStream, count: 2000, bytes: 50_000}},
		replicas: []replicasFigure{{callers: 64, owner: 1500, passed: 1.6, beside: 1.02}, {callers: 1, err: io.EOF}}}
	var b strings.Builder
	if err := r.write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| calls/s ÷ nginx's, callers: 32                                 |   0.50 |   ≥ 0.6 | NO  |  0.50 |",
		"| CPU a call ÷ ReverseProxy's, callers: 32                       |      – |   ≤ 0.7 | –   |     – |",
		"| bytes an idle session (2,000)                                  |  3,000 |  ≤ 5120 | yes |       |",
		"| bytes an idle session with its GET stream (2,000)              | 50,000 | ≤ 40960 | NO  |       |",
		"| p50 of a step passed on ÷ at its owner (1,500 µs), callers: 64 |   1.60 |   ≤ 1.5 | NO  |       |",
		"| p50 of a step at its owner ÷ in a process alone, callers: 64   |   1.02 |   ≤ 1.1 | yes |       |",
		"- replicas, 1 callers: EOF",
		"- http-http-json, 32 callers, mcp-go: EOF",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if r.complete() {
		t.Error("complete with a failed subject")
	}
}

func TestTable(t *testing.T) {
	table := table{columns: []column{{"a", false}, {"µs", true}}}
	table.add("longer", "1")
	table.add("é", "12,345")
	var b strings.Builder
	if err := table.write(&b); err != nil {
		t.Fatal(err)
	}
	const want = "| a      |     µs |\n| ------ | -----: |\n| longer |      1 |\n| é      | 12,345 |\n"
	if b.String() != want {
		t.Errorf("\n%s", b.String())
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0.4131: "0.41", 61.24: "61.2", 999.6: "1,000", 14210: "14,210", 1234567: "1,234,567",
		-2000: "-2,000", math.Inf(1): "–"} {
		if got := number(v); got != want {
			t.Errorf("%v: %s, not %s", v, got, want)
		}
	}
}

func TestVerdict(t *testing.T) {
	if verdict(0.7, 0.7, true) != "yes" || verdict(0.69, 0.7, true) != "NO" || verdict(59, 60, false) != "yes" ||
		verdict(61, 60, false) != "NO" || verdict(math.NaN(), 1, true) != "–" {
		t.Error("verdict")
	}
}

// TestRowThatCannotConnect keeps its error and can be shut.
func TestRowThatCannotConnect(t *testing.T) {
	addr, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	gone := func(context.Context, site) (*running, error) { return &running{addr: addr}, nil }
	r := &row{contestant: contestant{subject{"gone", gone}, askCall}}
	r.open(t.Context(), site{path: httpToJSON}, 2)
	r.turn(window{}, site{})
	r.shut()
	if r.err == nil || !strings.Contains(r.err.Error(), "opening session 1 of 2: connecting: ") {
		t.Errorf("%v", r.err)
	}
}

func TestTail(t *testing.T) {
	var last tail
	last.Write([]byte(strings.Repeat("a", tailSize)))
	last.Write([]byte("end"))
	if got := last.String(); len(got) != tailSize || !strings.HasSuffix(got, "aend") {
		t.Errorf("%d bytes", len(got))
	}
}
