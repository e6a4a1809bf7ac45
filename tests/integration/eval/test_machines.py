"""Virtual machines behind controllers, against stand-ins that keep state as a guest does and fail as told: what
images/waa-vm says of its controller, and the public protocol of OSWorld's server in the guest."""

from __future__ import annotations

import ast
import asyncio
import io
import json
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from PIL import Image

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionType
from eval.actions.dialects.dsl import Dsl
from eval.actions.geometry import Screen
from eval.agents.base import Decision, History
from eval.benchmarks.osworld import environment
from eval.config import ConfigError
from eval.desktop import Expected, InfraError, Observation, Score, SetupFailed, Task
from eval.desktops.client.public import PublicClient
from eval.desktops.client.transport import Reply, Transport
from eval.desktops.machines import MachineDesktop, PublicStage, VirtualMachines
from eval.desktops.remote import Servers
from eval.desktops.stage import DesktopStage
from eval.rollout.loop import RolloutLimits, rollout
from tests.support.cloned_evaluators import CLIENT, make_clone

NOTE = "C:\\notes.txt"
HISTORY = r"C:\Users\Docker\AppData\Local\Google\Chrome\User Data\Default\History"


@dataclass
class Guest:
    """One machine. `faults`: what goes wrong next, each once: reset 500, reset drop, execute drop, execute 500, execute
    hang; and screenshot hang, which stays."""

    faults: list[str] = field(default_factory=list)
    typed: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    commands: list[Any] = field(default_factory=list)
    resets: int = 0
    booted: bool = False
    controller: str = ""
    agent: int = 0
    browser: int | None = None

    def wrong(self, what: str) -> str | None:
        found = next((each for each in self.faults if each.startswith(what)), None)
        if found is not None:
            self.faults.remove(found)
        return found

    async def reset(self, request: web.Request) -> web.StreamResponse:
        fault = self.wrong("reset")
        if fault == "reset 500":
            return web.Response(status=500, text="QEMU does not answer\n")
        self.typed, self.files, self.commands, self.booted = "", {}, [], True
        self.resets += 1
        if fault == "reset drop":  # done, and the answer is lost
            assert request.transport is not None
            request.transport.close()
        return web.Response(text="3.141\n")

    async def state(self, request: web.Request) -> web.StreamResponse:
        ports = {"agent": self.agent} | ({} if self.browser is None else {"browser": self.browser})
        return web.json_response({"ready": True, "boots": [1.0], "resets": [], "ports": ports})

    async def execute(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        fault = self.wrong("execute")
        if fault == "execute 500":
            return web.json_response({"status": "error", "message": "no display"}, status=500)
        if fault == "execute hang":
            await asyncio.Event().wait()
        command, output = body["command"], ""
        if command[:2] == ["python", "-c"] and "History" in command[2]:
            output = f"{HISTORY}\r\n"
        elif command[:2] == ["python", "-c"]:
            for call in ast.walk(ast.parse(command[2])):
                if isinstance(call, ast.Call) and ast.unparse(call.func) in ("pyautogui.typewrite", "pyautogui.write"):
                    self.typed += ast.literal_eval([*call.args, *(each.value for each in call.keywords)][0])
        else:
            self.commands.append(command)
        if fault == "execute drop":
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"status": "success", "output": output, "error": "", "returncode": 0})

    async def told(self, request: web.Request) -> web.StreamResponse:
        self.commands.append([request.path, await request.json()])
        return web.json_response({"status": "success"})

    async def launch(self, request: web.Request) -> web.StreamResponse:
        self.commands.append((await request.json())["command"])
        return web.Response(text="launched")

    async def upload(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        sent = form["file_data"]
        assert isinstance(sent, web.FileField)
        self.files[str(form["file_path"])] = sent.file.read()
        return web.Response(text="File Uploaded")

    async def file(self, request: web.Request) -> web.StreamResponse:
        name = str((await request.post())["file_path"])
        data = self.typed.encode() if name == "typed" else self.files.get(name)
        return web.Response(status=404) if data is None else web.Response(body=data)

    async def screenshot(self, request: web.Request) -> web.StreamResponse:
        if "screenshot hang" in self.faults and "execute hang" not in self.faults:
            await asyncio.Event().wait()
        out = io.BytesIO()
        Image.new("RGB", (64, 48), (len(self.typed) % 256, 0, 0)).save(out, "PNG")
        return web.Response(body=out.getvalue(), content_type="image/png")

    async def size(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"width": 64, "height": 48})


async def serve(stack: AsyncExitStack, routes: list[web.RouteDef]) -> int:
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(app)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port: int = runner.addresses[0][1]
    return port


