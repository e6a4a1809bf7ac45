"""What a result says of a machine that cannot hide its files from the agent's programs."""

from __future__ import annotations

import pytest

from eval.benchmarks.linux_desktop.template import VERSION
from eval.desktops.isolation import Isolation
from eval.environments.registry import environment


@pytest.mark.parametrize("name", ["desktop", "gtk-forms", "gtk-login", "linux-desktop"])
def test_a_machine_without_mount_namespaces_is_in_the_rules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = environment(name).provenance  # type: ignore[attr-defined]
    own = {"revision": f"templates {VERSION}"} if name == "linux-desktop" else {}
    monkeypatch.setattr("eval.desktops.isolation.isolation", lambda: Isolation(("user", "pid")))
    assert told({}) == {**own, "isolation": "none: the agent's programs can read this machine's files"}
    assert told({"role": "desktops"}) == own  # what is in their image is not this machine's
    monkeypatch.setattr("eval.desktops.isolation.isolation", lambda: Isolation(("mount", "pid")))
    assert told({}) == own
