package mcptest

// Mangled returns the raw upstream that sends what SDKs mangle on the way: whatever of it a proxy decodes and
// encodes again, it loses or rewrites. All of it is legal JSON-RPC. Every tool needs no arguments.
//
//	tools         content     unknown content types and fields, resource links with icons, embedded _meta
//	              numbers     beyond 2^53, 1e400, negative zero, trailing zeros
//	              explicit    isError: false, nulls, empty objects
//	              order       members in an unusual order, spaces and tabs between tokens
//	              escapes     \u and \/ escapes, a lone surrogate, U+2028, an astral character
//	              repeated    a member twice, deep within structuredContent
//	              error       a JSON-RPC error with data and a member that nobody knows
//	              chatter     log, progress and vendor notifications with unknown members before the answer
//	resources     mangled://one
//	prompts       odd
func Mangled() Server {
	tools := map[string]func(*Exchange){}
	for name, result := range mangledResults {
		tools[name] = func(e *Exchange) { e.Result(result) }
	}
	tools["order"] = func(e *Exchange) {
		e.Answer("{ \"result\" : {\t\"isError\":false, \"content\" : [ ] , \"_meta\":{\"z\":1,\"a\":2} },\"id\":" +
			string(e.ID) + " , \"jsonrpc\":\"2.0\" }")
	}
	tools["error"] = func(e *Exchange) {
		e.Answer(`{"jsonrpc":"2.0","id":` + string(e.ID) + `,"error":{"data":{"big":9007199254740993,"z":[1.0,1e400],"a":null},` +
			`"message":"it broke <b>&</b>","x-trace":"abc","code":-32055}}`)
	}
	tools["chatter"] = chatter
	return Script{
		Capabilities: `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},` +
			`"logging":{},"completions":{}}`,
		Tools: tools,
		Lists: map[string]string{
			"tools/list":     mangledTools,
			"resources/list": mangledResources,
			"prompts/list":   mangledPrompts,
		},
		Methods: map[string]func(*Exchange){
			"resources/read":      func(e *Exchange) { e.Result(mangledRead) },
			"prompts/get":         func(e *Exchange) { e.Result(mangledPrompt) },
			"completion/complete": func(e *Exchange) { e.Result(mangledCompletion) },
		},
	}.Server()
}

var mangledResults = map[string]string{
	"content": `{"content":[{"type":"x-hologram","beams":[1,2.50,3e0],"nested":{"z":{},"a":[]}},` +
		`{"type":"text","text":"plain","annotations":{"audience":["user"],"priority":1.0,"lastModified":"2026-01-01T00:00:00Z","x-colour":"red"},"x-unknown":{"b":1,"a":2}},` +
		`{"type":"resource_link","uri":"mangled://one","name":"one","icons":[{"src":"data:image/png;base64,AA==","mimeType":"image/png","sizes":["48x48","any"],"theme":"dark","x-dpi":2}],"size":9007199254740993,"_meta":{"vendor/x":true}},` +
		`{"type":"resource","resource":{"uri":"mangled://two","text":"t","_meta":{"k":1},"x-lang":"de"},"_meta":{"outer":2}},` +
		`{"type":"audio","data":"AAAA","mimeType":"audio/x-odd","x-rate":44100}],` +
		`"structuredContent":[{"not":"an object"},1],"_meta":{"vendor/trace":{"z":1,"a":[null,true]}},"x-extra":{"y":1}}`,
	"numbers": `{"content":[],"structuredContent":{"big":9007199254740993,"bigger":123456789012345678901234567890,"huge":1e400,` +
		`"tiny":1E-400,"zero":-0,"trailing":1.500,"exponent":1E+2,"long":0.1000000000000000055511151231257827}}`,
	"explicit": `{"content":[{"type":"text","text":"","annotations":null,"_meta":{}}],"isError":false,"structuredContent":{},"_meta":{}}`,
	"escapes":  `{"content":[{"type":"text","text":"\u0067r\u00fc\u00DFe \/ \u003cb\u003e & < \u2028 ` + "\u2028" + ` \ud83d\ude00 😀 \ud83d lone \u0000 \b\f"}]}`,
	"repeated": `{"content":[],"structuredContent":{"deep":{"a":1,"a":2,"b":{"c":1,"c":{"d":[{"e":1,"e":2}]}}}}}`,
}

func chatter(e *Exchange) {
	e.Send(Notification("notifications/message", `{"level":"info","logger":"l","data":{"z":9007199254740993,"a":[1.0]},"x-extra":1,"_meta":{"k":"v"}}`))
	e.Progress(1, 2)
	e.Send(Notification("notifications/vendor/thing", `{"z":1e400,"a":{"b":[]}}`))
	e.Result(Text("after the chatter"))
}

const mangledTools = `{ "tools" : [` +
	mangledSchema +
	`,{"name":"numbers","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":false,"x-risk":9007199254740993,"destructiveHint":true}}` +
	`, {"inputSchema":{"type":"object","properties":{}},"name":"explicit","execution":{"taskSupport":"forbidden","x-queue":"q"}}` +
	`,{"name":"order","inputSchema":{"type":"object"}},{"name":"escapes","description":"\u0067r\u00fc\u00DFe \/ 😀","inputSchema":{"type":"object"}}` +
	`,{"name":"repeated","inputSchema":{"type":"object"}},{"name":"error","inputSchema":{"type":"object"}},{"name":"chatter","inputSchema":{"type":"object"}}` +
	`]}`

const mangledSchema = `{"x-first":true,"name":"content","title":"Content","description":"tab\there","icons":[{"src":"https://example.com/i.svg","sizes":["any"],"theme":"light"}],` +
	`"inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","$defs":{"n":{"type":"number","multipleOf":1e-2}},"type":"object",` +
	`"properties":{"z":{"$ref":"#/$defs/n","title":"Z","examples":[1.0,9007199254740993]},"a":{"type":["string","null"],"x-widget":"area"}},` +
	`"patternProperties":{"^x-":{}},"oneOf":[{"required":["z"]},{"required":["a"]}],"if":{},"then":true,"unevaluatedProperties":false,"additionalProperties":true},` +
	`"annotations":{"title":"T","readOnlyHint":true,"openWorldHint":false},"_meta":{"vendor/ui":{"order":[3,1,2]}},"x-last":null}`

const mangledResources = `{"resources":[{"mimeType":"text/plain;charset=utf-8","uri":"mangled://one","name":"one","size":9007199254740993,"icons":[],"annotations":{"priority":0.30,"audience":[]},"x-etag":"W/\"1\""}]}`

const mangledPrompts = `{"prompts":[{"name":"odd","arguments":[{"name":"a","required":false,"x-kind":"enum","title":"A"}],"icons":[{"src":"data:,"}],"_meta":{"v":1}}]}`

const mangledRead = `{"contents":[{"text":"t","uri":"mangled://one","mimeType":"text/plain","_meta":{"big":9007199254740993},"x-encoding":"utf-8"}],"ttlMs":1.0,"x-served-by":"a"}`

const mangledPrompt = `{"messages":[{"role":"x-narrator","content":{"type":"x-scene","z":1,"a":2}},{"content":{"text":"t","type":"text"},"role":"user","x-weight":0.50}],"description":"","x-extra":[]}`

const mangledCompletion = `{"completion":{"values":["b","a"],"hasMore":false,"total":2.0,"x-scores":[0.10,1e0]},"x-extra":null}`