async def start(stack: AsyncExitStack, guest: Guest) -> Guest:
    guest.agent = await serve(
        stack,
        [
            web.post("/execute", guest.execute), web.post("/setup/execute", guest.execute),
            web.post("/setup/launch", guest.launch), web.post("/setup/upload", guest.upload),
            web.post("/file", guest.file), web.get("/screenshot", guest.screenshot),
            web.post("/setup/create_folder", guest.told), web.post("/setup/create_file", guest.told),
            web.post("/setup/recycle", guest.told),
            web.post("/screen_size", guest.size),
        ],
    )  # fmt: skip
    port = await serve(stack, [web.post("/reset", guest.reset), web.get("/state", guest.state)])
    guest.controller = f"http://127.0.0.1:{port}"
    return guest


class Note:
    """Type the task's name. The machine must be as its snapshot is."""

    def __init__(self, task: Task) -> None:
        self.task = task

    async def prepare(self, stage: DesktopStage) -> None:
        if await stage.read_file("typed"):
            raise SetupFailed("somebody else's text")
        await stage.write_file(NOTE, self.task.task_id.encode())

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected | None:
        return None

    async def judge(self, stage: DesktopStage, done: Sequence[Action]) -> Score:
        assert await stage.read_file(NOTE) == self.task.task_id.encode()
        right = await stage.read_file("typed") == self.task.task_id.encode()
        return Score(float(right), right)


class Typist:
    name = "typist"
    parallel = 1

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        done = Action(ActionType.DONE)
        actions = [done if h.past else Action(ActionType.TYPE, text=h.task.task_id) for h in histories]
        return [Decision(Dsl(2).format_response(action), action) for action in actions]


def played(guests: list[Guest], count: int, out: Path, **limits: Any) -> list[Any]:
    async def go() -> list[Any]:
        async with AsyncExitStack() as stack:
            for guest in guests:
                await start(stack, guest)
            machines = VirtualMachines([guest.controller for guest in guests])
            found = await rollout(
                Typist(),
                lambda: MachineDesktop(lambda task, seed: Note(task), machines),
                [Task(f"task {number}", "type", number) for number in range(count)],
                out=out,
                benchmark="b",
                environment="machines",
                limits=RolloutLimits(max_steps=3, concurrency=8, backoff=0.0, **limits),
            )
            return [each.record for each in found]

    return asyncio.run(go())


def test_each_episode_has_a_machine_at_its_snapshot(tmp_path: Path) -> None:
    guests = [Guest(), Guest(), Guest()]
    records = played(guests, 9, tmp_path)
    assert [(each.outcome, each.success, each.attempts) for each in records] == [("scored", True, 1)] * 9
    assert sum(guest.resets for guest in guests) == 9
    assert all(guest.resets for guest in guests)


@pytest.mark.parametrize("fault", ["reset 500", "reset drop", "execute drop", "execute 500"])
def test_a_machine_that_fails_is_no_score_and_nothing_is_done_twice(fault: str, tmp_path: Path) -> None:
    """An action whose answer was lost is not sent again: the episode begins anew, at the snapshot."""
    guests = [Guest([fault]), Guest([fault])]
    records = played(guests, 4, tmp_path)
    assert [(each.outcome, each.success) for each in records] == [("scored", True)] * 4
    again = sum(each.attempts - 1 for each in records)
    assert again == (0 if fault == "reset drop" else 2)  # a reset that was lost is asked for again


@pytest.mark.parametrize("dead", [False, True])
def test_an_action_that_takes_too_long_is_told_while_the_guest_answers_and_infra_when_it_does_not(
    dead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eval.desktops.computer.ANSWERS_S", 2.0)
    monkeypatch.setattr("eval.agents.computer.asks", lambda action: 0.0)
    guest = Guest(["execute hang", *(["screenshot hang"] if dead else [])])
    (record,) = played([guest], 1, tmp_path, step_timeout=4.0, attempts=1)
    found = (record.outcome, record.success, record.refused, guest.resets)
    assert found == (("infra", None, 0, 1) if dead else ("scored", False, 1, 1))


def test_the_guest_has_the_time_that_an_action_asks_for() -> None:
    """A drag of the documented most would meet the client's own limit of 90 s beside a server that is slow to begin."""
    asked: list[float] = []

    class Noting(Transport):
        async def ask(self, method: str, path: str, *, repeat: bool, limit_s: float | None = None, **r: Any) -> Reply:
            asked.append(limit_s or 0.0)
            return Reply(200, {}, b'{"status": "success", "returncode": 0}')

    client = PublicClient(Noting("http://127.0.0.1:9", limit_s=90.0), Screen(64, 48))
    drag = Action(ActionType.DRAG, x=0.1, y=0.1, x2=0.5, y2=0.5, duration=60.0)
    asyncio.run(client._do(drag))
    assert asked == [150.0]


def test_a_machine_that_never_comes_back_is_infrastructure(tmp_path: Path) -> None:
    (record,) = played([Guest(["reset 500"] * 9)], 1, tmp_path)
    assert (record.outcome, record.score, record.attempts) == ("infra", None, 3)
    assert "/reset: status 500: QEMU does not answer" in record.error


@pytest.mark.parametrize("state", [b"no JSON", b"[]", b"{}", b'{"ports": {"ssh": 1}}', b'{"ports": {"agent": "x"}}'])
def test_a_controller_that_names_no_port_is_infrastructure(state: bytes) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=state)

    async def go() -> None:
        async with AsyncExitStack() as stack:
            port = await serve(stack, [web.post("/reset", answer), web.get("/state", answer)])
            desktop = MachineDesktop(lambda task, seed: Note(task), VirtualMachines([f"http://127.0.0.1:{port}"]))
            try:
                await desktop.reset(Task("t", "x"), 0)
            finally:
                await desktop.close()

    with pytest.raises(InfraError, match="/state"):
        asyncio.run(go())


