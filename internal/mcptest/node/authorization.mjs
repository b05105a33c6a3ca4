// A client of the TypeScript SDK 1.x or 2.x that has no token and gets one: authorization.mjs SDK URL. It finds its way by
// what the server says, has "ann" agree to all that it asks for, and prints what that was and the tools it then sees.
const [sdk, url] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport } =
	sdk === "1"
		? {
				...(await import("@modelcontextprotocol/sdk/client/index.js")),
				...(await import("@modelcontextprotocol/sdk/client/streamableHttp.js")),
			}
		: await import("@modelcontextprotocol/client");

let asked, tokens, verifier, found;
const authProvider = {
	redirectUrl: "http://127.0.0.1:1/back",
	clientMetadata: { redirect_uris: ["http://127.0.0.1:1/back"] },
	clientInformation: () => ({ client_id: "agent", client_secret: "x" }),
	tokens: () => tokens,
	saveTokens: (given) => (tokens = given),
	saveCodeVerifier: (given) => (verifier = given),
	codeVerifier: () => verifier,
	saveDiscoveryState: (state) => (found = state),
	discoveryState: () => found,
	redirectToAuthorization: (at) => (asked = at.searchParams),
};

const connect = async (transport) => {
	const client = new Client({ name: "authorized", version: "1" }, sdk === "1" ? {} : { versionNegotiation: { mode: "auto" } });
	await client.connect(transport);
	return client;
};
const first = new StreamableHTTPClientTransport(new URL(url), { authProvider });
try {
	await connect(first);
	throw new Error("no token was asked for");
} catch (error) {
	if (!asked) throw error;
}
await first.finishAuth("ann");
const client = await connect(new StreamableHTTPClientTransport(new URL(url), { authProvider }));
const { tools } = await client.listTools();
console.log([asked.get("resource"), asked.get("scope"), ...tools.map(({ name }) => name)].join(" "));
await client.close();
