package attack

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// turnedAway fails the test unless every message is refused with the code, nothing of it reaches the
// upstream, and the session lives on.
func turnedAway(t *testing.T, code string, messages ...string) {
	t.Helper()
	both(t, func(r *rig) {
		r.t.Helper()
		for _, raw := range messages {
			if answer := r.say(raw); !strings.Contains(answer, `"error":{"code":`+code) {
				r.t.Errorf("%.200q is answered %.300s", raw, answer)
			}
		}
		r.untouched()
	})
}

const (
	parseError     = "-32700"
	invalidRequest = "-32600"
)

func TestDuplicateName(t *testing.T) {
	turnedAway(t, invalidRequest,
		call("50", `{"name":"ok","name":"hidden"}`),
		call("50", `{"name":"hidden","name":"ok"}`),
		call("50", `{"name":"ok","name":"ok"}`),
		call("50", `{"name":"ok","n\u0061me":"hidden"}`),
		call("50", `{"name":"ok","arguments":{},"_meta":{},"\u006e\u0061\u006d\u0065":"hidden"}`))
}

func TestDuplicateMethod(t *testing.T) {
	turnedAway(t, invalidRequest,
		`{"jsonrpc":"2.0","id":50,"method":"ping","method":"tools/call","params":{"name":"hidden"}}`,
		`{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"hidden"},"method":"ping"}`,
		`{"jsonrpc":"2.0","id":50,"method":"ping","m\u0065thod":"tools/call","params":{"name":"hidden"}}`)
}

func TestDuplicateParams(t *testing.T) {
	turnedAway(t, invalidRequest,
		`{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok"},"params":{"name":"hidden"}}`,
		`{"params":{"name":"hidden"},"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok"}}`,
		`{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok"},"params":null}`)
}

func TestDuplicateID(t *testing.T) {
	turnedAway(t, invalidRequest,
		`{"jsonrpc":"2.0","id":50,"id":51,"method":"tools/call","params":{"name":"ok"}}`,
		`{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok"},"\u0069d":50}`)
}

// What decides is not in arguments, but an upstream that reads the last of two and a guard that reads the first
// would still differ about them.
func TestDuplicateArgument(t *testing.T) {
	turnedAway(t, invalidRequest,
		call("50", `{"name":"command","arguments":{"command":"plan","command":"move"}}`),
		call("50", `{"name":"ok","arguments":{"a":{"b":[{"c":1,"c":2}]}}}`),
		call("50", `{"name":"ok","arguments":{},"arguments":{"a":1}}`))
}

func TestCaseLookalikeName(t *testing.T) {
	turnedAway(t, invalidRequest,
		call("50", `{"name":"ok","Name":"hidden"}`),
		call("50", `{"NAME":"hidden","name":"ok"}`),
		call("50", `{"Name":"hidden"}`),
		call("50", `{"name":"ok","Arguments":{}}`),
		call("50", `{"name":"ok","Task":{}}`),
		call("50", `{"name":"ok","_Meta":{}}`),
		call("50", `{"name":"ok","_meta":{"progresstoken":1}}`),
		`{"jsonrpc":"2.0","id":50,"method":"ping","Method":"tools/call","params":{"name":"hidden"}}`,
		`{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok"},"Params":{"name":"hidden"}}`,
		`{"jsonrpc":"2.0","id":50,"ID":51,"method":"tools/call","params":{"name":"ok"}}`,
		`{"jsonrpc":"2.0","id":50,"method":"resources/read","params":{"uri":"w://shown","URI":"w://hidden"}}`,
		`{"jsonrpc":"2.0","id":50,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"shown","Name":"hidden"}}}`,
		`{"jsonrpc":"2.0","id":50,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"shown"},"Ref":{"type":"ref/prompt","name":"hidden"}}}`)
}

func TestLongSLookalike(t *testing.T) {
	turnedAway(t, invalidRequest,
		`{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok"},"paramſ":{"name":"hidden"}}`,
		`{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"ok"},"PARAM\u017f":{"name":"hidden"}}`,
		call("50", `{"name":"ok","argumentſ":{"path":"/etc"}}`),
		call("50", `{"name":"ok","taſk":{"ttl":1}}`))
}

func TestKelvinSignLookalike(t *testing.T) {
	turnedAway(t, invalidRequest,
		call("50", `{"name":"ok","_meta":{"progressTo`+"\u212a"+`en":1}}`),
		call("50", `{"name":"ok","_meta":{"progressTo\u212aen":1,"progressToken":2}}`),
		call("50", `{"name":"ok","tas\u212a":{"ttl":1}}`))
}

