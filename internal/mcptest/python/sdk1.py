"""A client of the Python SDK 1.x; see scenario.py."""

import os
from contextlib import asynccontextmanager

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

import scenario


class Player:
    def __init__(self, session, opened):
        self.session, self.opened = session, opened

    def info(self):
        return {"protocol": self.opened.protocolVersion, "server": scenario.plain(self.opened.serverInfo)}

    async def tools(self):
        return [scenario.plain(tool) for tool in (await self.session.list_tools()).tools]

    async def call(self, name, args, progress):
        return scenario.plain(await self.session.call_tool(name, args, progress_callback=progress))


def transport(options):
    if options.url:
        return streamablehttp_client(options.url)
    command, *args = options.stdio
    return stdio_client(StdioServerParameters(command=command, args=args, env=dict(os.environ)))


@asynccontextmanager
async def connect(options, inbox):
    async def elicit(context, params):
        inbox.saw("elicitation/create", params=scenario.plain(params))
        return types.ElicitResult(action="accept", content=scenario.ANSWER)

    async with transport(options) as (read, write, *_):
        session = ClientSession(read, write, elicitation_callback=elicit, message_handler=inbox.message)
        async with session:
            yield Player(session, await session.initialize())


if __name__ == "__main__":
    scenario.run(connect)
