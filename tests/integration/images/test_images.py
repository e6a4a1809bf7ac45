"""Building, pushing, checking and removing images, with a real engine and a registry that has bad days."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from launcher.cli import main
from launcher.images import debian
from launcher.images.engine import Engine as Client
from launcher.images.publish import PushFailed, push
from launcher.spec.images import catalogue
from launcher.spec.images.definition import Definition
from tests.integration.images.conftest import Registry, build, flags
from tests.support.engine import Engine
from tests.support.faultproxy import Kind


def test_a_build_tells_its_steps_and_the_second_is_cached(
    root: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(engine) == 0
    first = capsys.readouterr().out
    version = Definition("tiny", root).version(engine.base)
    assert f"tiny:{version}  " in first
    assert "RUN echo built" in first
    assert "COPY source /opt/source" in first
    assert build(engine) == 0
    assert " cached  RUN echo built" in capsys.readouterr().out
    (root / "source" / "main.py").write_text("print(2)\n")
    assert build(engine) == 0
    again = capsys.readouterr().out
    assert " cached  RUN echo built" in again  # what comes before the code is not built again
    assert " cached  COPY source" not in again


def test_verify_compares_an_image_with_the_sources(
    root: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(engine) == 0
    one = Definition("tiny", root)
    engine.docker("tag", f"tiny:{one.version(engine.base)}", "tiny:candidate")
    capsys.readouterr()
    # built on another base than the Dockerfile names, it is not what these sources make
    assert main(["images", "verify", "tiny:candidate"]) == (1 if engine.base else 0)
    assert one.version() in capsys.readouterr().out
    assert main(["images", "verify", "tiny:nowhere"]) == 3
    if engine.base:
        assert main(["images", "verify", engine.base]) == 1
        assert "no labels" in capsys.readouterr().out


def test_a_step_that_fails_is_one_error_and_its_log_is_kept(
    root: Path, engine: Engine, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with (root / "images" / "tiny" / "Dockerfile").open("a") as file:
        file.write("RUN echo first the reason >&2; exit 7\n")
    assert build(engine) == 1
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "RUN echo first the reason" in printed
    assert "7" in printed
    (log,) = (tmp_path / "cache" / "slipway" / "images").glob("*.log")
    assert str(log) in printed
    assert "first the reason" in log.read_text()
    assert not engine.docker("images", "-q", "tiny").stdout


def test_pushed_is_what_the_registry_says_and_goes_into_the_catalogue(
    root: Path, engine: Engine, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(engine, "--push", registry.name) == 0
    entry = catalogue.load(catalogue.path(root))["tiny"]
    version = Definition("tiny", root).version(engine.base)
    assert entry.version == version
    repository, _, digest = entry.reference.partition("@")
    assert repository == f"{registry.name}/tiny"
    link = registry.folder / f"docker/registry/v2/repositories/team/tiny/_manifests/tags/{version}/current/link"
    assert link.read_text() == digest
    capsys.readouterr()
    assert main(["images", "check", "--strict"]) == 0  # the base that it was built on is on record
    assert main(["images", "list"]) == 0
    assert entry.reference in capsys.readouterr().out


def debian_stage(root: Path) -> None:
    """Gives tiny what the real images have: the stage with Debian's packages, and the label."""
    file = root / "images" / "tiny" / "Dockerfile"
    common = (root / "images" / "common.Dockerfile").read_text()
    own = file.read_text().removeprefix(common)
    stages = "FROM common AS packages\nFROM common AS runtime\nFROM scratch AS debian\n"
    stages += "".join(f"COPY --from={name} /var/lib/dpkg/status /{name}\n" for name in debian.LISTS)
    file.write_text(f'{common}{stages}FROM runtime\n{own}ARG DEBIAN=\nLABEL slipway.debian="${{DEBIAN}}"\n')


