"""Several images at once through BuildKit, into the same engine as those of its own builder."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from launcher.cli import main
from launcher.images import bake
from launcher.images.engine import Engine as Client
from launcher.spec.images.definition import FOLDER, Definition
from tests.integration.images import buildkit
from tests.integration.images.conftest import Registry
from tests.support.engine import ROOT, Engine
from tests.support.needs import lacking

pytestmark = [pytest.mark.nightly, pytest.mark.alone, pytest.mark.timeout(3000)]

LINE = re.compile(r"(?P<image>\S+) +#\d+ +(?P<took>cached|[0-9.]+ s)  \[(?P<text>.*)")


@pytest.fixture
def engine(debian_engine: Engine) -> Engine:
    """Built is what is shipped, on Debian."""
    return debian_engine


@dataclass
class Meeting:
    """A door that opens once `wanted` have come: builds that wait at it end only if they run at the same time."""

    wanted: int

    def __post_init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError), self.listener:
            inside = [self.listener.accept()[0] for _ in range(self.wanted)]
            for one in inside:
                one.sendall(b"go\n")
                one.close()


@dataclass
class Builder:
    """`flags` make `launcher images build` use it; `base` is what to build on, as it knows it."""

    flags: list[str]
    base: str


@pytest.fixture
def builder(engine: Engine, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    """buildkitd, which takes the base from the registry: it does not see the engine's images."""
    if engine.base is None:
        lacking("root", "to make the image on which these builds stand")
    base = f"127.0.0.1:{registry.port}/base:1"
    engine.docker("tag", engine.base, base)
    engine.docker("push", base)
    engine.docker("rmi", base)
    with (
        tempfile.TemporaryDirectory(prefix="slipway-buildkit-") as folder,  # a socket's path must be short
        buildkit.running(Path(folder), f"127.0.0.1:{registry.port}") as kit,
    ):
        monkeypatch.setenv("PATH", str(kit.programs), prepend=":")
        yield Builder(["--base", base, "--network", "host", "--buildkit", kit.address], base)


def second(root: Path) -> None:
    """Another image beside tiny in the project."""
    shutil.copytree(root / "images" / "tiny", root / "images" / "mini")
    file = root / "images" / "mini" / "Dockerfile"
    file.write_text(file.read_text().replace("images/tiny", "images/mini").replace('title="tiny"', 'title="mini"'))
    (root / "images" / bake.FILE).write_text(bake.bake(root))


def add(root: Path, name: str, text: str) -> None:
    with (root / "images" / name / "Dockerfile").open("a") as file:
        file.write(text)


