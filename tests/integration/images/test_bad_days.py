"""Disks that are full, registries that refuse or drop, digests that are not the catalogue's: one error each."""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from launcher.cli import main
from launcher.errors import SlipwayError
from launcher.images.build import BuildStep
from launcher.images.engine import Engine as Client
from launcher.images.publish import PushFailed, push
from launcher.spec.images import catalogue
from launcher.spec.images.catalogue import CatalogueEntry
from launcher.spec.images.definition import Definition
from tests.integration.images.conftest import Mount, Registry, build, flags
from tests.support.engine import Engine, another
from tests.support.faultproxy import Kind

RANDOM = "RUN head -c {size} /dev/urandom > /random\n"  # nothing that compresses


def add(root: Path, text: str) -> None:
    with (root / "images" / "tiny" / "Dockerfile").open("a") as file:
        file.write(text)


def tag(root: Path, engine: Engine) -> str:
    return f"tiny:{Definition('tiny', root).version(engine.base)}"


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1, printed
    return printed


@pytest.fixture
def small_engine(engine: Engine, small_disk: Mount, tmp_path: Path) -> Iterator[Engine]:
    """Another engine, whose whole disk is 300 MB; the base is in it."""
    state = tmp_path / "small"
    small_disk(state / "data", "300m")
    with another(engine, state) as small:
        yield small


def test_a_build_on_a_full_engine_says_so_and_what_to_do(
    root: Path, small_engine: Engine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", small_engine.host)
    add(root, RANDOM.format(size="400M"))
    capsys.readouterr()
    assert build(small_engine, "--push", "127.0.0.1:9/team") == 1
    printed = one_line(capsys)
    assert "no space left on device" in printed
    assert "launcher images prune" in printed
    assert not catalogue.path(root).exists()
    add(root, "RUN rm /random\n")  # the engine still works: the next build fails again, and is no other error
    assert build(small_engine) == 1
    assert "no space left on device" in one_line(capsys)


def test_an_export_onto_a_full_disk_leaves_nothing(
    root: Path, engine: Engine, small_disk: Mount, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_disk(tmp_path / "out", "4m")
    assert build(engine, "--output", str(tmp_path / "out")) == 1
    printed = one_line(capsys)
    assert "No space left on device" in printed
    assert str(tmp_path / "out" / "tiny") in printed
    assert list((tmp_path / "out").iterdir()) == []


def test_a_catalogue_on_a_full_disk_stays_as_it_was(small_disk: Mount, tmp_path: Path) -> None:
    small_disk(tmp_path / "images", "16k")
    file = tmp_path / "images" / "catalogue.yaml"
    entry = CatalogueEntry("0.1.0-00000000", f"registry.example/a@sha256:{'ab' * 32}")
    catalogue.record(file, "a", entry)
    before = file.read_bytes()
    with suppress(OSError), (tmp_path / "images" / "rest").open("wb", buffering=0) as rest:
        while True:
            rest.write(bytes(1024))
    with pytest.raises(SlipwayError, match=r"catalogue.yaml cannot be written: No space left on device"):
        catalogue.record(file, "b", entry)
    assert file.read_bytes() == before
    assert sorted(one.name for one in file.parent.iterdir()) == ["catalogue.yaml", "rest"]


def test_a_log_on_a_full_disk_does_not_end_a_build_and_one_that_can_not_begin_is_one_line(
    root: Path,
    engine: Engine,
    small_disk: Mount,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small_disk(tmp_path / "logs", "16k")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "logs"))
    add(root, "RUN seq 100000\n")
    assert build(engine) == 0
    add(root, "RUN seq 100001; false\n")
    capsys.readouterr()
    assert build(engine) == 1
    assert "not all of it: No space left on device" in one_line(capsys)
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "images" / "tiny" / "Dockerfile"))
    assert build(engine) == 1
    assert "a build's log cannot be written" in one_line(capsys)


@pytest.mark.parametrize("registry", ["https://ghcr.io/team", "ghcr.io/Team", "", "ghcr.io/team:1"])
def test_a_registry_that_is_no_name_is_refused_before_any_engine_is_asked(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], registry: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    capsys.readouterr()
    for words in (["build", "--push", registry], ["push", "--registry", registry]):
        assert main(["images", *words]) == 2
        # an empty word is refused by every verb alike
        said = "allowed: HOST[:PORT][/PATH], the path in lower case" if registry else f"{words[1]} is empty"
        assert said in one_line(capsys)


