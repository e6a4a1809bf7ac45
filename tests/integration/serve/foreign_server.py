"""A small server of MCP, by the official SDK: `foreign_server.py HOW [PORT]`.

HOW: `plain`; `mute`, which lists no tools; `endless`, whose list of tools has no last page; `sides`, an environment of
the pictures and instructions in $SCREENS, whose episodes have three answers, and whose score is the share of them that
clicked in the right half; `sides-dying`, which dies when one begins. With a port it speaks streamable HTTP.
"""

import asyncio
import base64
import os
import sys
from pathlib import Path

import mcp_types as types
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAFCAIAAADzBuo/AAAAEklEQVR4nGP4z8CAB+GTG8HSAAjbMc+xcYSnAAAAAElFTkSuQmCC"
NUMBER = {"type": "integer"}
NAMES = ["begin", "add", "look", "broken", "fails", "odd", "hangs", "dies", "secret"]
ARGUMENTS = {"begin": {"seed": NUMBER}, "add": {"a": NUMBER, "b": NUMBER}, "secret": {"name": {"type": "string"}}}
MIDDLE, ANSWERS = 48, 3
HOW = sys.argv[1]
SIDES = HOW.startswith("sides")
if SIDES:
    NAMES = ["begin", "click", "type"]
    ARGUMENTS = {
        "begin": {"seed": NUMBER},
        "click": {"x": NUMBER, "y": NUMBER},
        "type": {"text": {"type": "string"}},
    }
total = 0
episodes = {}  # session -> (seed, answers, of them clicks in the right half)


def tool(name):
    return types.Tool(
        name=name,
        description=f"What {name} does.",
        input_schema={
            "type": "object",
            "properties": ARGUMENTS.get(name, {}),
            "required": list(ARGUMENTS.get(name, {})),
        },
    )


async def list_tools(ctx, params):
    """A page for each three tools."""
    if HOW == "mute":
        await asyncio.sleep(600)
    first = int((params and params.cursor) or 0)
    following = str(first) if HOW == "endless" else str(first + 3) if first + 3 < len(NAMES) else None
    return types.ListToolsResult(tools=[tool(name) for name in NAMES[first : first + 3]], next_cursor=following)


def said(*texts, **more):
    return types.CallToolResult(content=[types.TextContent(type="text", text=text) for text in texts], **more)


def sides(session, name, given):
    """A step of an episode."""
    seed, answers, right = (given["seed"], -1, 0) if name == "begin" else episodes[session]
    answers, right = answers + 1, right + (given.get("x", 0) >= MIDDLE)
    episodes[session] = seed, answers, right
    if HOW == "sides-dying":
        os._exit(3)
    screens = Path(os.environ["SCREENS"])
    png = base64.b64encode((screens / f"{seed}.png").read_bytes()).decode()
    shown = types.ImageContent(type="image", data=png, mime_type="image/png")
    if name == "begin":
        text = (screens / f"{seed}.txt").read_text()
        return types.CallToolResult(content=[types.TextContent(type="text", text=text), shown])
    facts = {"score": right / ANSWERS, "done": answers == ANSWERS}
    return types.CallToolResult(content=[shown], structured_content=facts)


async def call_tool(ctx, params):
    global total
    given = params.arguments or {}
    if SIDES and params.name in NAMES:
        session = None if ctx.request is None else ctx.request.headers.get("mcp-session-id")
        return sides(session, params.name, given)
    if params.name == "begin":
        total = given["seed"]
        return said(f"Add numbers to {total} until it is 10.")
    if params.name == "add":
        total += given["a"] + given["b"]
        return said(f"it is {total}", structured_content={"score": float(total == 10), "done": total >= 10})
    if params.name == "look":
        return types.CallToolResult(content=[types.ImageContent(type="image", data=PNG, mime_type="image/png")])
    if params.name == "broken":
        return types.CallToolResult(content=[types.ImageContent(type="image", data=PNG[:40], mime_type="image/png")])
    if params.name == "fails":
        return said("the disk is full", is_error=True)
    if params.name == "odd":
        link = types.ResourceLink(type="resource_link", name="notes", uri="file:///notes.txt")
        inside = types.TextResourceContents(uri="file:///a.txt", text="a file's text")
        return types.CallToolResult(
            content=[link, types.EmbeddedResource(type="resource", resource=inside)],
            structured_content={"score": "high"},
        )
    if params.name == "hangs":
        await asyncio.sleep(600)
    if params.name == "dies":
        print("I die of", os.environ.get("THE_SECRET"), file=sys.stderr, flush=True)
        os._exit(3)
    if params.name == "secret":
        return said(os.environ.get(given["name"], "not there"))
    raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name}")


server = Server("foreign", on_list_tools=list_tools, on_call_tool=call_tool)


async def main():
    async with stdio_server() as streams:
        await server.run(*streams, server.create_initialization_options())


if len(sys.argv) > 2:
    import uvicorn

    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
else:
    asyncio.run(main())