def test_two_images_are_built_at_the_same_time_and_tell_their_steps(
    root: Path, builder: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    second(root)
    meeting = Meeting(2)
    for name in ("tiny", "mini"):
        wait = f"exec 3<>/dev/tcp/127.0.0.1/{meeting.port} && read -r -u 3 -t 120 word && test $word = go"
        add(root, name, f'RUN ["bash", "-c", "{wait}"]\n')
    assert main(["images", "build", *builder.flags]) == 0
    printed = capsys.readouterr().out
    print(printed)
    steps = [found for line in printed.split("\n") if (found := LINE.fullmatch(line))]
    for name in ("tiny", "mini"):
        waited = [one for one in steps if one["image"] == name and "/dev/tcp" in one["text"]]
        assert [one["took"] == "cached" for one in waited] == [False]
        assert f"{name}:{Definition(name, root).version(builder.base)}  " in printed
    (root / "source" / "main.py").write_text("print(2)\n")  # as long as before
    file = root / "images" / "tiny" / "Dockerfile"
    file.write_text(file.read_text().partition('RUN ["bash"')[0])
    assert main(["images", "build", "tiny", *builder.flags]) == 0
    steps = [found for line in capsys.readouterr().out.split("\n") if (found := LINE.fullmatch(line))]
    took = {one["text"].partition("] ")[2].partition(" ")[0]: one["took"] for one in steps}
    assert took["RUN"] == "cached"
    assert took["COPY"] != "cached"


def test_both_builders_make_the_same_files_in_the_image(root: Path, engine: Engine, builder: Builder) -> None:
    """The context is the same: what is not part of the version is not in the image either."""
    (root / "source" / ".hidden").write_text("not part of it")
    contents = []
    for flags in (builder.flags, ["--base", str(engine.base), "--network", "host"]):
        assert main(["images", "build", "tiny", *flags]) == 0
        tag = f"tiny:{Definition('tiny', root).version(flags[1])}"
        list_all = (
            "cd /opt/source && find . -type f | sort | xargs sha256sum; stat -c '%n %a %u %Y' main.py deep/more.py"
        )
        contents.append(engine.run(tag, "-c", list_all, flags=("--entrypoint", "bash")).stdout)
    assert contents[0] == contents[1]
    assert "main.py" in contents[0]
    assert "hidden" not in contents[0]


def test_of_two_builds_the_one_that_fails_is_one_error_with_its_log_and_the_other_is_there(
    root: Path, builder: Builder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second(root)
    add(root, "mini", 'RUN ["bash", "-c", "echo first the reason >&2; exit 7"]\n')
    capsys.readouterr()
    assert main(["images", "build", *builder.flags]) == 1
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "mini" in printed
    assert "exit code: 7" in printed
    (log,) = (tmp_path / "cache" / "slipway" / "images").iterdir()  # that of the other is gone
    assert str(log) in printed
    assert "first the reason" in log.read_text()
    assert Client().inspect(f"tiny:{Definition('tiny', root).version(builder.base)}")
    assert not Client().images("mini")


def test_a_builder_that_is_not_there_is_one_error(
    root: Path, builder: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*builder.flags[:-1], "unix:///nowhere/buildkitd.sock"]
    assert main(["images", "build", "tiny", *flags]) == 1
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "nowhere/buildkitd.sock" in printed


def buildx(*words: str, cwd: Path) -> str:
    """Its standard output. It is on the PATH with buildctl."""
    done = subprocess.run(["buildx", *words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_buildx_bakes_what_the_file_says(
    root: Path, engine: Engine, builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads every target as we wrote it, this clone's and a small project's; the small one it builds."""
    monkeypatch.setenv("BUILDX_CONFIG", str(tmp_path / "buildx"))
    second(root)
    file = f"{FOLDER}/{bake.FILE}"
    for project in (ROOT, root):
        written = json.loads((project / file).read_text())
        assert (
            json.loads(buildx("bake", "-f", file, "--print", *written["target"], cwd=project))["target"]
            == written["target"]
        )
    buildx("create", "--name", "tests", "--driver", "remote", builder.flags[-1], cwd=root)
    settings = [f"--set=*.args.BASE={builder.base}"]
    settings += [f"--set={name}.output=type=docker,dest={tmp_path / name}.tar" for name in ("tiny", "mini")]
    buildx("bake", "--builder", "tests", "-f", file, *settings, cwd=root)
    for name in ("tiny", "mini"):
        engine.docker("load", "--input", f"{tmp_path / name}.tar")
        assert engine.run(f"{name}:latest", "cat", "/built", "/opt/source/main.py").stdout == "built\nprint(1)\n"


def test_slipway_cpu_and_waa_vm_are_built_at_the_same_time(engine: Engine, builder: Builder) -> None:
    """The real ones, as a process of its own as people run it; each image's steps lie between the other's."""
    command = [str(Path(sys.executable).with_name("launcher")), "images", "build", "slipway-cpu", "waa-vm"]
    done = subprocess.run(
        [*command, *builder.flags], cwd=ROOT, env=engine.environment, capture_output=True, text=True, check=False
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    order = [found["image"] for line in done.stdout.split("\n") if (found := LINE.fullmatch(line))]
    names = ("slipway-cpu", "waa-vm")
    last = {name: max(place for place, one in enumerate(order) if one == name) for name in names}
    assert max(map(order.index, names)) < min(last.values())
    tags = re.findall(r"^((?:slipway-cpu|waa-vm):\S+)  ", done.stdout, re.MULTILINE)
    try:
        assert len(tags) == 2
        for tag in tags:
            assert "The runtime of a Slipway job" in engine.run(tag).stdout
        smoke = engine.run(tags[0], "-m", "smoke", flags=("--entrypoint", "python"))
        assert smoke.stdout.endswith("smoke: passed\n"), smoke.stdout + smoke.stderr
    finally:
        engine.docker("rmi", "-f", *tags)