// Java compares names without case by way of the upper case, in which a dotless and a dotted i are the same.
func TestDotlessILookalike(t *testing.T) {
	turnedAway(t, invalidRequest,
		`{"jsonrpc":"2.0","id":50,"method":"resources/read","params":{"uri":"w://shown","urı":"w://hidden"}}`,
		`{"jsonrpc":"2.0","id":50,"method":"resources/read","params":{"uri":"w://shown","UR\u0130":"w://hidden"}}`,
		`{"jsonrpc":"2.0","id":50,"\u0131d":51,"method":"tools/call","params":{"name":"ok"}}`)
}

// Escapes are read as what they stand for, and go on as they came.
func TestUnicodeEscapes(t *testing.T) {
	both(t, func(r *rig) {
		for _, hidden := range []string{
			call("50", `{"name":"\u0068\u0069\u0064\u0064\u0065\u006e"}`),
			call("50", `{"n\u0061me":"hidden"}`),
			`{"jsonrpc":"2.0","id":50,"m\u0065thod":"tools\/call","p\u0061rams":{"name":"hidden"}}`,
			`{"jsonrpc":"2.0","id":50,"method":"resources\u002fread","params":{"uri":"w:\/\/hidden"}}`,
		} {
			if answer := r.say(hidden); !denied(answer) {
				r.t.Errorf("%s is answered %s", hidden, answer)
			}
		}
		const escaped = `{"n\u0061me":"\u006fk","arguments":{"b":"\u0041\/"}}`
		if answer := r.say(call("51", escaped)); !strings.Contains(answer, mcptest.Text("ok")) {
			r.t.Errorf("an allowed name in escapes is answered %s", answer)
		}
		r.lives()
		r.reached("tools/call ok")
		if got := string(r.upstream.Received()[indexOf(r, "tools/call")].Params); got != escaped {
			r.t.Errorf("the upstream got %s", got)
		}
	})
}

// indexOf is where the first message of a method stands among those that reached the upstream.
func indexOf(r *rig, method string) int {
	for i, m := range r.upstream.Received() {
		if m.Method == method {
			return i
		}
	}
	r.t.Fatalf("no %s reached the upstream", method)
	return -1
}

func TestBOM(t *testing.T) {
	turnedAway(t, parseError,
		"\ufeff"+call("50", `{"name":"ok"}`),
		call("50", `{"name":"ok"}`)+"\ufeff",
		"\ufeff\ufeff[]")
}

func TestInvalidUTF8(t *testing.T) {
	turnedAway(t, parseError,
		call("50", "{\"name\":\"ok\xff\"}"),
		call("50", "{\"name\":\"ok\",\"arguments\":{\"a\":\"\xc0\xaf\"}}"),     // overlong slash
		call("50", "{\"name\":\"ok\",\"arguments\":{\"a\":\"\xed\xa0\x80\"}}"), // a surrogate in UTF-8
		call("50", "{\"name\":\"ok\",\"na\xffme\":\"hidden\"}"),
		call("50", "{\"name\":\"ok\"}")+"\xfe")
}

func TestLoneSurrogate(t *testing.T) {
	turnedAway(t, parseError,
		call("50", `{"name":"ok\ud800"}`),
		call("50", `{"name":"ok","arguments":{"a":"\udc00\ud800"}}`),
		call("50", `{"name":"ok","\ud83dname":"hidden"}`))
}

func TestNUL(t *testing.T) {
	turnedAway(t, parseError,
		call("50", "{\"name\":\"ok\x00\"}"),
		call("50", "{\"name\":\"ok\"}")+"\x00",
		"\x00"+call("50", "{\"name\":\"ok\"}"))
}

// A NUL that is escaped is legal JSON; a name with one is no other name, and a member's name with one is taken
// for the routed one by readers that end strings there.
func TestEscapedNUL(t *testing.T) {
	both(t, func(r *rig) {
		for _, raw := range []string{
			call("50", `{"name":"ok\u0000"}`),
			call("50", `{"name":"ok\u0000hidden"}`),
			call("50", `{"name":"ok","name\u0000":"hidden"}`),
			`{"jsonrpc":"2.0","id":50,"method":"tools/call\u0000","params":{"name":"ok"}}`,
		} {
			if answer := r.say(raw); !denied(answer) {
				r.t.Errorf("%s is answered %s", raw, answer)
			}
		}
		r.untouched()
	})
}

