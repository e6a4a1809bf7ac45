"""What makes a desktop and is beyond the agent's reach: X server, session bus, accessibility, window manager."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from eval.desktops.keeping import kernel, x11

ACCESSIBILITY: Final = "/usr/libexec/at-spi-bus-launcher"
NSS_WRAPPER: Final = "libnss_wrapper.so"
LIBRARIES: Final = ("/usr/lib", "/usr/local/lib")
VIEWER: Final = "viewer"
VIEWER_LIMIT_S: Final = 2.0
PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"
PACKAGES: Final = {
    "Xvfb": "xvfb",
    "dbus-daemon": "dbus",
    "openbox": "openbox",
    ACCESSIBILITY: "at-spi2-core",
}
# No menu and no key that starts a program: what the window manager starts would run outside the guest
WINDOW_MANAGER_CONFIG: Final = """<?xml version="1.0" encoding="UTF-8"?>
<openbox_config xmlns="http://openbox.org/3.4/rc">
  <focus><focusNew>yes</focusNew><focusLast>yes</focusLast></focus>
  <placement><policy>Smart</policy><center>yes</center></placement>
  <desktops><number>1</number></desktops>
  <theme><name>Clearlooks</name><animateIconify>no</animateIconify></theme>
  <keyboard>
    <keybind key="A-F4"><action name="Close"/></keybind>
    <keybind key="A-Tab"><action name="NextWindow"><dialog>none</dialog></action></keybind>
  </keyboard>
  <mouse>
    <context name="Titlebar">
      <mousebind button="Left" action="Press"><action name="Focus"/><action name="Raise"/></mousebind>
      <mousebind button="Left" action="Drag"><action name="Move"/></mousebind>
      <mousebind button="Left" action="DoubleClick"><action name="ToggleMaximize"/></mousebind>
    </context>
    <context name="Client">
      <mousebind button="Left" action="Press"><action name="Focus"/><action name="Raise"/></mousebind>
    </context>
    <context name="Close"><mousebind button="Left" action="Click"><action name="Close"/></mousebind></context>
    <context name="Maximize">
      <mousebind button="Left" action="Click"><action name="ToggleMaximize"/></mousebind>
    </context>
    <context name="Iconify"><mousebind button="Left" action="Click"><action name="Iconify"/></mousebind></context>
    <context name="Left"><mousebind button="Left" action="Drag"><action name="Resize"/></mousebind></context>
    <context name="Right"><mousebind button="Left" action="Drag"><action name="Resize"/></mousebind></context>
    <context name="Bottom"><mousebind button="Left" action="Drag"><action name="Resize"/></mousebind></context>
  </mouse>
</openbox_config>
"""
# The machine's own list of services is left out: what the bus starts for the guest would run outside the guest
BUS_CONFIG: Final = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="root"/>
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"""


class StartFailed(Exception):
    """A program of the desktop did not start."""


def missing_programs(path: str | None = None, programs: Mapping[str, str] = PACKAGES) -> list[str]:
    """A line for each of `programs` that is not in the folders of `path`, default PATH, with Debian's package."""
    return [
        f"{name} is not installed: apt-get install {package}"
        for name, package in programs.items()
        if not shutil.which(name, path=PATH if path is None else path)
    ]


def name_for_buses(folder: str) -> dict[str, str]:
    """Variables that give this user a name, for D-Bus, which refuses a user without one (a container's user may have
    none): nss_wrapper answers from files in `folder`. Empty where the user has a name. Raises StartFailed."""
    uid, gid = os.getuid(), os.getgid()
    try:
        pwd.getpwuid(uid)
    except KeyError:
        pass
    else:
        return {}
    if not any(list(Path(place).glob(f"*/{NSS_WRAPPER}")) for place in LIBRARIES):
        raise StartFailed(f"user {uid} has no name, and {NSS_WRAPPER} is not installed: apt-get install libnss-wrapper")
    passwd, group = Path(folder, "passwd"), Path(folder, "group")
    passwd.write_text(f"{Path('/etc/passwd').read_text()}user:x:{uid}:{gid}:user:/home/user:/bin/sh\n")
    group.write_text(f"{Path('/etc/group').read_text()}user:x:{gid}:\n")
    return {"LD_PRELOAD": NSS_WRAPPER, "NSS_WRAPPER_PASSWD": str(passwd), "NSS_WRAPPER_GROUP": str(group)}