def test_what_is_pushed_and_recorded_is_what_was_built(
    root: Path, engine: Engine, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody changes a source while it builds."""
    built = tag(root, engine)
    source = root / "source" / "main.py"
    monkeypatch.setattr("launcher.cli.verbs.images._tell", lambda _: source.write_text("print(3)\n"))
    assert build(engine, "--push", registry.name) == 0
    assert tag(root, engine) != built
    entry = catalogue.load(catalogue.path(root))["tiny"]
    assert f"tiny:{entry.version}" == built
    assert Client().digest(f"{registry.name}/tiny:{entry.version}") == Client().digest(
        entry.reference
    )  # by tag, and by digest


def test_an_engine_that_ends_in_the_middle_of_a_build_is_one_error(
    root: Path, small_engine: Engine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", small_engine.host)
    add(root, "RUN echo the last\nRUN sleep 600\n")

    def ends(step: BuildStep) -> None:
        if "the last" in step.text:
            threading.Thread(target=small_engine.stop).start()

    monkeypatch.setattr("launcher.cli.verbs.images._tell", ends)
    capsys.readouterr()
    assert build(small_engine) in (1, 4)  # a step that was ended, or an engine that is away, as it had time to say
    one_line(capsys)


@pytest.mark.nightly  # the engine itself tries for 50 s
def test_a_registry_with_a_full_disk_gets_no_entry_in_the_catalogue(
    root: Path, engine: Engine, small_disk: Mount, tmp_path: Path, registry: Registry
) -> None:
    add(root, RANDOM.format(size="20M"))
    small_disk(registry.folder / "docker", "8m")
    assert build(engine) == 0
    with pytest.raises(PushFailed, match="tried 1 times") as raised:
        push(Client(), tag(root, engine), registry.name, lambda _: None, tries=1)  # the engine tries five times, too
    assert "\n" not in str(raised.value)
    assert not list(registry.folder.glob("docker/registry/v2/repositories/*/*/_manifests/tags/*"))


@pytest.mark.parametrize("registry", ["password"], indirect=True)
def test_a_registry_that_refuses_is_asked_once_and_told_how_to_log_in(
    root: Path, engine: Engine, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(engine) == 0
    catalogue.save(catalogue.path(root), {})
    before = catalogue.path(root).read_bytes()
    capsys.readouterr()
    assert main(["images", "push", "tiny", "--registry", registry.name, *flags(engine)[:2]]) == 4
    printed = one_line(capsys)
    assert "the registry refused" in printed
    assert f"docker login 127.0.0.1:{registry.proxy.port}" in printed
    assert catalogue.path(root).read_bytes() == before


@pytest.mark.parametrize("registry", ["password"], indirect=True)
@pytest.mark.parametrize("helper", [False, True], ids=["config", "helper"])
def test_credentials_come_from_the_docker_configuration_and_its_helpers(
    root: Path,
    engine: Engine,
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    helper: bool,
) -> None:
    host = f"127.0.0.1:{registry.proxy.port}"
    settings: dict[str, object] = {"auths": {host: {"auth": base64.b64encode(b"me:secret-word").decode()}}}
    if helper:
        program = tmp_path / "bin" / "docker-credential-slipwaytest"
        program.parent.mkdir()
        answer = json.dumps({"ServerURL": host, "Username": "me", "Secret": "secret-word"})
        program.write_text(f"#!/bin/sh\ncat > /dev/null\necho '{answer}'\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        settings = {"credHelpers": {host: "slipwaytest"}}
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").write_text(json.dumps(settings))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    assert build(engine, "--push", registry.name) == 0
    assert catalogue.load(catalogue.path(root))["tiny"].reference.startswith(f"{registry.name}/tiny@sha256:")
    assert "secret-word" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("method", "key"), [pytest.param("PATCH", "", marks=pytest.mark.nightly), ("PUT", "manifests")]
)
def test_a_line_that_always_breaks_half_way_leaves_no_tag_and_no_entry(
    root: Path, engine: Engine, registry: Registry, method: str, key: str
) -> None:
    assert build(engine) == 0
    registry.proxy.plan(Kind.DROP_BEFORE, method=method, key=key, times=1000)
    with pytest.raises(PushFailed, match="tried 1 times"):
        push(Client(), tag(root, engine), registry.name, lambda _: None, tries=1)
    assert registry.proxy.faults(Kind.DROP_BEFORE)
    assert not list(registry.folder.glob("docker/registry/v2/repositories/*/*/_manifests/tags/*"))
    assert not catalogue.path(root).exists()


def test_of_two_images_the_one_that_arrived_is_in_the_catalogue(
    root: Path, engine: Engine, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second was never built: its push fails after the first one's."""
    assert build(engine) == 0
    other = root / "images" / "zweite"
    other.mkdir()
    (other / "Dockerfile").write_text((root / "images" / "tiny" / "Dockerfile").read_text())
    assert main(["images", "push", "--registry", registry.name, *flags(engine)[:2]]) == 3
    assert "there is no image zweite:" in one_line(capsys)
    assert set(catalogue.load(catalogue.path(root))) == {"tiny"}


def test_verify_tells_a_digest_that_is_not_the_catalogues(
    root: Path, engine: Engine, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(engine, "--push", registry.name) == 0
    entry = catalogue.load(catalogue.path(root))["tiny"]
    for reference in ("tiny", entry.reference):
        capsys.readouterr()
        assert main(["images", "verify", reference]) == 0
        assert "as the sources here make it" in capsys.readouterr().out
    wrong = f"{registry.name}/tiny@sha256:{'ab' * 32}"
    other = CatalogueEntry(entry.version, wrong, entry.base, entry.arguments)
    catalogue.save(catalogue.path(root), {"tiny": other})
    for reference in ("tiny", entry.reference):
        assert main(["images", "verify", reference]) == 1
        printed = capsys.readouterr().out
        assert "wrong digest" in printed
        assert wrong in printed
    assert main(["images", "verify", wrong]) == 3
    (root / "source" / "main.py").write_text("print(2)\n")
    catalogue.save(catalogue.path(root), {"tiny": entry})
    assert main(["images", "verify", "tiny"]) == 1
    assert "stale" in capsys.readouterr().out
    with registry.proxy.outage():
        assert main(["images", "verify", "tiny"]) == 4


FAKE = """\
#!{python}
import json, pathlib, sys
assert sys.argv[1:5] == ["sbom", "--quiet", "--format", "json"], sys.argv
bill = json.loads(pathlib.Path(sys.argv[5]).read_text())
assert bill["bomFormat"] == "CycloneDX"
one, _, system = bill["components"]
assert system["type"] == "operating-system"
found = {{"VulnerabilityID": "CVE-2026-1", "PkgName": one["name"], "InstalledVersion": one["version"]}}
found |= {{"FixedVersion": "9", "Severity": "{severity}"}}
print(json.dumps({{"Results": [{{"Vulnerabilities": [found]}}]}}))
"""


def test_a_scan_gives_the_scanner_the_images_own_bill_and_stops_a_push(
    root: Path,
    engine: Engine,
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = tmp_path / "bin" / "trivy"
    program.parent.mkdir()
    program.write_text(FAKE.format(python=sys.executable, severity="CRITICAL"))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    system = {"type": "operating-system", "name": "debian", "version": "12"}
    packages = [{"name": "libx", "version": "1"}, {"name": "base-files", "purl": "pkg:deb/debian/base-files@12"}]
    bill = json.dumps({"bomFormat": "CycloneDX", "components": [*packages, system]})
    assert build(engine) == 0
    capsys.readouterr()
    scan = ["images", "scan", "tiny", *flags(engine)[:2]]
    assert main(scan) == 3
    assert "has no bill of materials" in one_line(capsys)
    add(root, f"RUN mkdir -p /opt/slipway && echo '{bill}' > /opt/slipway/sbom.cdx.json\n")
    assert build(engine, "--scan", "--push", registry.name) == 1
    printed = one_line(capsys)
    assert "CVE-2026-1 in libx 1" in printed
    assert not catalogue.path(root).exists()
    assert not registry.proxy.seen
    assert main([*scan, "-o", "json"]) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["severity"], row["id"], row["fixed"]) == ("critical", "CVE-2026-1", "9")
    assert main([*scan, "--fail-on", "never"]) == 0
    assert "1 critical" in capsys.readouterr().out
    program.write_text(FAKE.format(python=sys.executable, severity="HIGH"))
    assert build(engine, "--scan", "--push", registry.name) == 0
    assert "tiny" in catalogue.load(catalogue.path(root))
    capsys.readouterr()
    program.write_text("#!/bin/sh\necho no database >&2\nexit 3\n")
    assert main(scan) == 4
    assert "no database" in one_line(capsys)
    assert engine.docker("ps", "-aq", "--filter", f"ancestor={tag(root, engine)}").stdout == ""


def test_a_variant_does_not_take_the_tag_of_the_image_without_it(root: Path, engine: Engine) -> None:
    add(root, "ARG VARIANT=none\nRUN echo $VARIANT > /variant\n")
    one, variant = Definition("tiny", root), {"VARIANT": "cpu"}
    assert build(engine) == 0
    plain = Client().inspect(f"tiny:{one.version()}")["Id"]
    assert build(engine, "--build-arg", "VARIANT=cpu") == 0
    made = Client().inspect(f"tiny:{one.version(engine.base, variant)}")["Id"]
    assert made != plain
    assert Client().inspect(f"tiny:{one.version()}")["Id"] == plain
    assert Client().inspect(f"tiny:{one.version(None, variant)}")["Id"] == made
