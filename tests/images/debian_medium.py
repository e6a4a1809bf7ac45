"""A medium that installs Debian, for waa-vm's `install`: `python -m tests.images.debian_medium FOLDER`, as root.

It takes the road of a Windows medium. UEFI with Secure Boot starts FOLDER/debian.iso: Debian's boot loader and kernel
are signed, the first of them by Microsoft, whose key is in the firmware. The installer looks for its answers on a
removable FAT drive, which `install` makes of the folder FOLDER/answers. It copies a system that was made beforehand
onto the empty disk, as Windows' installer does with its install.wim, takes the server from the answers, and restarts
the machine. The system then starts that server: GET /probe on port 5000 is answered with 200; /files lists what
/files?NAME made.

The answer file `pause` makes the installer wait in the middle of its copy, for a test that cuts it off there.

Debian's own installer would take an hour and more with an emulated processor. Needs apt-get, and installs debootstrap,
xorriso, mtools and fdisk where they are missing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.images.guest_disk import run
from tests.support.engine import debian_mirror, fit_for_this_machine

TOOLS = {"debootstrap": "debootstrap", "xorriso": "xorriso", "mformat": "mtools", "sfdisk": "fdisk"}
LOADERS = ("shim-signed", "grub-efi-amd64-signed")
SIGNED = Path("usr/lib/grub/x86_64-efi-signed")
BASE = "systemd-sysv,udev,dbus,kmod,ca-certificates"
MIB = 1 << 20
EFI = 64  # MiB, of the first partition
SIZE = 768  # MiB, of what is copied to the disk
# What no guest here has: a third of the kernel's modules remains.
NEEDLESS = ("sound", "drivers/gpu", "drivers/media", "drivers/net/wireless", "drivers/infiniband", "drivers/staging")
NEEDLESS += ("drivers/iio", "drivers/isdn", "drivers/hwmon", "drivers/comedi", "drivers/bluetooth", "net/bluetooth")

MODULES = "ahci sd_mod sr_mod isofs vfat nls_cp437 nls_ascii nls_utf8 usb_storage xhci_pci ext4 crc32c_generic usbhid"
HOOK = f'[ "$1" != prereqs ] || exit 0\n. /usr/share/initramfs-tools/hook-functions\nmanual_add_modules {MODULES}\n'
# initramfs-tools calls this in place of its own `mountroot` when the kernel's command line says boot=installer.
INSTALLER = r"""
mountroot() {
  modprobe -a -q MODULES
  mkdir -p /answers /medium /target
  echo 'installer: looking for the answers'
  until [ -f /answers/answers.conf ]; do
    for drive in /dev/sd[a-z]1; do
      mount -t vfat -o ro "$drive" /answers 2>/dev/null || continue
      [ -f /answers/answers.conf ] && break
      umount /answers
    done
    sleep 1
  done
  . /answers/answers.conf
  until mount -t iso9660 -o ro /dev/sr0 /medium 2>/dev/null; do sleep 1; done
  disk=
  until [ -n "$disk" ]; do
    for entry in /sys/block/sd*; do
      [ "$(cat "$entry/removable")" = 0 ] && disk=/dev/${entry##*/}
    done
    sleep 1
  done
  echo "installer: copying onto $disk"
  dd if=/medium/system.img of="$disk" bs=1M count=HALF
  if [ -f /answers/pause ]; then
    sync
    echo 'installer: pausing'
    while :; do sleep 60; done
  fi
  dd if=/medium/system.img of="$disk" bs=1M skip=HALF seek=HALF
  until [ -b "${disk}2" ]; do blockdev --rereadpt "$disk" 2>/dev/null; sleep 1; done
  mount -t ext4 "${disk}2" /target
  echo "$hostname" > /target/etc/hostname
  cp -r /answers/server /target/opt/
  sh /answers/server/setup /target
  umount /target
  sync
  echo 'installer: restarting'
  reboot -f
}
"""
# no_timer_check: on a busy machine an emulated timer may come too late for the kernel's test of it, which then panics.
GRUB = """\
set timeout=0
menuentry Debian {{
  linux /{folder}/vmlinuz {options} console=ttyS0,115200 no_timer_check
  initrd /{folder}/initrd.img
}}
"""
NETWORK = "[Match]\nName=en* eth*\n[Network]\nDHCP=ipv4\n"
ANSWERS = {
    "answers.conf": "hostname=guest\n",
    "server/setup": """\
cp $1/opt/server/agent.socket $1/opt/server/agent@.service $1/etc/systemd/system/
mkdir -p $1/etc/systemd/system/sockets.target.wants $1/root/files
ln -s ../agent.socket $1/etc/systemd/system/sockets.target.wants/
""",
    "server/agent.socket": "[Socket]\nListenStream=5000\nAccept=yes\n[Install]\nWantedBy=sockets.target\n",
    "server/agent@.service": "[Service]\nExecStart=/bin/sh /opt/server/agent\nStandardInput=socket\n",
    "server/agent": r"""
# One request of HTTP on standard input, its answer on standard output.
read -r method path version
while read -r header && [ "${#header}" -gt 1 ]; do :; done
status='200 OK'
case "$path" in
  /probe) body=ok ;;
  /files*) [ "$path" = /files ] || : > "/root/files/$(basename "${path#*\?}")"; body=$(ls /root/files) ;;
  *) status='404 Not Found' body='no such page' ;;
