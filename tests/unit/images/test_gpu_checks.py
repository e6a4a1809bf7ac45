"""images/gpu_checks.py: each check fails without what it is for, and the Dockerfiles run it before an image exists."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from launcher.spec.images.definition import instructions
from tests.support.engine import ROOT

GPU = ("trl-grpo", "unsloth-sft", "vllm-serve")
IMAGES = (*GPU, "linux-desktop", "slipway-cpu", "waa-vm")


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "images"))
    import gpu_checks

    return gpu_checks


def dockerfile(image: str) -> str:
    return (ROOT / "images" / image / "Dockerfile").read_text(encoding="utf-8")


def environment(image: str, stage: str) -> dict[str, str]:
    """The ENV of a stage, with those of the stages under it."""
    stages: dict[str, dict[str, str]] = {}
    name = ""
    for instruction in instructions(dockerfile(image)):
        if instruction.name == "FROM":
            base, _, given = instruction.value.partition(" AS ")
            name = given or "last"
            stages[name] = dict(stages.get(base, {}))
        elif instruction.name == "ENV":
            pairs = re.findall(r'(\w+)=("[^"]*"|\S+)', instruction.value)
            stages[name] |= {key: value.strip('"') for key, value in pairs}
    return stages[stage]


def packages(image: str) -> dict[str, str]:
    lock = (ROOT / "images" / image / "requirements.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", lock, re.MULTILINE))


@pytest.mark.parametrize("image", GPU)
def test_a_build_without_the_checks_leaves_no_image(image: str) -> None:
    """They run in the stage whose bill of materials the image copies; no builder may leave that stage out."""
    steps = list(instructions(dockerfile(image)))
    at = {step.value.partition(" AS ")[2]: number for number, step in enumerate(steps) if step.name == "FROM"}
    runs = [step.value for step in steps[at["bill"] :] if step.name == "RUN"]
    assert re.search(r"gpu_checks\.py +&& .*sbom\.py", runs[0])
    assert any(step.name == "COPY" and step.value.startswith("--from=bill") for step in steps)


@pytest.mark.parametrize("image", GPU)
def test_the_dockerfiles_pass_the_checks_of_variables(image: str, checks: ModuleType) -> None:
    environ = environment(image, "bill")
    checks.caches(environ)
    major = int(packages(image)["nvidia-cuda-runtime"].split(".")[0])
    checks.cuda = lambda: major
    assert checks.driver(environ) == f"CUDA {major} asks for the driver {checks.FLOORS[major]}"
    assert ("vllm" in packages(image)) == (environ.get("VLLM_USE_FLASHINFER_SAMPLER") == "0")


@pytest.mark.parametrize("image", IMAGES)
def test_home_and_caches_of_every_image_can_be_written_with_a_read_only_root(image: str, checks: ModuleType) -> None:
    checks.caches(environment(image, "last"))


@pytest.mark.parametrize("image", IMAGES)
def test_every_image_contains_training_and_evaluation(image: str) -> None:
    copied = [step.value for step in instructions(dockerfile(image)) if step.name == "COPY"]
    for package in ("launcher", "training", "eval"):
        assert f"{package} /opt/slipway/{package}" in copied


@pytest.mark.parametrize("name", ["HOME", "XDG_CACHE_HOME", "TRITON_CACHE_DIR"])
def test_a_cache_on_the_root_file_system_is_refused(checks: ModuleType, name: str) -> None:
    good = {"HOME": "/work", "XDG_CACHE_HOME": "/work/.cache"}
    checks.caches(good)
    with pytest.raises(checks.CheckError, match=rf"^{name} is `/home/slipway`"):
        checks.caches(good | {name: "/home/slipway"})
    with pytest.raises(checks.CheckError, match="HOME is `/workshop`"):
        checks.caches(good | {"HOME": "/workshop"})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"NVIDIA_REQUIRE_CUDA": ""}, "NVIDIA_REQUIRE_CUDA"),
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.8"}, "not `cuda>=13.0`"),
        ({"SLIPWAY_DRIVER_FLOOR": "570"}, "SLIPWAY_DRIVER_FLOOR is not 580"),
        ({"NVIDIA_DRIVER_CAPABILITIES": "utility"}, "lacks compute"),
    ],
)
def test_what_a_host_is_not_told_is_refused(checks: ModuleType, changes: dict[str, str], said: str) -> None:
    good = {
        "NVIDIA_REQUIRE_CUDA": "cuda>=13.0",
        "SLIPWAY_DRIVER_FLOOR": "580",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
    }
    checks.cuda = lambda: 13
    checks.driver(good)
    with pytest.raises(checks.CheckError, match=said):
        checks.driver(good | changes)


@pytest.fixture
def without_vllm() -> Iterator[None]:
    """No vLLM is imported before or after: TRL would take a fake one that stays for an installed one."""

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
            del sys.modules[name]

    forget()
    yield
    forget()


def fake_vllm(folder: Path, monkeypatch: pytest.MonkeyPatch, checks: ModuleType, has_flashinfer: bool) -> None:
    """A vLLM whose has_flashinfer answers as the real one would."""
    package = folder / "vllm" / "utils"
    package.mkdir(parents=True)
    for place in (package, package.parent):
        (place / "__init__.py").touch()
    (package / "flashinfer.py").write_text(f"def has_flashinfer():\n    return {has_flashinfer}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(checks, "version", lambda _: "0.32.0")


@pytest.mark.usefixtures("without_vllm")
def test_a_sampler_that_nothing_could_compile_is_refused(
    checks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_vllm(tmp_path, monkeypatch, checks, has_flashinfer=False)
    with pytest.raises(checks.CheckError, match="VLLM_USE_FLASHINFER_SAMPLER is not 0"):
        checks.sampler({})
    assert "nothing of FlashInfer" in checks.sampler({"VLLM_USE_FLASHINFER_SAMPLER": "0"})


@pytest.mark.usefixtures("without_vllm")
def test_a_compiler_that_comes_by_chance_is_refused(
    checks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an nvcc on the PATH vLLM would compile FlashInfer's other kernels, of which nobody knows that it works."""
    fake_vllm(tmp_path, monkeypatch, checks, has_flashinfer=True)
    with pytest.raises(checks.CheckError, match="takes FlashInfer for usable"):
        checks.sampler({"VLLM_USE_FLASHINFER_SAMPLER": "0"})


def test_an_image_without_deepspeed_has_nothing_to_prove(checks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise checks.PackageNotFoundError(name)

    monkeypatch.setattr(checks, "version", version)
    assert checks.deepspeed() == "no DeepSpeed here"


@pytest.mark.parametrize("image", GPU)
def test_ninja_is_in_every_lock_with_deepspeed(image: str) -> None:
    assert "deepspeed" not in packages(image) or "ninja" in packages(image)


def test_a_missing_library_of_the_network_is_named(checks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(checks.ctypes, "CDLL", load)
    with pytest.raises(checks.CheckError, match="install libibverbs1 and ibverbs-providers"):
        checks.network()


def test_one_line_and_exit_1(
    checks: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checks, "compilers", lambda: "compilers")
    monkeypatch.setattr(checks, "sampler", lambda _: "sampler")
    monkeypatch.setenv("HOME", "/home/slipway")
    assert checks.main() == 1
    said = capsys.readouterr().err
    assert said.startswith("gpu: HOME is `/home/slipway`")
    assert said.count("\n") == 1
    assert os.environ["HOME"] == "/home/slipway"
