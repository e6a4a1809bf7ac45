"""What `launcher images check` finds, and the catalogue's file."""

from __future__ import annotations

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from launcher.cli import main
from launcher.errors import BadInput
from launcher.images import bake
from launcher.images.checks import check, pins
from launcher.spec.images import catalogue
from launcher.spec.images.catalogue import CatalogueEntry
from launcher.spec.images.definition import copied, select
from tests.support.documented import ROOT
from tests.unit.images.project import BASE, project
from training.options import TrainerConfig

REFERENCE = f"registry.example/slipway/tiny@sha256:{'cd' * 32}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return project(tmp_path)


def pushed(root: Path) -> None:
    (one,) = select(root, [])
    catalogue.save(catalogue.path(root), {"tiny": CatalogueEntry(one.version(), REFERENCE)})


def test_a_pushed_image_of_these_sources_is_fine(root: Path) -> None:
    pushed(root)
    assert check(root) == []


def test_a_changed_source_file_makes_the_entry_stale_and_names_the_image(root: Path) -> None:
    pushed(root)
    (root / "source" / "main.py").write_text("print(2)\n")
    (found,) = check(root)
    assert (found.image, found.fault) == ("tiny", False)
    assert "`launcher images build tiny --push REGISTRY`" in found.text


def test_an_image_that_was_never_pushed_is_said_and_no_fault(root: Path) -> None:
    (found,) = check(root)
    assert (found.image, found.fault) == ("tiny", False)


def test_changed_inputs_of_a_lock_are_a_fault_and_a_changed_comment_is_none(root: Path) -> None:
    pushed(root)
    inputs = root / "images" / "tiny" / "requirements.in"
    inputs.write_text("pyyaml>=6  # another reason\n\n")
    assert check(root) == []
    inputs.write_text("pyyaml>=6.1\n")
    (found,) = check(root)
    assert found.fault
    assert "requirements.lock was not made from requirements.in" in found.text


def test_a_build_of_a_lock_that_is_not_its_inputs_is_refused_before_any_engine_is_asked(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "images" / "tiny" / "requirements.in").write_text("pyyaml>=6.1\n")
    monkeypatch.chdir(root)
    monkeypatch.setitem(os.environ, "DOCKER_HOST", "tcp://127.0.0.1:9")
    assert main(["images", "build", "tiny"]) == 2
    printed = capsys.readouterr().err
    assert "requirements.lock was not made from requirements.in" in printed
    assert "make lock-images" in printed
    assert printed.count("\n") == 1


def test_a_bake_file_of_other_definitions_is_a_fault(root: Path) -> None:
    pushed(root)
    file = root / "images" / bake.FILE
    file.write_text(file.read_text().replace("tiny:latest", "other:latest"))
    (found,) = check(root)
    assert (found.image, found.fault) == (bake.FILE, True)
    assert "python -m launcher.images.bake" in found.text
    file.unlink()
    assert [one.image for one in check(root)] == [bake.FILE]


def test_the_bake_file_has_a_target_for_each_image_and_variant(root: Path) -> None:
    (root / "images" / "tiny" / "requirements-cpu.lock").write_text("")
    made = json.loads(bake.bake(root))
    assert made["group"]["default"]["targets"] == ["tiny"]
    assert made["target"]["tiny"]["args"] == {"BASE": BASE, "SOURCE_DATE_EPOCH": "7"}
    assert made["target"]["tiny-cpu"]["args"] == {"BASE": BASE, "SOURCE_DATE_EPOCH": "7", "VARIANT": "cpu"}
    assert all((root / one["context"] / one["dockerfile"]).is_file() for one in made["target"].values())


def test_the_bake_file_of_this_clone_is_what_its_definitions_make() -> None:
    """After a change: `python -m launcher.images.bake`."""
    assert bake.differs(Path(__file__).parents[3]) is None


def test_an_entry_built_on_another_base_is_compared_with_such_a_build(root: Path) -> None:
    (one,) = select(root, [])
    entry = CatalogueEntry(one.version("mine:1", {"VARIANT": "cpu"}), REFERENCE, "mine:1", {"VARIANT": "cpu"})
    catalogue.save(catalogue.path(root), {"tiny": entry})
    assert catalogue.load(catalogue.path(root)) == {"tiny": entry}
    assert check(root) == []
    (root / "source" / "main.py").write_text("print(2)\n")
    (found,) = check(root)
    assert "stale" in found.text


def test_another_common_block_is_a_fault(root: Path) -> None:
    (root / "images" / "common.Dockerfile").write_text("FROM other\n")
    (found,) = check(root)
    assert found.fault
    assert "common.Dockerfile" in found.text


