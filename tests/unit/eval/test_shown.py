"""What a result says of a machine that cannot hide its files from the agent's programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval.desktops.isolation import Isolation
from eval.environments.registry import ENVIRONMENTS, environment
from tests.support.documented import ROOT

OWN: dict[str, Any] = {"source": "custom", "tasks": [{"instruction": "x", "validator": "json:loads"}]}
OF_DESKTOP: dict[str, Any] = {"source": "demo_eval", "environment": "gtk-forms", "count": 2}
DRAWN: dict[str, Any] = {"source": "demo_eval", "environment": "login", "count": 2}
HERE: dict[str, list[dict[str, Any]]] = {  # the environments with desktops of this machine, and options of each
    "desktop": [{}],
    "gtk-forms": [{}],
    "gtk-login": [{}],
    "linux-chain": [{}],
    "linux-desktop": [{}],
    "linux-safety": [{}],
    "osworld": [{"folder": "TASKS"}],
    "sources": [{"sources": [OWN]}, {"sources": [OF_DESKTOP]}, {"sources": [DRAWN, OWN]}],
}
ELSEWHERE: dict[str, list[dict[str, Any]]] = {  # what is in their image is not this machine's
    "linux-chain": [],  # these two are of this machine alone
    "linux-safety": [],
    **{name: [{"role": "desktops"}] for name in ("desktop", "gtk-forms", "gtk-login", "linux-desktop")},
    "osworld": [{"folder": "TASKS", "machines": ["http://a:1"]}],
    "sources": [{"sources": [DRAWN]}],
}
NONE = "none: the agent's programs can read this machine's files"


def isolations(name: str, options: dict[str, list[dict[str, Any]]], folder: Path) -> list[Any]:
    chosen = [{key: str(folder) if value == "TASKS" else value for key, value in o.items()} for o in options[name]]
    return [environment(name).provenance(each).get("isolation") for each in chosen]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(HERE))
def test_a_machine_without_mount_namespaces_is_in_the_rules(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "os").mkdir()
    task = {"id": "one", "snapshot": "os", "instruction": "x", "config": [], "evaluator": {"func": "infeasible"}}
    (tmp_path / "os/one.json").write_text(json.dumps({**task, "related_apps": ["os"]}))
    monkeypatch.setattr("eval.desktops.isolation.isolation", lambda: Isolation(("user", "pid")))
    assert isolations(name, HERE, tmp_path) == [NONE] * len(HERE[name])
    assert isolations(name, ELSEWHERE, tmp_path) == [None] * len(ELSEWHERE[name])
    monkeypatch.setattr("eval.desktops.isolation.isolation", lambda: Isolation(("mount", "pid")))
    assert isolations(name, HERE, tmp_path) == [None] * len(HERE[name])


def test_every_environment_with_a_desktop_of_this_machine_is_checked_above() -> None:
    """Those whose code, or what it imports from its own package, makes a session of this machine."""
    found = set()
    for name, module in ENVIRONMENTS.items():
        file = ROOT / f"{module.replace('.', '/')}.py"
        parts = [file] if file.parent.name == "environments" else file.parent.glob("*.py")
        texts = [part.read_text() for part in parts]
        if any(word in text for text in texts for word in ("LiveDesktop(", "(LocalDesktopOptions")):
            found.add(name)
    assert found == set(HERE)
