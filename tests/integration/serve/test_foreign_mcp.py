"""Servers of MCP by the official SDK (foreign_server.py) as environments, and as tools of an agent."""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from eval.actions import Action, ActionType
from eval.agents.base import Decision
from eval.agents.computer import Computer
from eval.config import ConfigError
from eval.desktop import ActionRefused, DesktopGone, DesktopTimeout, InfraError
from eval.desktops.mcp.client import McpServer, McpServerConfig
from eval.environments.registry import environment, tasks_of
from eval.episodes import ToolCall
from eval.rollout.loop import Rollout, RolloutLimits, rollout
from tests.integration.eval.test_served import LOGIN
from tests.integration.eval.test_tools import calls, ends, names, play
from tests.support.documented import ROOT
from tests.support.modelserver import Reply, serving
from tests.support.needs import need
from tests.support.waiting import until

pytestmark = [pytest.mark.ci, pytest.mark.timeout(300)]
PYTHON: Final = ROOT / ".venv-clients/bin/python"
PROGRAM: Final = Path(__file__).with_name("foreign_server.py")
SECRET: Final = "open sesame"


@pytest.fixture(autouse=True)
def _needed(monkeypatch: pytest.MonkeyPatch) -> None:
    need("clients")
    monkeypatch.setenv("THE_SECRET", SECRET)
    monkeypatch.setenv("THE_KEY", "of the model")


