package wire

import (
	"errors"
	"strings"
	"testing"
)

// call wraps params in a tools/call.
func call(params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
}

// TestReadKinds reads one message of each kind, with its routed fields.
func TestReadKinds(t *testing.T) {
	tests := map[string]struct {
		raw  string
		kind Kind
		want func(m *Message) bool
	}{
		"request": {call(`{"name":"a","arguments":{"x":[1]},"_meta":{"progressToken":"t"}}`), Request, func(m *Message) bool {
			return m.Method == "tools/call" && m.P.Name == "a" && string(m.Bytes(m.ID)) == "1" &&
				string(m.Bytes(m.P.Arguments)) == `{"x":[1]}` && string(m.Bytes(m.P.MetaToken)) == `"t"`
		}},
		"notification": {`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"7"}}`, Notification,
			func(m *Message) bool { return string(m.Bytes(m.P.RequestID)) == `"7"` && m.IDKey() == "" }},
		"result": {`{"jsonrpc":"2.0","id":"x","result":{"content":[],"isError":true,"_meta":{},"nextCursor":"n"}}`, Result,
			func(m *Message) bool {
				return m.R.IsError && string(m.Bytes(m.R.Content)) == "[]" && string(m.Bytes(m.R.Meta)) == "{}" &&
					m.R.NextCursor == "n" && string(m.Bytes(m.R.NextCursorAt)) == `"n"`
			}},
		"explicit isError false": {`{"jsonrpc":"2.0","id":1,"result":{"isError":false}}`, Result, func(m *Message) bool { return !m.R.IsError }},
		"error":                  {`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`, Failure, func(m *Message) bool { return m.ErrorCode == -32601 }},
		"error to nothing":       {`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}`, Failure, func(m *Message) bool { return !m.ID.Present() }},
		"error code with point":  {`{"jsonrpc":"2.0","id":1,"error":{"code":-32042.0}}`, Failure, func(m *Message) bool { return m.ErrorCode == -32042 }},
		"error code with power":  {`{"jsonrpc":"2.0","id":1,"error":{"code":-3.2042E+4}}`, Failure, func(m *Message) bool { return m.ErrorCode == -32042 }},
		"error code, a fraction": {`{"jsonrpc":"2.0","id":1,"error":{"code":-32042.5}}`, Failure, func(m *Message) bool { return m.ErrorCode == 0 }},
		"error code, no number":  {`{"jsonrpc":"2.0","id":1,"error":{"code":"NaN"}}`, Failure, func(m *Message) bool { return m.ErrorCode == 0 }},
		"error code too large":   {`{"jsonrpc":"2.0","id":1,"error":{"code":4294934695}}`, Failure, func(m *Message) bool { return m.ErrorCode == 0 }},
		"completion":             {call(`{"ref":{"type":"ref/prompt","name":"p","uri":"u"}}`), Request, func(m *Message) bool { return *m.P.Ref == Ref{"ref/prompt", "p", "u"} }},
		"name is no string":      {call(`{"name":7}`), Request, func(m *Message) bool { return m.P.Name == "" && m.P.NameAt.Present() }},
		"whitespace everywhere": {" {\t\"jsonrpc\" : \"2.0\" ,\r\n\"id\" : 1 , \"method\":\"tools/call\", \"params\" : { \"name\" : \"a\" } } \n", Request,
			func(m *Message) bool { return m.P.Name == "a" && string(m.Bytes(m.Params)) == `{ "name" : "a" }` }},
		"escaped quotes and backslashes": {call(`{"other":"\\\\\"}],{","name":"a\\"}`), Request, func(m *Message) bool { return m.P.Name == `a\` }},
		"id beyond 2^53":                 {`{"jsonrpc":"2.0","id":9007199254740993123,"method":"ping"}`, Request, func(m *Message) bool { return m.IDKey() == "9007199254740993123" }},
		"1e400 in arguments":             {call(`{"name":"a","arguments":{"n":1e400}}`), Request, func(m *Message) bool { return strings.Contains(string(m.Raw), "1e400") }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, side := range []Side{FromClient, FromUpstream} {
				m, err := Read([]byte(tt.raw), side)
				if err != nil {
					t.Fatalf("side %d: %v", side, err)
				}
				if m.Kind != tt.kind || !tt.want(m) || string(m.Raw) != tt.raw {
					t.Errorf("side %d: read as %v %+v %+v", side, m.Kind, m.P, m.R)
				}
			}
		})
	}
}

// TestRefusedFromClients has each way to say two things at once that FACTS
// lists under Parsing, and each must be refused before anything is decided.
func TestRefusedFromClients(t *testing.T) {
	const prefix = `{"jsonrpc":"2.0","id":1,"method":"tools/call",`
	tests := map[string]struct {
		raw  string
		code int
	}{
		"duplicate name":               {call(`{"name":"a","name":"b"}`), CodeInvalidRequest},
		"duplicate method":             {`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`, CodeInvalidRequest},
		"duplicate params":             {prefix + `"params":{"name":"a"},"params":{"name":"b"}}`, CodeInvalidRequest},
		"duplicate id":                 {`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, CodeInvalidRequest},
		"duplicate in arguments":       {call(`{"name":"a","arguments":{"x":1,"x":2}}`), CodeInvalidRequest},
		"duplicate deep down":          {call(`{"name":"a","arguments":{"x":[{"y":{"z":1,"z":2}}]}}`), CodeInvalidRequest},
		"duplicate by escape":          {call(`{"name":"a","n\u0061me":"b"}`), CodeInvalidRequest},
		"duplicate uri":                {call(`{"uri":"a","uri":"b"}`), CodeInvalidRequest},
		"duplicate in ref":             {call(`{"ref":{"type":"ref/prompt","name":"a","name":"b"}}`), CodeInvalidRequest},
		"Name":                         {call(`{"name":"a","Name":"b"}`), CodeInvalidRequest},
		"Name alone":                   {call(`{"Name":"b"}`), CodeInvalidRequest},
		"NAME by escape":               {call(`{"name":"a","\u004eame":"b"}`), CodeInvalidRequest},
		"long s in params":             {prefix + "\"param\u017f\":{}}", CodeInvalidRequest},
		"long s escaped":               {prefix + `"param\u017f":{}}`, CodeInvalidRequest},
		"Kelvin sign in token":         {call("{\"_meta\":{\"progressTo\u212aen\":1}}"), CodeInvalidRequest},
		"Kelvin sign in task":          {call("{\"tas\u212a\":{}}"), CodeInvalidRequest},
		"dotless i in uri":             {call(`{"ur\u0131":"x"}`), CodeInvalidRequest},
		"dotted I in id":               {`{"jsonrpc":"2.0","id":1,"\u0130D":2,"method":"ping"}`, CodeInvalidRequest},
		"ARGUMENTS":                    {call(`{"name":"a","ARGUMENTS":{}}`), CodeInvalidRequest},
		"Method":                       {`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`, CodeInvalidRequest},
		"ID":                           {`{"jsonrpc":"2.0","id":1,"ID":2,"method":"ping"}`, CodeInvalidRequest},
		"URI":                          {call(`{"uri":"a","URI":"b"}`), CodeInvalidRequest},
		"Ref name":                     {call(`{"ref":{"name":"a","Name":"b"}}`), CodeInvalidRequest},
		"Capabilities":                 {`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{},"Capabilities":{}}}`, CodeInvalidRequest},
		"ClientInfo":                   {`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientInfo":{},"clientinfo":{}}}`, CodeInvalidRequest},
		"NUL after the key":            {call(`{"name":"a","name\u0000":"b"}`), CodeInvalidRequest},
		"NUL and more after the key":   {call(`{"name":"a","NAME\u0000x":"b"}`), CodeInvalidRequest},
		"raw NUL":                      {call("{\"name\":\"a\x00\"}"), CodeParse},
		"BOM":                          {"\ufeff" + call(`{"name":"a"}`), CodeParse},
		"invalid UTF-8 in a value":     {call("{\"name\":\"a\xff\"}"), CodeParse},
		"invalid UTF-8 in a key":       {call("{\"name\xc0\xae\":\"a\"}"), CodeParse},
		"invalid UTF-8 deep down":      {call("{\"arguments\":{\"x\":\"\xed\xa0\x80\"}}"), CodeParse},
		"lone high surrogate":          {call(`{"name":"\ud800"}`), CodeParse},
		"lone low surrogate":           {call(`{"name":"\udc00x"}`), CodeParse},
		"surrogates the wrong way":     {call(`{"name":"\udc00\ud800"}`), CodeParse},
		"trailing data":                {call(`{"name":"a"}`) + `{}`, CodeParse},
		"trailing brace":               {call(`{"name":"a"}`) + `}`, CodeParse},
		"trailing NUL":                 {call(`{"name":"a"}`) + "\x00", CodeParse},
		"two messages":                 {call(`{"name":"a"}`) + "\n" + call(`{"name":"b"}`), CodeParse},
		"comment":                      {`/**/` + call(`{}`), CodeParse},
		"trailing comma":               {call(`{"name":"a",}`), CodeParse},
		"single quotes":                {call(`{'name':'a'}`), CodeParse},
		"NaN":                          {call(`{"arguments":{"x":NaN}}`), CodeParse},
		"leading zero":                 {`{"jsonrpc":"2.0","id":01,"method":"ping"}`, CodeParse},
		"ends too early":               {`{"jsonrpc":"2.0","id":1,`, CodeParse},
		"empty":                        {``, CodeParse},
		"a batch":                      {`[` + call(`{}`) + `]`, CodeInvalidRequest},
		"a string":                     {`"tools/call"`, CodeInvalidRequest},
		"too deep":                     {call(strings.Repeat(`{"a":`, 600) + `1` + strings.Repeat(`}`, 600)), CodeParse},
		"too deep in arrays":           {call(`{"arguments":{"a":` + strings.Repeat(`[`, 511) + strings.Repeat(`]`, 511) + `}}`), CodeParse},
		"far too deep":                 {strings.Repeat(`[`, 200_000), CodeParse},
		"no version":                   {`{"id":1,"method":"ping"}`, CodeInvalidRequest},
		"other version":                {`{"jsonrpc":"2.1","id":1,"method":"ping"}`, CodeInvalidRequest},
		"version is a number":          {`{"jsonrpc":2.0,"id":1,"method":"ping"}`, CodeInvalidRequest},
		"null id":                      {`{"jsonrpc":"2.0","id":null,"method":"ping"}`, CodeInvalidRequest},
		"fractional id":                {`{"jsonrpc":"2.0","id":1.0,"method":"ping"}`, CodeInvalidRequest},
		"exponent id":                  {`{"jsonrpc":"2.0","id":1e0,"method":"ping"}`, CodeInvalidRequest},
		"object id":                    {`{"jsonrpc":"2.0","id":{},"method":"ping"}`, CodeInvalidRequest},
		"boolean id":                   {`{"jsonrpc":"2.0","id":true,"method":"ping"}`, CodeInvalidRequest},
		"method is a number":           {`{"jsonrpc":"2.0","id":1,"method":1}`, CodeInvalidRequest},
		"method is null":               {`{"jsonrpc":"2.0","id":1,"method":null,"result":{}}`, CodeInvalidRequest},
		"empty method and result":      {`{"jsonrpc":"2.0","id":1,"method":"","result":{}}`, CodeInvalidRequest},
		"method and result":            {`{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`, CodeInvalidRequest},
		"method and error":             {`{"jsonrpc":"2.0","id":1,"method":"ping","error":{}}`, CodeInvalidRequest},
		"result and error":             {`{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, CodeInvalidRequest},
		"result without id":            {`{"jsonrpc":"2.0","result":{}}`, CodeInvalidRequest},
		"nothing":                      {`{"jsonrpc":"2.0","id":1}`, CodeInvalidRequest},
		"params is an array":           {prefix + `"params":["a"]}`, CodeInvalidRequest},
		"params is null":               {prefix + `"params":null}`, CodeInvalidRequest},
		"params is a string of object": {prefix + `"params":"{\"name\":\"a\"}"}`, CodeInvalidRequest},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m, err := Read([]byte(tt.raw), FromClient)
			if err == nil {
				t.Fatalf("read as %v %q %+v", m.Kind, m.Method, m.P)
			}
			fault, ok := errors.AsType[*Error](err)
			if !ok || fault.Code != tt.code {
				t.Fatalf("got %v, want code %d", err, tt.code)
			}
			if _, err := Read(fault.Answer(), FromUpstream); err != nil {
				t.Errorf("the answer %s: %v", fault.Answer(), err)
			}
		})
	}
}

// TestFaultKeepsTheID checks that a client learns which request was at fault
// where its message says so in one way.
func TestFaultKeepsTheID(t *testing.T) {
	tests := map[string]string{
		call(`{"name":"a","name":"b"}`):                        `1`,
		call(`{"name":"a","Name":"b"}`):                        `1`,
		`{"jsonrpc":"2.0","id":"x","method":1}`:                `"x"`,
		`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`:      ``,
		`{"jsonrpc":"2.0","id":1,"Id":2,"method":"ping"}`:      ``,
		`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`:           ``,
		`{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`: `1`,
		`{"jsonrpc":"2.0","id":1,`:                             ``,
	}
	for raw, want := range tests {
		_, err := Read([]byte(raw), FromClient)
		fault, ok := errors.AsType[*Error](err)
		if !ok || string(fault.ID) != want {
			t.Errorf("%s: got %v with id %s, want id %s", raw, err, fault.ID, want)
		}
	}
}

// TestUpstreamsAreReadStrictlyAtRoutedLevelsOnly: what lies below goes on as on
// a direct connection.
func TestUpstreamsAreReadStrictlyAtRoutedLevelsOnly(t *testing.T) {
	result := func(inner string) string { return `{"jsonrpc":"2.0","id":1,"result":` + inner + `}` }
	tests := map[string]struct {
		raw string
		ok  bool
	}{
		"duplicates below":             {result(`{"structuredContent":{"a":1,"a":2},"content":[{"x":1,"x":2}]}`), true},
		"invalid UTF-8 below":          {result("{\"content\":[{\"text\":\"\xff\"}]}"), true},
		"lone surrogate below":         {result(`{"content":[{"text":"\ud800"}]}`), true},
		"unknown members":              {result(`{"vendor":{"isError":true},"x":null}`), true},
		"duplicate isError":            {result(`{"isError":false,"isError":true}`), false},
		"IsError beside isError":       {result(`{"isError":false,"IsError":true}`), false},
		"duplicate result":             {`{"jsonrpc":"2.0","id":1,"result":{},"result":{"isError":true}}`, false},
		"duplicate nextCursor":         {result(`{"tools":[],"nextCursor":"a","nextCursor":"b"}`), false},
		"duplicate code":               {`{"jsonrpc":"2.0","id":1,"error":{"code":1,"code":-32601}}`, false},
		"result and error":             {`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1}}`, false},
		"invalid UTF-8 in a routed":    {"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\"params\":{\"uri\":\"a\xff\"}}", false},
		"trailing data":                {result(`{}`) + `{}`, false},
		"result of null":               {result(`null`), true},
		"resultType of the next era":   {result(`{"resultType":"input_required"}`), true},
		"too deep":                     {result(strings.Repeat(`[`, 600) + strings.Repeat(`]`, 600)), false},
		"brackets in strings are none": {result(`{"content":[{"text":"` + strings.Repeat(`[{\"`, 600) + `"}]}`), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := Read([]byte(tt.raw), FromUpstream); (err == nil) != tt.ok {
				t.Errorf("got error %v, want ok %v", err, tt.ok)
			}
		})
	}
}

// TestDeepestAndLargest: the limit itself is allowed, and size is not ours to
// limit.
func TestDeepestAndLargest(t *testing.T) {
	deep := call(`{"arguments":{"a":` + strings.Repeat(`[`, MaxDepth-3) + strings.Repeat(`]`, MaxDepth-3) + `}}`)
	if _, err := Read([]byte(deep), FromClient); err != nil {
		t.Errorf("depth %d: %v", MaxDepth, err)
	}
	large := call(`{"name":"a","arguments":{"a":"` + strings.Repeat(`\\\"é`, 1<<19) + `"}}`)
	m, err := Read([]byte(large), FromClient)
	if err != nil || m.P.Name != "a" {
		t.Errorf("%d bytes: %v", len(large), err)
	}
}

// TestKey: two ids are one iff they are the same JSON value.
func TestKey(t *testing.T) {
	same := [][2]string{{`"a"`, `"\u0061"`}, {`0`, `-0`}, {`"\/"`, `"/"`}}
	for _, p := range same {
		if Key([]byte(p[0])) != Key([]byte(p[1])) {
			t.Errorf("%s and %s differ", p[0], p[1])
		}
	}
	other := [][2]string{{`1`, `"1"`}, {`9007199254740992`, `9007199254740993`}, {`"a"`, `"A"`}, {`""`, ``}, {`"-0"`, `-0`}}
	for _, p := range other {
		if Key([]byte(p[0])) == Key([]byte(p[1])) {
			t.Errorf("%s and %s are taken for one", p[0], p[1])
		}
	}
}