func TestTrailingData(t *testing.T) {
	turnedAway(t, parseError,
		call("50", `{"name":"ok"}`)+" "+call("51", `{"name":"hidden"}`),
		call("50", `{"name":"ok"}`)+"}",
		call("50", `{"name":"ok"}`)+",",
		call("50", `{"name":"ok",}`),
		call("50", `{"name":"ok"}`)+" // tools/call hidden",
		`{'jsonrpc':'2.0'}`,
		`tools/call hidden`)
}

func TestNoObject(t *testing.T) {
	turnedAway(t, invalidRequest, `"tools/call"`, `"{\"method\":\"tools/call\"}"`, "null", "true", "50")
}

// What stands between tokens is no part of the message, and no second line for the upstream either.
func TestLineBreaksBetweenTokens(t *testing.T) {
	each(t, []way{web, webPipe}, func(r *rig) {
		hidden := "\r\n" + call("51", `{"name":"hidden"}`) + "\n"
		raw := "{\"jsonrpc\":\"2.0\",\r\"id\":50,\n\"method\":\"tools/call\",\r\n\"params\":{\"name\":\"ok\"\n}}\n\n"
		if answer := r.say(raw); !strings.Contains(answer, mcptest.Text("ok")) {
			r.t.Errorf("answered %s", answer)
		}
		if answer := r.say(raw + hidden); !strings.Contains(answer, parseError) {
			r.t.Errorf("two messages in a body are answered %s", answer)
		}
		r.lives()
		r.reached("tools/call ok")
	})
}

func TestNumber1e400(t *testing.T) {
	both(t, func(r *rig) {
		for _, id := range []string{"1e400", "1.5", "1.0", "true", "null", "{}", "[]"} {
			if answer := r.say(call(id, `{"name":"ok"}`)); !strings.Contains(answer, invalidRequest) {
				r.t.Errorf("the id %s is answered %s", id, answer)
			}
		}
		const big = `{"name":"ok","arguments":{"a":1e400,"b":-0,"c":1.0,"d":123456789012345678901234567890}}`
		if answer := r.say(call("51", big)); !strings.Contains(answer, mcptest.Text("ok")) {
			r.t.Errorf("numbers in arguments are answered %s", answer)
		}
		r.lives()
		r.reached("tools/call ok")
		if got := string(r.upstream.Received()[indexOf(r, "tools/call")].Params); got != big {
			r.t.Errorf("the upstream got %s", got)
		}
	})
}

// Ids that a double cannot tell apart are two, and come back as they were sent.
func TestIDBeyond2to53(t *testing.T) {
	both(t, func(r *rig) {
		first, second := "9007199254740993", "9007199254740992"
		r.Send(call(first, `{"name":"hold_open"}`))
		r.upstream.Await(r.t, 1, "tools/call", "hold_open")
		r.Send(call(second, `{"name":"ok"}`))
		if answer := r.Next(); string(answer.ID) != second || string(answer.Result) != mcptest.Text("ok") {
			r.t.Errorf("the second is answered %s", answer)
		}
		r.upstream.Open("hold_open")
		if answer := r.Next(); string(answer.ID) != first || string(answer.Result) != mcptest.Text("the true answer") {
			r.t.Errorf("the first is answered %s", answer)
		}
		r.reached("tools/call hold_open", "tools/call ok")
	})
}

// 1 and "1" are two ids: both can be under way, and cancelling one leaves the other alone.
func TestIDOneAgainstStringOne(t *testing.T) {
	both(t, func(r *rig) {
		r.Send(call(`"1000"`, `{"name":"hold_open"}`))
		r.upstream.Await(r.t, 1, "tools/call", "hold_open")
		r.Notify("notifications/cancelled", `{"requestId":1000}`)
		r.Send(call(`1000`, `{"name":"ok"}`))
		if answer := r.Next(); string(answer.ID) != "1000" || denied(answer.String()) {
			r.t.Errorf("the number is answered %s", answer)
		}
		r.upstream.Open("hold_open")
		if answer := r.Next(); string(answer.ID) != `"1000"` || string(answer.Result) != mcptest.Text("the true answer") {
			r.t.Errorf("the string is answered %s", answer)
		}
		r.reached("tools/call hold_open", "tools/call ok")
	})
}

