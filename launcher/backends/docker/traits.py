"""What the launcher knows of this backend before it is loaded, and the options of the `docker:` block."""

from __future__ import annotations

from typing import Final

from launcher.backends.local.traits import PRIORITY, PRIORITY_DEFAULT
from launcher.spec.backends import Traits
from launcher.spec.values.structures import Field, ListOf, Struct
from launcher.spec.values.types import Flag, Text

TRAITS: Final = Traits(
    module="launcher.backends.docker",
    diagnosis="launcher.backends.docker.diagnosis:diagnose",
    extra="docker",
    block=Struct(
        "a Docker block",
        PRIORITY,
        Field(
            "network",
            Text("a network's name", r"[a-zA-Z0-9][a-zA-Z0-9_.-]*"),
            "bridge, host, none, or the name of another network",
            "bridge",
        ),
        Field(
            "user",
            Text("a user", r"me|image|[0-9]+(:[0-9]+)?"),
            "me: the user who submits; image: the image's own; or uid:gid",
            "me",
        ),
        Field("read_only", Flag(), "the root file system; /tmp and /work stay writable", "false"),
        Field(
            "devices",
            ListOf(Text("a device", r"/dev/[^:]+(:/dev/[^:]+)?(:[rwm]{1,3})?")),
            "host[:container][:rwm], as --device, with the device's group: /dev/kvm for waa-vm",
        ),
        Field("volumes", ListOf(Text("a volume", r"[^:]+:/[^:]*(:ro|:rw)?")), "host:container[:ro], as --volume"),
    ),
    defaults=PRIORITY_DEFAULT,
    bills=False,
    needs_digest=False,
    on_this_machine=True,
    spawners="launcher.backends.docker.spawner:spawners",
)
