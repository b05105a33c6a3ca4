// A client of the TypeScript SDK 1.x; see scenario.mjs.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema, CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { capabilities, clientInfo, handlers, main } from "./scenario.mjs";

const schemas = {
	"sampling/createMessage": CreateMessageRequestSchema,
	"elicitation/create": ElicitRequestSchema,
	"roots/list": ListRootsRequestSchema,
};

// follow calls a tool as a task until its end, and notes each status that it comes to.
async function follow(client, params, inbox) {
	let last;
	for await (const message of client.experimental.tasks.callToolStream(params, CallToolResultSchema, { task: { ttl: 60_000 } })) {
		switch (message.type) {
			case "result":
				return message.result;
			case "error":
				throw message.error;
		}
		if (message.task.status !== last) inbox.saw(message.type, { status: message.task.status });
		last = message.task.status;
	}
	throw new Error("the task has no end");
}

await main(async ({ url, command, args, answerAfter }, inbox) => {
	const client = new Client(clientInfo, { capabilities });
	for (const [method, handler] of Object.entries(handlers(inbox, answerAfter))) {
		client.setRequestHandler(schemas[method], handler);
	}
	client.fallbackNotificationHandler = async ({ method }) => inbox.saw(method);
	const transport = url
		? new StreamableHTTPClientTransport(url)
		: new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" });
	await client.connect(transport);
	return {
		info: () => ({
			server: client.getServerVersion(),
			capabilities: client.getServerCapabilities(),
			instructions: client.getInstructions(),
		}),
		list: (kind) =>
			({
				tools: () => client.listTools(),
				resources: () => client.listResources(),
				templates: () => client.listResourceTemplates(),
				prompts: () => client.listPrompts(),
			})[kind](),
		call: (params, options) => client.callTool(params, undefined, options),
		read: (params) => client.readResource(params),
		get: (params) => client.getPrompt(params),
		complete: (params) => client.complete(params),
		level: (level) => client.setLoggingLevel(level),
		subscribe: (params) => client.subscribeResource(params),
		unsubscribe: (params) => client.unsubscribeResource(params),
		ping: () => client.ping(),
		task: (params, inbox) => follow(client, params, inbox),
		tasks: async () => ({ tasks: (await client.experimental.tasks.listTasks()).tasks.map(({ status }) => status) }),
		close: async () => {
			if (url) await transport.terminateSession();
			await client.close();
		},
	};
});
