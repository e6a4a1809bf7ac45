"""The desktop server on real desktops, asked as clients of OSWorld ask it and in our own protocol."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import aiohttp
import msgspec
import pytest
from PIL import Image

from eval.desktops.isolation import Isolation, isolation
from eval.desktops.server.app import listening, make_app
from eval.desktops.server.requests import Settings
from eval.desktops.server.service import Permissions
from eval.desktops.session import DesktopOptions
from eval.desktops.wire import WantedPicture
from tests.support.desktops import left, need_isolation, output, run
from tests.support.needs import need
from tests.support.served import TOKEN, Served, served

pytestmark = pytest.mark.usefixtures("folder")
PREFIX = "import pyautogui; import time; pyautogui.FAILSAFE = False; "  # as OSWorld's controller begins each program


async def post(desk: Served, path: str, data: Any = None, **form: Any) -> tuple[int, Any]:
    """The status, and the body: JSON as it is, anything else as bytes."""
    body = {"data": aiohttp.FormData(form)} if form else {"json": data}
    async with desk.http.post(path, **body) as answer:
        content = await answer.read()
        return answer.status, json.loads(content) if answer.content_type == "application/json" else content


async def pyautogui(desk: Served, code: str) -> dict[str, Any]:
    status, body = await post(desk, "/execute", {"command": ["python", "-c", PREFIX + code], "shell": False})
    assert status == 200, body
    return dict(body)


async def editor(desk: Served, name: str = "note.txt") -> None:
    assert (await post(desk, "/setup/upload", file_path=name, file_data=io.BytesIO(b"")))[0] == 200
    assert (await post(desk, "/setup/launch", {"command": ["mousepad", name]}))[0] == 200
    await desk.session.windows(1)
    await desk.service.look(WantedPicture())


def test_pyautogui_is_done_without_python_and_commands_run_as_the_guest() -> None:
    need_isolation()

    async def go() -> None:
        async with served() as desk:
            await editor(desk)
            for code in (
                "pyautogui.click(640, 360)",
                "pyautogui.write('Grüße', interval=0.01)",
                "pyautogui.press('enter')",
            ):
                assert await pyautogui(desk, code) == {"status": "success", "output": "", "error": "", "returncode": 0}
            await pyautogui(desk, "pyautogui.hotkey('ctrl', 's'); time.sleep(0.5)")
            assert (desk.session.place.home / "note.txt").read_text() == "Grüße\n"
            _, body = await post(desk, "/execute", {"command": "id -un; pwd; echo bad >&2; exit 3", "shell": True})
            assert body == {"status": "success", "output": "user\n/home/user\n", "error": "bad\n", "returncode": 3}
            _, body = await post(desk, "/setup/execute", {"command": "echo 'a  b'"})
            assert body["output"] == "a  b\n"
            _, body = await post(desk, "/execute", {"command": ["python", "-c", "print('error: none')"]})
            assert (body["status"], body["output"], body["returncode"]) == ("success", "error: none\n", 0)
            status, body = await post(desk, "/execute", {"command": ["no-such-program"]})
            assert (status, body["status"]) == (500, "error")
            _, body = await post(desk, "/run_python", {"code": "import sys\nprint(1)\nsys.exit('no')"})
            assert (body["status"], body["output"], body["error"], body["return_code"]) == ("error", "1\n", "no\n", 1)
            _, body = await post(desk, "/run_bash_script", {"script": "echo a\necho b >&2\nexit 4", "working_dir": "~"})
            assert body == {"status": "error", "output": "a\nb\n", "error": "", "returncode": 4}
            status, body = await post(desk, "/run_bash_script", {"script": "sleep 600", "timeout": 1})
            assert (status, body["returncode"]) == (500, -1)
            verification = {"window_exists": "note.txt", "command_success": "test -e note.txt"}
            wanted = {"command": "true", "verification": verification}
            _, body = await post(desk, "/setup/execute_with_verification", wanted)
            assert body["verification"] == "passed"
            wanted |= {"verification": {"window_exists": "no such"}, "max_wait_time": 0.2, "check_interval": 0.1}
            status, body = await post(desk, "/execute_with_verification", wanted)
            assert (status, body["status"]) == (500, "verification_failed")
            assert [
                name for name in await output(desk.session, "ls /tmp") if name.startswith(("command-", "script-"))
            ] == []

    run(go())


def test_what_is_looked_at() -> None:
    async def go() -> None:
        async with served() as desk:
            await editor(desk)
            async with desk.http.get("/accessibility") as answer:
                tree = ElementTree.fromstring((await answer.json())["AT"])
            assert "mousepad" in {program.get("name") for program in tree.iter("application")}
            async with desk.http.get("/terminal") as answer:
                assert await answer.json() == {"output": None, "status": "success"}
            await pyautogui(desk, "pyautogui.moveTo(200, 100, 0.7, pyautogui.easeInQuad)")
            async with desk.http.get("/screenshot") as answer:
                picture = Image.open(io.BytesIO(await answer.read()))
            assert (picture.format, picture.size) == ("PNG", (1280, 720))
            for path, expected in {"/platform": "Linux", "/cursor_position": "[200, 100]"}.items():
                async with desk.http.get(path) as answer:
                    assert await answer.text() == expected
            assert await post(desk, "/screen_size") == (200, {"width": 1280, "height": 720})
            status, size = await post(desk, "/window_size", app_class_name="mousepad")
            assert (status, set(size)) == (200, {"width", "height"})
            assert (await post(desk, "/window_size", app_class_name="firefox"))[0] == 404
            assert (await post(desk, "/desktop_path"))[0] == 404
            (desk.session.place.home / "Desktop").mkdir()
            assert await post(desk, "/desktop_path") == (200, {"desktop_path": "/home/user/Desktop"})
            assert (await post(desk, "/setup/activate_window", {"window_name": "mousepad", "by_class": True}))[0] == 200
            assert (await post(desk, "/setup/close_window", {"window_name": "note", "strict": True}))[0] == 404
            assert (await post(desk, "/setup/close_window", {"window_name": "note.txt"}))[0] == 200
            await desk.session.windows(0)
            assert (await post(desk, "/wallpaper"))[0] == 501
            assert (await post(desk, "/setup/open_file", {"path": "galculator"}))[0] == 200
            assert (await post(desk, "/setup/open_file", {"path": "~/no-such.odt"}))[0] == 404

    run(go())


PATHS = ["/etc/passwd", "../../etc/passwd", "~/../other", "/home/user/../../etc/passwd", "link", "folder/passwd", ""]


@pytest.mark.parametrize("path", PATHS)
def test_paths_do_not_leave_the_home(path: str) -> None:
    async def go() -> None:
        async with served() as desk:
            home = desk.session.place.home
            (home / "link").symlink_to("/etc/passwd")
            (home / "folder").symlink_to("/etc")
            before = Path("/etc/passwd").read_bytes()
            for name, form in (
                ("/file", {"file_path": path}),
                ("/setup/upload", {"file_path": path, "file_data": b"x"}),
            ):
                data = aiohttp.FormData()
                for field, value in form.items():
                    data.add_field(field, value, filename="x" if field == "file_data" else None)
                async with desk.http.post(name, data=data) as answer:
                    # an upload replaces the link itself, inside of the home
                    if (name, path) == ("/setup/upload", "link"):
                        assert answer.status == 200
                        assert (home / "link").read_bytes() == b"x"
                        continue
                    assert answer.status in (400, 403), await answer.text()
            async with desk.http.get("/v1/file", params={"path": path}) as answer:
                assert answer.status == (200 if path == "link" else 403)  # the upload above replaced the link
            assert Path("/etc/passwd").read_bytes() == before

    run(go())


def test_files_belong_to_the_desktop_s_user_and_traps_are_refused() -> None:
    need_isolation()

    async def go() -> None:
        async with served() as desk:
            data = aiohttp.FormData()
            data.add_field("file_path", "/home/user/new/folder/a.txt")
            data.add_field("file_data", b"content", filename="a.txt")
            async with desk.http.post("/setup/upload", data=data) as answer:
                assert answer.status == 200
            assert (
                await output(desk.session, "stat -c %U new new/folder/a.txt; cat new/folder/a.txt")
                == "user\nuser\ncontent"
            )
            assert await post(desk, "/file", file_path="$HOME/new/folder/a.txt") == (200, b"content")
            await output(desk.session, "mkfifo pipe; truncate -s 1G huge")
            assert (await post(desk, "/file", file_path="pipe"))[0] == 403
            assert (await post(desk, "/file", file_path="huge"))[0] == 413
            assert (await post(desk, "/file", file_path="nothing"))[0] == 404
            status, body = await post(desk, "/list_directory", {"path": "~/new"})
            inner = {"type": "directory", "name": "folder", "children": [{"type": "file", "name": "a.txt"}]}
            assert (status, body) == (
                200,
                {"directory_tree": {"type": "directory", "name": "new", "children": [inner]}},
            )

    run(go())


def test_all_that_the_guest_may_read_when_it_is_allowed() -> None:
    need_isolation()

    async def go() -> None:
        async with served(permissions=Permissions(files="guest")) as desk:
            status, body = await post(desk, "/file", file_path="/etc/debian_version")
            assert (status, body) == (200, Path("/etc/debian_version").read_bytes())
            assert (await post(desk, "/file", file_path="/etc/shadow"))[0] == 404
            async with desk.http.put("/v1/file", params={"path": "/tmp/x/y"}, data=b"z") as answer:
                assert answer.status == 200
            assert await output(desk.session, "cat /tmp/x/y") == "z"
            async with desk.http.put("/v1/file", params={"path": "/etc/x"}, data=b"z") as answer:
                assert answer.status == 500
            assert not Path("/etc/x").exists()

    run(go())


def test_what_is_switched_off_is_refused() -> None:
    async def go() -> None:
        async with served(permissions=Permissions(commands=False, files="off")) as desk:
            body = {"command": ["true"], "code": "print(1)", "script": "true", "path": "mousepad", "url": "http://x/"}
            paths = [
                "/execute",
                "/setup/execute",
                "/run_python",
                "/run_bash_script",
                "/setup/launch",
                "/setup/open_file",
            ]
            for path in [*paths, "/setup/download_file", "/list_directory"]:
                assert (await post(desk, path, body))[0] == 403, path
            assert (await post(desk, "/file", file_path="x"))[0] == 403
            assert (await post(desk, "/v1/run", {"argv": ["true"]}))[0] == 403
            assert (await post(desk, "/v1/start", {"argv": ["true"]}))[0] == 403
            assert (await pyautogui(desk, "pyautogui.click(1, 1)"))["returncode"] == 0

    run(go())


def test_a_recording_is_a_whole_video(tmp_path: Path) -> None:
    need("ffmpeg")

    async def go() -> None:
        async with served() as desk:
            assert (await post(desk, "/end_recording"))[0] == 400
            assert (await post(desk, "/start_recording"))[0] == 200
            assert (await post(desk, "/start_recording"))[0] == 400
            await editor(desk)
            status, video = await post(desk, "/end_recording")
            assert status == 200
            (tmp_path / "video.mp4").write_bytes(video)
            assert (await post(desk, "/start_recording"))[0] == 200  # the end of the server ends it

    run(go())
    shown = ["ffprobe", "-v", "error", "-show_entries", "stream=codec_name,width,height", "-of", "csv=p=0"]
    done = subprocess.run([*shown, tmp_path / "video.mp4"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "h264,1280,720"
    assert not any(b"slipway-recording-" in path.read_bytes() for path in _own_command_lines())


def _own_command_lines() -> list[Path]:
    """Of the processes that this one started."""
    mine = str(os.getpid())
    return [path / "cmdline" for path in Path("/proc").iterdir() if path.name.isdigit() and _parent(path) == mine]


def _parent(process: Path) -> str:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[1]
    except OSError:
        return ""


async def status_of(address: str, authorization: bytes) -> int:
    """The status that a client gets whose header no library would send."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = [b"GET /screenshot HTTP/1.1", b"Host: " + host.encode(), b"Authorization: " + authorization]
    writer.write(b"\r\n".join([*lines, b"Connection: close", b"", b""]))
    status = int((await reader.readline()).split()[1])
    writer.close()
    return status


