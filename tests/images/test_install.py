"""waa-vm's `install`: a golden disk made unattended, with programs in place of QEMU's, and (nightly) with Debian."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from eval.config import ConfigError
from tests.images.guest_programs import FOLDER, Installing, importable, said
from tests.support.waiting import until

__all__ = ["importable"]
COPYING = {"read": 900 << 20, "written": 700 << 20}  # bytes, of an installer at work


def ready_to_work(disk: Path) -> None:
    """Is it a golden disk? Raises ConfigError."""
    from guest.config import GuestConfig

    GuestConfig(disk=str(disk), in_memory=True).check()


@contextmanager
def server(status: int) -> Iterator[tuple[int, list[str]]]:
    """In place of the guest's own: (its port, the paths that it was asked for)."""
    asked: list[str] = []

    class Probe(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status if self.path == "/probe" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Probe) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        try:
            yield int(listening.server_address[1]), asked
        finally:
            listening.shutdown()


def test_an_installation_writes_to_the_disk_has_no_deadline_and_goes_on_after_a_cut(tmp_path: Path) -> None:
    """`boot` is over after a millisecond. Cut off, the disk is no golden disk; started again, it goes on with it."""
    here = Installing(tmp_path)
    first = here.start()
    until(lambda: "send-key" in here.asked())  # "Press any key to boot from CD": else the empty disk is started
    here.guest(**COPYING)
    here.looks_again()
    here.guest(restarts=1)
    until(lambda: (here.mark() or {})["restarted"])
    text = said(first, signal.SIGTERM)
    assert first.returncode == 1, text
    assert "told to end before" in text
    argv = json.loads((tmp_path / "argv.json").read_text())
    words = " ".join(argv)
    assert f"filename={here.disk} " in words
    assert f"filename={tmp_path / 'windows.iso'},read-only=on" in words
    assert f"driver=vvfat,node-name=answers,dir={tmp_path / 'answers'}" in words
    assert words.index("bootindex=1") < words.index("bootindex=2")  # the disk first: the installer starts from it later
    with pytest.raises(ConfigError, match="is not finished"):
        ready_to_work(here.disk)

    here.disk.write_bytes(b"QFI and Windows")
    here.guest(read=0, written=0, restarts=0)
    second = here.start()
    here.looks_again()
    (tmp_path / "shut down").touch()
    text = said(second)
    assert second.returncode == 0, text
    assert f"going on with {here.disk}" in text
    assert "send-key" not in here.asked()  # now a key may call a menu of the system's own boot loader
    assert here.disk.read_bytes() == b"QFI and Windows"
    assert here.mark() is None
    ready_to_work(here.disk)
    third = here.start()
    text = said(third)
    assert third.returncode == 78, text
    assert "is there and finished" in text


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_finishes_no_installation(tmp_path: Path, end: signal.Signals) -> None:
    """The runtime, and a terminal, send it to the whole group: QEMU ends with the code 0 at the same time."""
    here = Installing(tmp_path)
    process = here.start()
    until(here.asked)
    here.guest(**COPYING)
    here.looks_again()
    text = said(process, end)
    assert process.returncode != 0, text
    assert here.mark() is not None
    with pytest.raises(ConfigError, match="is not finished"):
        ready_to_work(here.disk)


def test_qemu_that_is_ended_by_somebody_else_finishes_no_installation(tmp_path: Path) -> None:
    here = Installing(tmp_path)
    process = here.start()
    until(here.asked)
    here.guest(**COPYING)
    here.looks_again()
    end_of_qemu(here)
    text = said(process)
    assert process.returncode == 1, text
    assert "QEMU ended with 0 before" in text
    assert here.mark() is not None


def end_of_qemu(here: Installing) -> None:
    pid = next(
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and str(here.folder / "bin" / "qemu-system-x86_64").encode() in command_line(entry)
    )
    os.kill(pid, signal.SIGTERM)


def command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def test_a_copy_that_was_cut_off_begins_anew(tmp_path: Path) -> None:
    """No installer goes on in the middle of its copy, and half a disk may start, and fail, before the medium does."""
    here = Installing(tmp_path)
    first = here.start()
    until(here.asked)
    here.guest(**COPYING)
    here.looks_again()
    said(first, signal.SIGKILL)
    here.disk.write_bytes(b"QFI and half of Windows")
    here.guest(read=0, written=0)
    second = here.start()
    until(lambda: "send-key" in here.asked())  # the medium asks again
    text = said(second, signal.SIGTERM)
    assert "beginning anew" in text
    assert here.disk.read_bytes() == b"QFI"


def test_a_disk_of_an_earlier_version_is_kept(tmp_path: Path) -> None:
    """Its mark does not say whether the guest had restarted."""
    here = Installing(tmp_path)
    here.disk.write_bytes(b"QFI and Windows")
    here.disk.with_name("disk.qcow2.installing").write_text('{"disk": "disk.qcow2"}\n')
    process = here.start()
    until(here.asked)
    assert "going on with" in said(process, signal.SIGTERM)
    assert here.disk.read_bytes() == b"QFI and Windows"