// An id that is under way is not taken a second time, and the call that has it is answered as if nothing were.
func TestIDInFlight(t *testing.T) {
	t.Parallel()
	for _, id := range []string{`1000`, `"1000"`, `-7`, `"\u00fc"`} {
		for _, w := range []way{pipes, web} {
			t.Run(id+" "+w.client, func(t *testing.T) {
				t.Parallel()
				r := w.open(t)
				r.Send(call(id, `{"name":"hold_open"}`))
				r.upstream.Await(t, 1, "tools/call", "hold_open")
				r.Send(call(id, `{"name":"once"}`))
				if answer := r.Next(); !strings.Contains(string(answer.Error), invalidRequest) {
					t.Errorf("the second is answered %s", answer)
				}
				r.upstream.Open("hold_open")
				if answer := r.Next(); string(answer.ID) != id || string(answer.Result) != mcptest.Text("the true answer") {
					t.Errorf("the first is answered %s", answer)
				}
				r.in("start")
				r.reached("tools/call hold_open")
			})
		}
	}
}

// An id comes back in the bytes in which it was sent, and is free again with its answer.
func TestIDComesBackAsSent(t *testing.T) {
	both(t, func(r *rig) {
		for _, id := range []string{`9007199254740993`, `"9007199254740993"`, `"1001"`, `1001`, `"\u00fc"`, `"ü"`, `-7`, `""`, `1001`} {
			r.Send(call(id, `{"name":"ok","arguments":{"alive":true}}`))
			if answer := r.Next(); string(answer.ID) != id || string(answer.Result) != mcptest.Text("ok") {
				r.t.Errorf("the id %s is answered %s", id, answer)
			}
		}
		r.untouched()
	})
}

func TestDeepMessage(t *testing.T) {
	deep := func(n int, left, right string) string {
		return call("50", `{"name":"ok","arguments":{"a":`+strings.Repeat(left, n)+"1"+strings.Repeat(right, n)+`}}`)
	}
	turnedAway(t, parseError,
		deep(600, "[", "]"),
		deep(600, `{"a":`, "}"),
		deep(100000, "[", "]"),
		call("50", `{"name":"ok","arguments":`+strings.Repeat(`{"a":`, 100000)))
}

// Too large a message is refused under its id without being kept, and the next one is read.
func TestHugeMessage(t *testing.T) {
	both(t, func(r *rig) {
		if answer := r.say(call("50", `{"name":"ok","arguments":{"a":"`+strings.Repeat("x", 5<<20)+`"}}`)); !strings.Contains(answer, `"id":50,"error":{"code":-32600`) {
			r.t.Errorf("answered %.200s", answer)
		}
		r.untouched()
	})
}

// A message without an id is no request, and a call is not let through as one.
func TestCallAsNotification(t *testing.T) {
	both(t, func(r *rig) {
		for _, name := range []string{"ok", "hidden"} {
			r.Notify("tools/call", mcptest.ToolParams(name, ""))
		}
		r.Notify("resources/read", `{"uri":"w://hidden"}`)
		r.Notify("notifications/vendor", `{"name":"hidden"}`)
		r.untouched()
	})
}

// batch sends a batch and returns its answer, which comes behind what it has changed.
func (r *rig) batch(raw string) string {
	answer := r.say(raw)
	for r.web == nil && !strings.HasPrefix(answer, "[") {
		answer = r.Next().String()
	}
	return answer
}

const oldHello = `{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"old","version":"1"}}`

// Each member of a batch is decided by itself, in the state that the one before it led to.
func TestBatchHidesDeniedCall(t *testing.T) {
	t.Parallel()
	for _, w := range []way{pipes, web} {
		t.Run(w.client, func(t *testing.T) {
			t.Parallel()
			r := w.start(t)
			if r.web != nil {
				r.web.Version = "2025-03-26"
			}
			r.InitializeAs(oldHello)
			answer := r.batch(`[` + call("50", `{"name":"ok"}`) + `,` + call("51", `{"name":"hidden"}`) + `,` +
				call("52", `{"name":"ok","name":"hidden"}`) + `,` + call("53", `{"name":"once"}`) + `,` +
				call("54", `{"name":"once"}`) + `,[` + call("55", `{"name":"hidden"}`) + `],` +
				mcptest.Notification("tools/call", `{"name":"hidden"}`) + `]`)
			for _, want := range []string{`"unknown_action"`, `"id":52,"error":{"code":-32600`, `"invalid_transition"`} {
				if !strings.Contains(answer, want) {
					t.Errorf("the batch's answer has no %s: %s", want, answer)
				}
			}
			r.lives()
			r.reached("tools/call ok", "tools/call once")
		})
	}
}

