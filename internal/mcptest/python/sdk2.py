"""A client of the Python SDK 2.x in its default mode, `auto`; see scenario.py."""

import os
from contextlib import asynccontextmanager

import mcp_types as types
from mcp import Client, StdioServerParameters

import scenario


class Player:
    def __init__(self, client):
        self.client = client

    def info(self):
        return {"protocol": self.client.protocol_version, "server": scenario.plain(self.client.server_info)}

    async def tools(self):
        return [scenario.plain(tool) for tool in (await self.client.list_tools()).tools]

    async def call(self, name, args, progress):
        return scenario.plain(await self.client.call_tool(name, args, progress_callback=progress))


def server(options):
    if options.url:
        return options.url
    command, *args = options.stdio
    return StdioServerParameters(command=command, args=args, env=dict(os.environ))


@asynccontextmanager
async def connect(options, inbox):
    async def elicit(context, params):
        inbox.saw("elicitation/create", params=scenario.plain(params))
        return types.ElicitResult(action="accept", content=scenario.ANSWER)

    async with Client(server(options), elicitation_callback=elicit, message_handler=inbox.message) as client:
        yield Player(client)


if __name__ == "__main__":
    scenario.run(connect)