def test_what_the_protocol_does_not_tell_is_never_a_score() -> None:
    stage = PublicStage("http://127.0.0.1:9", None)  # type: ignore[arg-type]
    asked: list[Callable[[], Awaitable[Any]]] = [
        stage.tree, lambda: stage.windows(1), lambda: stage.list_files(""), lambda: stage.serve("shop", {}),
        stage.served,
    ]  # fmt: skip
    for ask in asked:
        with pytest.raises(SetupFailed):
            asyncio.run(ask())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["https://host:1"], "allowed: http://HOST:PORT and role:NAME"),
        (["host:8000"], "allowed"),
        (["http://host:1/path"], "allowed"),
        (["http://host:1", "http://host:1/"], "addresses that differ"),
        (["role:desktop"], "no $SLIPWAY_ENDPOINT_DESKTOP"),
    ],
)
def test_odd_machines_are_refused(given: list[str], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPWAY_ENDPOINT_DESKTOP", raising=False)
    with pytest.raises(ConfigError) as raised:
        VirtualMachines.named(given)
    assert why in str(raised.value)


def test_a_roles_machines_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_ENDPOINT_DESKTOP", "10.0.0.1:8000,10.0.0.2:8000")
    found = VirtualMachines.named(["role:desktop", "http://here:1/"]).addresses
    assert found == ("http://10.0.0.1:8000", "http://10.0.0.2:8000", "http://here:1")


def test_ranks_that_share_an_evaluation_share_no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_NODES", "2")
    monkeypatch.setenv("WORLD_SIZE", "2")
    given = [f"http://h:{port}" for port in (1, 2, 3)]
    parts = []
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        parts.append(VirtualMachines.named(given).addresses)
    assert parts == [("http://h:1", "http://h:3"), ("http://h:2",)]
    with pytest.raises(ConfigError, match=r"options\.machines: 1 for 2 ranks .*; each needs one of its own"):
        VirtualMachines.named(given[:1])
    monkeypatch.setenv("SLIPWAY_ENDPOINT_DESKTOP", "10.0.0.1:8000")
    monkeypatch.setenv("DESKTOP_TOKEN", "x")
    with pytest.raises(ConfigError, match=r"options\.role: desktop: 1 for 2 ranks"):
        Servers.of_role("desktop")


def test_a_task_of_osworlds_format_is_prepared_and_judged_in_a_machine(tmp_path: Path) -> None:
    """Its steps go to the guest's server. It cannot be done, so no evaluator is needed: who says so gets 1."""
    task = {
        "id": "one", "snapshot": "windows", "instruction": "Make it 8D.", "source": "", "trajectory": "",
        "related_apps": ["clock"],
        "config": [
            {"type": "execute", "parameters": {"command": ["cmd", "/c", "mkdir", "C:\\x"]}},
            {"type": "launch", "parameters": {"command": ["ms-clock:"]}},
        ],
        "evaluator": {"func": "infeasible"},
    }  # fmt: skip
    (tmp_path / "tasks/clock").mkdir(parents=True)
    (tmp_path / "tasks/clock/one.json").write_text(json.dumps(task))

    async def go() -> tuple[Guest, Score]:
        async with AsyncExitStack() as stack:
            guest = await start(stack, Guest())
            options = {"folder": str(tmp_path / "tasks"), "machines": [guest.controller]}
            (one,) = environment.tasks(1, 0, options)
            desktop = environment.desktop(options)
            assert isinstance(desktop, MachineDesktop)
            try:
                await desktop.reset(one, 0)
                await desktop.step(Action(ActionType.FAIL))
                return guest, await desktop.score()
            finally:
                await desktop.close()

    guest, score = asyncio.run(go())
    assert guest.commands == [["cmd", "/c", "mkdir", "C:\\x"], ["ms-clock:"]]
    assert (score.value, score.success) == (1.0, True)
    with pytest.raises(ConfigError, match=r"options\.machines: without role and video"):
        environment.desktop({"folder": str(tmp_path / "tasks"), "machines": ["http://a:1"], "role": "x"})


def written(folder: Path, config: list[dict[str, Any]], evaluator: dict[str, Any] | None = None) -> Path:
    """A folder with one task."""
    task = {
        "id": "one", "snapshot": "windows", "instruction": "Do it.", "source": "", "trajectory": "",
        "related_apps": [], "config": config, "evaluator": evaluator or {"func": "infeasible"},
    }  # fmt: skip
    (folder / "tasks/windows").mkdir(parents=True)
    (folder / "tasks/windows/one.json").write_text(json.dumps(task))
    return folder / "tasks"


GIVES_UP = Action(ActionType.FAIL)


async def set_up(options: dict[str, Any], guest: Guest, action: Action = GIVES_UP) -> Score:
    """The score of who does one thing in a machine."""
    async with AsyncExitStack() as stack:
        await start(stack, guest)
        options = {**options, "machines": [guest.controller]}
        (one,) = environment.tasks(1, 0, options)
        desktop = environment.desktop(options)
        try:
            await desktop.reset(one, 0)
            await desktop.step(action)
            return await desktop.score()
        finally:
            await desktop.close()


PAGE = "url, title, visit_count, typed_count, last_visit_time, hidden"
VISIT = "url, visit_time, from_visit, transition, segment_id, visit_duration"


def test_the_steps_that_windows_agent_arena_adds_go_to_the_guests_server(tmp_path: Path) -> None:
    visit = {"url": "https://news.example/", "title": "News", "visit_time_from_now_in_seconds": 60}
    config = [
        {"type": "create_folder", "parameters": {"path": "C:\\a"}},
        {"type": "create_file", "parameters": {"path": "C:\\a\\b.txt", "content": "x"}},
        {"type": "recycle_file", "parameters": {"path": "C:\\a\\b.txt"}},
        {"type": "update_browse_history", "parameters": {"history": [visit]}},
    ]
    folder = written(tmp_path, config)
    clone = make_clone(tmp_path / "clone")
    guest = Guest()
    options = {"folder": str(folder), "judge": {"path": str(clone)}}
    with pytest.raises(InfraError, match=r"missing dependency: 1 download \(huggingface\.co\)"):
        asyncio.run(set_up(options, Guest()))
    kept = clone / CLIENT / "desktop_env/assets/history_empty.sqlite"
    kept.parent.mkdir()
    with closing(sqlite3.connect(kept)) as base:
        base.execute(f"CREATE TABLE urls (id INTEGER PRIMARY KEY, {PAGE})")
        base.execute(f"CREATE TABLE visits ({VISIT})")
        base.commit()
    empty = kept.read_bytes()
    asyncio.run(set_up(options, guest))
    told = [command for command in guest.commands if command[0].startswith("/setup")]
    assert told == [
        ["/setup/create_folder", {"path": "C:\\a"}],
        ["/setup/create_file", {"path": "C:\\a\\b.txt", "content": "x"}],
        ["/setup/recycle", {"path": "C:\\a\\b.txt"}],
    ]
    assert list(guest.files) == [HISTORY]
    (tmp_path / "history").write_bytes(guest.files[HISTORY])
    with closing(sqlite3.connect(tmp_path / "history")) as base:
        rows = base.execute("SELECT u.url, title, visit_time FROM visits v JOIN urls u ON u.id = v.url").fetchall()
    ((url, title, when),) = rows
    assert (url, title) == ("https://news.example/", "News")
    ago = datetime.now(UTC) - datetime(1601, 1, 1, tzinfo=UTC) - timedelta(microseconds=when)
    assert timedelta(seconds=60) <= ago < timedelta(seconds=600)
    assert kept.read_bytes() == empty


def test_a_clone_without_evaluators_is_one_line(tmp_path: Path) -> None:
    options = {"folder": str(written(tmp_path, [])), "judge": {"path": str(tmp_path)}}
    with pytest.raises(ConfigError, match=r"options\.judge\.path: .* has no package desktop_env; looked in src"):
        environment.desktop(options)


def test_tasks_about_a_browser_need_its_port(tmp_path: Path) -> None:
    tabs = [{"type": "chrome_open_tabs", "parameters": {"urls_to_open": []}}]
    options = {"folder": str(written(tmp_path, tabs)), "internet": True}
    with pytest.raises(InfraError, match="missing dependency: a browser's debugging port"):
        asyncio.run(set_up(options, Guest()))


def test_a_browsers_port_that_is_no_number_is_infrastructure(tmp_path: Path) -> None:
    guest = Guest()
    guest.browser = "9222"  # type: ignore[assignment]
    with pytest.raises(InfraError, match="ports 'agent' and 'browser'"):
        asyncio.run(set_up({"folder": str(written(tmp_path, []))}, guest))