esac
printf 'HTTP/1.1 %s\r\nContent-Length: %s\r\nConnection: close\r\n\r\n%s' "$status" "${#body}" "$body"
""",
}


def install_tools() -> None:
    if missing := [package for program, package in TOOLS.items() if not shutil.which(program)]:
        run("apt-get", "update", "-q")
        run("apt-get", "install", "-qy", "--no-install-recommends", *missing)


def loaders(folder: Path) -> Path:
    """The signed boot loaders, from Debian's packages."""
    folder.mkdir()
    subprocess.run(["apt-get", "download", "-q", *LOADERS], cwd=folder, check=True, capture_output=True)
    for package in folder.glob("*.deb"):
        run("dpkg-deb", "--extract", str(package), str(folder))
    return folder


def system(root: Path) -> None:
    """Debian with its kernel, which starts as an installer when it is told so."""
    mirror = debian_mirror()
    include = f"--include={BASE}"
    run("debootstrap", "--variant=minbase", include, "bookworm", str(root), *([mirror] if mirror else []))
    fit_for_this_machine(root)
    settings = root / "etc/initramfs-tools"
    for name in ("conf.d", "hooks", "scripts"):
        (settings / name).mkdir(parents=True)
    (settings / "conf.d/small").write_text("MODULES=list\nBUSYBOX=y\nCOMPRESS=gzip\n")
    (settings / "hooks/installer").write_text("#!/bin/sh\n" + HOOK)
    (settings / "hooks/installer").chmod(0o755)
    script = INSTALLER.replace("MODULES", MODULES).replace("HALF", str(SIZE // 2))
    (settings / "scripts/installer").write_text(script)
    run("apt-get", "update", "-q", chroot=root)
    run("apt-get", "install", "-qy", "--no-install-recommends", "linux-image-amd64", "busybox", chroot=root)
    run("apt-get", "clean", chroot=root)
    shutil.rmtree(root / "var/lib/apt/lists")
    (modules,) = (root / "lib/modules").iterdir()
    for name in NEEDLESS:
        shutil.rmtree(modules / "kernel" / name, ignore_errors=True)
    run("depmod", modules.name, chroot=root)
    (root / "etc/fstab").write_text("LABEL=debian / ext4 defaults 0 1\n")
    (root / "etc/systemd/network/guest.network").write_text(NETWORK)
    run("systemctl", "enable", "systemd-networkd", chroot=root)
    run("systemctl", "mask", "systemd-networkd-wait-online.service", chroot=root)
    run("passwd", "-d", "root", chroot=root)


def efi(image: str, packages: Path, loader: str, more: dict[str, Path]) -> None:
    """The signed boot loader, where UEFI looks for it on a disk or medium that it does not know."""
    given = {"BOOT/BOOTX64.EFI": packages / "usr/lib/shim/shimx64.efi.signed", "BOOT/grubx64.efi": packages / loader}
    run("mmd", "-i", image, "::/EFI", "::/EFI/BOOT", "::/EFI/debian")
    for name, file in {**given, **more}.items():
        run("mcopy", "-i", image, str(file), f"::/EFI/{name}")


def disk(root: Path, packages: Path, work: Path, out: Path) -> None:
    """What the installer copies: an EFI partition with the kernel, and the system's."""
    with out.open("wb") as file:
        file.truncate(SIZE * MIB)
    layout = f"label: gpt\nstart=1MiB, size={EFI}MiB, type=uefi\nstart={EFI + 1}MiB, type=linux\n"
    subprocess.run(["sfdisk", "-q", str(out)], input=layout, text=True, check=True, capture_output=True)
    grub = work / "disk.cfg"
    grub.write_text(GRUB.format(folder="EFI/debian", options="root=LABEL=debian ro"))
    kernel = {f"debian/{name}": (root / name).resolve() for name in ("vmlinuz", "initrd.img")}
    first = f"{out}@@{MIB}"
    run("mformat", "-i", first, "-T", str(EFI * MIB // 512), "-F", "::")
    efi(first, packages, str(SIGNED / "grubx64.efi.signed"), {"debian/grub.cfg": grub, **kernel})
    place = f"offset={(EFI + 1) * MIB}"
    blocks = str((SIZE - EFI - 2) * MIB // 4096)
    options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-L", "debian", "-E", place, "-d", str(root)]
    run("mke2fs", *options, str(out), blocks)


def iso(root: Path, packages: Path, work: Path, out: Path) -> None:
    tree = work / "tree"
    for name in ("install", "boot/grub", ".disk"):
        (tree / name).mkdir(parents=True)
    (tree / ".disk" / "info").write_text("Debian\n")  # GRUB looks for this file on all drives
    (tree / "boot/grub/grub.cfg").write_text(GRUB.format(folder="install", options="boot=installer"))
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy((root / name).resolve(), tree / "install" / name)
    image = tree / "efi.img"
    run("mformat", "-C", "-i", str(image), "-T", str(8 * MIB // 512), "::")
    efi(str(image), packages, str(SIGNED / "gcdx64.efi.signed"), {})
    disk(root, packages, work, tree / "system.img")
    run("xorriso", "-as", "mkisofs", "-R", "-V", "DEBIAN", "-e", "efi.img", "-no-emul-boot", "-o", str(out), str(tree))


def answers(folder: Path) -> None:
    """What lies on the drive with the answers."""
    for name, text in ANSWERS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def make(folder: Path) -> None:
    install_tools()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as text:
        work = Path(text)
        packages = loaders(work / "packages")
        system(work / "root")
        iso(work / "root", packages, work, folder / ".debian.iso")
        (folder / ".debian.iso").replace(folder / "debian.iso")
    answers(folder / "answers")
    print(f"{folder / 'debian.iso'}: {(folder / 'debian.iso').stat().st_size >> 20} MiB")


if __name__ == "__main__":
    make(Path(sys.argv[1]).absolute())
