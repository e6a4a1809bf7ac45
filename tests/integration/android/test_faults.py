"""A phone that fails: which failures are told how, what is tried again, and that no action is done twice."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from eval.actions import Action, ActionType
from eval.desktop import BadFrame, DesktopGone, InfraError, SetupFailed
from eval.desktops.android import phone as phones_module
from eval.desktops.android.adb import listed_devices
from eval.desktops.android.phone import Phone
from eval.desktops.client.failures import AccessRefused, Delivery, DesktopServerGone, ServerTimeout
from eval.desktops.viewing import listening, processes_with
from tests.integration.android.test_phone import FIELD, NOTES, on, phone
from tests.support.android.adbd import Adbd
from tests.support.android.device import Device
from tests.support.android.serving import PORT, adb
from tests.support.needs import need
from tests.support.s3 import free_port
from tests.support.waiting import HANGS

TAP = Action(ActionType.CLICK, x=0.5, y=0.5)
TAPPED = ("tap", 180, 320)


async def happens(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANGS):
        while not condition():
            await asyncio.sleep(0.01)


def clients() -> list[str]:
    """Command lines of the processes that this one has started and that still run, its adb server left out."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread may end meanwhile, and a process, too
            for pid in (task / "children").read_text().split():
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                if "adb" in words[0] and "server" not in words:
                    found.append(" ".join(words))
    return found


def test_a_phone_that_does_not_trust_this_machine_says_what_to_do(server: None) -> None:
    with Adbd(Device(), trusted=False) as adbd:
        for _ in range(2):  # also when the client knows it already
            with pytest.raises(AccessRefused, match="confirm the question on its screen") as error:
                asyncio.run(Phone.connect(adbd.serial, patience_s=HANGS))  # no use to try again
        assert isinstance(error.value, InfraError)
        assert not adbd.device.commands


@pytest.mark.parametrize("serial", ["nosuchphone", "127.0.0.1:1"])
def test_a_phone_that_is_not_there_was_not_reached(server: None, serial: str) -> None:
    with pytest.raises(DesktopServerGone, match=r"(?:not found|Connection refused).* \(not sent\)$") as error:
        asyncio.run(Phone.connect(serial, patience_s=0.3))
    assert error.value.delivery is Delivery.NOT_SENT


def test_a_phone_that_says_nothing_is_offline(server: None) -> None:
    with Adbd(Device()) as adbd:
        adbd.mute = True
        with pytest.raises(DesktopServerGone) as error:
            asyncio.run(Phone.connect(adbd.serial, patience_s=0.3))
        assert error.value.delivery is Delivery.NOT_SENT
        assert "offline" in adb("devices")


@pytest.mark.parametrize("after", [0, 100, 2000])
def test_a_connection_that_breaks_in_the_middle_of_a_picture_costs_that_picture_only(adbd: Adbd, after: int) -> None:
    async def work(phone: Phone) -> None:
        whole = await phone.act([NOTES])
        adbd.cut = ("screencap", after)
        again = await phone.look()
        assert adbd.cut is None
        assert again.image.tobytes() == whole.image.tobytes()
        assert not again.changed

    on(adbd, work)


@pytest.mark.parametrize("after", [0, 3, 9])
def test_an_action_whose_answer_is_lost_is_in_doubt_and_not_done_again(adbd: Adbd, after: int) -> None:
    async def work(phone: Phone) -> None:
        adbd.cut = ("input tap", after)
        with pytest.raises(DesktopServerGone, match=r"\(sent\)$"):
            await phone.act([TAP])
        assert phone.delivery is Delivery.SENT
        assert adbd.device.screen.heard == [TAPPED]

    on(adbd, work)


def test_a_phone_has_the_time_that_an_action_asks_for(adbd: Adbd) -> None:
    slow = Action(ActionType.DRAG, x=0.1, y=0.1, x2=0.5, y2=0.5, path=((0.3, 0.3),), duration=3.0)

    async def work() -> None:
        async with phone(adbd, limit_s=2.5) as found:
            await found.act([slow])

    asyncio.run(work())
    assert adbd.device.screen.heard


def test_an_action_that_never_reached_the_phone_is_done_once_when_it_is_back(adbd: Adbd) -> None:
    async def work(phone: Phone) -> None:
        adbd.vanish()
        acting = asyncio.create_task(phone.act([TAP]))
        await happens(lambda: phone.adb.absences > 0)
        adbd.listen()
        assert (await acting).settled
        assert adbd.device.screen.heard == [TAPPED]

    on(adbd, work)


def test_a_phone_that_stays_away_is_an_infrastructure_error_and_the_action_was_not_sent(server: None) -> None:
    async def work() -> None:
        with Adbd(Device()) as adbd:
            found = await Phone.connect(adbd.serial, patience_s=0.5)
            adbd.vanish()
            with pytest.raises(DesktopServerGone, match=r"\(not sent\)$"):
                await found.act([TAP])
            assert found.delivery is Delivery.NOT_SENT
            assert not adbd.device.screen.heard

    asyncio.run(work())


