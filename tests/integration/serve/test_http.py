"""Who may talk to a server, what it answers to what it cannot read, and what becomes of clients that go away."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.support.documented import ROOT
from tests.support.serving import TOKEN, Served, command, ended, served, written

LOGIN: Final[dict[str, Any]] = {
    "environment": "login",
    "tasks": {"count": 5, "seed": 1000000},
    "limits": {"concurrency": 2},
}
BEARER: Final = {"Authorization": f"Bearer {TOKEN}"}
PATHS: Final = {"openenv": "/schema", "mcp": "/mcp", "ors": "/list_environments"}
OPEN: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def asked(do: Callable[[aiohttp.ClientSession], Awaitable[Any]], **options: Any) -> Any:
    async def run() -> Any:
        async with aiohttp.ClientSession(**options) as web:
            return await do(web)

    return asyncio.run(run())


def status(url: str, headers: dict[str, str]) -> int:
    async def do(web: aiohttp.ClientSession) -> int:
        async with web.get(url, headers=headers) as response:
            return response.status

    return int(asked(do))


@pytest.mark.parametrize("face", PATHS)
def test_only_a_program_with_the_token_is_answered(face: str, tmp_path: Path) -> None:
    basic = "Basic " + base64.b64encode(f"any:{TOKEN}".encode()).decode()
    with served(face, tmp_path, LOGIN) as server:
        url = server.url + PATHS[face]
        known = status(url, BEARER)
        assert known in (200, 404)  # what the path answers to a client of ours
        assert status(url, {"Authorization": basic}) == known
        assert status(url, {}) == status(url, {"Authorization": "Bearer wrong"}) == 401
        assert status(url, {"Authorization": "Basic !!"}) == 401
        assert status(url, {**BEARER, "Origin": "http://127.0.0.1"}) == 403
        assert status(url, {**BEARER, "Host": "attacker.example"}) == 403  # DNS rebinding
        assert status(server.url + "/health", {}) == 200
        if face == "openenv":
            assert status(server.url + "/ws", {}) == 401


def test_a_port_needs_a_token(tmp_path: Path) -> None:
    done = subprocess.run(command("openenv", tmp_path, LOGIN), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert done.stderr == "config: --listen 127.0.0.1:8000 needs a token: --token-file FILE, or $SERVE_TOKEN\n"


def test_two_servers_do_not_record_into_one_folder(tmp_path: Path) -> None:
    with served("openenv", tmp_path, LOGIN):
        arguments = command("mcp", tmp_path, LOGIN)
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False, input="")
    assert done.returncode == 78
    assert "another server records there" in done.stderr


async def opened(web: aiohttp.ClientSession, url: str) -> aiohttp.ClientWebSocketResponse:
    return await web.ws_connect(url + "/ws", headers=BEARER, max_msg_size=0)


async def sent(socket: aiohttp.ClientWebSocketResponse, message: Any) -> dict[str, Any]:
    await socket.send_str(message if isinstance(message, str) else json.dumps(message))
    return dict(await socket.receive_json())


def test_a_unix_socket_needs_no_token_and_is_its_users_own(tmp_path: Path) -> None:
    place = Path("/tmp") / f"serve-{tmp_path.name[-20:]}.sock"
    with served("openenv", tmp_path, LOGIN, listen=f"unix:{place}"):
        assert stat.S_IMODE(place.stat().st_mode) == 0o600

        async def do(web: aiohttp.ClientSession) -> dict[str, Any]:
            socket = await web.ws_connect("http://any/ws", max_msg_size=0)
            return await sent(socket, {"type": "reset", "data": {}})

        async def run() -> dict[str, Any]:
            async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(place))) as web:
                return await do(web)

        assert asyncio.run(run())["type"] == "observation"


def test_what_cannot_be_read_is_one_error_and_the_session_goes_on(tmp_path: Path) -> None:
    wrong = [
        ("{", "INVALID_JSON"),
        ({"type": "jump"}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"seed": "one"}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"task_id": "none"}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"type": "done"}}, "SESSION_ERROR"),
    ]

    async def do(web: aiohttp.ClientSession) -> list[dict[str, Any]]:
        socket = await opened(web, url)
        answers = [await sent(socket, message) for message, _ in wrong]
        answers.append(await sent(socket, {"type": "reset", "data": {"task_id": "login-1000001"}}))
        answers.append(await sent(socket, {"type": "step", "data": {"type": "done", "metadata": {}}}))
        return answers

    with served("openenv", tmp_path, LOGIN) as server:
        url = server.url
        *errors, begun, over = asked(do)
        assert [(error["type"], error["data"]["code"]) for error in errors] == [("error", code) for _, code in wrong]
        assert begun["data"]["observation"]["task_id"] == "login-1000001"
        assert (over["data"]["done"], over["data"]["reward"]) == (True, 0.0)
        assert len(server.records()) == 1


KILLED: Final = """
import asyncio, json, sys
import aiohttp
async def main():
    async with aiohttp.ClientSession() as web:
        socket = await web.ws_connect(sys.argv[1] + "/ws", headers={"Authorization": "Bearer sesame"}, max_msg_size=0)
        await socket.send_str(json.dumps({"type": "reset", "data": {}}))
        await socket.receive()
        print("begun", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


def killed(url: str, program: str = KILLED, after: Callable[[], None] = lambda: None) -> None:
    """A client that begins an episode, and is killed; `after`: what is done between."""
    arguments = [sys.executable, "-c", program, url]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        after()
        process.send_signal(signal.SIGKILL)


def gone(server: Served, count: int) -> None:
    records = ended(server, count)
    assert [record.outcome for record in records] == ["infra"] * count
    assert all("the client went away" in (record.error or "") for record in records)


def test_a_client_that_is_killed_gives_its_desktop_back(tmp_path: Path) -> None:
    with served("openenv", tmp_path, {**LOGIN, "limits": {"concurrency": 1}}) as server:
        for number in (1, 2):  # the second needs the place of the first
            killed(server.url)
            gone(server, number)


async def post(web: aiohttp.ClientSession, url: str, message: Any, session: str = "") -> tuple[int, Any, str]:
    """(status, answer, session)."""
    headers = {**BEARER, "Content-Type": "application/json", **({"Mcp-Session-Id": session} if session else {})}
    async with web.post(url + "/mcp", data=json.dumps(message), headers=headers) as response:
        text = await response.text()
        return response.status, json.loads(text) if text else None, response.headers.get("Mcp-Session-Id", "")


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


def test_mcp_sessions_are_apart_and_end(tmp_path: Path) -> None:
    async def do(web: aiohttp.ClientSession) -> None:
        _, answer, one = await post(web, url, OPEN)
        assert answer["result"]["protocolVersion"] == "2025-11-25"
        _, _, other = await post(web, url, OPEN)
        assert len(one) > 20
        assert one != other
        assert (await post(web, url, {"jsonrpc": "2.0", "method": "notifications/initialized"}, one))[0] == 202
        _, first, _ = await post(web, url, call("start", task="login-1000000"), one)
        _, second, _ = await post(web, url, call("start", task="login-1000001"), other)
        assert first["result"]["content"][0] != second["result"]["content"][0]
        _, over, _ = await post(web, url, call("done"), one)
        assert over["result"]["structuredContent"]["score"] == 0.0
        _, still, _ = await post(web, url, call("wait", seconds=0), other)
        assert still["result"]["structuredContent"] == {"steps": 1, "done": False, "task": "login-1000001"}
        async with web.delete(url + "/mcp", headers={**BEARER, "Mcp-Session-Id": other}) as response:
            assert response.status == 200
        assert (await post(web, url, call("done"), other))[0] == 404
        assert (await post(web, url, call("done"), "guessed"))[0] == 404

    with served("mcp", tmp_path, LOGIN) as server:
        url = server.url
        asked(do)
        assert [record.outcome for record in ended(server, 2)] == ["scored", "infra"]


def test_mcp_tells_what_it_cannot_do(tmp_path: Path) -> None:
    def request(method: str, **params: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 3, "method": method, "params": params}

    async def do(web: aiohttp.ClientSession) -> None:
        assert (await post(web, url, request("server/discover")))[1]["error"]["code"] == -32601
        assert (await post(web, url, request("tools/list")))[0] == 400
        _, _, one = await post(web, url, OPEN)
        assert (await post(web, url, request("resources/list"), one))[1]["error"]["code"] == -32601
        assert (await post(web, url, call("fly"), one))[1]["error"]["code"] == -32602
        assert (await post(web, url, call("start", level=3), one))[1]["error"]["code"] == -32602
        assert (await post(web, url, [1], one))[0] == 400
        _, none, _ = await post(web, url, call("start", task="other"), one)
        assert none["result"]["isError"]
        _, shown, _ = await post(web, url, call("screenshot"), one)  # begins the next task
        assert shown["result"]["structuredContent"]["steps"] == 0
        _, wrong, _ = await post(web, url, call("click", x="left"), one)  # an answer that is no action
        told = wrong["result"]["structuredContent"]
        assert (told["done"], told["score"]) == (True, 0.0)

    with served("mcp", tmp_path, LOGIN) as server:
        url = server.url
        asked(do)
        assert [(record.parse_failures, record.score) for record in server.records()] == [(1, 0.0)]


STREAMING: Final = """
import asyncio, json, sys
sys.path.insert(0, ".")
import aiohttp
from tests.integration.serve.test_http import BEARER, OPEN, call, post
async def main():
    async with aiohttp.ClientSession() as web:
        _, _, session = await post(web, sys.argv[1], OPEN)
        await post(web, sys.argv[1], call("start"), session)
        async with web.get(sys.argv[1] + "/mcp", headers={**BEARER, "Mcp-Session-Id": session}) as stream:
            await stream.content.read(1)
            print("begun", flush=True)
            await asyncio.sleep(600)
asyncio.run(main())
"""


def test_an_mcp_client_that_is_killed_gives_its_desktop_back(tmp_path: Path) -> None:
    with served("mcp", tmp_path, LOGIN) as server:
        killed(server.url, STREAMING)
        gone(server, 1)


def test_an_mcp_client_without_a_stream_is_gone_after_the_idle_time(tmp_path: Path) -> None:
    async def do(web: aiohttp.ClientSession) -> None:
        _, _, session = await post(web, url, OPEN)
        assert (await post(web, url, call("start"), session))[0] == 200
        ended(server, 1)
        assert (await post(web, url, call("wait", seconds=0), session))[0] == 404

    with served("mcp", tmp_path, {**LOGIN, "idle": 1.0}) as server:
        url = server.url
        asked(do)
        gone(server, 1)


async def ors(
    web: aiohttp.ClientSession, url: str, path: str, body: Any = None, session: str = "one"
) -> tuple[int, str]:
    """(status, text) of a request as clients of the Open Reward Standard send it: POST with a body, else GET."""
    headers = {"X-API-Key": TOKEN, "X-Session-ID": session}
    async with web.request("GET" if body is None else "POST", url + path, json=body, headers=headers) as response:
        return response.status, await response.text()


def events(text: str) -> tuple[str, Any]:
    """(name of the call, its result) of a stream."""
    found = re.findall(r"event: (\w+)\ndata: (.*)\n", text)
    assert found[0][0] == "task_id", text
    if found[-1][0] == "error":
        return found[0][1], found[-1][1]
    return found[0][1], json.loads("".join(data for event, data in found if event in ("chunk", "end")))


def test_ors_tells_what_it_cannot_do(tmp_path: Path) -> None:
    task = {"task_id": "login-1000001", "seed": 1000001}
    wrong: list[tuple[str, Any, int]] = [
        ("/desktops/tasks", {"split": "all"}, 400),
        ("/desktops/task", {"split": "test", "index": 5}, 400),
        ("/desktops/task", {"split": 3}, 400),
        ("/create", {}, 400),
        ("/create", {"split": "train", "index": 0}, 400),
        ("/create", {"env_name": "other", "task_spec": task}, 404),
        ("/create", {"task_spec": task, "secrets": {"a": "b"}}, 400),
        ("/ping", {}, 404),
        ("/desktops/call", {"name": "done", "input": {}}, 404),
        ("/desktops/prompt", None, 404),
    ]

    async def do(web: aiohttp.ClientSession) -> None:
        for path, body, status in wrong:
            found, text = await ors(web, url, path, body)
            assert (path, found) == (path, status)
            assert json.loads(text)["detail"]
        _, last = await ors(web, url, "/desktops/task_range", {"split": "test", "start": -2})
        assert [each["seed"] for each in json.loads(last)["tasks"]] == [1000003, 1000004]
        assert (await ors(web, url, "/create", {"task_spec": task}))[0] == 200
        assert (await ors(web, url, "/create", {"task_spec": task}))[0] == 400  # the name is taken
        assert (await ors(web, url, "/create", {"split": "test", "index": 0}, "two"))[0] == 200
        first, second = [(await ors(web, url, "/desktops/prompt", None, name))[1] for name in ("one", "two")]
        assert json.loads(first)[0] != json.loads(second)[0]
        name, refused = events((await ors(web, url, "/desktops/call", {"name": "fly", "input": {}}))[1])
        assert refused["ok"] is True  # an answer that is no action, as in an evaluation
        assert (refused["output"]["finished"], refused["output"]["reward"]) == (True, 0.0)
        again = events((await ors(web, url, "/desktops/call", {"name": "", "task_id": name}))[1])
        assert again == (name, refused)  # whoever lost the connection gets the same result, and nothing is done twice
        assert "there is no such call" in (await ors(web, url, "/desktops/call", {"name": "", "task_id": "other"}))[1]
        _, over = events((await ors(web, url, "/desktops/call", {"name": "done", "input": {}}))[1])
        assert over["ok"] is False
        assert (await ors(web, url, "/delete", {}, "two"))[0] == 200
        assert (await ors(web, url, "/ping", {}, "two"))[0] == 404

    with served("ors", tmp_path, LOGIN) as server:
        url = server.url
        asked(do)
        assert sorted(record.outcome for record in ended(server, 2)) == ["infra", "scored"]


PINGING: Final = """
import asyncio, sys
sys.path.insert(0, ".")
import aiohttp
from tests.integration.serve.test_http import ors
async def main():
    async with aiohttp.ClientSession() as web:
        await ors(web, sys.argv[1], "/create", {"split": "test", "index": 0})
        assert (await ors(web, sys.argv[1], "/desktops/prompt"))[0] == 200
        print("begun", flush=True)
        while True:
            await asyncio.sleep(10)
            await ors(web, sys.argv[1], "/ping", {})
asyncio.run(main())
"""


def test_an_ors_client_that_is_killed_gives_its_desktop_back(tmp_path: Path) -> None:
    with served("ors", tmp_path, LOGIN) as server:
        killed(server.url, PINGING)
        gone(server, 1)


def test_standard_output_holds_messages_alone_and_the_end_of_the_input_ends_the_server(tmp_path: Path) -> None:
    lines = [OPEN, call("start"), call("click", x=1, y=1), call("done")]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    arguments = command("mcp", tmp_path, LOGIN)
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False, input=text)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 7, 7, 7]
    assert answers[-1]["result"]["structuredContent"]["done"] is True
    assert done.stderr == ""


