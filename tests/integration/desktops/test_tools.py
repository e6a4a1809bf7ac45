"""The tools of a real desktop: they run as its user, within its limits, and what fails is told in words."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from eval.config import convert
from eval.desktop import ActionRefused
from eval.desktops import tools
from eval.desktops.session import DesktopSession
from eval.environments.desktop import FILE, NoteScene
from eval.run import RunConfig, evaluate
from tests.support.desktops import need_isolation, run
from tests.support.modelserver import Reply, completion, serving

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.timeout(240)]


@pytest.fixture(autouse=True)
def _isolated(folder: Path) -> None:
    need_isolation()


def on_a_desktop(work: Callable[[DesktopSession], Awaitable[None]]) -> None:
    async def go() -> None:
        async with await DesktopSession.start() as session:
            await work(session)
            session.check()

    run(go())


def test_a_file_is_made_opened_and_read() -> None:
    async def work(session: DesktopSession) -> None:
        command = {"command": "echo eggs > list.txt; cat list.txt; echo trouble >&2; exit 3"}
        assert await tools.call(session, "run_command", command) == "status 3\neggs\ntrouble"
        opened = await tools.call(session, "open_file", {"program": "mousepad", "path": "list.txt"})
        assert opened == "mousepad has opened a window"
        tree = await tools.call(session, "read_tree", {})
        assert "'eggs\\n'" in tree
        assert "application 'mousepad'" in tree

    on_a_desktop(work)


def test_a_command_runs_as_the_desktops_user_and_sees_nothing_of_the_machine() -> None:
    home = pwd.getpwuid(os.geteuid()).pw_dir
    assert any(Path(home).iterdir()), "nothing that could be seen"

    async def work(session: DesktopSession) -> None:
        command = f"id -u; ls -A {home} 2>/dev/null; ls /proc | grep -c '^[0-9]'"
        told = await tools.call(session, "run_command", {"command": command})
        status, user, *rest = told.split("\n")
        assert status == "status 0"
        assert int(user) == session.place.home.stat().st_uid
        assert int(user) != os.geteuid()
        assert len(rest) == 1  # the home of who runs the desktops is not there, or empty
        assert int(rest[0]) < 30  # the processes of its own namespace

    on_a_desktop(work)


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("open_file", {"program": "no-such-program", "path": "a"}, "no-such-program"),
        ("open_file", {"program": "false", "path": "a"}, "false ended with status 1"),
        ("shut_down", {}, "there is no tool 'shut_down'"),
        ("run_command", {"command": "ls", "as": "root"}, "run_command takes command; given: as, command"),
    ],
    ids=["no program", "ends at once", "no tool", "unknown argument"],
)
def test_what_fails_is_refused_in_words(name: str, given: dict[str, str], why: str) -> None:
    async def work(session: DesktopSession) -> None:
        with pytest.raises(ActionRefused) as refused:
            await tools.call(session, name, given)
        assert why in str(refused.value)
        assert "\n" not in str(refused.value)

    on_a_desktop(work)


def test_endless_output_and_a_program_left_behind_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "RUN_S", 3.0)

    async def work(session: DesktopSession) -> None:
        with pytest.raises(ActionRefused, match="printed more than"):
            await tools.call(session, "run_command", {"command": "head -c 20000000 /dev/zero | tr '\\0' x"})
        told = await tools.call(session, "run_command", {"command": "seq 100000"})
        assert "characters are left out" in told
        assert len(told) < tools.MAX_RESULT + 200
        assert (
            await tools.call(session, "run_command", {"command": "sleep 600"}) == "it ran longer than 3 s and was ended"
        )
        # a program in the background does not keep the answer
        assert await tools.call(session, "run_command", {"command": "sleep 600 & echo on"}) == "status 0\non"

    on_a_desktop(work)


def test_a_task_is_solved_by_tools_only(tmp_path: Path) -> None:
    """A model that writes the line by a command, through the evaluation."""
    scene = NoteScene(1_000_000, "test")
    arguments = json.dumps({"command": f"echo '{scene.line}' >> {FILE}"})
    call = {"id": "call_1", "type": "function", "function": {"name": "run_command", "arguments": arguments}}
    replies = [completion(None, "tool_calls", tool_calls=[call]), completion("Action: DONE()")]
    with serving(lambda request, number: Reply(replies[number])) as server:
        agent = {"kind": "openai-compatible", "model": "m", "base_url": f"{server.url}/v1", "retries": 0}
        config = {"benchmark": "note", "environment": "desktop", "tasks": {"count": 1, "seed": 1_000_000}}
        evaluate(convert({**config, "agent": agent, "interface": "tools"}, RunConfig, "run"), tmp_path)
    (record,) = [json.loads(line) for line in (tmp_path / "tasks.jsonl").read_text().splitlines()]
    assert (record["success"], record["error"], record["steps"]) == (True, None, 2)
    figures = {name: record["metrics"].get(name) for name in ("gui_actions", "tool_calls", "gui_share")}
    assert figures == {"gui_actions": 0.0, "tool_calls": 1.0, "gui_share": 0.0}
