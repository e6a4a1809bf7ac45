"""One version is one image: two builds, with nothing cached and other clocks, give one digest."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.images import buildkit
from tests.integration.images.conftest import Registry
from tests.support.engine import ROOT, Engine
from tests.support.image_diff import differences
from tests.support.needs import lacking

pytestmark = [pytest.mark.nightly, pytest.mark.alone, pytest.mark.timeout(7200)]

BUILT = re.compile(r"^(?P<tag>\S+:\S+)  .*  (?P<id>sha256:[0-9a-f]{64})$", re.MULTILINE)


@pytest.fixture
def engine(debian_engine: Engine) -> Engine:
    """Built is what is shipped, on Debian."""
    return debian_engine


@dataclass
class Twice:
    """Builds an image twice, each time with a buildkitd that knows nothing of an earlier build; the second time the
    clock is three days ahead."""

    engine: Engine
    registry: Registry
    base: str
    folder: Path

    def differences(self, name: str, root: Path) -> list[str]:
        """In what the two images of one version differ; empty when they have one digest."""
        tag, first = self._build(name, root, None)
        self.engine.docker("tag", first, f"{name}:first")  # the second build takes the tag
        second = first
        try:
            again, second = self._build(name, root, "+3d")
            assert again == tag
            if first == second:
                return []
            for number, image in enumerate((first, second)):
                self.engine.docker("save", "-o", str(self.folder / f"{number}.tar"), image)
            return differences(self.folder / "0.tar", self.folder / "1.tar")
        finally:
            self.engine.docker("rmi", "-f", first, second, check=False)

    def _build(self, name: str, root: Path, clock: str | None) -> tuple[str, str]:
        """(tag, id)."""
        with (
            tempfile.TemporaryDirectory(prefix="slipway-buildkit-") as folder,  # a socket's path must be short
            buildkit.running(Path(folder), f"127.0.0.1:{self.registry.port}", clock) as kit,
        ):
            command = [str(Path(sys.executable).with_name("launcher")), "images", "build", name]
            command += ["--base", self.base, "--network", "host", "--buildkit", kit.address]
            environment = {**self.engine.environment, "PATH": f"{kit.programs}:{self.engine.environment['PATH']}"}
            done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        print(done.stdout)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr
        match = BUILT.search(done.stdout)
        assert match is not None, done.stdout
        return match["tag"], match["id"]


@pytest.fixture
def twice(engine: Engine, registry: Registry, tmp_path: Path) -> Twice:
    if engine.base is None:
        lacking("root", "to make the image on which these builds stand")
    base = f"127.0.0.1:{registry.port}/base:1"
    for words in (("tag", engine.base, base), ("push", base), ("rmi", base)):
        engine.docker(*words)
    return Twice(engine, registry, base, tmp_path)


def test_a_step_that_writes_the_day_is_named_and_nothing_else(root: Path, twice: Twice) -> None:
    """The clock really is another one, and the comparison sees it."""
    with (root / "images" / "tiny" / "Dockerfile").open("a") as file:
        file.write("RUN date +%F > /etc/today\n")
    lines = [line for line in twice.differences("tiny", root) if not line.startswith("config.rootfs.diff_ids")]
    assert len(lines) == 1
    assert re.fullmatch(r"layer \d+: etc/today: contents \w+ and \w+", lines[0])


def test_files_that_are_made_at_other_times_make_no_difference(root: Path, twice: Twice) -> None:
    with (root / "images" / "tiny" / "Dockerfile").open("a") as file:
        file.write("RUN mkdir /made && date +%s > /dev/null && touch /made/file && ln -s file /made/link\n")
    assert twice.differences("tiny", root) == []


@pytest.mark.parametrize("name", ["waa-vm", "slipway-cpu"])
def test_two_builds_of_one_version_are_one_digest(name: str, twice: Twice) -> None:
    assert twice.differences(name, ROOT) == []
