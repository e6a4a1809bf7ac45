"""A small project to build, and a registry to push to."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from launcher.cli import main
from tests.support.cpu_image import alone
from tests.support.engine import Engine, small_base
from tests.support.engine import engine as debian_engine
from tests.support.faultproxy import FaultProxy
from tests.support.mounts import small_file_system
from tests.support.needs import lacking
from tests.unit.images.project import project

__all__ = ["debian_engine", "engine", "registry", "root", "small_disk"]

OWN = """\
RUN echo built > /built
COPY source /opt/source
ARG SLIPWAY_VERSION=0
LABEL org.opencontainers.image.title="tiny" org.opencontainers.image.version="${SLIPWAY_VERSION}"
"""

NOBODY = "00000000-0000-0000-0000-000000000000"  # whom `az acr login` logs in
BCRYPT = "$2b$04$JWdAJ1eIUS0tx05e6n71xu4Nj5r9SwuQK0Bx/fCx/gCM2mPJnb9WG"  # of "secret-word"


@dataclass
class Registry:
    """`proxy` stands in front of it: what is pushed goes through there."""

    port: int
    folder: Path
    proxy: FaultProxy

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.proxy.port}/team"


Mount = Callable[[Path, str], None]


@pytest.fixture(scope="session")
def engine(debian_engine: Engine) -> Engine:
    """The tests' engine, with a base of a few megabytes. `debian_engine` has Debian."""
    return replace(debian_engine, base=small_base(debian_engine)) if debian_engine.base else debian_engine


@pytest.fixture
def small_disk() -> Iterator[Mount]:
    """Mounts small file systems, which fill up soon: on a folder that it makes, of so many bytes (`8m`)."""
    with ExitStack() as mounted:
        yield lambda folder, size: mounted.enter_context(small_file_system(folder, f"size={size}"))


def flags(engine: Engine) -> Sequence[str]:
    """What a build on the tests' engine needs; the first two are part of the version."""
    return ["--base", engine.base, "--network", "host"] if engine.base else []


def build(engine: Engine, *more: str) -> int:
    return main(["images", "build", "tiny", *flags(engine), *more])


@pytest.fixture
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Registry]:
    """Debian's docker-registry over a folder, behind the fault proxy. With the parameter `password` it lets in only
    the user `me` with `secret-word`, and by the same word the users that cloud programs log in as."""
    program = shutil.which("docker-registry")
    if program is None and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "install", "-qy", "docker-registry"], capture_output=True, check=False)
        program = shutil.which("docker-registry")
    if program is None:
        lacking("registry")
    folder = tmp_path / "registry"
    config = tmp_path / "registry.yml"
    auth = ""
    if getattr(request, "param", "") == "password":
        known = tmp_path / "htpasswd"
        known.write_text("".join(f"{user}:{BCRYPT}\n" for user in ("me", "AWS", NOBODY, "oauth2accesstoken")))
        auth = f"auth: {{htpasswd: {{realm: tests, path: {known}}}}}\n"
    while True:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config.write_text(
            "version: 0.1\nlog: {accesslog: {disabled: true}, level: error}\n"
            f"storage: {{filesystem: {{rootdirectory: {folder}}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n{auth}"
        )
        log = tmp_path / "registry.log"
        with log.open("wb") as file:
            process = subprocess.Popen([program, "serve", str(config)], stdout=file, stderr=file)
        if _listens(process, port, log):
            break
    try:
        with FaultProxy(port) as proxy:
            yield Registry(port, folder, proxy)
    finally:
        process.kill()
        process.wait()


def _listens(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    """Waits for a registry; False when somebody else was given its port meanwhile."""
    deadline = time.monotonic() + 60
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        else:
            return process.poll() is None
    assert "address already in use" in log.read_text()
    return False


@pytest.fixture
def root(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The project, as the current folder, with the engine in the environment; its images go at the end.

    One test at a time: the processes of a test run share the engine, and these remove and prune images by name.
    """
    with alone(engine, "tiny"):
        yield from _project(tmp_path, engine, monkeypatch)


def _project(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("DOCKER_HOST", engine.host)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "project").mkdir()
    folder = project(tmp_path / "project")
    file = folder / "images" / "tiny" / "Dockerfile"
    file.write_text((folder / "images" / "common.Dockerfile").read_text() + OWN)
    monkeypatch.chdir(folder)
    yield folder
    for name in ("tiny", "mini"):
        made = engine.docker("images", "-q", "--filter", f"label=org.opencontainers.image.title={name}").stdout.split()
        if made:
            engine.docker("rmi", "-f", *set(made))
