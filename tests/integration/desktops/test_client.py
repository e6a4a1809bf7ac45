"""The client of the desktop server on real desktops: whatever becomes of a request, an action is done once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from eval.actions import Action, ActionType
from eval.config import EXIT_CONFIG
from eval.desktop import ActionRefused, BadFrame, DesktopGone
from eval.desktops.client.failures import (
    AccessRefused,
    BadAnswer,
    Delivery,
    DesktopServerFailed,
    DesktopServerGone,
    ServerReset,
    ServerTimeout,
)
from eval.desktops.client.fast import DesktopClient
from eval.desktops.client.public import PublicClient
from eval.desktops.server.__main__ import TOKEN_VARIABLE, main
from eval.desktops.server.app import listening, make_app
from eval.desktops.server.service import Permissions
from eval.desktops.viewing import listening as listens
from tests.support.cutting import cutting
from tests.support.desktops import need_isolation, output, run
from tests.support.served import TOKEN, served

pytestmark = pytest.mark.usefixtures("folder")
SAVE = Action(ActionType.HOTKEY, keys=("ctrl", "s"))


def typed(text: str) -> Action:
    return Action(ActionType.TYPE, text=text)


async def editor(client: DesktopClient) -> None:
    await client.write_file("note.txt", b"")
    await client.start(["mousepad", "note.txt"])
    assert len(await client.windows(1)) == 1
    await client.look()


def test_an_action_is_done_once_whatever_becomes_of_its_answer() -> None:
    async def go() -> None:
        async with served() as desk, cutting(desk.address, "/v1/act") as proxy:
            client = await DesktopClient.connect(proxy.address, TOKEN, limit_s=1.0)
            await editor(client)
            for text, faults in {
                "a": ["before"],
                "b": ["after"],
                "c": ["slow"],
                "d": ["half"],
                "e": ["after", "before", "slow", "after"],
            }.items():
                proxy.faults = faults
                await client.act([typed(text)])
                assert client.delivery is Delivery.CONFIRMED
            await client.act([SAVE])
            assert await client.read_file("note.txt") == b"abcde"
            await client.close()

    run(go())


def test_what_cannot_be_repeated_is_told_as_sent() -> None:
    need_isolation()

    async def go() -> None:
        async with served() as desk, cutting(desk.address, "/v1/run") as proxy:
            client = await DesktopClient.connect(proxy.address, TOKEN)
            for fault, kind in {"after": DesktopServerGone, "half": DesktopServerGone, "garbage": BadAnswer}.items():
                proxy.faults = [fault]
                with pytest.raises(kind) as caught:
                    await client.run(["sh", "-c", "echo x >>ran"])
                assert getattr(caught.value, "delivery", Delivery.SENT) is Delivery.SENT
            assert await client.read_file("ran") == b"x\nx\nx\n"
            assert (await client.run(["sh", "-c", "cat ran; exit 3"])).status == 3
            with pytest.raises(FileNotFoundError):
                await client.run(["no-such-program"])
            with pytest.raises(FileNotFoundError):
                await client.start(["no-such-program"])
            await client.close()

    run(go())


def test_answers_without_sense_are_infrastructure() -> None:
    async def go() -> None:
        async with served() as desk, cutting(desk.address, "/v1/act") as proxy:
            client = await DesktopClient.connect(proxy.address, TOKEN, patience_s=0.3)
            proxy.faults = ["rubbish"]
            with pytest.raises(BadAnswer):
                await client.look()
            proxy.faults = ["garbage"] * 20
            with pytest.raises(BadAnswer):
                await client.look()
            proxy.faults = ["before"] * 20
            with pytest.raises(DesktopServerGone):
                await client.look()
            proxy.faults, proxy.slow_s = ["slow"] * 20, 1.0
            client._transport.limit_s = -1.9  # 2 s are for the look itself
            with pytest.raises(ServerTimeout):
                await client.look()
            client._transport.limit_s, proxy.faults = 90.0, []
            desk.service._encode = lambda pixels, frame, wanted: b"\x89PNG no picture"  # type: ignore[method-assign]
            with pytest.raises(BadFrame):
                await client.look()
            await client.close()

    run(go())


def test_a_wrong_token_a_body_too_large_and_what_is_not_there() -> None:
    async def go() -> None:
        async with served(permissions=Permissions(commands=False)) as desk:
            with pytest.raises(AccessRefused, match="token"):
                await DesktopClient.connect(desk.address, "wrong")
            client = await DesktopClient.connect(desk.address, TOKEN)
            with pytest.raises(DesktopServerFailed, match="bytes"):
                await client.write_file("large", b"x" * (66 << 20))
            large = [{"type": "type", "text": "x" * 90_000}] * 50
            with pytest.raises(DesktopServerFailed, match="413"):
                await client.act([Action.from_json(each) for each in large])
            with pytest.raises(AccessRefused, match="no commands"):
                await client.run(["true"])
            with pytest.raises(AccessRefused, match="home"):
                await client.read_file("/etc/passwd")
            with pytest.raises(FileNotFoundError):
                await client.read_file("nothing")
            with pytest.raises(ActionRefused, match="no-such"):
                await client.act([Action(ActionType.OPEN_APP, app_name="no-such")])
            await client.close()
        with pytest.raises(DesktopServerGone) as caught:
            await DesktopClient.connect(desk.address, TOKEN, patience_s=0.1)
        assert caught.value.delivery is Delivery.NOT_SENT

    run(go())


def test_the_client_sees_each_frame_once_and_knows_a_reset() -> None:
    async def go() -> None:
        async with served() as desk:
            client = await DesktopClient.connect(desk.address, TOKEN)
            other = await DesktopClient.connect(desk.address, TOKEN)
            first = await client.look()
            second = await client.look()
            assert second.image is first.image
            assert not second.changed
            moved = await client.act([Action(ActionType.HOVER, x=0.1, y=0.1)])
            assert (moved.changed, moved.pointer, moved.settled) == (True, (128, 72), True)
            assert moved.image.tobytes() != first.image.tobytes()
            await other.reset()
            with pytest.raises(ServerReset):
                await client.act([typed("late")])
            await other.act([typed("now")])
            os.kill(desk.session.processes["X server"], signal.SIGKILL)
            with pytest.raises(DesktopGone):
                await other.act([typed("x")])
            for each in (client, other):
                await each.close()

    run(go())


def test_pixels_over_a_unix_socket_are_those_of_the_png(folder: Path) -> None:
    async def go() -> None:
        async with served() as desk, listening(make_app(desk.service, TOKEN), f"unix:{folder}/s") as address:
            pictures = []
            for where, form in ((address, None), (desk.address, None), (address, "png")):
                client = await DesktopClient.connect(where, TOKEN, form)  # type: ignore[arg-type]
                pictures.append((await client.look()).image.tobytes())
                await client.close()
            assert pictures[0] == pictures[1] == pictures[2]

    run(go())


def test_the_client_for_public_servers_acts_on_a_real_desktop() -> None:
    need_isolation()

    async def go() -> None:
        async with served() as desk, cutting(desk.open_address, "/execute") as proxy:
            ours = await DesktopClient.connect(desk.address, TOKEN)
            await editor(ours)
            client = await PublicClient.connect(proxy.address)
            assert (client.screen.width, client.screen.height) == (1280, 720)
            text = 'It\'s "x" \\ 100 % {y}\n\tend'
            await client.act([typed(text), Action(ActionType.CLICK, x=0.5, y=0.5, modifiers=("shift",))])
            assert await client.pointer() == (640, 360)
            proxy.faults = ["before"]
            with pytest.raises(DesktopServerGone) as caught:
                await client.act([typed("never")])
            assert (caught.value.delivery, client.delivery) == (Delivery.SENT, Delivery.SENT)
            assert "mousepad" in await client.tree()
            await client.act([SAVE])
            assert (await client.read_file("/home/user/note.txt")).decode() == text
            assert await output(desk.session, "cat note.txt") == text
            await client.close()
            await ours.close()

    run(go())


async def _ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout
    line = await asyncio.to_thread(process.stdout.readline)
    assert line.startswith("listening on unix:"), line


@pytest.mark.timeout(300)
def test_a_server_killed_in_a_batch_and_started_anew(folder: Path) -> None:
    """The command as it is started; the desktop of the killed server ends with it."""
    command = [sys.executable, "-m", "eval.desktops.server", "--listen", f"unix:{folder}/s", "--screen", "640x480"]
    environ = {**os.environ, TOKEN_VARIABLE: TOKEN}

    async def go() -> None:
        servers = []
        try:
            servers.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True))
            await _ready(servers[-1])
            assert listens([servers[-1].pid]) == {f"unix:{folder}/s"}
            client = await DesktopClient.connect(f"unix:{folder}/s", TOKEN, patience_s=0.5)
            assert client.status.screen == (640, 480)
            batch = asyncio.ensure_future(client.act([Action(ActionType.WAIT, duration=50.0)]))
            async with (
                aiohttp.ClientSession(connector=aiohttp.UnixConnector(f"{folder}/s")) as http,
                http.get("http://desktop/v1/status") as answer,  # the batch came before
            ):
                assert answer.status == 401
            servers[-1].kill()
            with pytest.raises(DesktopServerGone):
                await batch
            assert client.delivery is Delivery.SENT  # although the last try found no server at all
            servers[-1].wait()
            (folder / "s").unlink()
            servers.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True))
            await _ready(servers[-1])
            with pytest.raises(ServerReset):
                await client.act([typed("late")])
            await client.close()
            servers[-1].send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(servers[-1].wait) == 0
        finally:
            for server in servers:
                server.kill()
                server.wait()
                assert server.stdout
                server.stdout.close()

    run(go())


def test_no_port_without_a_token_where_the_guest_could_connect(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--open-port", "0", "--network", "machine", "--screen", "640x480"]) == EXIT_CONFIG
    assert "share this machine's network" in capfd.readouterr().err