def test_a_phone_that_was_started_anew_in_between_is_not_the_one_of_this_episode(adbd: Adbd) -> None:
    async def work(phone: Phone) -> None:
        await phone.act([TAP])
        adbd.drop()
        assert (await phone.look()).settled  # a cable that was out for a moment
        adbd.device.reboot()
        adbd.vanish()
        looking = asyncio.create_task(phone.look())
        absences = phone.adb.absences
        await happens(lambda: phone.adb.absences > absences)
        adbd.listen()
        with pytest.raises(DesktopGone, match="started anew"):
            await looking

    on(adbd, work)


def test_a_picture_that_is_none_is_taken_again(adbd: Adbd) -> None:
    async def work(phone: Phone) -> None:
        whole = await phone.look()
        png = adbd.device.screen.png()
        adbd.device.pictures = [b"Failed to take screenshot. Status: -1\n", png[:300]]
        assert (await phone.look()).image.tobytes() == whole.image.tobytes()
        adbd.device.pictures = [b"[Warning] Multiple displays were found.\n" + png] * 2
        assert (await phone.look()).image.tobytes() == whole.image.tobytes()

    on(adbd, work)


@pytest.mark.parametrize(
    ("picture", "why"),
    [
        (b"\x89PNG\r\n\x1a\n" + b"x" * 500, "cannot be read"),
        (b"error: no display", "no PNG, but b'error: no display'"),
        (b"other size", r"a picture of \(100, 100\); the screen has \(360, 640\)"),
    ],
)
def test_a_phone_that_gives_no_pictures_is_an_infrastructure_error(adbd: Adbd, picture: bytes, why: str) -> None:
    import io

    from PIL import Image

    if picture == b"other size":
        stream = io.BytesIO()
        Image.new("RGB", (100, 100)).save(stream, "PNG")
        picture = stream.getvalue()

    async def work(phone: Phone) -> None:
        adbd.device.pictures = [picture] * 20
        with pytest.raises(BadFrame, match=why):
            await phone.look()

    on(adbd, work)


@pytest.mark.parametrize("command", ["input tap", "screencap"])
def test_a_phone_that_does_not_answer_in_time_is_told_and_no_client_stays_behind(adbd: Adbd, command: str) -> None:
    async def work() -> None:
        async with phone(adbd) as found:
            found.adb.limit_s = 0.5
            adbd.device.hold = command
            with pytest.raises(ServerTimeout, match=r"no answer within 0.5 s \(sent\)"):
                await found.act([TAP])
            assert not clients()
            adbd.device.hold = ""
            adbd.device.go.set()

    asyncio.run(work())
    assert adbd.device.screen.heard.count(TAPPED) == 1


def test_an_action_that_nobody_waits_for_any_more_leaves_no_client(adbd: Adbd) -> None:
    async def work(phone: Phone) -> None:
        adbd.device.hold = "input tap"
        acting = asyncio.create_task(phone.act([TAP]))
        await happens(adbd.device.held.is_set)
        assert clients()
        acting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await acting
        assert not clients()
        adbd.device.hold = ""
        adbd.device.go.set()

    on(adbd, work)


def test_a_screen_that_is_off_is_woken_at_the_start_and_in_between(adbd: Adbd) -> None:
    screen = adbd.device.screen
    screen.awake = False

    async def work(phone: Phone) -> None:
        assert screen.awake
        shown = await phone.look()
        screen.awake = False
        assert (await phone.look()).image.tobytes() == shown.image.tobytes()

    on(adbd, work)


def test_a_locked_phone_is_no_start_state(adbd: Adbd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phones_module, "UNLOCK_S", 0.0)
    adbd.device.screen.locked = True
    with pytest.raises(SetupFailed, match="take the PIN or pattern away"):
        on(adbd, lambda phone: phone.look())


def test_a_phone_that_is_still_starting_is_waited_for(adbd: Adbd, monkeypatch: pytest.MonkeyPatch) -> None:
    adbd.device.booted = False
    monkeypatch.setattr(phones_module, "BOOT_S", 0.0)
    with pytest.raises(SetupFailed, match="has not started"):
        asyncio.run(Phone.connect(adbd.serial))
    monkeypatch.setattr(phones_module, "BOOT_S", HANGS)

    async def work() -> None:
        connecting = asyncio.create_task(Phone.connect(adbd.serial))
        await happens(lambda: any("boot_completed" in each for each in adbd.device.commands[-1:]))
        adbd.device.booted = True
        await connecting

    asyncio.run(work())


def test_an_old_device_without_exit_codes_of_its_own_works_as_well(server: None) -> None:
    with Adbd(Device(), features="cmd") as adbd:
        adb("connect", adbd.serial)

        async def work(phone: Phone) -> None:
            await phone.act([NOTES, FIELD, Action(ActionType.TYPE, text="a $b é")])
            assert (await phone.adb.shell("cat /nothing", repeat=True)).code == 1

        on(adbd, work)
        assert adbd.device.screen.fields["note"] == "a $b é"


def test_without_the_client_the_package_is_named(server: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", os.fspath(tmp_path))
    with pytest.raises(DesktopServerGone, match="no adb: apt-get install adb"):
        asyncio.run(Phone.connect("emulator-5554", patience_s=0.0))


def test_the_server_that_we_start_listens_on_this_machine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("adb")
    port = free_port()
    for name, value in {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), PORT: str(port)}.items():
        monkeypatch.setenv(name, value)
    try:
        assert listed_devices() == {}
        assert listening(processes_with(f"tcp:{port}")) == {f"127.0.0.1:{port}"}
    finally:
        adb("kill-server")
