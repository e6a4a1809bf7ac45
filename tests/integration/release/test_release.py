"""tools/release.py: what forbids a release, and a whole one that leaves the repository as it was."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from launcher.spec.images import catalogue
from launcher.spec.images.catalogue import CatalogueEntry
from tests.support.needs import marked
from tools import release, site
from tools.release import CHANGELOG, PASSED, ROOT, VERSION_FILE, git

pytestmark = marked("git")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """What may be released as 0.2.0: 0.1.0 is out, CI passed, the changelog says something."""
    root = tmp_path / "root"
    (root / "launcher").mkdir(parents=True)
    (root / VERSION_FILE).write_text('"""The version."""\n\n__version__ = "0.1.0"\n')
    (root / release.known("0.1.0")).parent.mkdir(parents=True)
    (root / release.known("0.1.0")).write_text("{}\n")
    (root / CHANGELOG).write_text("# Changelog\n\n## Unreleased\n\n- New.\n\n## 0.1.0 (2026-11-01)\n\n- First.\n")
    (root / ".gitignore").write_text("build/\n")
    git(root, "init", "-q")
    git(root, "add", "--all")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "one")
    git(root, "tag", "v0.1.0")
    (root / "build").mkdir()
    (root / PASSED).write_text(git(root, "rev-parse", "HEAD") + "\n")
    return root


def test_nothing_forbids_it(repository: Path) -> None:
    assert release.obstacles(repository, "0.2.0") == []
    assert release.obstacles(repository, "0.10.0") == []


def test_each_obstacle_is_one_line_and_the_repository_stays(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / PASSED).write_text("another commit\n")
    (repository / CHANGELOG).write_text("# Changelog\n\n## Unreleased\n\n## 0.1.0 (2026-11-01)\n\n- First.\n")
    (repository / release.known("0.1.0")).unlink()
    head = git(repository, "rev-parse", "HEAD")
    assert release.main(["0.1.0"], repository) == 2
    assert capsys.readouterr().err.splitlines() == [
        "release: version 0.1.0: 0.1.0 is out; allowed: a later one",
        "release: 2 files are not committed, CHANGELOG.md the first: commit them",
        "release: build/ci-passed does not name this commit: run .ci/run here until it passes",
        "release: images/catalogues/0.1.0.yaml is missing: commit the file of the page of 0.1.0",
        "release: CHANGELOG.md: nothing stands under Unreleased",
    ]
    assert (git(repository, "rev-parse", "HEAD"), git(repository, "tag")) == (head, "v0.1.0")


@pytest.mark.parametrize("version", ["1.0", "v1.0.0", "01.0.0", "1.0.0rc1", ""])
def test_a_version_of_another_form_is_refused(
    version: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release.main([version], repository) == 2
    assert capsys.readouterr().err == f"release: version {version}; allowed: MAJOR.MINOR.PATCH, as 0.1.0\n"


def test_version_and_heading_are_written_and_unreleased_is_empty(repository: Path) -> None:
    release.name_it(repository, "0.2.0", "2026-12-01")
    assert '__version__ = "0.2.0"' in (repository / VERSION_FILE).read_text()
    assert (
        (repository / CHANGELOG)
        .read_text()
        .startswith("# Changelog\n\n## Unreleased\n\n## 0.2.0 (2026-12-01)\n\n- New.\n\n## 0.1.0 (2026-11-01)\n")
    )
    assert release.unreleased(repository) == ""


def test_files_that_differ_or_are_missing_are_named(tmp_path: Path) -> None:
    for folder, files in (("a", {"same": "1", "other": "1", "lone": "1"}), ("b", {"same": "1", "other": "2"})):
        (tmp_path / folder).mkdir()
        for name, content in files.items():
            (tmp_path / folder / name).write_text(content)
    assert release.differing(tmp_path / "a", tmp_path / "b") == ["lone", "other"]


def test_the_files_of_a_tag_are_those_of_its_sources(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / VERSION_FILE).write_text('__version__ = "0.2.0"\n')
    git(repository, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-a", "-m", "two")
    git(repository, "tag", "v0.2.0")

    def make(source: Path, version: str, versions: Sequence[str], out: Path) -> None:
        out.mkdir()
        (out / "made").write_text(f"{version} {list(versions)} {(source / VERSION_FILE).read_text()}")

    monkeypatch.setattr(release, "make", make)
    assert release.main(["0.1.0", "--of-tag"], repository) == 0
    made = (repository / "build/release/0.1.0/files/made").read_text()
    assert made == '0.1.0 [\'0.1.0\'] """The version."""\n\n__version__ = "0.1.0"\n'
    assert "made twice, with equal bytes" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"version 0\.3\.0 has no tag; allowed: 0\.2\.0, 0\.1\.0"):
        release.main(["0.3.0", "--of-tag"], repository)


def test_the_wheel_of_a_tag_has_the_catalogue_of_the_images_that_were_built_from_it(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what is built from the tag has none: no circle."""
    entry = CatalogueEntry("0.1.0-00000000", f"registry.example/slipway-cpu@sha256:{'1' * 64}")
    catalogue.save(tmp_path / "made.yaml", {"slipway-cpu": entry})
    seen = []

    def make(source: Path, version: str, versions: Sequence[str], out: Path) -> None:
        out.mkdir()
        seen.append(catalogue.load(source / release.known(version)))
        assert release.known(version) in git(source, "ls-files").splitlines()  # as the wheel takes its files

    monkeypatch.setattr(release, "make", make)
    assert release.main(["0.1.0", "--of-tag", "--catalogue", str(tmp_path / "none.yaml")], repository) == 2
    assert "none.yaml" in capsys.readouterr().err
    assert release.main(["0.1.0", "--of-tag", "--catalogue", str(tmp_path / "made.yaml")], repository) == 0
    assert seen == [{"slipway-cpu": entry}] * 2
    assert catalogue.load(repository / release.known("0.1.0")) == {}