func TestBatchOutsideItsRevision(t *testing.T) {
	member := call("51", `{"name":"ok"}`)
	turnedAway(t, invalidRequest, "["+member+"]", strings.Repeat("[", 100000), " ["+member+","+member+"]", "[]")
}

// Nothing gets ahead of initialize, in a batch neither.
func TestBatchBeforeInitialize(t *testing.T) {
	t.Parallel()
	for _, w := range []way{pipes, web} {
		t.Run(w.client, func(t *testing.T) {
			t.Parallel()
			r := w.start(t)
			batch := "[" + mcptest.Request(1, "initialize", oldHello) + "," + call("2", `{"name":"ok"}`) + "]"
			if r.web == nil {
				if answer := r.say(batch); !strings.Contains(answer, invalidRequest) {
					t.Errorf("answered %s", answer)
				}
			} else if answer := r.web.Post(t.Context(), batch); answer.Status != http.StatusBadRequest {
				t.Errorf("answered %d %s", answer.Status, answer.Body)
			}
			r.Initialize()
			r.untouched()
		})
	}
}

// The header of the protocol's revision and the session agree, or nothing happens.
func TestHeaderBodyMismatch(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.open(t)
		for _, version := range []string{"2025-03-26", "2026-07-28", "1900-01-01", "2025-11-25, 2025-03-26", "x"} {
			r.web.Version = version
			if answer := r.web.Post(t.Context(), call("50", `{"name":"once"}`)); answer.Status != http.StatusBadRequest {
				t.Errorf("%s: answered %d %s", version, answer.Status, answer.Body)
			}
		}
		r.web.Version = "2025-11-25"
		r.web.Header = http.Header{"Mcp-Method": {"ping"}, "Mcp-Name": {"ok"}}
		if answer := r.say(call("50", `{"name":"hidden"}`)); !denied(answer) {
			t.Errorf("headers that name another tool open it: %s", answer)
		}
		r.web.Header = http.Header{}
		r.untouched()
		r.in("start")
	})
}

// An event stream may end its lines in three ways, tear them anywhere, and say one message in many lines; an
// event counts when its empty line is there, without a byte more.
func TestSSELineBreaks(t *testing.T) {
	styles(t, "lf", "crlf", "cr", "torn", "mixed", "bom", "comments", "elsewhere")
}

func TestSSEMultiLineData(t *testing.T) { styles(t, "lines") }

func styles(t *testing.T, names ...string) {
	each(t, []way{pipeWeb, web}, func(r *rig) {
		for _, name := range names {
			if answer := r.Tool("sse", `{"style":"`+name+`"}`); string(answer.Result) != mcptest.Text("styled") {
				r.t.Errorf("%s: answered %s", name, answer)
			}
		}
		if n := r.upstream.Count("tools/call", "sse"); n != len(names) {
			r.t.Errorf("%d calls reached the upstream", n)
		}
		r.in("start")
	})
}

// A line of some MiB is a message like any other; one beyond the limit is an answer that cannot be read.
func TestSSEGiantLine(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]string{"4MiB": "gggg", "1MiB": `"outcome_unknown"`} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			r := web.with("--max-upstream-message", limit).open(t)
			if answer := r.Tool("sse", `{"style":"giant"}`); !strings.Contains(answer.String(), want) {
				t.Errorf("answered %.300s", answer)
			}
			r.lives()
			r.reached("tools/call sse")
		})
	}
}

// On the stream of one call nobody answers another.
func TestSSEAnswerToAnotherID(t *testing.T) {
	each(t, []way{pipeWeb, web}, func(r *rig) {
		held := r.Request("tools/call", mcptest.ToolParams("hold_open", ""))
		r.upstream.Await(r.t, 1, "tools/call", "hold_open")
		if answer := r.Tool("answer_for", ""); string(answer.Result) != mcptest.Text("mine") {
			r.t.Errorf("the forger is answered %s", answer)
		}
		r.upstream.Open("hold_open")
		if answer, _ := r.Answer(held); string(answer.Result) != mcptest.Text("the true answer") {
			r.t.Errorf("the forged one is answered %s", answer)
		}
		r.unheard("forged")
		r.reached("tools/call hold_open", "tools/call answer_for")
	})
}
