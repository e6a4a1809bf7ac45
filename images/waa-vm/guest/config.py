"""What a guest is made of, and QEMU's command line for it."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from eval.config import Config, ConfigError

KVM: Final = Path("/dev/kvm")
PVM: Final = Path("/sys/module/kvm_pvm")
FIRMWARE: Final = Path("/usr/share/OVMF")
RESERVED: Final = ("http", "vnc")  # the controller's ports, and the screen's
SIZE: Final = re.compile(r"[1-9][0-9]*[MG]")


class HealthConfig(Config, frozen=True, kw_only=True):
    """
    path     answered with 2xx when the guest's own server is up
    port     its name in `ports`
    timeout  seconds for one answer
    """

    path: str = "/health"
    port: str = "agent"
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 5.0


class InstallConfig(Config, frozen=True, kw_only=True):
    """
    media    the medium to install from, and others: the first is started while the disk is empty. ISO images
    answers  a folder that the guest sees as a removable FAT drive, where Windows looks for autounattend.xml; at most
             500 MB
    size     of the disk, which is made if it is not there
    """

    media: Annotated[list[str], msgspec.Meta(min_length=1, max_length=6)]
    answers: str | None = None
    size: str = "64G"


class GuestConfig(Config, frozen=True, kw_only=True):
    """
    disk         the golden disk, qcow2 or raw; never written to: the guest works on a copy of what it changes. With
                 `install` it is made, and written to
    install      how to make the disk: see guest.install; there is no deadline, `boot` counts for nothing
    scratch      a folder for what the guest changes and for the snapshot of its memory, of the size of both; None:
                 TMPDIR, or /work
    in_memory    scratch may lie in memory (a tmpfs): the snapshot then takes the guest's memory a second time
    memory, cpus of the guest
    cpu          QEMU's name of the processor; None: the machine's own, or all that can be emulated
    firmware     secure for Windows 11 (UEFI with Secure Boot, its keys Microsoft's); uefi without; bios for most else
    tpm          an emulated TPM 2.0, which Windows 11 wants
    accelerator  kvm is an error where /dev/kvm cannot be opened; auto then emulates, ten times slower or more
    bus          of the disk and the network card; sata (with an e1000e card) needs no driver in the guest
    ports        name -> the guest's TCP port, reached on $SLIPWAY_PORT_<NAME>, or a free one, of this container
    network      the guest may reach out; otherwise only the forwarded ports work
    boot         seconds until it must be healthy; with an emulated processor give ten times as much
    reset        seconds until it must be healthy after a reset
    screen       width and height in pixels, as far as the guest's driver obeys
    clock        utc, or localtime as Windows keeps it
    arguments    further ones of QEMU
    """

    disk: str
    install: InstallConfig | None = None
    scratch: str | None = None
    in_memory: bool = False
    memory: str = "4G"
    cpus: Annotated[int, msgspec.Meta(ge=1)] = 2
    cpu: str | None = None
    firmware: Literal["bios", "uefi", "secure"] = "bios"
    tpm: bool = False
    accelerator: Literal["auto", "kvm", "emulation"] = "auto"
    bus: Literal["virtio", "sata"] = "virtio"
    ports: dict[str, int] = msgspec.field(default_factory=lambda: {"agent": 5000})
    health: HealthConfig = HealthConfig()
    network: bool = False
    boot: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    reset: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    screen: tuple[int, int] = (1280, 800)
    clock: Literal["utc", "localtime"] = "utc"
    arguments: list[str] = msgspec.field(default_factory=list)

    def check(self) -> None:
        """Raises ConfigError."""
        self._check_disk()
        if not os.access(folder := scratch(self), os.W_OK):
            raise ConfigError(f"scratch: {folder} is no folder that can be written to")
        if not self.in_memory and memory_file_system(folder):
            raise ConfigError(
                f"scratch: {folder} lies in memory, where the guest's disk and snapshot would fill it; "
                "name a folder on a disk, or give in_memory: true"
            )
        if not SIZE.fullmatch(self.memory):
            raise ConfigError(f"memory: `{self.memory}` is no size: 512M, 4G")
        if self.health.port not in self.ports:
            raise ConfigError(f"health.port: `{self.health.port}` is none of ports: {', '.join(self.ports) or 'none'}")
        if taken := [name for name in self.ports if name in RESERVED]:
            raise ConfigError(
                f"ports.{taken[0]}: this name is the controller's; allowed: any but {', '.join(RESERVED)}"
            )
        if wrong := [name for name, port in self.ports.items() if not 0 < port < 65536]:
            raise ConfigError(f"ports.{wrong[0]}: {self.ports[wrong[0]]} is no port: 1 to 65535")
        if self.accelerator == "kvm" and (missing := no_kvm()):
            raise ConfigError(f"accelerator: {missing}; or take accelerator: emulation")

    def _check_disk(self) -> None:
        disk = Path(self.disk)
        if self.install is None:
            if not disk.is_file():
                raise ConfigError(f"disk: there is no file {disk}; the guest's disk is an input of the job")
            if unfinished(self.disk).exists():
                raise ConfigError(
                    f"disk: the installation of {disk} is not finished ({unfinished(self.disk).name} is beside it); "
                    "go on with `install`"
                )
            return
        if not SIZE.fullmatch(self.install.size):
            raise ConfigError(f"install.size: `{self.install.size}` is no size: 64G")
        for number, medium in enumerate(self.install.media):
            if not Path(medium).is_file():
                raise ConfigError(f"install.media.{number}: there is no file {medium}")
        if self.install.answers is not None and not Path(self.install.answers).is_dir():
            raise ConfigError(f"install.answers: there is no folder {self.install.answers}")
        if disk.exists() and not unfinished(self.disk).exists():
            raise ConfigError(f"disk: {disk} is there and finished; remove it, or name another to install anew")
        if not os.access(disk.parent, os.W_OK):
            raise ConfigError(f"disk: {disk.parent} is no folder that can be written to; install makes the disk there")

    @property
    def accelerated(self) -> bool:
        return self.accelerator != "emulation" and no_kvm() is None


def unfinished(disk: str) -> Path:
    """The file beside a disk that says that its installation is not over."""
    return Path(f"{disk}.installing")


def scratch(config: GuestConfig) -> Path:
    """Where a guest's own files go."""
    if config.scratch is not None:
        return Path(config.scratch)
    return Path(os.environ.get("TMPDIR") or ("/work" if os.access("/work", os.W_OK) else tempfile.gettempdir()))


def memory_file_system(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Does a folder lie in memory?"""
    place, kind, longest = folder.resolve(), "", -1
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        _, point, name, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        if place.is_relative_to(point) and len(point) >= longest:
            kind, longest = name, len(point)  # of two mounts on one point the later one counts
    return kind in ("tmpfs", "ramfs")


def no_kvm() -> str | None:
    """Why KVM cannot run a guest here; None: it can."""
    if not KVM.exists() or not os.access(KVM, os.R_OK | os.W_OK):
        return (
            "/dev/kvm cannot be opened here: give the container the device and its group "
            "(docker: --device /dev/kvm --group-add $(stat -c %g /dev/kvm))"
        )
    if PVM.exists():
        # It runs kernels made for it alone; of others, firmware and boot loaders included, it emulates a part and then
        # stops with "KVM internal error".
        return "this machine's KVM (kvm_pvm) runs only kernels that were made for it: use one with hardware support"
    return None


def default_cpu(accelerated: bool) -> str:
    """The machine's own processor where it can be had.

    arch-capabilities is a register of Intel's. A virtual machine on AMD may show it all the same, and then refuse to
    have it set: QEMU 7.2 ends with an assertion (seen: "failed to set MSR 0x10a").
    """
    if not accelerated:
        return "max"
    intel = "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return "host" if intel else "host,-arch-capabilities"


@dataclass(frozen=True)
class Files:
    """Everything of one guest under one folder, which is its to write."""

    folder: Path

    @property
    def overlay(self) -> Path:
        return self.folder / "disk.qcow2"

    @property
    def variables(self) -> Path:
        return self.folder / "uefi.qcow2"

    @property
    def monitor(self) -> Path:
        return self.folder / "qmp"

    @property
    def screen(self) -> Path:
        return self.folder / "vnc"

    @property
    def console(self) -> Path:
        return self.folder / "console.log"

    @property
    def tpm(self) -> Path:
        return self.folder / "tpm"

    @property
    def log(self) -> Path:
        return self.folder / "qemu.log"


@dataclass(frozen=True)
class Display:
    """Where noVNC finds the screen: `web` is the port that speaks WebSocket."""

    host: str
    web: int
    password: bool


def firmware(config: GuestConfig) -> tuple[Path, Path]:
    """UEFI's code, and the variables that a new machine begins with."""
    if config.firmware == "secure":
        return FIRMWARE / "OVMF_CODE_4M.secboot.fd", FIRMWARE / "OVMF_VARS_4M.ms.fd"
    return FIRMWARE / "OVMF_CODE_4M.fd", FIRMWARE / "OVMF_VARS_4M.fd"


def qemu(config: GuestConfig, files: Files, forwards: dict[str, int], display: Display) -> list[str]:
    """The command line. `forwards`: name -> this container's port."""
    width, height = config.screen
    command = ["qemu-system-x86_64", "-name", "guest", "-nodefaults", "-no-user-config"]
    command += ["-machine", "q35,accel=kvm" if config.accelerated else "q35,accel=tcg"]
    command += ["-cpu", config.cpu or default_cpu(config.accelerated)]
    command += ["-smp", str(config.cpus), "-m", config.memory, "-rtc", f"base={config.clock}"]
    disk = files.overlay if config.install is None else config.disk
    command += ["-blockdev", f"driver=file,node-name=disk-file,filename={quoted(str(disk))}"]
    command += ["-blockdev", "driver=qcow2,node-name=disk,file=disk-file,discard=unmap"]
    if config.bus == "virtio":
        command += ["-device", "virtio-blk-pci,drive=disk,bootindex=1"]
    else:
        command += ["-device", "ich9-ahci,id=sata", "-device", "ide-hd,bus=sata.0,drive=disk,bootindex=1"]
    rules = [f"hostfwd=tcp::{forwards[name]}-:{port}" for name, port in config.ports.items()]
    rules += [] if config.network else ["restrict=on"]
    command += ["-netdev", ",".join(["user,id=net", *rules])]
    command += ["-device", f"{'virtio-net-pci' if config.bus == 'virtio' else 'e1000e'},netdev=net,romfile="]
    command += ["-device", f"VGA,xres={width},yres={height},edid=on", "-device", "qemu-xhci", "-device", "usb-tablet"]
    command += ["-device", "usb-kbd", "-device", "virtio-rng-pci"]
    password = ",password=on" if display.password else ""
    # VNC's own protocol, which nobody speaks here, is on a file: its password has 8 letters
    listens = f"unix:{files.screen},websocket={display.host}:{display.web}"
    command += ["-display", "none", "-vnc", f"{listens}{password}"]
    command += ["-chardev", f"file,id=console,path={files.console},append=on", "-serial", "chardev:console"]
    command += ["-qmp", f"unix:{files.monitor},server=on,wait=off"]
    if config.firmware != "bios":
        code, _ = firmware(config)
        command += ["-blockdev", f"driver=file,node-name=code-file,filename={code},read-only=on"]
        command += ["-blockdev", "driver=raw,node-name=code,file=code-file,read-only=on"]
        command += ["-blockdev", f"driver=file,node-name=variables-file,filename={files.variables}"]
        command += ["-blockdev", "driver=qcow2,node-name=variables,file=variables-file"]
        secure = "on" if config.firmware == "secure" else "off"
        command += ["-machine", f"pflash0=code,pflash1=variables,smm={secure}"]
        command += ["-global", f"driver=cfi.pflash01,property=secure,value={secure}"]
    if config.tpm:
        command += ["-chardev", f"socket,id=tpm,path={files.tpm / 'socket'}", "-tpmdev", "emulator,id=tpm,chardev=tpm"]
        command += ["-device", "tpm-crb,tpmdev=tpm"]
    return command + media(config) + config.arguments


def media(config: GuestConfig) -> list[str]:
    """QEMU's options for the media, and for the folder with the answers of an unattended installation."""
    install = config.install
    if install is None:
        return []
    words = ["-device", "ich9-ahci,id=media"]
    for number, medium in enumerate(install.media):
        name = f"medium{number}"
        words += ["-blockdev", f"driver=file,node-name={name}-file,filename={quoted(medium)},read-only=on"]
        words += ["-blockdev", f"driver=raw,node-name={name},file={name}-file,read-only=on"]
        words += ["-device", f"ide-cd,bus=media.{number},drive={name},bootindex={number + 2}"]
    if install.answers is not None:
        words += ["-blockdev", f"driver=vvfat,node-name=answers,dir={quoted(install.answers)},read-only=on"]
        words += ["-device", "usb-storage,drive=answers,removable=on"]
    return words


def quoted(path: str) -> str:
    """In an option of QEMU a comma is written twice."""
    return path.replace(",", ",,")
