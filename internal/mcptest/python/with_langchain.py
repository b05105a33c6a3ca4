"""langchain-mcp-adapters; see scenario.py. By default with one session for all calls, as docs/clients.md says; with
`--mode get_tools` as get_tools() does, with a session for each call."""

import os
from contextlib import asynccontextmanager

from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp.types import ElicitResult

import scenario


class Player:
    """Player has the tools of its last list, as an agent has those that it was made with."""

    def __init__(self, load, inbox):
        self.load, self.inbox = load, inbox
        self.loaded = {}
        self.progress = None

    def info(self):
        return {}

    async def tools(self):
        self.loaded = {tool.name: tool for tool in await self.load()}
        return [{"name": name} for name in self.loaded]

    async def call(self, name, args, progress):
        self.progress = progress
        if name not in self.loaded:
            raise LookupError(f"Tool '{name}' not found")
        answer = await self.loaded[name].ainvoke({"type": "tool_call", "id": "1", "name": name, "args": args})
        return {"status": answer.status, "content": answer.content}


def connection(options):
    if options.url:
        headers = {"Authorization": f"Bearer {options.bearer}"} if options.bearer else None
        return {"transport": "http", "url": options.url, "headers": headers}
    command, *args = options.stdio
    return {"transport": "stdio", "command": command, "args": args, "env": dict(os.environ)}


@asynccontextmanager
async def connect(options, inbox):
    async def progress(done, total, message, context):
        await player.progress(done, total)

    async def elicit(mcp_context, params, context):
        inbox.saw("elicitation/create", params=scenario.plain(params))
        return ElicitResult(action="accept", content=scenario.ANSWER)

    callbacks = Callbacks(on_progress=progress, on_elicitation=elicit)
    client = MultiServerMCPClient({"server": connection(options)}, callbacks=callbacks)
    if options.mode == "get_tools":
        player = Player(client.get_tools, inbox)
        yield player
        return
    async with client.session("server") as session:
        player = Player(lambda: load_mcp_tools(session, callbacks=callbacks, server_name="server"), inbox)
        yield player


if __name__ == "__main__":
    scenario.run(connect)
