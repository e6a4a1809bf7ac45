"""An installed launcher with the images of some releases, in place of the clone's, which has none before the first."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.spec.images import catalogue

NAME = "slipway-cpu"


def reference(release: str, registry: str = "registry.example/slipway") -> str:
    """What jobs that name the image run, of a release."""
    return f"{registry}/{NAME}@sha256:{release.replace('.', ''):0>64}"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, *releases: str) -> None:
    """Makes this process's launcher one that has the catalogues of these releases, as if it was installed."""
    known = folder / catalogue.FOLDER / catalogue.RELEASES
    known.mkdir(parents=True, exist_ok=True)
    for release in releases:
        entry = catalogue.CatalogueEntry(f"{release}-{'0' * 8}", reference(release))
        catalogue.save(known / f"{release}.yaml", {NAME: entry})
    monkeypatch.setattr(catalogue, "trees", lambda: folder)
    monkeypatch.setattr(catalogue, "PACKED", folder)
