// A client of the TypeScript SDK 2.x, by default in its legacy mode, which is its default; see scenario.mjs.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { capabilities, clientInfo, handlers, main } from "./scenario.mjs";

await main(async ({ url, command, args, answerAfter, negotiate }, inbox) => {
	const client = new Client(clientInfo, { capabilities, versionNegotiation: { mode: negotiate } });
	for (const [method, handler] of Object.entries(handlers(inbox, answerAfter))) {
		client.setRequestHandler(method, handler);
	}
	client.fallbackNotificationHandler = async ({ method }) => inbox.saw(method);
	const transport = url
		? new StreamableHTTPClientTransport(url)
		: new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" });
	await client.connect(transport);
	return {
		info: () => ({
			protocol: client.getNegotiatedProtocolVersion(),
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
		call: (params, options) => client.callTool(params, options),
		read: (params) => client.readResource(params),
		get: (params) => client.getPrompt(params),
		complete: (params) => client.complete(params),
		level: (level) => client.setLoggingLevel(level),
		subscribe: (params) => client.subscribeResource(params),
		unsubscribe: (params) => client.unsubscribeResource(params),
		ping: () => client.ping(),
		close: async () => {
			if (url && transport.sessionId) await transport.terminateSession();
			await client.close();
		},
	};
});
