"""A note in an editor, done by hand over MCP with the official SDK (`pip install mcp`). The arguments start the server:

python mcp_note.py python -m eval.serve mcp --config examples/serve/notes.yaml --out served
"""

import asyncio
import re
import sys

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


async def main(command, *arguments):
    server = StdioServerParameters(command=command, args=list(arguments))
    async with Client(stdio_client(server)) as client:
        begun = await client.call_tool("start")
        instruction, screen = begun.content
        print(instruction.text, f"({screen.mime_type}, {len(screen.data)} letters of base64)")
        line = re.search(r'exactly "(.+?)"', instruction.text)[1]
        await client.call_tool("key", {"keys": ["ctrl", "end"]})
        await client.call_tool("type", {"text": line + "\n"})
        await client.call_tool("key", {"keys": ["ctrl", "s"]})
        judged = await client.call_tool("done")
        print(judged.structured_content)


asyncio.run(main(*sys.argv[1:]))
