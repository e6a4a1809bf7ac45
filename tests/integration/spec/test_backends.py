"""The table of backends: who may know a backend's name, and backends of other distributions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.outside import install
from tests.unit.spec.test_backends import JOB, launcher


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(JOB % "fast")
    return tmp_path


def test_an_installed_backend_is_rendered_and_its_options_are_checked(folder: Path) -> None:
    path = install(folder / "site")
    rendered = launcher(folder, "render", "job.yaml", path=path)
    assert rendered.returncode == 0, rendered.stderr
    assert "backend: elsewhere" in rendered.stdout
    assert "speed: fast" in rendered.stdout
    assert "speed" not in launcher(folder, "render", "job.yaml", "--set", "elsewhere.speed=slow", path=path).stdout
    assert "how fast it goes" in launcher(folder, "schema", "elsewhere.speed", path=path).stdout
    (folder / "job.yaml").write_text(JOB % "light")
    wrong = launcher(folder, "render", "job.yaml", path=path)
    assert wrong.returncode == 2
    said = "job.yaml:4:20: elsewhere.speed: `light` is not known; allowed: slow, fast"
    assert wrong.stderr == f"launcher render: {said}\n"


def test_doctor_asks_every_backend_of_the_table_not_only_ours(folder: Path) -> None:
    """A backend without checks of its own gets one line: whether it loads."""
    (folder / "slipway.yaml").write_text("store: here\nbackend: elsewhere\n")
    done = launcher(folder, "doctor", "-o", "json", path=install(folder / "site"))
    lines = {line["check"]: line for line in json.loads(done.stdout)}
    assert lines["local"]["state"] == "ok"
    assert (lines["elsewhere"]["state"], done.returncode) == ("ok", 0), done.stdout


def test_without_its_distribution_the_job_is_refused_with_those_that_exist(folder: Path) -> None:
    done = launcher(folder, "render", "job.yaml", path=None)
    assert done.returncode == 2
    allowed = "allowed: local, docker, kubernetes, lambda, azureml"
    assert f"job.yaml:3:10: backend: `elsewhere` is not known; {allowed}" in done.stderr


@pytest.mark.parametrize(
    ("name", "target", "said"),
    [
        ("elsewhere", "slipway_elsewhere:NOTHING", "`slipway_elsewhere:NOTHING` cannot be loaded"),
        ("elsewhere", "slipway_elsewhere:make", "`make` is not a launcher.spec.backends.Traits"),
        ("elsewhere", "no_such_module:TRAITS", "No module named 'no_such_module'"),
        ("local", "slipway_elsewhere:TRAITS", "there is a backend of this name"),
        ("Else_where", "slipway_elsewhere:TRAITS", "its name is not allowed"),
        ("env", "slipway_elsewhere:TRAITS", "a field of a job has this name"),
    ],
)
def test_a_broken_distribution_is_one_error_that_names_it(folder: Path, name: str, target: str, said: str) -> None:
    done = launcher(folder, "render", "job.yaml", path=install(folder / "site", name=name, target=target))
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert f"`{name}`" in line
    assert said in line
