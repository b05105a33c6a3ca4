// An MCP server over stdio with two tools: echo, and hold, which answers when a file is there.
import { existsSync } from "node:fs";
import { createInterface } from "node:readline";

const send = (id, result) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result }) + "\n");
const text = (text) => ({ content: [{ type: "text", text }] });
const tool = (name) => ({ name, inputSchema: { type: "object" } });

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === "initialize") {
    send(id, {
      protocolVersion: params.protocolVersion,
      capabilities: { tools: {} },
      serverInfo: { name: "echo", version: "1" },
    });
  } else if (method === "tools/list") {
    send(id, { tools: [tool("echo"), tool("hold")] });
  } else if (method === "tools/call" && params.name === "echo") {
    send(id, text(params.arguments.text));
  } else if (method === "tools/call") {
    process.stderr.write("holding\n");
    const look = setInterval(() => {
      if (existsSync(params.arguments.file)) {
        clearInterval(look);
        send(id, text("the answer"));
      }
    }, 20);
  } else if (id !== undefined) {
    send(id, {});
  }
});
