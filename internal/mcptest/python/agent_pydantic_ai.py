"""An agent of pydantic-ai whose model is a script: it calls the tools of the steps one after the other, and says at each
turn which tools it was offered and what the call before gave. See scenario.py. `--mode failed` sets tool_error_behavior."""

import sys

import anyio
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

import scenario


async def main():
    options = scenario.options(sys.argv[1:])
    turns = scenario.Turns(options)

    def model(messages, info):
        given = [getattr(part, "content", None) for part in messages[-1].parts] if len(messages) > 1 else []
        step = turns.next([tool.name for tool in info.function_tools], given)
        return ModelResponse(parts=[ToolCallPart(step["name"], step.get("args", {})) if step else TextPart("done")])

    behavior = {"tool_error_behavior": options.mode} if options.mode else {}
    agent = Agent(FunctionModel(model), toolsets=[MCPToolset(options.url, init_timeout=60, **behavior)])
    await turns.end(agent.run("Go on."))


if __name__ == "__main__":
    anyio.run(main)
