"""Desktops, a model and the agent as roles of one run on this machine, with ports that the runtime picks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.desktop_roles import DESKTOPS, TASKS, example
from tests.support.desktops import need_desktops
from tests.support.forwarding import fetch
from tests.support.verbs import local_project
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)
LAUNCHER = str(Path(sys.executable).with_name("launcher"))
HELD = "until [ -e $HELD ]; do sleep .1; done; exec python -m eval.run --config $0"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project whose runs are processes."""
    need_desktops()
    with local_project(tmp_path, monkeypatch) as project:
        yield project


def launcher(*words: str, text: str = "") -> str:
    done = subprocess.run([LAUNCHER, *words], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.nightly
def test_the_roles_of_the_example_on_this_machine(place: Path) -> None:
    job = example("unused", env={"HELD": str(place / "go")})
    del job["image"]
    job["roles"]["model"]["ports"] = {"http": 0}
    job["roles"]["desktop"]["ports"] = {"http": 0, "vnc": 0}
    job["roles"]["agent"]["command"] = ["sh", "-c", HELD, "$SLIPWAY_CONFIG"]
    for role in job["roles"].values():
        role.pop("image", None)
    (place / "job.yaml").write_text(yaml.safe_dump(job))
    launcher("secrets", "set", "DESKTOP_TOKEN", text="a-word-of-the-test\n")
    (run,) = [row["run"] for row in json.loads(launcher("submit", "job.yaml", "--backend", "local", "-o", "json"))]
    passwords = {seen(run, rank) for rank in range(DESKTOPS)}
    assert len(passwords) == DESKTOPS
    (place / "go").touch()
    launcher("wait", run)
    launcher("gather", run, "--to", "gathered")
    (tasks,) = place.glob("gathered/**/tasks.jsonl")
    assert [json.loads(line)["success"] for line in tasks.read_text().splitlines()] == [True] * TASKS
    kept = b"".join(path.read_bytes() for path in (place / "store").rglob("*") if path.is_file())
    assert not [word for word in ("a-word-of-the-test", *passwords) if word.encode() in kept]


def seen(run: str, rank: int) -> str:
    """The password of a desktop's page, which is there under a port of its own."""
    words = [LAUNCHER, "forward", run, "vnc", "--role", "desktop", "--rank", str(rank)]

    def told() -> str:
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout

    said = until(told, lambda: launcher("logs", run, "--role", "desktop"))
    found = re.fullmatch(r"127\.0\.0\.1:(\d+) is a port of the run itself: nothing to forward\n", said)
    assert found is not None, said
    file = f"/tmp/desktop-view-{found[1]}.json"
    view = json.loads(launcher("exec", run, "--role", "desktop", "--rank", str(rank), "--", "cat", file))
    assert b"noVNC" in fetch(view["url"])
    password: str = view["password"]
    return password
