"""images/waa-vm/guest: its configuration, QEMU's command line, the monitor, and (nightly) a real guest in the image."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from eval.config import ConfigError
from eval.desktops.viewing import listening
from tests.images.guest_programs import PYTHONPATH, importable
from tests.support.cpu_image import alone, build
from tests.support.engine import ROOT, Engine
from tests.support.needs import marked
from tests.support.s3 import free_port
from tests.support.vnc import frame, websocket

__all__ = ["importable"]


@pytest.fixture
def disk(tmp_path: Path) -> str:
    file = tmp_path / "disk.qcow2"
    file.write_bytes(b"QFI\xfb" + bytes(508))
    return str(file)


def command(disk: str, tmp_path: Path, password: bool = False, **settings: Any) -> list[str]:
    from guest.config import Display, Files, GuestConfig, qemu

    config = GuestConfig(disk=disk, accelerator="emulation", in_memory=True, **settings)
    config.check()
    return qemu(config, Files(tmp_path), {"agent": 41000}, Display("127.0.0.1", 41001, password))


def test_the_guest_has_no_network_but_its_ports(disk: str, tmp_path: Path) -> None:
    net = [word for word in command(disk, tmp_path) if word.startswith("user,")]
    assert net == ["user,id=net,hostfwd=tcp::41000-:5000,restrict=on"]
    assert "restrict=on" not in " ".join(command(disk, tmp_path, network=True))


def test_the_golden_disk_is_not_on_the_command_line(disk: str, tmp_path: Path) -> None:
    """QEMU opens the overlay; what is under it is only read."""
    assert disk not in " ".join(command(disk, tmp_path / "work"))


def test_windows_gets_its_firmware_and_tpm(disk: str, tmp_path: Path) -> None:
    words = " ".join(command(disk, tmp_path, firmware="secure", tpm=True, bus="sata", clock="localtime", memory="8G"))
    for part in ("OVMF_CODE_4M.secboot.fd", "tpm-crb", "ide-hd,", "e1000e,", "base=localtime", "-m 8G", "smm=on"):
        assert part in words
    assert "virtio-blk" not in words


def test_a_screen_with_a_password_asks_for_it(disk: str, tmp_path: Path) -> None:
    assert "password=on" in " ".join(command(disk, tmp_path, password=True))
    assert "password=on" not in " ".join(command(disk, tmp_path))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"disk": "/nowhere.qcow2"}, "disk: there is no file /nowhere.qcow2"),
        ({"memory": "4 GB"}, "memory: `4 GB` is no size"),
        ({"ports": {"ssh": 22}}, "health.port: `agent` is none of ports: ssh"),
        ({"ports": {"agent": 70000}}, "ports.agent: 70000 is no port"),
        ({"ports": {"agent": 5000, "http": 80}}, "ports.http: this name is the controller's"),
    ],
)
def test_bad_configurations(disk: str, settings: dict[str, Any], said: str) -> None:
    from guest.config import GuestConfig

    with pytest.raises(ConfigError, match=said):
        GuestConfig(**{"disk": disk, "in_memory": True, **settings}).check()


def test_kvm_that_is_not_there_is_one_clear_line(disk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from guest import config as module

    monkeypatch.setattr(module, "KVM", Path("/nowhere/kvm"))
    with pytest.raises(ConfigError, match=r"/dev/kvm cannot be opened here: .*--device /dev/kvm"):
        module.GuestConfig(disk=disk, accelerator="kvm", in_memory=True).check()
    assert not module.GuestConfig(disk=disk).accelerated


def test_a_kvm_that_runs_no_common_guest_is_not_used(
    disk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from guest import config as module

    monkeypatch.setattr(module, "KVM", Path("/dev/null"))
    monkeypatch.setattr(module, "PVM", tmp_path)
    with pytest.raises(ConfigError, match="kvm_pvm"):
        module.GuestConfig(disk=disk, accelerator="kvm", in_memory=True).check()
    assert not module.GuestConfig(disk=disk).accelerated
    monkeypatch.setattr(module, "PVM", tmp_path / "no")
    assert module.GuestConfig(disk=disk).accelerated


def monitor(folder: Path, answer: Callable[[dict[str, Any]], list[dict[str, Any]]]) -> Path:
    """A monitor's socket whose commands `answer` answers, for one connection."""
    path = folder / "qmp"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with suppress(OSError), listener, connection, connection.makefile("rwb") as stream:
            stream.write(b'{"QMP": {}}\n')
            stream.flush()
            for line in stream:
                for message in answer(json.loads(line)):
                    stream.write(json.dumps(message).encode() + b"\n")
                stream.flush()

    threading.Thread(target=serve, daemon=True).start()
    return path