def test_the_site_has_every_version_and_begins_with_the_newest(tmp_path: Path) -> None:
    archives = []
    for version in ("0.10.0", "0.9.0", "0.9.1"):  # a patch may come after a later version
        pages = tmp_path / version
        (pages / version).mkdir(parents=True)
        (pages / version / "index.html").write_text(f"the pages of {version}")
        site.switch(pages, [version])
        files = [path for path in pages.rglob("*") if path.is_file()]
        release.archived(files, pages, f"slipway-docs-{version}", tmp_path)
        archives.append(tmp_path / f"slipway-docs-{version}.tar.gz")
    done = subprocess.run(
        [sys.executable, "-m", "tools.site", tmp_path / "site", *archives], cwd=ROOT, capture_output=True, check=True
    )
    assert done.stdout == b"0.10.0 0.9.1 0.9.0\n"
    listed = json.loads((tmp_path / "site/versions.json").read_text())
    assert [one["version"] for one in listed] == ["0.10.0", "0.9.1", "0.9.0"]
    assert "url=0.10.0/index.html" in (tmp_path / "site/index.html").read_text()
    for version in ("0.10.0", "0.9.0", "0.9.1"):
        assert (tmp_path / "site" / version / "index.html").read_text() == f"the pages of {version}"


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_dry_run_makes_everything_twice_and_changes_nothing(tmp_path: Path) -> None:
    """In a clone of the commit that is checked out, by make."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(ROOT), str(clone))
    before = (git(clone, "rev-parse", "HEAD"), git(clone, "tag"))
    done = subprocess.run(
        ["make", "release", "VERSION=99.0.0", "DRY_RUN=1"], cwd=clone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a release would be refused: build/ci-passed does not name this commit" in done.stderr
    assert (git(clone, "rev-parse", "HEAD"), git(clone, "tag"), git(clone, "status", "--porcelain")) == (*before, "")
    files = clone / "build/release/99.0.0/files"
    assert sorted(file.name for file in files.iterdir()) == [
        "SHA256SUMS",
        "slipway-docs-99.0.0.tar.gz",
        "slipway-k8s-99.0.0.tar.gz",
        "slipway_cua-99.0.0-py3-none-any.whl",
        "slipway_cua-99.0.0.cdx.json",
        "slipway_cua-99.0.0.tar.gz",
    ]
    for line in (files / "SHA256SUMS").read_text().splitlines():
        told, name = line.split("  ")
        assert hashlib.sha256((files / name).read_bytes()).hexdigest() == told
    with tarfile.open(files / "slipway-docs-99.0.0.tar.gz") as site:
        listed = site.extractfile("slipway-docs-99.0.0/versions.json")
        assert listed is not None
        assert json.load(listed)[0]["version"] == "99.0.0"
    bill = json.loads((files / "slipway_cua-99.0.0.cdx.json").read_text())
    assert {"boto3", "torch", "trl"} <= {one["name"] for one in bill["components"]}