def command(how: str = "plain") -> str:
    return shlex.join([str(PYTHON), str(PROGRAM), how])


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def by_http(how: str = "plain") -> Iterator[str]:
    """The URL of a server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([PYTHON, PROGRAM, how, str(port)]) as process:
        try:
            until(lambda: listens(port))
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


@contextmanager
def reached(how: str) -> Iterator[str]:
    """A server, by a command or by HTTP."""
    if how == "http":
        with by_http() as url:
            yield url
    else:
        yield command()


@asynccontextmanager
async def started(mcp: str, **options: Any) -> AsyncIterator[McpServer]:
    server = McpServer(McpServerConfig(mcp=mcp, **{"timeout": 60.0, **options}), "options")
    try:
        await server.start()
        yield server
    finally:
        await server.close()


@pytest.mark.parametrize("how", ["stdio", "http"])
def test_tools_and_their_results(how: str) -> None:
    async def work(mcp: str) -> None:
        async with started(mcp) as server:
            assert len(server.tools) == 9  # of three pages
            assert server.tools["add"].description == "What add does."
            assert server.tools["add"].schema()["required"] == ["a", "b"]
            added = await server.call("add", {"a": 1, "b": 2})
            assert (added.text, dict(added.facts), added.failed) == ("it is 3", {"score": 0.0, "done": False}, False)
            looked = await server.call("look", {})
            assert (looked.text, len(looked.pictures)) == ("", 1)
            odd = await server.call("odd", {})
            assert odd.text == "[resource_link: file:///notes.txt]\na file's text"
            failed = await server.call("fails", {})
            assert (failed.text, failed.failed) == ("the disk is full", True)
            with pytest.raises(ActionRefused, match="there is no tool none"):
                await server.call("none", {})
            await server.check()

    with reached(how) as mcp:
        asyncio.run(work(mcp))


def test_a_program_gets_the_variables_that_are_named_and_no_others() -> None:
    async def work() -> list[str]:
        async with started(command(), environ=["THE_SECRET"]) as server:
            return [(await server.call("secret", {"name": name})).text for name in ("THE_SECRET", "THE_KEY")]

    assert asyncio.run(work()) == [SECRET, "not there"]


@pytest.mark.parametrize("how", ["stdio", "http"])
def test_a_server_that_dies_is_told_as_gone(how: str) -> None:
    async def work(mcp: str) -> None:
        async with started(mcp, **({} if how == "http" else {"environ": ["THE_SECRET"]})) as server:
            with pytest.raises(DesktopGone) as died:
                await server.call("dies", {})
            for use in (server.call("look", {}), server.check()):
                with pytest.raises(DesktopGone):
                    await use
            if how == "stdio":  # what it wrote to its standard error, and not what must not be shown
                assert "it ended with status 3: I die of $THE_SECRET" in str(died.value)

    with reached(how) as mcp:
        asyncio.run(work(mcp))


@pytest.mark.parametrize("how", ["stdio", "http"])
def test_a_call_without_an_answer_ends_by_the_limit_and_the_next_is_answered(how: str) -> None:
    async def work(mcp: str) -> None:
        async with started(mcp, timeout=20.0) as server:
            server.config = McpServerConfig(mcp=mcp, timeout=0.3)
            with pytest.raises(DesktopTimeout, match=r"no answer for 0\.3 s"):
                await server.call("hangs", {})
            server.config = McpServerConfig(mcp=mcp, timeout=20.0)
            assert (await server.call("add", {"a": 1, "b": 2})).text == "it is 3"

    with reached(how) as mcp:
        asyncio.run(work(mcp))


@pytest.mark.parametrize(
    ("mcp", "kind", "told"),
    [
        ("no-such-command", ConfigError, r"options\.mcp: no-such-command: No such file"),
        ("sh -c 'echo it is broken >&2; exit 3'", DesktopGone, "it ended with status 3: it is broken"),
        ("cat", InfraError, "not done here"),  # it answers with the request
        ("http://127.0.0.1:9/mcp", DesktopGone, "Cannot connect"),
        ("endless", InfraError, "more than 100 pages"),
        ("mute", DesktopTimeout, "no answer for 5 s"),
    ],
)
def test_what_is_no_server_is_told(mcp: str, kind: type[Exception], told: str) -> None:
    async def work() -> None:
        async with started(command(mcp) if mcp in ("endless", "mute") else mcp, timeout=5.0 if mcp == "mute" else 60.0):
            pass

    with pytest.raises(kind, match=told):
        asyncio.run(work())


def test_nothing_of_a_program_is_left(tmp_path: Path) -> None:
    """Neither one that does not end with its input, nor what it started."""
    program = f"echo $$ > {tmp_path}/one; sleep 1000 & echo $! > {tmp_path}/two; {command()}; sleep 1000"

    async def work() -> None:
        async with started(shlex.join(["sh", "-c", program])):
            pass

    asyncio.run(work())
    for name in ("one", "two"):
        process = Path("/proc", (tmp_path / name).read_text().strip(), "cmdline")
        until(lambda process=process: not process.exists() or not process.read_bytes())


class Adding:
    """Adds 1 and 1 until the episode ends: by calls, or by typing them."""

    name = "adding"
    calls_tools = True

    def __init__(self, *, typed: bool, call: str = "add") -> None:
        self.typed = typed
        self.asked = {"name": call, "arguments": {"a": 1, "b": 1} if call == "add" else {}}

    async def run(self, computer: Computer) -> None:
        said = json.dumps(self.asked)
        while not computer.ended.is_set():
            if self.typed:
                await computer.answer(Decision(said, Action(ActionType.TYPE, text=said)))
            else:
                call = ToolCall(**self.asked)
                computer.begin(Decision(said, None, calls=(call,)))
                await computer.call(call)


def added(agent: Adding, out: Path, count: int, seed: int, **options: Any) -> list[Rollout]:
    """The results of tasks in which numbers are to be added to the seed until it is 10."""
    told: dict[str, Any] = {"start": "begin", "timeout": 60.0, **options}
    made = rollout(
        agent,
        lambda: environment("mcp").desktop(told),
        tasks_of("mcp", count, seed, told),
        out=out,
        benchmark="b",
        environment="mcp",
        options=told,
        interface="gui" if agent.typed else "tools",
        limits=RolloutLimits(concurrency=1, attempts=2, backoff=0.0),
    )
    return asyncio.run(made)


@pytest.mark.parametrize(("how", "typed"), [("stdio", False), ("http", True)])
def test_an_environment_gives_the_servers_score(how: str, typed: bool, tmp_path: Path) -> None:
    with reached(how) as mcp:
        results = added(Adding(typed=typed), tmp_path, 2, 6, mcp=mcp)
    assert [(r.record.seed, r.record.score, r.record.success, r.record.steps) for r in results] == [
        (6, 1.0, True, 2),
        (7, 0.0, False, 2),
    ]
    assert results[0].episode is not None
    assert results[0].episode.instruction == "Add numbers to 6 until it is 10."


@pytest.mark.parametrize("how", ["stdio", "http"])
def test_an_episode_whose_server_dies_has_no_score(how: str, tmp_path: Path) -> None:
    with reached(how) as mcp:
        secret = {} if how == "http" else {"environ": ["THE_SECRET"]}
        (result,) = added(Adding(typed=False, call="dies"), tmp_path, 1, 5, mcp=mcp, instruction="Add.", **secret)
    assert (result.record.outcome, result.record.score, result.record.attempts) == ("infra", None, 2)
    assert "DesktopGone" in (result.record.error or "")
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]


def test_an_end_without_the_number_is_no_score(tmp_path: Path) -> None:
    (result,) = added(Adding(typed=False), tmp_path, 1, 8, mcp=command(), reward="points")
    assert (result.record.outcome, result.record.score) == ("infra", None)
    assert "no result had the number 'points'" in (result.record.error or "")


@pytest.mark.parametrize("kind", ["openai-compatible", "openai", "claude"])
def test_a_model_calls_a_tool_of_its_server_beside_the_mouse(kind: str, tmp_path: Path) -> None:
    replies = [calls(kind, 0, "add", {"a": 2, "b": 3}), calls(kind, 1, "fails", {}), ends(kind, 2)]
    servers = [{"mcp": command(), "timeout": 60.0, "environ": ["THE_SECRET"]}]
    with serving(lambda request, number: Reply(replies[number])) as model:
        result = play(kind, model, tmp_path, "both", lambda: LOGIN.desktop({}), tools=servers)
    assert (result.record.outcome, result.record.error, result.record.score) == ("scored", None, 0.0)
    assert result.record.rules["tools"] == [command()]
    assert result.episode is not None
    told = [(call.name, call.result, call.error) for step in result.episode.steps for call in step.calls]
    assert told[:2] == [("add", "it is 5", None), ("fails", None, "the disk is full")]
    assert "it is 5" in json.dumps(model.requests[1])
    assert "the disk is full" in json.dumps(model.requests[2])
    assert len(names(model.requests[0])) >= 9
    assert SECRET not in json.dumps(model.requests)


def test_an_episode_whose_tool_server_dies_has_no_score(tmp_path: Path) -> None:
    def answer(request: dict[str, Any], number: int) -> Reply:
        return Reply(calls("openai-compatible", number, "dies", {}))

    servers = [{"mcp": command(), "timeout": 60.0}]
    with serving(answer) as model:
        result = play("openai-compatible", model, tmp_path, "both", lambda: LOGIN.desktop({}), tools=servers)
    assert (result.record.outcome, result.record.score) == ("infra", None)
    assert "agent.tools[0]" in (result.record.error or "")
    assert "it ended with status 3" in (result.record.error or "")
