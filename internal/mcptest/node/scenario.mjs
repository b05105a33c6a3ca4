// Plays the steps of a scenario file with a client of the TypeScript SDK and prints what the client saw, one
// JSON object a line. Both SDK lines share this file; what differs between them is in sdk1.mjs and sdk2.mjs.
//
//   node sdk1.mjs --steps FILE [--answer-after SECONDS] [--negotiate legacy|auto] (--url URL | --stdio COMMAND ARGS…)
//
// A step is {"op": …}; the ops are the keys of `ops` below. Every line repeats its step and adds `result` or
// `error`, and `during`: what the server asked or reported while the step ran, in order.
import { readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";

// parseArgs returns the options of the command line above.
function parseArgs(argv) {
	const options = { answerAfter: 0, negotiate: "legacy" };
	for (let i = 0; i < argv.length; i++) {
		switch (argv[i]) {
			case "--steps":
				options.steps = JSON.parse(readFileSync(argv[++i], "utf8"));
				break;
			case "--answer-after":
				options.answerAfter = Number(argv[++i]);
				break;
			case "--negotiate":
				options.negotiate = argv[++i];
				break;
			case "--url":
				options.url = new URL(argv[++i]);
				break;
			case "--stdio":
				options.command = argv[i + 1];
				options.args = argv.slice(i + 2);
				return options;
			default:
				throw new Error(`unknown option ${argv[i]}`);
		}
	}
	return options;
}

// Inbox keeps what arrives from the server: requests and notifications.
class Inbox {
	during = []; // of the step that runs
	methods = new Set();
	asked = new Set(); // the ids of the server's requests
	waiting = [];

	// saw records one message. Messages that arrive whenever the server likes are kept out of `during`, which
	// is compared line by line.
	saw(method, detail) {
		this.methods.add(method);
		if (detail !== undefined) this.during.push({ method, ...detail });
		for (const wake of this.waiting.splice(0)) wake();
	}

	// asks records a request of the server. One that a resumed stream brings again is no new one.
	asks(request, id) {
		const again = this.asked.has(id);
		this.asked.add(id);
		this.saw(request.method, again ? undefined : { params: withoutMeta(request.params) });
	}

	// seen returns once a message of the method has arrived.
	async seen(method) {
		const deadline = AbortSignal.timeout(20_000);
		while (!this.methods.has(method)) {
			await new Promise((resolve, reject) => {
				this.waiting.push(resolve);
				deadline.addEventListener("abort", () => reject(new Error(`no ${method} in 20 s`)), { once: true });
			});
		}
	}
}

// handlers are the client's answers to the server's requests. The SDKs differ in where the request's id is.
export function handlers(inbox, answerAfter) {
	return {
		"sampling/createMessage": async (request, extra) => {
			inbox.asks(request, extra.requestId ?? extra.mcpReq?.id);
			return { model: "a-model", role: "assistant", stopReason: "endTurn", content: { type: "text", text: "sampled" } };
		},
		"elicitation/create": async (request, extra) => {
			inbox.asks(request, extra.requestId ?? extra.mcpReq?.id);
			await pause(answerAfter * 1000);
			return { action: "accept", content: { name: "Ada", check: true } };
		},
		"roots/list": async () => {
			inbox.saw("roots/list");
			return { roots: [{ uri: "file:///srv/project", name: "project" }] };
		},
	};
}

export const capabilities = { sampling: {}, elicitation: { form: {} }, roots: { listChanged: true } };
export const clientInfo = { name: "fsm-proxy-matrix", version: "1.0.0" };

function withoutMeta({ _meta, ...rest }) {
	return rest;
}

// ops: each takes the client, the step and the call options that carry progress and cancellation.
const ops = {
	list: (client, step) => client.list(step.kind),
	call: (client, step, options) => client.call({ name: step.name, arguments: step.args ?? {} }, options),
	read: (client, step) => client.read({ uri: step.uri }),
	get: (client, step) => client.get({ name: step.name, arguments: step.args }),
	complete: (client, step) => client.complete({ ref: step.ref, argument: step.argument, context: step.context }),
	level: (client, step) => client.level(step.level),
	subscribe: (client, step) => client.subscribe({ uri: step.uri }),
	unsubscribe: (client, step) => client.unsubscribe({ uri: step.uri }),
	ping: (client) => client.ping(),
	task: (client, step, options, inbox) => client.task({ name: step.name, arguments: step.args ?? {} }, inbox),
	tasks: (client) => client.tasks(),
	wait: (client, step, options, inbox) => inbox.seen(step.method).then(() => ({})),
};

// play runs one step and returns its line.
async function play(client, step, inbox) {
	const abort = new AbortController();
	let reached = -1;
	const options = {
		signal: abort.signal,
		onprogress: (progress) => {
			if (progress.progress <= reached) return; // a resumed stream brings it again
			reached = progress.progress;
			inbox.saw("notifications/progress", { params: progress });
			if (step.cancel) abort.abort("the user lost patience");
		},
	};
	inbox.during = [];
	const line = { step };
	try {
		line.result = await ops[step.op](client, step, options, inbox);
	} catch (error) {
		line.error = { name: error.name, code: error.code, message: error.message ?? String(error), data: error.data };
	}
	if (inbox.during.length > 0) line.during = inbox.during;
	return line;
}

function print(line) {
	process.stdout.write(JSON.stringify(line) + "\n");
}

// main connects, plays the steps, and prints the methods that arrived.
export async function main(connect) {
	const options = parseArgs(process.argv.slice(2));
	const inbox = new Inbox();
	const client = await connect(options, inbox);
	print({ step: { op: "connect" }, result: client.info() });
	for (const step of options.steps) print(await play(client, step, inbox));
	print({ step: { op: "arrived" }, result: [...inbox.methods].sort() });
	await client.close();
}
