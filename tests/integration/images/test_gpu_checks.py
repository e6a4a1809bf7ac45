"""images/gpu_checks.py: each check fails without what it is for, and the Dockerfiles run it before an image exists."""

from __future__ import annotations

import re
import shutil
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.engine import ROOT
from tests.support.needs import lacking, need


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "images"))
    import gpu_checks

    return gpu_checks


@pytest.mark.parametrize("missing", ["gcc", "g++"])
def test_a_missing_compiler_is_named(
    checks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    need("compilers")
    if not (headers := Path(sysconfig.get_path("include"), "Python.h")).is_file():
        lacking("compilers", f"no {headers}")
    checks.compilers()
    for name in {"gcc", "g++", "as", "ld"} - {missing}:
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(checks.CheckError, match=f"there is no {re.escape(missing)}"):
        checks.compilers()


def test_missing_headers_are_named(checks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("compilers")
    monkeypatch.setattr(checks.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.delenv("CPATH", raising=False)
    with pytest.raises(checks.CheckError, match=r"gcc cannot compile a file with Python's headers: .*Python\.h"):
        checks.compilers()


def fake_deepspeed(folder: Path, monkeypatch: pytest.MonkeyPatch, checks: ModuleType, load: str) -> None:
    """A DeepSpeed whose Adam for the host's memory is loaded by this line, in a process of its own."""
    package = folder / "deepspeed" / "ops" / "op_builder"
    package.mkdir(parents=True)
    for place in (package, package.parent, package.parent.parent):
        (place / "__init__.py").touch()
    (package / "cpu.py").write_text(f"import os\nclass CPUAdamBuilder:\n    def load(self, verbose):\n        {load}\n")
    (folder / "ninja").write_text("#!/bin/sh\n")
    (folder / "ninja").chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(checks, "version", lambda _: "0.19.8")


def test_deepspeed_compiles_in_the_build_what_it_would_compile_at_a_start(
    checks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "assert os.environ['DS_ACCELERATOR'] == 'cpu' and os.path.isdir(os.environ['TORCH_EXTENSIONS_DIR'])"
    fake_deepspeed(tmp_path, monkeypatch, checks, asked)
    said = checks.deepspeed()
    assert said == (
        "DeepSpeed 0.19.8 compiles cpu_adam; without nvcc its file may name no optimizer, no ZeRO++ and no NVMe"
    )
    (tmp_path / "nvcc").symlink_to(tmp_path / "ninja")
    assert checks.deepspeed() == "DeepSpeed 0.19.8 compiles cpu_adam"


def test_a_deepspeed_that_cannot_compile_is_refused(
    checks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_deepspeed(
        tmp_path, monkeypatch, checks, "raise SystemExit('cpu_adam.cpp:1: fatal error: omp.h: No such file')"
    )
    with pytest.raises(checks.CheckError, match=r"DeepSpeed 0\.19\.8 cannot compile cpu_adam: .*omp\.h"):
        checks.deepspeed()
    (tmp_path / "ninja").unlink()
    with pytest.raises(checks.CheckError, match="there is no ninja"):
        checks.deepspeed()
