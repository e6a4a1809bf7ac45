"""A server of the Model Context Protocol as this process uses it: its tools, their results, and typed errors.

A server is a command, which speaks over its standard input and output, or a URL (streamable HTTP). Whatever keeps it
from answering is the infrastructure's failure; what it refuses is told to who asked. The revisions with a handshake
are spoken.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from eval.config import Config, ConfigError, need
from eval.desktop import ActionRefused, DesktopGone, DesktopTimeout, InfraError
from eval.desktops.mcp.connections import McpConnection, ProgramConnection, RequestFailed, WebConnection
from eval.desktops.mcp.tools import REVISIONS, release
from eval.desktops.tools import Tool, cut

T = TypeVar("T")
URLS: Final = ("http://", "https://")
ASKED: Final = REVISIONS[2]  # the last in which a stream is not closed before its answer
PAGES: Final = 100  # of a list of tools
SHOWN: Final = 500  # characters of what a server says in an error
REFUSED: Final = (-32601, -32602)  # JSON-RPC's codes for a call that was wrong, not the server


class McpServerConfig(Config, frozen=True):
    """
    mcp      the command that starts the server, as in a shell but without one, or its URL
    token    the environment variable with the token of a URL, which is sent as a Bearer's
    environ  the environment variables that a command gets besides HOME, PATH and the like
    timeout  seconds in which the server has to answer
    """

    mcp: str
    token: str | None = None
    environ: list[str] = msgspec.field(default_factory=list)
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 60.0

    @property
    def url(self) -> str | None:
        """None of a command."""
        return self.mcp if self.mcp.startswith(URLS) else None

    def check_server(self, where: str) -> None:
        """Raises ConfigError."""
        if self.url is None:
            if not self.words(where):
                raise ConfigError(f"{where}.mcp: is empty; allowed: a command or a URL")
            if self.token is not None:
                raise ConfigError(f"{where}.token: is for a URL; a command gets variables by environ")
        elif self.environ:
            raise ConfigError(f"{where}.environ: is for a command; a URL takes a token")
        else:
            need("aiohttp")
            try:
                named = "@" in urlsplit(self.mcp).netloc
            except ValueError as error:
                raise ConfigError(f"{where}.mcp: {self.mcp}: {error}") from None
            if named:
                raise ConfigError(f"{where}.mcp: a URL with a name or password; allowed: one without, and `token`")
        for field_name, names in (("token", [] if self.token is None else [self.token]), ("environ", self.environ)):
            for name in names:
                if not os.environ.get(name):
                    raise ConfigError(f"{where}.{field_name}: the environment variable {name} is not set")

    def words(self, where: str) -> list[str]:
        """The words of the command. Raises ConfigError."""
        try:
            return shlex.split(self.mcp)
        except ValueError as error:
            raise ConfigError(f"{where}.mcp: {self.mcp!r}: {error}") from None


class ListedTool(msgspec.Struct, rename="camel"):
    """A tool as a server lists it."""

    name: str
    input_schema: dict[str, Any]
    description: str | None = None


class ToolPage(msgspec.Struct):
    """A page of a list of tools."""

    tools: list[ListedTool]


class CallAnswer(msgspec.Struct):
    """The result of a call as a server gives it. `facts`: structured content."""

    content: list[dict[str, Any]] = []
    facts: dict[str, Any] | None = msgspec.field(default=None, name="structuredContent")
    failed: bool = msgspec.field(default=False, name="isError")


@dataclass(frozen=True)
class McpTool(Tool):
    """A tool with the schema that its server tells."""

    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: ClassVar[bool] = False

    def schema(self) -> dict[str, Any]:
        return dict(self.parameters)


@dataclass(frozen=True)
class McpResult:
    """What a call gave: its texts, its pictures (base64), its structured content, and whether the tool says that it
    failed."""

    text: str
    pictures: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    failed: bool = False


class McpServer:
    """A connection to a server, and the server itself where it is a command. `tools`: by name, once it is started."""

    def __init__(self, config: McpServerConfig, where: str) -> None:
        self.config = config
        self.where = where
        self.tools: dict[str, McpTool] = {}
        self._connection: McpConnection | None = None

    async def start(self) -> None:
        """Connects, and reads which tools there are. Raises ConfigError, InfraError."""
        config = self.config
        if config.url is None:
            environ = {name: os.environ[name] for name in config.environ}
            self._connection = ProgramConnection(config.words(self.where), environ)
        else:
            token = None if config.token is None else os.environ[config.token]
            self._connection = WebConnection(config.url, token, config.timeout)
        try:
            async with self._typed():
                await self._connection.open()
                await self._begin()
                self.tools = await self._listed()
        except BaseException:
            await self.close()
            raise

    async def _begin(self) -> None:
        about = {"name": "slipway", "version": release()}
        asked = {"protocolVersion": ASKED, "capabilities": {}, "clientInfo": about}
        begun = await self._ask("initialize", asked)
        if (spoken := begun.get("protocolVersion")) not in REVISIONS:
            raise ConfigError(f"mcp: it speaks the revision {spoken!r}; allowed: {', '.join(REVISIONS)}")
        assert self._connection is not None
        await self._connection.tell("notifications/initialized")

    async def _listed(self) -> dict[str, McpTool]:
        found: dict[str, McpTool] = {}
        params: dict[str, Any] = {}
        for _ in range(PAGES):
            page = await self._ask("tools/list", params)
            for tool in _read(page, ToolPage).tools:
                found[tool.name] = McpTool(tool.name, tool.description or "", {}, tool.input_schema)
            if not page.get("nextCursor"):
                return found
            params = {"cursor": page["nextCursor"]}
        raise InfraError(f"its list of tools has more than {PAGES} pages")

    async def call(self, name: str, arguments: Mapping[str, Any]) -> McpResult:
        """Calls a tool. Raises ActionRefused for a call that the server does not know or whose arguments are wrong,
        DesktopGone, DesktopTimeout and InfraError."""
        async with self._typed():
            try:
                answer = await self._ask("tools/call", {"name": name, "arguments": dict(arguments)})
            except RequestFailed as failed:
                if failed.code in REFUSED:
                    raise ActionRefused(f"{name}: {self._shown(failed)}") from None
                raise
            return result_of(_read(answer, CallAnswer))

    async def check(self) -> None:
        """Raises InfraError where the server does not answer any more."""
        async with self._typed():
            await self._ask("ping", {})

    async def close(self) -> None:
        """Ends the connection, and the server that was started."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if self._connection is None:
            raise DesktopGone("the connection was closed")
        return await self._connection.ask(method, params)

    @contextlib.asynccontextmanager
    async def _typed(self) -> AsyncIterator[None]:
        """Within the time limit, and with errors that say which server it is."""
        about = f"{self.where}.mcp: {self.config.mcp}"
        try:
            async with asyncio.timeout(self.config.timeout):
                yield
        except RequestFailed as failed:
            raise InfraError(f"{about}: {self._shown(failed)}") from None
        except InfraError as error:
            raise type(error)(f"{about}: {self._shown(error)}") from None
        except ConfigError as error:
            name, _, words = self._shown(error).partition(": ")
            raise ConfigError(f"{self.where}.{name}: {self.config.mcp}: {words}") from None
        except TimeoutError:
            raise DesktopTimeout(f"{about}: no answer for {self.config.timeout:g} s") from None

    def _shown(self, error: Exception) -> str:
        """Its words in one line, without the values of the variables that the server gets."""
        words = " ".join(str(error).split())
        for name in filter(None, [self.config.token, *self.config.environ]):
            words = words.replace(os.environ[name], f"${name}")
        return words[:SHOWN]


def _read(data: Mapping[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise InfraError(f"an answer that is none: {error}") from None


def result_of(answer: CallAnswer) -> McpResult:
    """What an answer holds. What is neither text nor a picture is named in the text."""
    texts: list[str] = []
    pictures: list[str] = []
    for block in answer.content:
        kind, resource = block.get("type"), block.get("resource")
        inside: dict[str, Any] = resource if isinstance(resource, dict) else block
        if kind == "image":
            pictures.append(str(block.get("data")))
        elif kind in ("text", "resource") and isinstance(inside.get("text"), str):
            texts.append(inside["text"])
        else:
            texts.append(f"[{kind}: {inside.get('uri', 'not shown')}]")
    facts = answer.facts or {}
    if not texts and facts:
        texts = [json.dumps(facts, ensure_ascii=False)]
    return McpResult(cut("\n".join(texts)), tuple(pictures), facts, answer.failed)
