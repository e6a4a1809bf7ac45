"""A buildkitd and a buildx of the tests' own, built from their Go modules: go.mod here pins the versions, go.sum every
hash."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.needs import lacking

HERE = Path(__file__).parent
TOOLS = Path(__file__).resolve().parents[4] / ".tools"
PROGRAMS = {
    "buildctl": "github.com/moby/buildkit/cmd/buildctl",
    "buildkitd": "github.com/moby/buildkit/cmd/buildkitd",
    "buildx": "github.com/docker/buildx/cmd/buildx",
}
GO = ("/usr/local/go/bin", str(TOOLS / "go" / "bin"))
SETTINGS = """\
[registry."{registry}"]
  http = true
  insecure = true
"""


@dataclass(frozen=True)
class BuildKit:
    """`address` is what BUILDKIT_HOST is; `programs` the folder of buildctl and buildx."""

    address: str
    programs: Path


def programs() -> Path:
    """The folder with PROGRAMS, built where they are missing or of another pin (minutes, once)."""
    folder = TOOLS / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    stamp = TOOLS / "buildkit.pin"
    wanted = hashlib.sha256((HERE / "go.mod").read_bytes() + (HERE / "go.sum").read_bytes()).hexdigest()
    with (TOOLS / "buildkit.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        made = all((folder / name).exists() for name in PROGRAMS)
        if made and stamp.is_file() and stamp.read_text() == wanted:
            return folder
        path = os.pathsep.join((os.environ["PATH"], *GO))
        go = shutil.which("go", path=path)
        if go is None:
            lacking("buildkit", "there is no Go to build BuildKit with")
        with TemporaryDirectory() as work:
            for name in ("go.mod", "go.sum"):
                shutil.copy(HERE / name, work)
            # `go install module@version` would ask for the list of versions; a module with one requirement does not
            environment = {**os.environ, "PATH": path, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=mod"}
            environment.pop("XDG_CACHE_HOME", None)  # a test's own, which would have Go compile everything anew
            for name, package in PROGRAMS.items():
                command = [str(go), "build", "-trimpath", "-ldflags", "-s -w", "-o", name, package]
                subprocess.run(command, cwd=work, env=environment, check=True)
            assert Path(work, "go.sum").read_bytes() == (HERE / "go.sum").read_bytes(), "go.sum does not pin everything"
            for name in PROGRAMS:
                shutil.move(Path(work, name), folder / f"{name}.new")
                (folder / f"{name}.new").rename(folder / name)
        stamp.write_text(wanted)
    return folder


# Stands in for runc, so that the programs of a build see another time: libfaketime is mounted over an empty folder that
# every Debian has (runc would leave a new one in the image). The kernel gives files its own time.
ANOTHER_CLOCK = """\
#!{python}
import json, os, sys
if "--bundle" in sys.argv:
    file = os.path.join(sys.argv[sys.argv.index("--bundle") + 1], "config.json")
    with open(file) as opened:
        settings = json.load(opened)
    settings["mounts"].append(
        {{"destination": "/mnt", "type": "bind", "source": "{library.parent}", "options": ["rbind", "ro"]}}
    )
    settings["process"]["env"] += [
        "LD_PRELOAD=/mnt/{library.name}", "FAKETIME={shift}", "FAKETIME_DONT_FAKE_MONOTONIC=1", "NO_FAKE_STAT=1"
    ]
    with open(file, "w") as opened:
        json.dump(settings, opened)
os.execv("{runc}", ["runc", *sys.argv[1:]])
"""


def _another_clock(root: Path, shift: str) -> Path:
    """A program in place of runc, in whose containers the time is shifted (`+3d`)."""
    pattern = "lib/*/faketime/libfaketime.so.1"
    library = next(Path("/usr").glob(pattern), None)
    if library is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-qy", "libfaketime"], capture_output=True, check=False)
        library = next(Path("/usr").glob(pattern), None)
    if library is None:
        lacking("buildkit", "install Debian's libfaketime, which gives a build another clock")
    program = root / "runc"
    text = ANOTHER_CLOCK.format(python=sys.executable, library=library, shift=shift, runc=shutil.which("runc"))
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return program


@contextmanager
def running(root: Path, registry: str, clock: str | None = None) -> Iterator[BuildKit]:
    """buildkitd with runc, its state in `root`, the host's network, and `registry` spoken to without TLS; `clock`
    shifts the time of what it runs."""
    if os.geteuid() != 0 or shutil.which("runc") is None:
        lacking("buildkit", "only root, with runc installed, can start one")
    folder = programs()
    runc = "runc" if clock is None else str(_another_clock(root, clock))
    settings = root / "buildkitd.toml"
    settings.write_text(SETTINGS.format(registry=registry))
    address = f"unix://{root}/socket"
    command = [str(folder / "buildkitd"), "--addr", address, "--root", str(root / "state"), "--config", str(settings)]
    command += [
        "--containerd-worker=false",
        "--oci-worker=true",
        "--oci-worker-net=host",
        f"--oci-worker-binary={runc}",
    ]
    command += ["--allow-insecure-entitlement=network.host"]
    log = root / "buildkitd.log"
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            deadline = time.monotonic() + 60
            while not _answers(folder, address):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"buildkitd did not start: {log.read_text()[-2000:]}")
                time.sleep(0.1)
            yield BuildKit(address, folder)
        finally:
            process.terminate()


def _answers(folder: Path, address: str) -> bool:
    command = [str(folder / "buildctl"), "--addr", address, "debug", "workers"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