def test_a_project_without_a_common_block_is_a_fault_and_no_traceback(root: Path) -> None:
    (root / "images" / "common.Dockerfile").unlink()
    (finding,) = [one for one in check(root) if one.fault]
    assert (finding.image, finding.text.partition(",")[0]) == ("tiny", "there is no images/common.Dockerfile")


def test_what_several_record_at_once_is_all_there(root: Path) -> None:
    file = catalogue.path(root)
    names = [f"image-{number}" for number in range(24)]
    entry = CatalogueEntry("0.1.0-00000000", REFERENCE)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: catalogue.record(file, name, entry), names))
    assert set(catalogue.load(file)) == set(names)


def test_an_entry_without_an_image_is_a_fault(root: Path) -> None:
    pushed(root)
    file = catalogue.path(root)
    catalogue.save(file, {**catalogue.load(file), "gone": CatalogueEntry("0.1.0-00000000", REFERENCE)})
    assert [(one.image, one.fault) for one in check(root)] == [("gone", True)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tiny: {version: 0.1.0-12345678, reference: registry/tiny:latest}", "tiny.reference"),
        (f"tiny: {{version: one, reference: {REFERENCE!r}}}", "tiny.version"),
        ("tiny: 3", "NAME: {version, reference, base, arguments}"),
        ("tiny: {version: 0.1.0-12345678, reference: a, more: 1}", "more"),
        ("{", "catalogue.yaml"),
    ],
)
def test_a_broken_catalogue_is_one_line(root: Path, text: str, says: str) -> None:
    catalogue.path(root).write_text(text)
    with pytest.raises(BadInput, match=says) as raised:
        check(root)
    assert "\n" not in str(raised.value)


def test_equal_catalogues_are_equal_bytes(root: Path) -> None:
    file = catalogue.path(root)
    entries = {name: CatalogueEntry("0.1.0-00000000", REFERENCE) for name in ("b", "a")}
    catalogue.save(file, entries)
    first = file.read_bytes()
    catalogue.save(file, dict(reversed(entries.items())))
    assert file.read_bytes() == first
    assert catalogue.load(file) == entries


