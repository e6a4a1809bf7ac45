"""A second queue of this machine, with a state folder of its own: a run can move between it and `local`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from launcher.spec.backends import Traits
from launcher.spec.values.structures import Field, Struct
from launcher.spec.values.types import Text

if TYPE_CHECKING:
    from launcher.backends.base import Backend
    from launcher.backends.local.supervisor.spawner import SpawnerFor

NAME = "spare"
TRAITS = Traits(
    module="slipway_spare",
    block=Struct("a spare block", Field("state", Text("a folder"), "its queue", required=True)),
    bills=False,
    needs_digest=False,
    runs_images=False,
    spawners="slipway_spare:spawners",
)


def make(options: Mapping[str, object]) -> Backend:
    from launcher.backends.local.backend import LocalBackend

    class Spare(LocalBackend):
        name = NAME

    return Spare({"cpus": 64, "memory": 1 << 40, "gpus": 0, "idle": 30, **options})


def spawners() -> SpawnerFor:
    from launcher.backends.local.supervisor.spawner import ProcessSpawner

    processes = ProcessSpawner()
    return lambda environ: processes