def test_a_restart_of_the_firmware_is_none_of_the_installer(tmp_path: Path) -> None:
    here = Installing(tmp_path)
    process = here.start()
    here.guest(restarts=1)
    here.looks_again()
    here.guest(**COPYING)
    here.looks_again()
    mark = here.mark()
    said(process, signal.SIGTERM)
    assert mark is not None
    assert mark["restarted"] is False


def test_keys_are_pressed_until_the_medium_is_loaded(tmp_path: Path) -> None:
    """However long the firmware takes; but not into the installer's first window, where a key may press a button."""
    here = Installing(tmp_path)
    process = here.start()
    until(lambda: here.asked().count("send-key") > 2)
    here.guest(read=1 << 20)  # the code that asks for the key
    here.looks_again()
    pressed = here.asked().count("send-key")
    until(lambda: here.asked().count("send-key") > pressed)
    here.guest(read=400 << 20)
    here.looks_again()
    pressed = here.asked().count("send-key")
    here.looks_again()
    assert here.asked().count("send-key") == pressed
    said(process, signal.SIGTERM)


def test_a_port_that_takes_connections_and_never_answers_does_not_keep_the_keys_back(tmp_path: Path) -> None:
    """QEMU accepts connections to the guest's port before there is a guest; the question for a key stands 5 seconds."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        here = Installing(tmp_path, health={"path": "/probe", "timeout": 3600.0})
        here.environment["SLIPWAY_PORT_AGENT"] = str(deaf.getsockname()[1])
        process = here.start()
        until(lambda: here.asked().count("send-key") > 2)
        said(process, signal.SIGKILL)


def test_a_guest_that_wrote_nothing_made_no_disk(tmp_path: Path) -> None:
    here = Installing(tmp_path)
    process = here.start()
    until(here.asked)
    (tmp_path / "shut down").touch()
    text = said(process)
    assert process.returncode == 1, text
    assert "had written nothing to" in text
    assert here.mark() is not None


def test_an_installed_guest_whose_server_answers_is_shut_down_in_order(tmp_path: Path) -> None:
    """WindowsAgentArena's server answers at /probe, and not at /health."""
    with server(200) as (port, asked):
        here = Installing(tmp_path, health={"path": "/probe"})
        here.environment["SLIPWAY_PORT_AGENT"] = str(port)
        here.guest(**COPYING)
        process = here.start()
        text = said(process)
    assert process.returncode == 0, text
    assert "its server answers: shutting it down" in text
    assert "system_powerdown" in here.asked()
    assert set(asked) == {"/probe"}
    assert here.mark() is None


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"media": ["/nowhere.iso"]}, "install.media.0: there is no file /nowhere.iso"),
        ({"media": ["/etc/hostname"], "answers": "/nowhere"}, "install.answers: there is no folder /nowhere"),
        ({"media": ["/etc/hostname"], "size": "64 GB"}, "install.size: `64 GB` is no size"),
    ],
)
def test_bad_installations(tmp_path: Path, settings: dict[str, Any], expected: str) -> None:
    from guest.config import GuestConfig, InstallConfig

    with pytest.raises(ConfigError, match=expected):
        GuestConfig(disk=str(tmp_path / "d.qcow2"), install=InstallConfig(**settings), in_memory=True).check()


def blocks() -> list[Any]:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]


def test_the_readmes_configurations_are_as_the_program_reads_them() -> None:
    from guest.config import GuestConfig

    from eval.config import convert

    configs = [convert(block.get("config", block), GuestConfig, "README.md") for block in blocks()]
    assert [config.install is not None for config in configs] == [True, False]
    assert all(config.health.path == "/probe" for config in configs)


def test_the_answers_for_windows_ask_nobody_and_start_what_lies_beside_them() -> None:
    """The passes and components are those of Microsoft's reference of unattended installations."""
    space = "{urn:schemas-microsoft-com:unattend}"
    tree = ElementTree.parse(FOLDER / "windows" / "autounattend.xml").getroot()
    passes = {part.get("pass"): part for part in tree.findall(f"{space}settings")}
    assert list(passes) == ["windowsPE", "specialize", "oobeSystem"]

    def value(part: str, name: str) -> str:
        (element,) = passes[part].iter(f"{space}{name}")
        return element.text or ""

    assert value("windowsPE", "AcceptEula") == "true"
    assert value("windowsPE", "WillWipeDisk") == "true"
    assert value("specialize", "PreventDeviceEncryption") == "true"
    assert value("oobeSystem", "Enabled") == "true"  # logs on by itself
    assert "first-logon.cmd" in value("oobeSystem", "CommandLine")
    assert (FOLDER / "windows" / "first-logon.cmd").is_file()
