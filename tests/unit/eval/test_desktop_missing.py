"""What an evaluation on desktops says where its packages are not installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from eval.config import ConfigError
from eval.environments import desktop

ROOT = Path(__file__).parents[3]


def test_missing_packages_are_one_line_with_what_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name that the distribution has: another project has the name `slipway` on PyPI."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "desktop" in project["optional-dependencies"]
    monkeypatch.setattr(desktop, "PACKAGES", ("no_such_package", "none_either"))
    monkeypatch.setattr(desktop, "missing_programs", lambda **programs: [])
    with pytest.raises(ConfigError) as error:
        desktop.check_here.__wrapped__()
    assert str(error.value) == (
        "environment: desktop: no Python package no_such_package, none_either: "
        f"`make dev` in a clone, or the extra {project['name']}[desktop], installs what is missing"
    )
