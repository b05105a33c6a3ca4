"""The MCP toolset of pydantic-ai at its defaults but for its patience; see scenario.py."""

import os
from contextlib import asynccontextmanager

from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from pydantic_ai.mcp import MCPToolset

import scenario


class Player:
    def __init__(self, toolset, inbox):
        self.toolset, self.inbox = toolset, inbox
        self.progress = None

    def info(self):
        opened = self.toolset.client.initialize_result  # of the legacy era
        return scenario.plain(opened) if opened else {"era": "modern"}

    async def tools(self):
        return [{"name": tool.name} for tool in await self.toolset.list_tools()]

    async def call(self, name, args, progress):
        self.progress = progress
        got = await self.toolset.direct_call_tool(name, args)  # raises ModelRetry on isError
        return {"content": [{"type": "text", "text": part} for part in (got if isinstance(got, list) else [got])]}


@asynccontextmanager
async def connect(options, inbox):
    async def elicit(message, response_type, params, context):
        inbox.saw("elicitation/create", params={"message": message})
        return ElicitResult(action="accept", content=scenario.ANSWER)

    async def progress(done, total, message):
        await player.progress(done, total)

    server = options.url or StdioTransport(options.stdio[0], options.stdio[1:], env=dict(os.environ), keep_alive=False)
    toolset = MCPToolset(
        server,
        elicitation_handler=elicit,
        progress_handler=progress,
        message_handler=inbox.message,
        init_timeout=60,  # the default of 5 s is short for a machine that does much at a time
    )
    player = Player(toolset, inbox)
    async with toolset:
        yield player


if __name__ == "__main__":
    scenario.run(connect)
