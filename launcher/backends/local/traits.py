"""What the launcher knows of this backend before it is loaded: its options, and this machine's settings."""

from __future__ import annotations

from typing import Final

from launcher.spec.backends import Traits
from launcher.spec.values.structures import Field, ListOf, Struct
from launcher.spec.values.types import SIZE, Integer, Number, Text

PRIORITY: Final = Field(
    "queue_priority",
    Integer(-1000, 1000),
    "which run starts first on this machine: the higher number, then the older run",
    "0",
)
PRIORITY_DEFAULT: Final = {"queue_priority": 0}

TRAITS: Final = Traits(
    module="launcher.backends.local",
    diagnosis="launcher.backends.local.diagnosis:diagnose",
    block=Struct("a local block", PRIORITY),
    defaults=PRIORITY_DEFAULT,
    settings=Struct(
        "a mapping for the local backend",
        Field("state", Text("a folder"), "where the supervisor keeps its queue", "$XDG_STATE_HOME/slipway/local"),
        Field("cpus", Number(), "CPU cores that runs may use together", "all"),
        Field("memory", SIZE, "memory that runs may use together", "all"),
        Field("gpus", Integer(0), "GPUs that runs may use together", "all"),
        Field(
            "python",
            Text("the path of a Python"),
            "which Python commands find, and whose packages a run is named for",
            "the launcher's",
        ),
        Field(
            "ignore",
            ListOf(Text("the name of a distribution")),
            "packages that are tools, and no part of what a run is",
            "none",
        ),
    ),
    bills=False,
    needs_digest=False,
    runs_images=False,
    on_this_machine=True,
    spawners="launcher.backends.local.supervisor.spawner:spawners",
)