def test_monitor_events_between_commands_are_passed_over(tmp_path: Path) -> None:
    from guest.qmp import Monitor

    path = monitor(tmp_path, lambda _: [{"event": "RESET"}, {"return": {"running": True}}, {"event": "STOP"}])
    connection = Monitor(path)
    assert connection.execute("query-status") == {"running": True}
    assert connection.execute("query-status") == {"running": True}
    connection.close()


def test_a_snapshot_that_failed_is_an_error(tmp_path: Path) -> None:
    """QEMU accepts the command, and says in its job how it ended."""
    from guest.qmp import Monitor, MonitorError

    name = ""

    def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
        nonlocal name
        if request["execute"] == "snapshot-save":
            name = request["arguments"]["job-id"]
        if request["execute"] == "query-jobs":
            return [{"return": [{"id": name, "status": "concluded", "error": "No space left on device"}]}]
        return [{"return": {}}]

    connection = Monitor(monitor(tmp_path, answer))
    with pytest.raises(MonitorError, match="snapshot-save: No space left on device"):
        connection.job("snapshot-save", 5, tag="ready")
    connection.close()


def test_a_monitor_that_is_silent_while_a_job_writes_memory(tmp_path: Path) -> None:
    from guest.qmp import Monitor, MonitorError

    def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
        if request["execute"] == "query-jobs":
            time.sleep(1)
            return [{"return": []}]
        if request["execute"] == "query-status":
            time.sleep(1)
        return [{"return": {}}]

    connection = Monitor(monitor(tmp_path, answer), timeout=0.3)
    connection.job("snapshot-save", 60, tag="ready")
    with pytest.raises(MonitorError, match="QEMU does not answer"):
        connection.execute("query-status")  # any other silence is none
    connection.close()


QEMU = """\
#!{python}
import json, socket, sys
path = sys.argv[sys.argv.index("-qmp") + 1].removeprefix("unix:").partition(",")[0]
console = next(word for word in sys.argv if word.startswith("file,id=console,path=")).split("=")[2].partition(",")[0]
open(console, "a").write("still booting\\n")
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
stream = listener.accept()[0].makefile("rwb", buffering=0)
stream.write(b'{{"QMP": {{}}}}\\n')
for line in stream:
    what = json.loads(line)["execute"]
    stream.write(json.dumps({{"return": {{"status": "running"}}}}).encode() + b"\\n")
    if what == "query-status":
        print("looked at", flush=True)
"""


