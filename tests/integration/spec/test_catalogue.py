"""A newer launcher brings newer images, and computes nothing again that nobody wants again."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.cli import main
from tests.support.releases import NAME, install, reference

JOB = f"""\
name: train
backend: kubernetes
image: {NAME}
command: ['true']
resources: {{memory: 1Gi}}
limits: {{deadline: 1h}}
"""
PROFILE = "store: s3://bucket/runs\nkubernetes: {namespace: ml}\n"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of GitOps; the launcher has the images of 0.1.0."""
    folder = tmp_path / "repository"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "train.yaml").write_text(JOB)
    (folder / "slipway.yaml").write_text(PROFILE)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.chdir(folder)
    install(tmp_path / "packed", monkeypatch, "0.1.0")
    return folder


def render(capsys: pytest.CaptureFixture[str]) -> str:
    """What it says while it writes src/ into jobs/."""
    assert main(["render", "src", "--to", "jobs"]) == 0
    return capsys.readouterr().err


def rendered(repository: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (repository / "jobs").iterdir()}


def test_an_upgrade_changes_no_file_of_gitops_until_the_kept_release_changes(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "slipway.yaml").write_text(f"{PROFILE}catalogue: 0.1.0\n")
    render(capsys)
    before = rendered(repository)
    ((name, body),) = before.items()
    assert f"image: {reference('0.1.0')}".encode() in body

    install(repository.parent / "packed", monkeypatch, "0.1.0", "0.2.0")
    monkeypatch.setattr("launcher.version.__version__", "0.2.0")
    assert render(capsys) == f"jobs/{name}: unchanged\n"
    assert rendered(repository) == before
    assert main(["lint", "--strict", "jobs"]) == 0

    (repository / "slipway.yaml").write_text(f"{PROFILE}catalogue: 0.2.0\n")
    capsys.readouterr()
    said = render(capsys)
    new = rendered(repository)
    assert new.pop(name) == body
    ((other, changed),) = new.items()
    assert f"image: {reference('0.2.0')}".encode() in changed
    told = f"{Path(other).stem} is a new run: nothing differs from {Path(name).stem} but the image of {NAME}"
    assert f"launcher render: {told}; `catalogue: 0.1.0` in slipway.yaml keeps the earlier image\n" in said


def test_where_nobody_keeps_a_release_an_upgrade_says_what_does(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "new run" not in render(capsys)
    before = rendered(repository)
    install(repository.parent / "packed", monkeypatch, "0.1.0", "0.2.0")
    assert "; `catalogue: 0.1.0` in slipway.yaml keeps the earlier image\n" in render(capsys)
    assert len(rendered(repository)) == 2
    # as it says
    for file in set(rendered(repository)) - set(before):
        (repository / "jobs" / file).unlink()
    (repository / "slipway.yaml").write_text(f"{PROFILE}catalogue: 0.1.0\n")
    assert "unchanged" in render(capsys)
    assert rendered(repository) == before


def test_another_job_of_the_same_name_says_nothing(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    render(capsys)
    install(repository.parent / "packed", monkeypatch, "0.1.0", "0.2.0")
    (repository / "src" / "train.yaml").write_text(JOB.replace("'true'", "'false'"))
    assert "new run" not in render(capsys)


def test_init_keeps_the_release_and_leaves_a_profile_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    install(tmp_path / "packed", monkeypatch, "0.1.0")
    assert main(["init"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        "slipway.yaml written: `catalogue: 0.1.0`, the release whose images jobs get"
    )
    install(tmp_path / "packed", monkeypatch, "0.1.0", "0.2.0")
    assert main(["render", "job.yaml", "--backend", "docker", "--set", f"+image={NAME}"]) == 0
    assert reference("0.1.0").partition("@")[2] in capsys.readouterr().out
    written = (tmp_path / "slipway.yaml").read_text()
    assert main(["init", "other.yaml"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert (tmp_path / "slipway.yaml").read_text() == written
    (tmp_path / "slipway.yaml").write_text("backend: local\n")
    assert main(["init", "third.yaml"]) == 0
    told = f"{tmp_path}/slipway.yaml keeps no release of the images: `catalogue: 0.2.0` does"
    assert capsys.readouterr().out.splitlines()[0] == told


def test_images_that_are_bound_to_be_pulled_come_from_the_mirror(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "slipway.yaml").write_text(f"{PROFILE}image_registry: mirror.example:5000/slipway\n")
    render(capsys)
    ((_, body),) = rendered(repository).items()
    assert f"image: {reference('0.1.0', 'mirror.example:5000/slipway')}".encode() in body
    assert main(["render", "src", "--explain"]) == 0
    assert "listed in: the catalogue of 0.1.0" in capsys.readouterr().out
