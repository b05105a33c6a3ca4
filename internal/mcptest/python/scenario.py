"""Plays the steps of a scenario file with a client in Python and prints what the client saw, one JSON object a line.

    python CLIENT.py --steps FILE (--url URL | --stdio COMMAND ARGS...)

A step is {"op": "list"} or {"op": "call", "name": ..., "args": ..., "cancel": true}. Every line repeats its step and adds
`result` or `error`, and `during`: what the server asked or reported while the step ran. node/scenario.mjs does the same
for the TypeScript SDKs.

A client script has one asynchronous context manager, connect(options, inbox). What it yields has

    info()                      what the client knows of the server
    async tools()               the tools as it has them: [{"name": ...}, ...]
    async call(name, args, progress)   what a call gives to whoever made it
"""

import argparse
import json
import logging
import sys
import warnings

import anyio

ANSWER = {"name": "Ada", "check": True}


class Inbox:
    """Inbox keeps what arrives from the server: its questions and notifications."""

    def __init__(self):
        self.during = []  # of the step that runs
        self.methods = set()

    def saw(self, method, **detail):
        self.methods.add(method)
        if detail:
            self.during.append({"method": method, **detail})

    async def message(self, message):
        """message takes what an SDK gives its message handler."""
        method = getattr(getattr(message, "root", message), "method", None)
        if method and method != "notifications/progress":
            self.saw(method)


def options(argv):
    """options reads the command line. All behind --stdio is the server's, its own `--` too."""
    cut = argv.index("--stdio") if "--stdio" in argv else len(argv)
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", required=True)
    parser.add_argument("--url")
    parser.add_argument("--mode", default="")  # what a client script makes of it
    parser.add_argument("--bearer")
    chosen = parser.parse_args(argv[:cut])
    chosen.stdio = argv[cut + 1 :]
    return chosen


def plain(value):
    """plain returns a model of pydantic as the JSON that came over the wire."""
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)


def told(error):
    """told describes an exception, and the one that a task group has put it into."""
    while getattr(error, "exceptions", None):
        error = error.exceptions[0]
    detail = getattr(error, "error", None)
    return {"name": type(error).__name__, "code": getattr(detail, "code", None), "message": str(error)}


async def call(client, step, inbox):
    """call makes one call, and takes it back upon its first progress where the step says so."""
    with anyio.CancelScope() as scope:

        async def progress(done, total=None, message=None):
            inbox.saw("notifications/progress", params={"progress": done, "total": total})
            if step.get("cancel"):
                scope.cancel()

        return await client.call(step["name"], step.get("args", {}), progress)
    raise RuntimeError("taken back by the client")


async def play(client, step, inbox):
    inbox.during = []
    line = {"step": step}
    try:
        if step["op"] == "list":
            line["result"] = {"tools": await client.tools()}
        else:
            line["result"] = await call(client, step, inbox)
    except Exception as error:  # whatever the client raises is what is asked here
        line["error"] = told(error)
    if inbox.during:
        line["during"] = inbox.during
    return line


def show(line):
    print(json.dumps(line, default=str), flush=True)


class Turns:
    """Turns are those of an agent whose model is a script."""

    def __init__(self, options):
        with open(options.steps, encoding="utf-8") as file:
            self.steps = json.load(file)
        self.played = 0

    def next(self, tools, given):
        """next shows what the model got, and returns the call that it makes; None: it is done."""
        show({"step": {"op": "turn"}, "result": {"tools": sorted(tools), "given": given}})
        self.played += 1
        return self.steps[self.played - 1] if self.played <= len(self.steps) else None

    async def end(self, run):
        try:
            await run
            show({"step": {"op": "end"}, "result": "done"})
        except Exception as error:  # how the run ends is what is asked here
            show({"step": {"op": "end"}, "error": told(error)})


async def main(connect):
    chosen = options(sys.argv[1:])
    with open(chosen.steps, encoding="utf-8") as file:
        steps = json.load(file)
    inbox = Inbox()
    async with connect(chosen, inbox) as client:
        show({"step": {"op": "connect"}, "result": client.info()})
        for step in steps:
            show(await play(client, step, inbox))
        show({"step": {"op": "arrived"}, "result": sorted(inbox.methods)})


def run(connect):
    logging.basicConfig(level=logging.ERROR)
    warnings.simplefilter("ignore")
    anyio.run(main, connect)
