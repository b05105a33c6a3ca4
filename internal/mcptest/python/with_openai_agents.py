"""The MCP servers of openai-agents at their defaults but for their patience; see scenario.py."""

import os
from contextlib import asynccontextmanager

from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

import scenario

PATIENCE = 15  # seconds for any answer; the default of 5 is short for a machine that does much at a time


class Player:
    def __init__(self, server):
        self.server = server

    def info(self):
        opened = self.server.server_initialize_result  # of the legacy era
        return scenario.plain(opened) if opened else {"era": "modern"}

    async def tools(self):
        return [scenario.plain(tool) for tool in await self.server.list_tools()]

    async def call(self, name, args, progress):  # takes no progress
        return scenario.plain(await self.server.call_tool(name, args))


@asynccontextmanager
async def connect(options, inbox):
    if options.url:
        server = MCPServerStreamableHttp({"url": options.url}, client_session_timeout_seconds=PATIENCE, message_handler=inbox.message)
    else:
        command, *args = options.stdio
        params = {"command": command, "args": args, "env": dict(os.environ)}
        server = MCPServerStdio(params, client_session_timeout_seconds=PATIENCE, message_handler=inbox.message)
    async with server:
        yield Player(server)


if __name__ == "__main__":
    scenario.run(connect)
