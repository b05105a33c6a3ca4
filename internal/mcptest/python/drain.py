"""A client of the Python SDK 1.x whose calls are under way when the proxy ends. Told a line on standard input it goes on, and
after each step it prints a line of JSON."""

import asyncio
import json
import sys

from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamablehttp_client


async def outcome(call):
    try:
        result = await call
    except McpError as error:
        return {"error": error.error.message}
    return {"text": result.content[0].text}


def say(**step):
    print(json.dumps(step), flush=True)


async def told():
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def main(url):
    async with streamablehttp_client(url) as (read, write, *_), ClientSession(read, write) as session:
        await session.initialize()
        held = asyncio.create_task(outcome(session.call_tool("hold_open", {})))
        say(step="too large", **await outcome(session.call_tool("ok", {"text": "x" * (5 << 20)})))
        await told()
        say(step="late", **await outcome(session.call_tool("ok", {})))
        await told()
        say(step="held", **await held)


asyncio.run(main(sys.argv[1]))
