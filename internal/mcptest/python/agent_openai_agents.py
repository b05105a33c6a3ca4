"""An agent of openai-agents whose model is a script, as in agent_pydantic_ai.py. `--mode` sets tool_not_found_behavior."""

import json
import sys

import anyio
from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from agents.mcp import MCPServerStreamableHttp
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import scenario


class Script(Model):
    def __init__(self, turns):
        self.turns = turns

    async def get_response(self, system_instructions, input, model_settings, tools, *args, **kwargs):
        given = [input[-1].get("output")] if isinstance(input, list) and len(input) > 1 else []
        step = self.turns.next([tool.name for tool in tools], given)
        if step:
            n = str(self.turns.played)
            output = ResponseFunctionToolCall(
                type="function_call", call_id=n, name=step["name"], arguments=json.dumps(step.get("args", {}))
            )
        else:
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            output = ResponseOutputMessage(id="end", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError("the script does not stream")


async def main():
    options = scenario.options(sys.argv[1:])
    turns = scenario.Turns(options)
    async with MCPServerStreamableHttp({"url": options.url}, client_session_timeout_seconds=15) as server:
        agent = Agent("scripted", model=Script(turns), mcp_servers=[server])
        behavior = {"tool_not_found_behavior": options.mode} if options.mode else {}
        await turns.end(Runner.run(agent, "Go on.", run_config=RunConfig(tracing_disabled=True, **behavior)))


if __name__ == "__main__":
    anyio.run(main)