def test_a_configuration_that_is_wrong_is_one_line(tmp_path: Path) -> None:
    file = written(tmp_path, {"environment": "login"})
    arguments = [sys.executable, "-m", "eval.serve", "mcp", "--config", str(file), "--out", str(tmp_path)]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False, input="")
    assert done.returncode == 78
    assert done.stderr == "config: tasks: is missing; environment login has no desktops without a task\n"


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_sixty_four_sessions_at_once_are_apart(tmp_path: Path) -> None:
    tasks = 64
    config = {
        **LOGIN,
        "tasks": {"count": tasks, "seed": 1000000},
        "limits": {"concurrency": tasks, "parse_failures": 2},
    }

    async def play(web: aiohttp.ClientSession, number: int, all_open: asyncio.Barrier) -> dict[str, Any]:
        socket = await opened(web, url)
        begun = await sent(socket, {"type": "reset", "data": {"seed": 1000000 + number}})
        await all_open.wait()
        for _ in range(number % 4):
            await sent(socket, {"type": "step", "data": {"type": "wait", "duration": 0}})
        over = await sent(socket, {"type": "step", "data": {"type": "done"}})
        return {"begun": begun["data"]["observation"], "over": over["data"]["observation"]}

    async def do(web: aiohttp.ClientSession) -> list[dict[str, Any]]:
        all_open, since = asyncio.Barrier(tasks), time.monotonic()
        seen = await asyncio.gather(*(play(web, number, all_open) for number in range(tasks)))
        print(f"{tasks} sessions: open and over within {time.monotonic() - since:.2f} s")
        return seen

    with served("openenv", tmp_path, config) as server:
        url = server.url
        seen = asked(do)
        memory = re.search(r"^Pss: +(\d+)", Path(f"/proc/{server.process.pid}/smaps_rollup").read_text(), re.MULTILINE)
        ticks = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        print("the server's PSS in KiB and CPU in ticks:", memory and memory[1], sum(map(int, ticks)))
        records = {record.seed: record for record in ended(server, tasks)}
    assert len({each["begun"]["screenshot"] for each in seen}) == tasks
    for number, each in enumerate(seen):
        assert each["over"]["seed"] == 1000000 + number
        assert records[1000000 + number].outcome == "scored"
        assert records[1000000 + number].steps == each["over"]["steps"] == number % 4 + 1
