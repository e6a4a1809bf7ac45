"""A buildkitd and a buildx of the tests' own, as a release uses them: tools/buildkit pins their versions and hashes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.needs import lacking
from tests.support.programs import built

PROGRAMS = ("buildctl", "buildkitd", "buildx")
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
    return built(*PROGRAMS)


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
