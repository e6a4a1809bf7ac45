"""A backend in one module: this machine's queue under another name, with an option and a kind of process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from launcher.spec.backends import Traits
from launcher.spec.values.structures import Field, Struct
from launcher.spec.values.types import Choice

if TYPE_CHECKING:
    from launcher.backends.base import Backend
    from launcher.backends.local.supervisor.spawner import SpawnerFor

TRAITS = Traits(
    module="slipway_elsewhere",
    block=Struct("an elsewhere block", Field("speed", Choice(("slow", "fast")), "how fast it goes", "slow")),
    defaults={"speed": "slow"},
    bills=False,
    needs_digest=False,
    runs_images=False,
    on_this_machine=True,
    spawners="slipway_elsewhere:spawners",
)


def make(options: Mapping[str, object]) -> Backend:
    from launcher.backends.local.backend import LocalBackend

    class Elsewhere(LocalBackend):
        name = "elsewhere"

    return Elsewhere(options)


def spawners() -> SpawnerFor:
    from launcher.backends.local.supervisor.spawner import ProcessSpawner

    processes = ProcessSpawner()
    return lambda environ: processes