def test_the_verbs_exit_codes(root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    assert main(["images", "check"]) == 0
    assert main(["images", "check", "--strict"]) == 1
    assert main(["images", "list"]) == 0
    assert "not pushed" in capsys.readouterr().out
    assert main(["images", "verify", "tiny"]) == 3
    assert "tiny is not in the catalogue" in capsys.readouterr().err
    assert main(["images", "build", "tiyn"]) == 2
    assert "did you mean `tiny`" in capsys.readouterr().err
    assert main(["images", "build", "--build-arg", "X"]) == 2
    # not a unix socket: the SDK leaves one open that it could not connect
    monkeypatch.setitem(os.environ, "DOCKER_HOST", "tcp://127.0.0.1:9")
    capsys.readouterr()
    assert main(["images", "build"]) == 4
    printed = capsys.readouterr().err
    assert "there is no Docker engine" in printed
    assert printed.count("\n") == 1


def test_a_job_that_names_an_image_gets_the_catalogues_digest(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed(root)
    (root / "job.yaml").write_text("name: hello\nimage: tiny\ncommand: ['true']\nlimits: {deadline: 1h}\n")
    monkeypatch.chdir(root)
    assert main(["render", "job.yaml", "--backend", "docker", "--store", "s3://bucket/x"]) == 0
    assert f"digest: sha256:{'cd' * 32}" in capsys.readouterr().out
    assert main(["render", "job.yaml", "--backend", "docker", "--store", "s3://bucket/x", "--explain"]) == 0
    assert "images/catalogue.yaml" in capsys.readouterr().out


def test_a_profile_overrides_the_catalogue(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed(root)
    mine = f"mine.example/tiny@sha256:{'ef' * 32}"
    (root / "slipway.yaml").write_text(f"images: {{tiny: {mine!r}}}\n")
    (root / "job.yaml").write_text("name: hello\nimage: tiny\ncommand: ['true']\n")
    monkeypatch.chdir(root)
    assert main(["render", "job.yaml", "--backend", "docker", "--store", "s3://bucket/x"]) == 0
    assert f"digest: sha256:{'ef' * 32}" in capsys.readouterr().out


@pytest.mark.parametrize("image", ["trl-grpo", "unsloth-sft"])
def test_what_trainings_options_offer_is_in_the_locks_of_the_images_that_a_refusal_names(image: str) -> None:
    """`report_to` and `deepspeed`; mlflow-skinny is MLflow's client."""
    (offered,) = get_args(get_type_hints(TrainerConfig)["report_to"])
    packages = {"mlflow-skinny" if name == "mlflow" else name for name in get_args(offered)} | {"deepspeed"}
    assert len(packages) == 5
    locked = (ROOT / "images" / image / "requirements.lock").read_text(encoding="utf-8")
    assert packages <= set(re.findall(r"^([\w-]+)==", locked, re.MULTILINE))


@pytest.mark.parametrize(
    ("pins", "refused"),
    [
        ("cuda-bindings==13.5.0 \\\ncuda-python==12.6.2.post1 \\\n", True),  # vllm-serve's lock of 2026-11-21
        ("cuda-bindings==13.4.4 \\\ncuda-python==13.4.4 \\\n", False),
        ("cuda-bindings==13.5.0 \\\n", False),
        ("opencv-python==5.0.0 \\\nopencv-python-headless==5.0.0 \\\n", True),
    ],
)
def test_a_lock_whose_packages_write_the_same_files_is_a_fault(root: Path, pins: str, refused: bool) -> None:
    pushed(root)
    lock = root / "images" / "tiny" / "requirements.lock"
    lock.write_text(f"{lock.read_text()}{pins}")
    faults = [one.text for one in check(root) if one.fault]
    assert bool(faults) is refused
    if refused:
        assert "write the same files with other bytes" in faults[0]
        assert "requirements.in" in faults[0]


@pytest.mark.parametrize(
    ("torch", "audio", "fits"),
    [
        # the compatibility matrix of docs.pytorch.org/audio/2.11.0/installation.html
        ("2.13.0", "2.11.0", True),
        ("2.11.0", "2.11.0", True),
        ("2.10.0", "2.10.0", True),
        ("2.7.1+cu126", "2.7.0", True),
        ("2.10.0", "2.11.0", False),
        ("2.11.0", "2.10.0", False),
        ("2.13.0", "2.9.1", False),
    ],
)
def test_a_lock_whose_torchaudio_was_built_for_another_torch_is_a_fault(
    root: Path, torch: str, audio: str, fits: bool
) -> None:
    pushed(root)
    lock = root / "images" / "tiny" / "requirements.lock"
    lock.write_text(f"{lock.read_text()}torch=={torch} \\\ntorchaudio=={audio} \\\n")
    faults = [one.text for one in check(root) if one.fault]
    assert bool(faults) is not fits
    if not fits:
        assert f"torchaudio {audio} does not work with torch {torch}" in faults[0]
        assert "requirements.in" in faults[0]


# What the wheels' METADATA say: vLLM -> (transformers from, below). Releases before 0.31 have no upper bound, and a
# resolver that may choose goes back to one of them.
CAPS = {"0.31.0": ("5.10.4", "5.18.0"), "0.32.0": ("5.16.1", "5.20.0")}
TRL_VLLM = ("0.22.0", "0.31.0")  # trl 1.16.0, trl/import_utils.py: the versions of vLLM that it supports


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def test_the_locks_vllm_and_transformers_are_within_the_bounds_of_newer_releases() -> None:
    """Not within none: vLLM 0.30 has no bound, and ended at its start with the transformers that a resolver took."""
    for name in ("trl-grpo", "vllm-serve"):
        locked = pins(ROOT / "images" / name / "requirements.lock")
        assert locked["vllm"] in CAPS, f"{name}: look up which transformers vLLM {locked['vllm']} allows"
        for release in {locked["vllm"], max(CAPS, key=number)}:
            first, below = CAPS[release]
            assert number(first) <= number(locked["transformers"]) < number(below), (name, release)
    locked = pins(ROOT / "images" / "trl-grpo" / "requirements.lock")
    assert locked["trl"] == "1.16.0"
    assert number(TRL_VLLM[0]) <= number(locked["vllm"]) <= number(TRL_VLLM[1])


def test_every_image_with_packages_looks_at_their_records() -> None:
    for dockerfile in (ROOT / "images").glob("*/Dockerfile"):
        text = dockerfile.read_text()
        assert text.count("uv pip sync") == text.count("records.py /opt/venv") >= 1, dockerfile


def test_a_plain_docker_build_gets_what_the_dockerfiles_copy_and_no_more() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    wanted = {path for file in (ROOT / "images").glob("*/Dockerfile") for path in copied(file.read_text(), str(file))}
    assert "*" in lines
    assert [path for path in sorted(wanted) if not any(f"{path}/".startswith(f"{one}/") for one in allowed)] == []
    assert [one for one in sorted(allowed) if not any(f"{path}/".startswith(f"{one}/") for path in wanted)] == []
