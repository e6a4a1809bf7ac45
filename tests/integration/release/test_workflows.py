"""actionlint and zizmor find nothing in .github, and would. The release builds the images that can be built."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from launcher.images import lock
from launcher.spec.images.definition import names
from tests.support.needs import marked
from tools.release import ROOT


def architectures() -> dict[str, list[str]]:
    """Processor -> the images that the workflow builds."""
    text = (ROOT / ".github/workflows/release.yaml").read_text(encoding="utf-8")
    included = yaml.safe_load(text)["jobs"]["images"]["strategy"]["matrix"]["include"]
    return {each["processor"]: each["images"].split() for each in included}


def arm64() -> list[str]:
    """The images of which the page says that they are there for arm64."""
    page = (ROOT / "docs/howto/images.md").read_text(encoding="utf-8").partition("\n## arm64\n")[2]
    return re.findall(r"^\| ([a-z-]+) \| yes", page.partition("\n## ")[0], re.MULTILINE)


def test_the_workflow_builds_every_image_and_for_arm64_those_of_the_page() -> None:
    assert architectures() == {"amd64": names(ROOT), "arm64": arm64()}


@pytest.mark.nightly
def test_the_locks_of_the_images_for_arm64_can_be_installed_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asks the package index."""
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{ROOT / '.tools/uv/bin'}")  # as the Makefile finds it
    assert lock.main(["--check", "aarch64-manylinux_2_36", *arm64()]) in (0, 1)
    told = capsys.readouterr().out.splitlines()
    assert [line for line in told if line.endswith(": fits")] == [
        f"{name}: requirements.lock: fits" for name in arm64()
    ]
    assert lock.main(["--check", "aarch64-manylinux_2_36", "unsloth-sft"]) == 1
    assert "xformers" in capsys.readouterr().out
    assert lock.unfit_for(ROOT / "requirements.lock", "aarch64-manylinux_2_36") == ""  # with which the images are built


@marked("go")
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_both_linters_are_green_and_each_finds_what_is_wrong(tmp_path: Path) -> None:
    done = subprocess.run(["make", "lint-workflows"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    file = tmp_path / "release.yaml"
    shutil.copy(ROOT / ".github/workflows/release.yaml", file)
    text = file.read_text(encoding="utf-8").replace("persist-credentials: false, ", "")
    file.write_text(text.replace("needs: [files, provenance]", "needs: [files, pictures]"), encoding="utf-8")
    for linter, said in (
        ([".tools/bin/actionlint"], 'needs job "pictures" which does not exist'),
        ([".venv-lint/bin/zizmor", "-q", "--offline"], "artipacked"),
    ):
        found = subprocess.run([*linter, file], cwd=ROOT, capture_output=True, text=True, check=False)
        assert found.returncode != 0
        assert said in found.stdout + found.stderr