def test_debians_packages_are_part_of_the_version_that_is_pushed(
    root: Path, engine: Engine, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    debian_stage(root)
    assert build(engine) == 0
    assert "building" in capsys.readouterr().out
    definition = Definition("tiny", root)
    plain = f"tiny:{definition.version(engine.base)}"
    status = engine.docker("run", "--rm", "--network", "none", plain, "cat", "/var/lib/dpkg/status").stdout.encode()
    given = {"DEBIAN": debian.digest(dict.fromkeys(debian.LISTS, status))}
    version = definition.version(engine.base, given)
    image = Client().inspect(f"tiny:{version}")
    assert image["Id"] == Client().inspect(plain)["Id"] == Client().inspect(f"tiny:{definition.version()}")["Id"]
    labels = image["Config"]["Labels"]
    assert labels["slipway.debian"] == given["DEBIAN"]
    assert labels["org.opencontainers.image.version"] == version
    assert not engine.docker("images", "-q", "tiny:debian").stdout

    assert main(["images", "push", "tiny", "--registry", registry.name, *flags(engine)[:2]]) == 0
    entry = catalogue.load(catalogue.path(root))["tiny"]
    assert (entry.version, entry.arguments) == (version, given)
    capsys.readouterr()
    assert main(["images", "check", "--strict"]) == 0
    assert main(["images", "verify", "tiny"]) == 0
    assert main(["images", "verify", plain]) == 0


@pytest.mark.parametrize("kind", [Kind.DROP_BEFORE, Kind.DROP_AFTER, Kind.ERROR_500, Kind.SLOW_DOWN])
def test_a_registry_with_a_bad_moment_gets_the_whole_image_in_the_end(
    root: Path, engine: Engine, registry: Registry, kind: Kind
) -> None:
    assert build(engine) == 0
    registry.proxy.plan(kind, method="PATCH", times=1)
    registry.proxy.plan(kind, method="PUT", key="manifests", times=1)
    assert main(["images", "push", "tiny", "--registry", registry.name, *flags(engine)[:2]]) == 0
    assert registry.proxy.faults(kind)
    assert "tiny" in catalogue.load(catalogue.path(root))


def test_a_registry_that_stays_away_leaves_the_catalogue_as_it_was(
    root: Path, engine: Engine, registry: Registry
) -> None:
    assert build(engine) == 0
    waited: list[float] = []
    tag = f"tiny:{Definition('tiny', root).version(engine.base)}"
    with registry.proxy.outage(), pytest.raises(PushFailed, match="tried 5 times"):
        push(Client(), tag, registry.name, lambda _: None, waited.append)
    assert waited == [1.0, 2.0, 4.0, 8.0]
    with registry.proxy.outage():
        assert catalogue.load(catalogue.path(root)) == {}


def test_a_push_of_what_was_not_built_says_so(
    root: Path, engine: Engine, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["images", "push", "tiny", "--registry", registry.name]) == 3
    assert "there is no image tiny:" in capsys.readouterr().err
    assert not catalogue.path(root).exists()


def test_an_export_is_an_oci_layout_whose_every_blob_is_its_digest(root: Path, engine: Engine, tmp_path: Path) -> None:
    assert build(engine, "--output", str(tmp_path / "out")) == 0
    layout = tmp_path / "out" / "tiny"
    blobs = list((layout / "blobs" / "sha256").iterdir())
    assert all(hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name for blob in blobs)
    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads((layout / "blobs" / "sha256" / entry["digest"].removeprefix("sha256:")).read_text())
    config = json.loads((layout / "blobs/sha256" / manifest["config"]["digest"].removeprefix("sha256:")).read_text())
    assert [layer["digest"] for layer in manifest["layers"]] == config["rootfs"]["diff_ids"]
    assert {entry["digest"], manifest["config"]["digest"], *(one["digest"] for one in manifest["layers"])} == {
        f"sha256:{blob.name}" for blob in blobs
    }
    assert build(engine, "--output", str(tmp_path / "out")) == 1  # there already


def test_prune_removes_the_builds_of_other_sources_under_every_name(
    root: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(engine) == 0
    one = Definition("tiny", root)
    now = one.version()
    built = f"tiny:{one.version(engine.base)}"
    pushed = f"registry.example/team/{built}"
    engine.docker("tag", built, pushed)
    engine.docker("tag", built, "tiny:mine")
    (root / "source" / "main.py").write_text("print(2)\n")
    gone = {f"removed {name}" for name in (built, pushed, f"tiny:{now}")}
    capsys.readouterr()
    assert main(["images", "prune", "--dry-run"]) == 0
    assert set(capsys.readouterr().out.split("\n")) == {line.replace("removed", "would remove") for line in gone} | {""}
    assert main(["images", "prune"]) == 0
    assert set(capsys.readouterr().out.split("\n")) == gone | {""}
    assert engine.docker("images", "--format", "{{.Tag}}", "tiny").stdout.split() == ["mine"]
    assert not engine.docker("images", "-q", "registry.example/team/tiny").stdout
    assert main(["images", "prune"]) == 0
    assert "nothing to remove" in capsys.readouterr().out


def test_prune_goes_on_where_a_container_uses_an_image(
    root: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    tags = []
    for text in ("print(2)\n", "print(3)\n", "print(4)\n"):
        (root / "source" / "main.py").write_text(text)
        assert build(engine) == 0
        one = Definition("tiny", root)
        tags.append({f"tiny:{one.version()}", f"tiny:{one.version(engine.base)}"})
    used = engine.docker("create", min(tags[1]), "true").stdout.strip()
    try:
        capsys.readouterr()
        assert main(["images", "prune"]) == 0
        said = capsys.readouterr().out
        assert all(f"removed {tag}\n" in said for tag in tags[0])
        (kept,) = (line for line in said.split("\n") if line.startswith("kept"))
        assert kept.startswith("kept, because a container uses it: ")
        assert kept.rpartition(" ")[2] in tags[1]
    finally:
        engine.docker("rm", used)


def test_prune_keeps_todays_build_on_whatever_base(
    root: Path, engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(engine) == 0
    assert main(["images", "prune"]) == 0
    assert engine.docker("images", "--format", "{{.Tag}}", "tiny").stdout.split() == [
        Definition("tiny", root).version()
    ]
