"""A store that is named on the command line has to be one: a typing error must not look like a store without runs."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from launcher.cli import VERBS
from launcher.store.layout import MARKER

LAUNCHER = str(Path(sys.executable).with_name("launcher"))
RUN = "a-0123456789ab"
# what a verb needs beside its store; one that takes a store and is not here is called with the name of a run
WORDS = {
    "status": [],
    "groups": [],
    "reap": [],
    "top": [],
    "gc": [],
    "compare": [RUN, RUN],
    "diff": [RUN, RUN],
    "exec": [RUN, "--", "true"],
    "forward": [RUN, "80"],
    "report": [RUN, "--file", "x.html"],
    "gather": [RUN, "--to", "x"],
    "cancel": [RUN],
    "monitor": ["--no-browser", "--port", "0"],
}
OTHERS = (
    "submit",
    "push",
    "run",
    "dev",
    "render",
    "doctor",
)  # they make one, look at none, or say it in their own words


def takes_store(verb: str) -> bool:
    parser = argparse.ArgumentParser()
    import_module(VERBS[verb][0]).add(parser)
    return "--store" in parser.format_help()


READING = [verb for verb in VERBS if takes_store(verb) and verb not in OTHERS]


def run(work: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLIPWAY_", "XDG_"))}
    return subprocess.run(
        [LAUNCHER, *words],
        cwd=work,
        env={**kept, "HOME": str(work / "home"), **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_verbs_that_read_a_store_are_found() -> None:
    assert {"status", "wait", "logs", "cancel", "results", "gather", "report", "retry"} <= set(READING)


@pytest.mark.parametrize("verb", READING)
def test_every_verb_that_reads_tells_that_there_is_no_store(verb: str, tmp_path: Path) -> None:
    done = run(tmp_path, verb, "--store", "typo", *WORDS.get(verb, [RUN]))
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert len(done.stderr.splitlines()) == 1
    assert f"--store: no store at {tmp_path}/typo: the folder does not exist" in done.stderr
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("file:///typo/of/a/store", "/typo/of/a/store: the folder does not exist"),
        ("~/typo", "home/typo: the folder does not exist"),
        ("empty", "empty: the folder is empty"),
        ("photos", "photos: it holds none of "),
        ("file", "file: it is not a folder"),
    ],
)
def test_a_folder_that_is_no_store_is_told(given: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.png").write_text("x")
    (tmp_path / "file").write_text("x")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    by_option = run(tmp_path, "status", "--store", given)
    by_variable = run(tmp_path, "status", SLIPWAY_STORE=given)
    for done, origin in ((by_option, "--store: "), (by_variable, "SLIPWAY_STORE: ")):
        assert done.returncode == 3, (done.stdout, done.stderr)
        assert len(done.stderr.splitlines()) == 1
        assert said in done.stderr
        assert origin in done.stderr
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before  # nothing was made, either


def test_what_submit_made_is_a_store(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: a\ncommand: ['true']\n")
    assert run(tmp_path, "render", "job.yaml", "--store", "made").returncode == 0
    assert not (tmp_path / "made").exists()
    try:
        done = run(tmp_path, "submit", "job.yaml", "--store", "made")
        assert done.returncode == 0, done.stderr
        assert run(tmp_path, "status", "--store", "made").returncode == 0
        assert run(tmp_path, "wait", "a", "--store", "made").returncode == 0
    finally:
        run(tmp_path, "local", "stop", "--runs")


def test_a_store_that_only_has_its_marker_is_one(tmp_path: Path) -> None:
    """The first submit was interrupted right after it had made the store."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / MARKER).write_text("0123\n")
    done = run(tmp_path, "status", "--store", "store")
    assert done.returncode == 0, done.stderr


def test_the_projects_own_store_may_be_to_come(tmp_path: Path) -> None:
    """On the first day nothing was submitted yet."""
    (tmp_path / "slipway.yaml").write_text("store: ./store\n")
    done = run(tmp_path, "status")
    assert done.returncode == 0
    assert "no runs" in done.stderr
