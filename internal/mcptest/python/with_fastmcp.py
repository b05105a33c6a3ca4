"""A client of FastMCP, 2.x or 4.x as installed, at its defaults; see scenario.py."""

import os
from contextlib import asynccontextmanager

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport

import scenario


class Player:
    def __init__(self, client):
        self.client = client

    def info(self):
        opened = self.client.initialize_result  # of the legacy era
        return scenario.plain(opened) if opened else {"era": "modern"}

    async def tools(self):
        return [scenario.plain(tool) for tool in await self.client.list_tools()]

    async def call(self, name, args, progress):
        result = await self.client.call_tool(name, args, progress_handler=progress)  # raises ToolError on isError
        return {"content": [scenario.plain(block) for block in result.content]}


def server(options):
    if options.url:
        return options.url
    command, *args = options.stdio
    return StdioTransport(command, args, env=dict(os.environ), keep_alive=False)


@asynccontextmanager
async def connect(options, inbox):
    async def elicit(message, response_type, params, context):
        inbox.saw("elicitation/create", params={"message": message})
        return ElicitResult(action="accept", content=scenario.ANSWER)

    async with Client(server(options), elicitation_handler=elicit, message_handler=inbox.message) as client:
        yield Player(client)


if __name__ == "__main__":
    scenario.run(connect)
