"""Plays episodes by the official client of a protocol: `python players.py PROTOCOL < JSON`, in `make clients-env`.

In: {"where": a URL, or the command of a server at standard input and output, "token": ..., "episodes": [{"task": ID,
"seed": N, "actions": [...]}]}; actions are `Action.to_json`. Out, as JSON: for each episode what the client saw in the
end, with the sha256 of each picture's pixels.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import sys
from typing import Any


def digest(picture: str) -> str:
    from PIL import Image

    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    return hashlib.sha256(image.tobytes() + repr(image.size).encode()).hexdigest()


def openenv(asked: dict[str, Any]) -> list[dict[str, Any]]:
    from openenv import GenericEnvClient

    out = []
    with GenericEnvClient(base_url=asked["where"].replace("://", f"://any:{asked['token']}@")).sync() as env:
        for episode in asked["episodes"]:
            result = env.reset(task_id=episode["task"], seed=episode["seed"])
            pictures = [digest(result.observation["screenshot"])]
            for action in episode["actions"]:
                result = env.step(action)
                pictures.append(digest(result.observation["screenshot"]))
            assert env.state()["step_count"] == len(episode["actions"])
            seen = {"score": result.reward, "done": result.done, "success": result.observation.get("success")}
            out.append({**seen, "pictures": pictures})
    return out


def call_of(action: dict[str, Any], size: list[int]) -> tuple[str, dict[str, Any]]:
    """The tool, and its arguments in pixels."""
    given = {name: value for name, value in action.items() if name != "type"}
    for name in ("x", "y", "x2", "y2"):
        if name in given:
            given[name] = int(given[name] * size[name.startswith("y")])
    kind = action["type"]
    if kind in ("right_click", "middle_click"):
        return "click", {**given, "button": kind.removesuffix("_click")}
    return ("key" if kind == "hotkey" else kind), given


async def mcp(asked: dict[str, Any]) -> list[dict[str, Any]]:
    import httpx2
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client

    if isinstance(asked["where"], list):
        command, *arguments = asked["where"]
        transport: Any = stdio_client(StdioServerParameters(command=command, args=arguments, cwd=asked["cwd"]))
    else:
        headers = {"Authorization": f"Bearer {asked['token']}"}
        web = httpx2.AsyncClient(headers=headers, timeout=200)
        transport = streamable_http_client(asked["where"] + "/mcp", http_client=web)
    out = []
    async with Client(transport) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        for episode in asked["episodes"]:
            result = await client.call_tool("start", {"task": episode["task"], "seed": episode["seed"]})
            pictures = [digest(result.content[-1].data)]
            for action in episode["actions"]:
                name, arguments = call_of(action, asked["size"])
                assert name in tools
                result = await client.call_tool(name, arguments)
                pictures.append(digest(result.content[-1].data))
            told = result.structured_content
            seen = {"score": told.get("score"), "done": told["done"], "success": told.get("success")}
            out.append({**seen, "pictures": pictures})
    return out


async def ors(asked: dict[str, Any]) -> list[dict[str, Any]]:
    from ors.client import AsyncORS

    client = AsyncORS(base_url=asked["where"], api_key=asked["token"])  # it closes its connections when it is deleted
    environment = client.environment("desktops")
    (split,) = await environment.list_splits()
    tasks = {(each.task_spec["task_id"], each.task_spec["seed"]): each for each in await environment.list_tasks(split)}
    assert await environment.num_tasks(split) == len(tasks)
    out = []
    for episode in asked["episodes"]:
        async with environment.session(tasks[episode["task"], episode["seed"]]) as session:
            tools = {tool.name for tool in await session.list_tools()}
            text, picture = await session.get_prompt()
            assert text.text == tasks[episode["task"], episode["seed"]].task_spec["instruction"]
            pictures = [digest(picture.data)]
            for action in episode["actions"]:
                name, arguments = call_of(action, asked["size"])
                assert name in tools
                result = await session.call_tool(name, arguments)
                pictures.append(digest(result.blocks[-1].data))
            seen = {"score": result.reward, "done": result.finished, "success": result.metadata.get("success")}
            out.append({**seen, "pictures": pictures})
    return out


if __name__ == "__main__":
    given = json.load(sys.stdin)
    players = {"mcp": mcp, "ors": ors}
    print(json.dumps(openenv(given) if sys.argv[1] == "openenv" else asyncio.run(players[sys.argv[1]](given))))