class DesktopPrograms:
    """X server, bus, accessibility and window manager of one desktop, in `folder`."""

    def __init__(
        self, folder: str, size: tuple[int, int], uid: int | None, joins: list[int], opengl: bool = False
    ) -> None:
        self.folder = folder
        self._size = size
        self._uid = uid
        self._joins = joins
        self._opengl = opengl
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.display = ""
        self.x: x11.XWatch | None = None
        self.environ: dict[str, str] = {}
        self._name: dict[str, str] = {}
        self._log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    @property
    def socket_path(self) -> str:
        """The X server's socket."""
        return f"/tmp/.X11-unix/X{self.display[1:]}"

    def _start(self, name: str, argv: list[str], descriptor: int = -1, guest_user: bool = False) -> None:
        def prepare() -> None:
            kernel.die_with_parent(signal.SIGKILL)
            for joined in self._joins:
                os.write(joined, b"0")
            if guest_user and self._uid is not None:
                os.setgroups([])
                os.setresgid(self._uid, self._uid, self._uid)
                os.setresuid(self._uid, self._uid, self._uid)
                kernel.die_with_parent(signal.SIGKILL)  # a change of the user takes it back

        environ = dict(self.environ)
        if guest_user:
            environ["XAUTHORITY"] = f"{self.folder}/bus/xauthority"
            environ |= self._name
        try:
            self.processes[name] = subprocess.Popen(
                argv,
                env=environ,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(descriptor,) if descriptor >= 0 else (),
                start_new_session=True,
                preexec_fn=prepare,
            )
        except OSError as error:
            raise StartFailed(f"{argv[0]}: {error.strerror}") from error

    def start(self) -> None:
        """Returns when the window manager has told that it is ready. Raises StartFailed."""
        if missing := missing_programs():
            raise StartFailed("; ".join(missing))
        if self._uid is None:
            self._name = name_for_buses(self.folder)
        cookie = secrets.token_bytes(16)
        bus = Path(self.folder, "bus")
        bus.mkdir(mode=0o700)
        for path in (Path(self.folder, "xauthority"), bus / "xauthority"):
            path.touch(mode=0o600)
            path.write_bytes(x11.authority(cookie))
        if self._uid is not None:
            for path in (bus, bus / "xauthority"):
                os.chown(path, self._uid, self._uid)
        own = Path(self.folder, "own", "openbox")
        own.mkdir(parents=True, mode=0o700)
        (own / "rc.xml").write_text(WINDOW_MANAGER_CONFIG)
        bus_config = Path(self.folder, "bus.conf")
        bus_config.write_text(BUS_CONFIG.format(socket=bus / "session"))
        self.environ = {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "HOME": f"{self.folder}/own",
            "XDG_CONFIG_HOME": f"{self.folder}/own",
            "XDG_RUNTIME_DIR": str(bus),
            "XDG_SESSION_TYPE": "x11",
            "GDK_BACKEND": "x11",
            "GSETTINGS_BACKEND": "memory",
            "GTK_MODULES": "gail:atk-bridge",
            "NO_AT_BRIDGE": "0",
            "DBUS_SESSION_BUS_ADDRESS": f"unix:path={bus}/session",
            "XAUTHORITY": f"{self.folder}/xauthority",
        }
        read, write = os.pipe()
        width, height = self._size
        screen = ["-screen", "0", f"{width}x{height}x24", "-dpi", "96"]
        # It keeps its abstract socket, which alone stops two servers that start at once from taking the same number
        closed = ["-nolisten", "tcp", "-noreset", "-auth", self.environ["XAUTHORITY"]]
        without = ["-extension", "RANDR"]  # with it, any program may give the screen another size
        if not self._opengl:  # its libraries are 30 MB of the X server, and 10 of each program of GTK
            without += ["-extension", "GLX"]
        self._start("X server", ["Xvfb", "-displayfd", str(write), *screen, *closed, *without], write)
        os.close(write)
        bus_read, bus_write = os.pipe()
        config = f"--config-file={bus_config}"
        arguments = ["--nofork", "--nopidfile", "--nosyslog", f"--print-address={bus_write}"]
        self._start("session bus", ["dbus-daemon", config, *arguments], bus_write, True)
        os.close(bus_write)
        number = self._line(read, "X server")
        self.display = self.environ["DISPLAY"] = f":{number}"
        self._line(bus_read, "session bus")
        self._start("accessibility bus", [ACCESSIBILITY, "--launch-immediately", "--a11y=1"], guest_user=True)
        self._start("window manager", ["openbox", "--sm-disable", "--config-file", str(own / "rc.xml")])
        try:
            self.x = x11.XWatch(self.socket_path, cookie)
            self.x.watch_root()
            self.x.wait_for(self.x.atom("_NET_SUPPORTING_WM_CHECK"))
        except x11.XGone as error:
            raise StartFailed(
                f"the X server or the window manager did not get ready: {error}\n{self.tail()}"
            ) from error

    def start_viewer(self, argv: list[str]) -> None:
        """Starts a program that shows the desktop to a person, beyond the agent's reach. Its end is no failure."""
        self._start(f"{VIEWER} {len(self.processes)}", argv)

    def end_viewers(self) -> None:
        """Asks them to end, and waits a little for it: x11vnc then removes its shared memory. Who goes on is killed."""
        asked = []
        for name, process in self.processes.items():
            if name.startswith(VIEWER) and process.returncode is None:
                process.terminate()
                asked.append(process)
        for process in asked:
            try:
                process.wait(VIEWER_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _line(self, descriptor: int, name: str) -> str:
        """What a program writes, up to the newline: Xvfb writes digits and newline apart, and dies of a pipe that was
        closed between the two."""
        with os.fdopen(descriptor, "rb") as pipe:
            line = pipe.readline()
        if not line.endswith(b"\n"):
            raise StartFailed(f"the {name} ended while it started\n{self.tail()}")
        return line.decode().strip()

    def tail(self) -> str:
        """The end of what these programs wrote."""
        with Path(self.folder, "log").open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - 2000))
            return log.read().decode(errors="replace")

    def close(self) -> None:
        """Removes what a killed X server leaves: its socket, and its descriptors here. Its process has ended."""
        if self.x:
            self.x.close()
        os.close(self._log)
        if self.display:
            remove_socket(self.display)

    def facts(self) -> dict[str, Any]:
        """Its processes: name to process id."""
        return {name: process.pid for name, process in self.processes.items()}


def remove_socket(display: str) -> None:
    """Removes the socket that a killed X server leaves; never that of a living one, which may have taken its number."""
    path = f"/tmp/.X11-unix/X{display[1:]}"
    if not _answers(path):
        Path(path).unlink(missing_ok=True)


def _answers(path: str) -> bool:
    """Whether a server listens there: after ours ended, another may have taken its number."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        trial.settimeout(1.0)
        try:
            trial.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True
        return True
