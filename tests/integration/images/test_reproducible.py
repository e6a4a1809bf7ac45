"""One version is one image: two builds, with nothing cached and other clocks, give one digest."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.integration.images import buildkit
from tests.integration.images.conftest import Registry
from tests.support.engine import ROOT, Engine
from tests.support.image_diff import differences

pytestmark = [pytest.mark.nightly, pytest.mark.alone, pytest.mark.timeout(7200)]

BUILT = re.compile(r"^(?P<tag>\S+:\S+)  .*  (?P<id>sha256:[0-9a-f]{64})$", re.MULTILINE)


def built(engine: Engine, registry: Registry, name: str, base: str, clock: str | None) -> tuple[str, str]:
    """(tag, id) of a build by a buildkitd that knows nothing of an earlier one."""
    with (
        tempfile.TemporaryDirectory(prefix="slipway-buildkit-") as folder,  # a socket's path must be short
        buildkit.running(Path(folder), f"127.0.0.1:{registry.port}", clock) as kit,
    ):
        command = [str(Path(sys.executable).with_name("launcher")), "images", "build", name]
        command += ["--base", base, "--network", "host", "--buildkit", kit.address]
        environment = {**engine.environment, "PATH": f"{kit.programs}:{engine.environment['PATH']}"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    match = BUILT.search(done.stdout)
    assert match is not None, done.stdout
    return match["tag"], match["id"]


@pytest.mark.parametrize("name", ["waa-vm", "slipway-cpu"])
def test_two_builds_of_one_version_are_one_digest(
    engine: Engine, registry: Registry, name: str, tmp_path: Path
) -> None:
    if engine.base is None:
        pytest.skip("the tests' base is needed, which is made where root runs them")
    base = f"127.0.0.1:{registry.port}/base:1"
    for words in (("tag", engine.base, base), ("push", base), ("rmi", base)):
        engine.docker(*words)
    tag, first = built(engine, registry, name, base, None)
    try:
        engine.docker("tag", first, f"{name}:first")
        again, second = built(engine, registry, name, base, "+3d")
        assert again == tag
        if first != second:
            for number, image in enumerate((first, second)):
                engine.docker("save", "-o", str(tmp_path / f"{number}.tar"), image)
            pytest.fail("\n".join(differences(tmp_path / "0.tar", tmp_path / "1.tar")), pytrace=False)
    finally:
        engine.docker("rmi", "-f", tag, f"{name}:first", check=False)
