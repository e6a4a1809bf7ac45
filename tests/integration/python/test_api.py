"""The functions of `launcher` as a script or a notebook calls them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import launcher
from launcher.errors import BadInput, Conflict, NotFound, SlipwayError
from launcher.spec.model import Output
from launcher.store.base import Store
from tests.support.fakerun import FakeAttempt, Pipeline, fake_job, login_pipeline, write_run

ROOT = Path(__file__).resolve().parents[3]
FUNCTIONS = ("load", "render", "submit", "status", "wait", "results", "gather", "cancel", "logs")


def script() -> str:
    """The page's Python, as it stands."""
    text = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


def python(folder: Path, *arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLIPWAY_", "XDG_"))}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**kept, "HOME": str(folder), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        input=given,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    python(tmp_path, "-m", "launcher.cli", "local", "stop")


@pytest.fixture
def environment(tmp_path: Path, file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_STORE", file_store.url)
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def pipeline(environment: None, file_store: Store) -> Pipeline:
    return login_pipeline(file_store, n=30)


def test_the_script_of_the_page_runs_as_it_stands(home: Path) -> None:
    done = python(home, "-", given=script())
    assert done.returncode == 0, done.stderr
    table = [line.split()[:2] for line in done.stdout.splitlines() if re.match(r" +0\.", line)]
    assert table == [["0.03", "0.1000"], ["0.01", "0.1004"], ["0.1", "0.1049"]]
    again = python(home, "-", given=script())
    assert again.returncode == 0, again.stderr
    runs = json.loads(python(home, "-m", "launcher.cli", "status", "-o", "json").stdout)
    assert len(runs) == 3


@pytest.mark.ci
def test_the_page_is_typed(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text(script() + "\nreveal_type(submit(jobs))\nreveal_type(status(jobs))\n")
    cache = ["--cache-dir", str(ROOT / ".mypy_cache")]
    done = python(ROOT, "-m", "mypy", "--strict", *cache, "--config-file", os.devnull, str(tmp_path / "page.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'list[launcher.verbs.submit_steps.Submitted]"' in done.stdout
    assert 'list[launcher.verbs.status.Line]"' in done.stdout


def test_importing_is_light(tmp_path: Path) -> None:
    code = "import sys, launcher; print([name for name in sys.modules if name.startswith('launcher')])"
    assert python(tmp_path, "-c", code).stdout.strip() == "['launcher']"
    heavy = "import sys\nfrom launcher import load, Jobs\nprint([n for n in ('obstore', 'boto3') if n in sys.modules])"
    assert python(tmp_path, "-c", heavy).stdout.strip() == "[]"


def test_a_function_stays_one_whatever_was_imported_before(tmp_path: Path) -> None:
    """A package in here has the name of a function, and modules below have those of others."""
    modules = "import launcher.results.rows, launcher.verbs.status, launcher.verbs.gather, launcher.store.logs\n"
    check = f"import launcher, inspect\nassert all(inspect.isfunction(getattr(launcher, n)) for n in {FUNCTIONS!r})\n"
    uses = "from launcher.verbs.status import Line\nfrom launcher.verbs.submit import Submitted\n"
    for code in (modules + check + uses, check + modules + check + uses):
        done = python(tmp_path, "-W", "error", "-c", code)
        assert done.returncode == 0, done.stderr


def test_everything_is_documented_and_listed() -> None:
    assert set(FUNCTIONS) < set(launcher.__all__) <= set(dir(launcher))
    for name in launcher.__all__:
        assert getattr(launcher, name).__doc__, name
    with pytest.raises(AttributeError):
        _ = launcher.nothing  # type: ignore[attr-defined]


def test_readers(pipeline: Pipeline, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert [line.run for line in launcher.status(pipeline.group)] == [
        pipeline.data,
        pipeline.before,
        pipeline.sft,
        pipeline.after,
    ]
    assert len(launcher.status()) == 4
    assert launcher.status(labels={"no": None}) == []
    assert [line.name for line in launcher.status(["sft", pipeline.data], states=["succeeded"])] == ["sft", "episodes"]
    assert {row["metric"] for row in launcher.results([pipeline.before, pipeline.after])} == {"success"}
    assert [line.final for line in launcher.wait(pipeline.group, timeout=0)] == [True] * 4
    assert list(launcher.logs(pipeline.before)) == ["loading the model", "100 episodes"]
    (copied,) = launcher.gather(pipeline.after, tmp_path / "to", what=["results"])
    assert copied.error is None
    assert (tmp_path / "to" / pipeline.after / "outputs" / "results" / "summary.json").exists()
    assert capfd.readouterr() == ("", "")  # nothing prints


def test_what_is_wrong_is_raised(pipeline: Pipeline, file_store: Store, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotFound, match="no run, group or job"):
        launcher.status("nothing")
    with pytest.raises(BadInput, match="name: "):
        launcher.load({"name": "No Name", "command": ["x"]})
    with pytest.raises(BadInput, match="no such file"):
        launcher.load("nowhere.yaml")
    with pytest.raises(BadInput, match="cwd: /nonexistent is not a folder"):
        launcher.status(cwd="/nonexistent")
    with pytest.raises(BadInput, match="the key 0 is not a text"):
        launcher.load({"name": "x", "command": ["x"], "config": {"id2label": {0: "a"}}})
    with pytest.raises(BadInput, match="did you mean"):
        launcher.load({"name": "x", "command": ["x"]}, backend="locla")
    with pytest.raises(BadInput, match="4 runs and this verb takes one"):
        launcher.logs(pipeline.group)
    with pytest.raises(NotFound, match="has no member"):
        list(launcher.logs(pipeline.sft, role="other"))
    with pytest.raises(SlipwayError):
        launcher.results("nothing", store="s3:/x")
    waiting = write_run(file_store, fake_job("waiting", outputs={"out": Output()}), [], outcome=None)
    with pytest.raises(NotFound, match="has not begun"):
        list(launcher.logs(waiting))
    assert issubclass(Conflict, SlipwayError)
    assert capfd.readouterr() == ("", "")


def test_logs_are_lines_across_pieces(environment: None, file_store: Store) -> None:
    pieces = {"main-0": {0: b"one\ntw", 6: b"o\n\xff", 9: b"end"}}
    run = write_run(file_store, fake_job("said"), [FakeAttempt(logs=pieces)])
    assert list(launcher.logs(run)) == ["one", "two", "\ufffdend"]
