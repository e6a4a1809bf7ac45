"""The wheel and the sdist are whole: what is said to a user without a clone works from them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from launcher.spec.code.environment import source_files
from launcher.spec.images.definition import Definition, names
from tests.support import installed
from tests.support.documented import ROOT, tracked
from tools import wheel

TREES = ("examples", "images", "k8s")


@pytest.fixture(scope="module")
def venv() -> Path:
    return installed.environment(extras=False)


@pytest.fixture
def empty(venv: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_built_again_it_has_equal_bytes_whatever_the_umask(venv: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in (venv.parent / "dist").iterdir()}
    done = subprocess.run(
        ["bash", "-c", 'umask 077; exec "$0" -m tools.wheel "$1"', sys.executable, str(tmp_path)], cwd=ROOT, check=False
    )
    assert done.returncode == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert len(before) == 2


def test_a_wheel_of_the_sdist_is_the_wheel(venv: Path, tmp_path: Path) -> None:
    """Who installs from the sdist gets the same."""
    (archive,) = (venv.parent / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    built = wheel.build("wheel", source, tmp_path / "out")
    (ours,) = (venv.parent / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as one, zipfile.ZipFile(ours) as other:
        assert set(one.namelist()) == set(other.namelist())
        for name in one.namelist():
            if not name.endswith("/RECORD"):
                assert one.read(name) == other.read(name), name


def test_it_holds_every_tracked_file_of_the_trees(venv: Path) -> None:
    (site,) = venv.glob("lib/python*/site-packages")
    for path in tracked(*TREES, "docs/*.md"):
        name = path.relative_to(ROOT)
        packed = site / "launcher" / "packed" / name
        assert packed.read_bytes() == path.read_bytes(), name
        assert bool(packed.stat().st_mode & 0o100) == bool(path.stat().st_mode & 0o100), name


def test_its_images_are_those_of_the_clone(venv: Path, empty: Path) -> None:
    """Equal versions: a job names the same image, whoever submits it, and `images build` gets the same context."""
    done = installed.run("launcher images list -o json", venv, empty)
    assert done.returncode == 0, done.stderr
    versions = {row["name"]: row["version"] for row in json.loads(done.stdout)}
    assert versions == {name: Definition(name, ROOT).version() for name in names(ROOT)}
    assert len(versions) > 5
    checked = installed.run("launcher images check", venv, empty)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_machines_get_the_sources_of_the_clone(venv: Path, empty: Path) -> None:
    """What the wheel packs beside them is no part of a run's environment: its name would differ from the clone's."""
    program = (
        "from launcher.spec.code.environment import package_folder, source_files\n"
        "for name in ('launcher', 'training', 'eval'):\n"
        "    folder = package_folder(name)\n"
        "    print(*(f'{name}/{path.relative_to(folder)}' for path in source_files(folder)), sep='\\n')"
    )
    done = installed.run(f"python -c {shlex.quote(program)}", venv, empty)
    ours = [source_files(ROOT / name) for name in ("launcher", "training", "eval")]
    assert done.stdout.split() == [str(path.relative_to(ROOT)) for paths in ours for path in paths], done.stderr


def test_a_cluster_is_made_of_its_own_tree(venv: Path, empty: Path) -> None:
    program = (
        "from pathlib import Path; from launcher.cluster.files import CONFIG, tree\n"
        "root = tree(Path.cwd())\n"
        "print(root.parent.name, (root / CONFIG).is_file(), (root / 'k8s/overlays/kind/reaper').is_dir())"
    )
    done = installed.run(f"python -c {shlex.quote(program)}", venv, empty)
    assert done.stdout.split() == ["launcher", "True", "True"], done.stderr
    asked = installed.run("launcher cluster up", venv, empty)
    assert "no k8s/kind" not in asked.stderr, asked.stderr


def test_each_example_is_listed_with_its_purpose_and_copied_whole(venv: Path, empty: Path) -> None:
    listed = installed.run("launcher init --example list -o json", venv, empty)
    rows = {row["example"]: row["what it does"] for row in json.loads(listed.stdout)}
    assert set(rows) == {path.name for path in (ROOT / "examples").iterdir() if path.is_dir()}
    assert all(rows.values()), rows
    for name in rows:
        done = installed.run(f"launcher init --example {name}", venv, empty)
        assert done.returncode == 0, done.stderr
    copied = {path.relative_to(empty) for path in empty.rglob("*") if path.is_file()}
    assert copied == {path.relative_to(ROOT) for path in tracked("examples")} - {Path("examples/README.md")}
    again = installed.run("launcher init --example hello", venv, empty)
    assert again.returncode == 5
    assert "nothing was written" in again.stderr
    wrong = installed.run("launcher init --example helo", venv, empty)
    assert wrong.returncode == 2
    assert "did you mean `hello`" in wrong.stderr


def test_a_page_that_a_message_names_is_there(venv: Path, empty: Path) -> None:
    assert installed.run("launcher init", venv, empty).returncode == 0
    (page,) = re.findall(r"Every field: (\S+\.md),", (empty / "job.yaml").read_text())
    assert Path(page).read_bytes() == (ROOT / "docs/reference/job.md").read_bytes()


def test_the_starter_runs_with_four_dependencies(venv: Path, empty: Path) -> None:
    done = installed.run("launcher init && launcher submit job.yaml --follow", venv, empty)
    installed.run("launcher local stop --runs", venv, empty)
    assert done.returncode == 0, done.stdout + done.stderr
    assert installed.BASE == ("boto3", "msgspec", "obstore", "pyyaml")


def test_a_submit_says_which_packages_the_commands_python_lacks(venv: Path, empty: Path) -> None:
    """Before anything is queued, and not a run that fails with a traceback."""
    assert installed.run("launcher init --example login", venv, empty).returncode == 0
    done = installed.run("launcher submit examples/login --backend local --dry-run", venv, empty)
    assert done.returncode == 2, done.stderr
    assert re.search(r"`training\.sft` needs the Python packages PIL, torch, transformers, which \S+", done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.ci
def test_with_a_catalogue_its_jobs_get_the_images_of_the_release_by_digest(tmp_path: Path) -> None:
    """As the release's workflow makes it: from the tag's sources and the catalogue of the images built from them."""
    clone, digest = tmp_path / "clone", f"sha256:{'7' * 64}"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    file = clone / "images" / "catalogues" / "0.1.0.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"slipway-cpu: {{version: 0.1.0-00000000, reference: 'registry.example/slipway-cpu@{digest}'}}\n")
    subprocess.run(["git", "add", "images"], cwd=clone, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "tools.wheel", str(tmp_path / "dist")],
        cwd=clone, env={**os.environ, "PYTHONPATH": str(clone)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (made,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "work").mkdir()
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path)}
    for words in (
        ["init", "job.yaml"],
        ["render", "job.yaml", "--backend", "kubernetes", "--store", "s3://bucket/runs", "--set", "+image=slipway-cpu"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "launcher.cli", *words],
            cwd=tmp_path / "work", env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert f"image: registry.example/slipway-cpu@{digest}\n" in done.stdout
    assert "catalogue: 0.1.0\n" in (tmp_path / "work" / "slipway.yaml").read_text()
