"""A buildkitd and a buildx of the tests' own, built from their Go modules: go.mod here pins the versions, go.sum every
hash."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

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
            _absent("there is no Go to build BuildKit with")
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


def _absent(why: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"no BuildKit for the tests: {why}", pytrace=False)
    pytest.skip(f"no BuildKit: {why}")


@contextmanager
def running(root: Path, registry: str) -> Iterator[BuildKit]:
    """buildkitd with runc, its state in `root`, the host's network, and `registry` spoken to without TLS."""
    if os.geteuid() != 0 or shutil.which("runc") is None:
        _absent("only root, with runc installed, can start one")
    folder = programs()
    settings = root / "buildkitd.toml"
    settings.write_text(SETTINGS.format(registry=registry))
    address = f"unix://{root}/socket"
    command = [str(folder / "buildkitd"), "--addr", address, "--root", str(root / "state"), "--config", str(settings)]
    command += ["--containerd-worker=false", "--oci-worker=true", "--oci-worker-net=host", "--oci-worker-binary=runc"]
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
