"""Short ways from a text to runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from launcher.spec.profile import LocalSettings, Profile
from launcher.spec.read.load import Loaded, load
from launcher.spec.resolve.group import Group, resolve

ENVIRONMENT = "e" * 64
PROFILE = Profile(store="s3://bucket/runs", local=LocalSettings(Path("/state")))


def loaded(text: str, folder: Path, overrides: Sequence[str] = ()) -> Loaded:
    (folder / "job.yaml").write_text(text, encoding="utf-8")
    return load(["job.yaml"], overrides=overrides, cwd=folder)


def group(
    text: str, folder: Path, overrides: Sequence[str] = (), profile: Profile = PROFILE, backend: str | None = None
) -> Group:
    return resolve(loaded(text, folder, overrides), profile, environment=ENVIRONMENT, backend=backend)