def test_who_may_ask(tmp_path: Path) -> None:
    async def go() -> None:
        async with served() as desk:
            async with aiohttp.ClientSession() as stranger:
                for token in (None, "", "Bearer", f"Bearer {TOKEN}x", TOKEN):
                    headers = {} if token is None else {"Authorization": token}
                    async with stranger.get(f"{desk.address}/screenshot", headers=headers) as answer:
                        assert answer.status == 401, token
                for raw in (b"Bearer t\xf6ken", "Bearer t\u00f6ken".encode()):
                    assert await status_of(desk.address, raw) == 401
                async with stranger.get(f"{desk.open_address}/screen", headers={}) as answer:
                    assert answer.status == 404
                async with stranger.get(f"{desk.open_address}/platform") as answer:
                    assert answer.status == 200
                for headers in (
                    {"Origin": "http://page.example"},
                    {"Host": "page.example"},
                    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
                    {"Referer": "http://page.example/"},
                    {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"},
                ):
                    async with stranger.get(f"{desk.open_address}/platform", headers=headers) as answer:
                        assert answer.status == 403
            socket = tmp_path / "socket"
            async with listening(make_app(desk.service, TOKEN), f"unix:{socket}"):
                assert socket.stat().st_mode & 0o777 == 0o600

    run(go())


def test_a_program_of_the_guest_reaches_neither_port_nor_socket(folder: Path) -> None:
    need_isolation()

    async def go() -> None:
        async with served() as desk, listening(make_app(desk.service, TOKEN), f"unix:{folder}/socket"):
            port = desk.open_address.rpartition(":")[2]
            script = (
                (
                    "import socket\n"
                    "for family, where in ((socket.AF_INET, ('127.0.0.1', PORT)), (socket.AF_UNIX, 'PATH')):\n"
                    "    try:\n        socket.socket(family).connect(where)\n        print('reached')\n"
                    "    except OSError as error:\n        print(type(error).__name__)\n"
                )
                .replace("PORT", port)
                .replace("PATH", f"{folder}/socket")
            )
            _, body = await post(desk, "/run_python", {"code": script})
            assert body["output"].split() == ["ConnectionRefusedError", "FileNotFoundError"], body

    run(go())


def test_a_batch_is_done_once_however_often_it_is_asked() -> None:
    async def go() -> None:
        async with served() as desk:
            await editor(desk)
            status = msgspec.json.decode(await (await desk.http.get("/v1/status")).read())
            batch = {
                "actions": [{"type": "type", "text": "once"}],
                "request_id": "one",
                "look": {},
                "epoch": status["epoch"],
            }
            answers = await asyncio.gather(*(post(desk, "/v1/act", batch) for _ in range(3)))
            assert answers[0][0] == 200
            assert answers[0] == answers[1] == answers[2]
            assert (await post(desk, "/v1/act", {**batch, "actions": []}))[0] == 409
            await post(desk, "/v1/act", {"actions": [{"type": "hotkey", "keys": ["ctrl", "s"]}], "look": {}})
            for number in range(40):
                await post(desk, "/v1/act", {"request_id": f"later {number}"})
            status_code, body = await post(desk, "/v1/act", batch)
            assert (status_code, body["kind"]) == (409, "conflict")
            assert (desk.session.place.home / "note.txt").read_text() == "once"
            assert (await post(desk, "/v1/reset"))[0] == 200
            stale = {"actions": [{"type": "type", "text": "late"}], "epoch": status["epoch"], "request_id": "two"}
            assert (await post(desk, "/v1/act", stale))[0] == 409

    run(go())


def test_what_a_batch_answers() -> None:
    async def go() -> None:
        async with served() as desk:
            await editor(desk)
            refused = {"type": "open_app", "app_name": "no-such-program"}
            batch = {"actions": [{"type": "hover", "x": 0.5, "y": 0.5}, refused, {"type": "wait"}]}
            _, body = await post(desk, "/v1/act", {**batch, "look": {"form": "png"}})
            assert (body["done"], "no-such-program" in body["refused"]) == (1, True)
            seen = body["seen"]
            assert (seen["size"], seen["pointer"], seen["settled"]) == ([1280, 720], [640, 360], True)
            _, body = await post(desk, "/v1/act", {"look": {"form": "png", "known": seen["frame"]}})
            assert (body["seen"]["frame"], body["seen"]["picture"]) == (seen["frame"], None)
            async with desk.http.get("/v1/frame", headers={"If-None-Match": f'"{seen["frame"]}"'}) as answer:
                assert answer.status == 304
            for form, magic in {"png": b"\x89PNG", "webp": b"RIFF", "jpeg": b"\xff\xd8"}.items():
                async with desk.http.get("/v1/frame", params={"form": form}) as answer:
                    content = await answer.read()
                    assert content.startswith(magic)
                    assert Image.open(io.BytesIO(content)).size == (1280, 720)
            for wrong in (
                {"actions": [{"type": "jump"}]},
                {"actions": [{"type": "click", "x": 2, "y": 0}]},
                {"actions": [{"type": "wait"}] * 1001},
                {"unknown": 1},
                {"request_id": "x" * 201},
                {"look": {"form": "bmp"}},
                {"look": {"limit": 1e9}},
                [],
            ):
                status, body = await post(desk, "/v1/act", wrong)
                assert (status, body["kind"]) == (400, "bad_request"), wrong
            async with desk.http.post("/v1/act", data=io.BytesIO(b"x" * (5 << 20))) as answer:
                assert answer.status == 413
            async with desk.http.post("/v1/act", data=b"\xff{") as answer:
                assert answer.status == 400

    run(go())


def _held(executor: Any) -> int:
    connection = executor.connection
    return int(connection.x.core.QueryPointer(connection.root).reply().mask) & 0x1F05


def test_keys_and_buttons_are_released_at_the_end() -> None:
    async def go() -> None:
        async with served() as desk:
            await pyautogui(desk, "pyautogui.keyDown('shift'); pyautogui.mouseDown()")
            assert await desk.service.call(_held) == 0x101  # shift, the first button
            assert (await post(desk, "/v1/release"))[0] == 200
            assert await desk.service.call(_held) == 0

    run(go())


def test_a_desktop_that_is_gone_is_told_and_a_reset_mends_it(folder: Path) -> None:
    async def go() -> None:
        async with served() as desk:
            waiting = asyncio.ensure_future(post(desk, "/execute", {"command": ["sleep", "600"]}))
            os.kill(desk.session.processes["X server"], signal.SIGKILL)
            status, body = await post(desk, "/v1/act", {"actions": [{"type": "click"}], "look": {}})
            assert (status, body["kind"]) == (503, "desktop_gone")
            assert (await waiting)[0] == 503
            assert (await post(desk, "/v1/reset"))[0] == 200
            assert (await post(desk, "/v1/act", {"look": {}}))[0] == 200
            waiting = asyncio.ensure_future(post(desk, "/execute", {"command": ["sleep", "600"]}))
            while not desk.session._programs:
                await asyncio.sleep(0.01)
            assert (await post(desk, "/v1/reset"))[0] == 200
            assert (await waiting)[0] == 409

    need_isolation()
    run(go())
    assert left(folder) == []


def test_a_command_past_its_time_is_ended() -> None:
    need_isolation()

    async def go() -> None:
        async with served(settings=Settings(command=0.5)) as desk:
            status, body = await post(desk, "/execute", {"command": ["sleep", "617"]})
            assert (status, "timed out" in body["message"]) == (500, True)
            assert await output(desk.session, "ps ax | grep -c '[s]leep 617'") == "0"

    run(go())


def test_without_limits_no_command_runs() -> None:
    async def go() -> None:
        async with served(DesktopOptions(screen=(640, 480))) as desk:
            machine = isolation()
            desk.session.isolation = Isolation(machine.namespaces, machine.users, root=True, missing=("limits: none",))
            status, body = await post(desk, "/execute", {"command": ["true"]})
            assert (status, "limits: none" in body["message"]) == (403, True)
            assert (await post(desk, "/setup/launch", {"command": "true", "shell": True}))[0] == 403

    run(go())


ODD = [
    None,
    True,
    -1,
    1e308,
    10**30,
    "",
    "\0",
    "\ud800",
    "a\nb",
    "~",
    "..",
    "x" * 5000,
    [],
    ["\0"],
    [[]],
    [1],
    {},
    {"a": {}},
]
FIELDS = {
    "/execute": ("command", "shell"),
    "/setup/execute_with_verification": ("command", "verification", "max_wait_time", "check_interval"),
    "/run_python": ("code",),
    "/run_bash_script": ("script", "timeout", "working_dir"),
    "/setup/launch": ("command", "shell"),
    "/setup/activate_window": ("window_name", "strict", "by_class"),
    "/setup/close_window": ("window_name",),
    "/list_directory": ("path",),
    "/setup/download_file": ("url", "path"),
    "/v1/act": ("actions", "request_id", "epoch", "look"),
    "/v1/run": ("argv", "limit", "folder"),
    "/v1/start": ("argv",),
    "/v1/windows": ("count", "limit"),
}
GOOD = {
    **{"command": ["true"], "shell": False, "verification": {}, "max_wait_time": 1, "check_interval": 1, "code": "1"},
    **{
        "script": "true",
        "timeout": 5,
        "working_dir": "~",
        "window_name": "none",
        "path": "~",
        "url": "http://127.0.0.1:9/",
    },
    **{"actions": [], "argv": ["true"], "limit": 5.0},
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", FIELDS)
def test_no_body_is_a_bug(path: str) -> None:
    """Whatever a field holds, the answer is one of those that the protocol knows, and the server goes on."""
    need_isolation()

    async def go() -> None:
        settings = Settings(command=5.0, python=5.0, window=0.2)
        async with served(permissions=Permissions(downloads=True), settings=settings) as desk:
            bodies = [b"", b"\xff", b"[" * 100_000, b'"text"', b"null"]
            for name in FIELDS[path]:
                fixed = {each: GOOD[each] for each in FIELDS[path] if each in GOOD and each != name}
                bodies += [json.dumps({**fixed, name: odd}).encode() for odd in ODD]
            for body in bodies:
                async with desk.http.post(path, data=io.BytesIO(body)) as answer:
                    content = await answer.read()
                    assert b'"bug"' not in content, (body[:200], content)
                    assert answer.status in (200, 400, 403, 404, 409, 413, 500, 503), (body[:200], content)
            desk.session.check()

    run(go())


GRAB = """
import ctypes, time
x = ctypes.CDLL("libX11.so.6")
x.XOpenDisplay.restype = ctypes.c_void_p
display = ctypes.c_void_p(x.XOpenDisplay(None))
x.XGrabServer(display)
x.XSync(display, 0)
open("grabbed", "w").close()
time.sleep(600)
"""


def test_a_program_that_keeps_the_display_to_itself_stops_no_looking_and_no_action() -> None:
    need_isolation()

    async def go() -> None:
        async with served() as desk:
            await editor(desk)
            assert (await post(desk, "/setup/launch", {"command": ["python3", "-c", GRAB]}))[0] == 200
            while not (desk.session.place.home / "grabbed").exists():
                await asyncio.sleep(0.01)
            status, body = await post(desk, "/v1/act", {"actions": [{"type": "hover", "x": 0.1, "y": 0.1}], "look": {}})
            assert (status, body["seen"]["pointer"]) == (200, [128, 72])

    run(go())
