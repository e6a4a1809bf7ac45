"""A small guest for waa-vm's tests: `python -m tests.images.guest_disk OUT.qcow2`, as root, on Debian.

Debian with its own kernel and boot loader, an X desktop (openbox, a terminal), and an HTTP server on port 5000 whose
/health is 200 once the desktop is there; /hang stops that server, /files?NAME makes a file, /files lists them. It
stands in for the Windows disk, which is under a licence and never built or shipped here. Logs go to the serial console.

Needs debootstrap, qemu-utils, and loop devices; installs the first two where it may.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.engine import debian_mirror, fit_for_this_machine

SIZE = 2 << 30
START = 1 << 20  # of the one partition
PACKAGES = (
    *("linux-image-amd64", "systemd-sysv", "udev", "dbus", "extlinux", "syslinux-common"),
    *("xserver-xorg-core", "xserver-xorg-input-libinput", "xinit", "openbox", "xterm", "x11-xserver-utils"),
    *("fonts-dejavu-core", "python3", "e2fsprogs", "kmod", "procps"),
)

AGENT = '''\
"""The guest's server: health of the desktop, and two ways to change the guest that a reset must undo."""
import http.server, os, pathlib, subprocess, urllib.parse

FILES = pathlib.Path("/root/files")
FILES.mkdir(exist_ok=True)


class Agent(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path, _, query = self.path.partition("?")
        body, status = b"ok", 200
        if path == "/health":
            up = subprocess.run(["xset", "-display", ":0", "q"], capture_output=True).returncode == 0
            status = 200 if up and subprocess.run(["pgrep", "xterm"], capture_output=True).returncode == 0 else 503
        elif path == "/files":
            if query:
                (FILES / urllib.parse.unquote(query).replace("/", "_")).touch()
            body = " ".join(sorted(file.name for file in FILES.iterdir())).encode()
        elif path == "/hang":
            pathlib.Path("/dev/console").write_text("agent: hanging as asked\\n")
            os._exit(0)
        else:
            status = 404
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("0.0.0.0", 5000), Agent).serve_forever()
'''
UNITS = {
    "agent": "[Service]\nExecStart=/usr/bin/python3 /opt/agent.py\nEnvironment=HOME=/root\n"
    "StandardOutput=journal+console\n[Install]\nWantedBy=multi-user.target\n",
    "desktop": "[Service]\nExecStart=/usr/bin/xinit /opt/session -- :0 vt1 -nolisten tcp\nEnvironment=HOME=/root\n"
    "Restart=on-failure\nStandardOutput=journal+console\n[Install]\nWantedBy=multi-user.target\n",
}
SESSION = (
    "#!/bin/sh\nxset s off -dpms\nxsetroot -solid '#2a6f97'\n"
    "xterm -geometry 90x24+120+90 -e 'uname -a; sh' &\nexec openbox\n"
)
NETWORK = "[Match]\nName=en* eth*\n[Network]\nDHCP=ipv4\n"
BOOT = (
    "DEFAULT linux\nTIMEOUT 1\nLABEL linux\n KERNEL /vmlinuz\n INITRD /initrd.img\n"
    " APPEND root=/dev/vda1 ro console=tty0 console=ttyS0,115200 quiet systemd.show_status=1\n"
)


def run(*command: str, chroot: Path | None = None) -> str:
    full = ["chroot", str(chroot), *command] if chroot else list(command)
    done = subprocess.run(
        full, capture_output=True, text=True, check=False, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(full)}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout


def install_tools() -> None:
    wanted = {"debootstrap": "debootstrap", "qemu-img": "qemu-utils", "sfdisk": "fdisk"}
    if missing := [package for program, package in wanted.items() if not shutil.which(program)]:
        run("apt-get", "update", "-q")
        run("apt-get", "install", "-qy", "--no-install-recommends", *missing)


@contextmanager
def mounted(image: Path, at: Path) -> Iterator[None]:
    """The image's partition, with a kernel's folders for programs that run in it."""
    at.mkdir()
    run("mount", "-o", f"loop,offset={START},sizelimit={SIZE - START}", str(image), str(at))
    try:
        yield
    finally:
        run("umount", "-R", str(at))


def fill(root: Path) -> None:
    """Settings of the installed Debian."""
    (root / "etc/fstab").write_text("/dev/vda1 / ext4 defaults 0 1\n")
    (root / "etc/hostname").write_text("guest\n")
    (root / "opt/agent.py").write_text(AGENT)
    (root / "opt/session").write_text(SESSION)
    (root / "opt/session").chmod(0o755)
    (root / "etc/systemd/network/guest.network").write_text(NETWORK)
    for name, unit in UNITS.items():
        (root / f"etc/systemd/system/{name}.service").write_text(unit)
    run("systemctl", "enable", "systemd-networkd", *UNITS, chroot=root)
    run("systemctl", "mask", "getty@tty1.service", "systemd-networkd-wait-online.service", chroot=root)
    run("passwd", "-d", "root", chroot=root)


def make(out: Path) -> None:
    install_tools()
    with tempfile.TemporaryDirectory(dir=out.parent) as text:
        folder = Path(text)
        root, image = folder / "root", folder / "disk.raw"
        mirror = debian_mirror()
        include = "--include=ca-certificates"
        run("debootstrap", "--variant=minbase", include, "bookworm", str(root), *([mirror] if mirror else []))
        fit_for_this_machine(root)
        run("apt-get", "update", "-q", chroot=root)
        run("apt-get", "install", "-qy", "--no-install-recommends", *PACKAGES, chroot=root)
        run("apt-get", "clean", chroot=root)
        fill(root)
        with image.open("wb") as file:
            file.truncate(SIZE)
        layout = f"start={START // 512}, type=83, bootable\n"
        subprocess.run(["sfdisk", "-q", str(image)], input=layout, text=True, check=True, capture_output=True)
        with image.open("r+b") as file:  # the boot code alone: the table lies behind it
            file.write((root / "usr/lib/syslinux/mbr/mbr.bin").read_bytes()[:440])
        # extlinux knows ext4, but not its newer features.
        options = f"offset={START}"
        plain = "^64bit,^metadata_csum,^orphan_file"
        size = str((SIZE - START) // 4096)
        run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-O", plain, "-E", options, str(image), size)
        with mounted(image, folder / "mounted"):
            run("cp", "-a", f"{root}/.", str(folder / "mounted"))
            boot = folder / "mounted" / "boot" / "syslinux"
            boot.mkdir()
            (boot / "syslinux.cfg").write_text(BOOT)
            run("mount", "--bind", "/dev", str(folder / "mounted" / "dev"))
            run("mount", "-t", "proc", "proc", str(folder / "mounted" / "proc"))
            run("extlinux", "--install", "/boot/syslinux", chroot=folder / "mounted")
        temporary = out.with_name(f".{out.name}")
        run("qemu-img", "convert", "-c", "-O", "qcow2", str(image), str(temporary))
        temporary.replace(out)
    print(f"{out}: {out.stat().st_size >> 20} MiB")


if __name__ == "__main__":
    make(Path(sys.argv[1]).absolute())