def test_sigterm_while_it_boots_ends_it_and_keeps_what_it_said(disk: str, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("qemu-system-x86_64", QEMU.format(python=sys.executable)), ("qemu-img", "#!/bin/sh\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"disk": disk, "accelerator": "emulation", "boot": 3600, "in_memory": True}))
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": PYTHONPATH,
        "SLIPWAY_READY_FILE": str(tmp_path / "ready"),
        "SLIPWAY_OUTPUTS": str(tmp_path / "outputs"),
        "TMPDIR": str(tmp_path),
        "SLIPWAY_PORT_HTTP": "0",
    }
    command = [sys.executable, "-m", "guest", "--config", str(config)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + 60
        while not any("looked at" in log.read_text() for log in tmp_path.glob("guest-*/qemu.log")):
            assert time.monotonic() < deadline, process.poll()
            time.sleep(0.05)
        process.terminate()
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert "[guest] ended before it was healthy" in said
    assert (tmp_path / "outputs" / "guest" / "console.log").read_text() == "still booting\n"


def test_what_a_guest_changes_is_kept_in_memory_only_when_asked(disk: str, tmp_path: Path) -> None:
    from guest import config as module

    mounts = tmp_path / "mounts"
    mounts.write_text("overlay / overlay rw 0 0\ntmpfs /a tmpfs rw 0 0\n/dev/sda1 /a/disk ext4 rw 0 0\n")
    assert module.memory_file_system(Path("/a/x"), mounts)
    assert not module.memory_file_system(Path("/a/disk/x"), mounts)
    assert not module.memory_file_system(Path("/ab"), mounts)
    mounted = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    memory = next((point for _, point, kind, *_ in mounted if kind == "tmpfs"), None)
    if memory is None or not os.access(memory, os.W_OK):
        pytest.skip("no tmpfs that can be written to is mounted here: mount one, as /dev/shm")
    with pytest.raises(ConfigError, match=f"scratch: {memory} lies in memory"):
        module.GuestConfig(disk=disk, scratch=memory).check()
    module.GuestConfig(disk=disk, scratch=memory, in_memory=True).check()


def test_a_monitor_that_is_gone(tmp_path: Path) -> None:
    from guest.qmp import Monitor, MonitorError

    with pytest.raises(MonitorError, match="no monitor at"):
        Monitor(tmp_path / "qmp", timeout=0.2)


def kvm_flags() -> tuple[str, ...]:
    """What a container needs for KVM, where the machine has it."""
    device = Path("/dev/kvm")
    return ("--device", "/dev/kvm", "--group-add", str(device.stat().st_gid)) if device.exists() else ()


@pytest.fixture(scope="session")
def guest_disk(engine: Engine) -> Path:
    """The Debian guest, made once for each version of what makes it."""
    maker = ROOT / "tests" / "images" / "guest_disk.py"
    disk = engine.state / f"guest-{hashlib.sha256(maker.read_bytes()).hexdigest()[:12]}.qcow2"
    with alone(engine, "guest"):
        if not disk.exists():
            subprocess.run([sys.executable, "-m", "tests.images.guest_disk", str(disk)], check=True, cwd=ROOT)
    return disk


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.timeout(3600)
def test_a_guest_boots_and_is_reset(engine: Engine, guest_disk: Path, tmp_path: Path) -> None:
    tag = build(engine, "waa-vm")
    tmp_path.chmod(0o777)
    shared = ("-v", f"{guest_disk}:/guest.qcow2:ro", "-v", f"{tmp_path}:/out", *kvm_flags())
    done = engine.run(tag, "-m", "smoke", "/guest.qcow2", "/out/screen.png", flags=("--entrypoint", "python", *shared))
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (tmp_path / "screen.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.nightly
@marked("qemu", missing=not (shutil.which("qemu-system-x86_64") and shutil.which("qemu-img")))
@pytest.mark.parametrize("password", ["", "a-secret"])
def test_qemu_listens_on_the_ports_of_its_role_and_on_files(
    password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The screen is one of them. VNC's own protocol, whose password has 8 letters, is on no network."""
    from guest.config import Display, GuestConfig
    from guest.machine import Machine

    monkeypatch.setenv("VNC_PASSWORD", password)
    host, web = "0.0.0.0" if password else "127.0.0.1", free_port()
    disk, folder = str(tmp_path / "disk.qcow2"), tmp_path / "work"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", disk, "1M"], check=True)
    config = GuestConfig(disk=disk, accelerator="emulation", memory="64M", ports={"agent": 5000})
    machine = Machine(config, folder, Display(host, web, bool(password)))
    machine.launch()
    try:
        assert machine.process is not None
        files = {f"unix:{folder}/{name}" for name in ("qmp", "vnc")}
        assert listening([machine.process.pid]) == {
            f"0.0.0.0:{machine.ports['agent']}",
            f"{host}:{web}",
            *files,
        }
        with websocket(web, "/") as channel:
            assert frame(channel).startswith(b"RFB 003.00")
    finally:
        machine.discard()


HANG = """
import sys, tempfile, time, urllib.request
from pathlib import Path
from guest.config import Display, GuestConfig, no_kvm
from guest.machine import GuestError, Machine
config = GuestConfig(disk="/guest.qcow2", memory="1G", cpus=1, boot=1800.0 if no_kvm() else 120.0, reset=300.0)
with tempfile.TemporaryDirectory() as folder:
    machine = Machine(config, Path(folder), Display("127.0.0.1", 41001, False))
    machine.start()
    machine.snapshot()
    url = f"http://127.0.0.1:{machine.ports['agent']}"
    get = lambda path: urllib.request.urlopen(url + path, timeout=10).read().decode()
    print("made", get("/files?new"))
    try:
        get("/hang")
    except OSError:
        pass
    try:
        machine.wait_healthy(3, "look")
    except GuestError as error:
        print(error)
    machine.reset()
    print("after", repr(get("/files")))
    machine.discard()
"""


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.timeout(3600)
def test_a_guest_that_hangs_tells_and_a_reset_undoes_everything(engine: Engine, guest_disk: Path) -> None:
    tag = build(engine, "waa-vm")
    flags = ("--entrypoint", "python", "-v", f"{guest_disk}:/guest.qcow2:ro", *kvm_flags())
    done = engine.run(tag, "-c", HANG, flags=flags)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "made new" in done.stdout
    assert "look: not healthy within 3 s; its screen: " in done.stdout
    assert "agent: hanging as asked" in done.stdout  # the console
    assert "after ''" in done.stdout


def test_a_health_check_never_reads_half_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import role

    state, over, seen = tmp_path / "ready", threading.Event(), set[str]()
    monkeypatch.setattr(role, "STATE", state)

    def read() -> None:
        while not over.is_set():
            with suppress(OSError):
                seen.add(state.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(2000):
        with role.ready_at(8000):
            pass
    over.set()
    reader.join()
    assert seen <= {"http://127.0.0.1:8000/ready"}


def test_programs_explain_themselves() -> None:
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    done = subprocess.run(
        [sys.executable, "-m", "guest", "--help"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "--healthcheck" in done.stdout
