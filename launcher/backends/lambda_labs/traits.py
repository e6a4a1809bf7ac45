"""What the launcher knows of this backend before it is loaded, and the options of the `lambda:` block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from launcher.backends.lambda_labs import names
from launcher.spec.backends import MachineChoice, Traits
from launcher.spec.model import ResolvedJob
from launcher.spec.values.structures import VARIABLE, Field, ListOf, MapOf, Struct
from launcher.spec.values.types import DURATION, Text

# of a secret of Secrets Manager, or of a parameter of Systems Manager
ARN: Final = (
    r"arn:aws[a-z-]*:(?:secretsmanager:[a-z0-9-]+:\d{12}:secret:|ssm:[a-z0-9-]+:\d{12}:parameter/)[A-Za-z0-9/_+=.@-]+"
)
_NAME: Final = r"[a-z0-9][a-z0-9_-]*"


def machines(options: Mapping[str, Any]) -> MachineChoice:
    """Lambda has no spot machines."""
    return MachineChoice(tuple(options.get("instance_types", ())), tuple(options.get("regions", ())))


def outlives(job: ResolvedJob) -> float:
    """Until then nobody but the provider ends what hangs."""
    return names.lifetime(job) - (job.limits.deadline or 0.0)


TRAITS: Final = Traits(
    module="launcher.backends.lambda_labs",
    diagnosis="launcher.backends.lambda_labs.diagnosis:diagnose",
    extra="lambda",
    machines=machines,
    outlives=outlives,
    block=Struct(
        "a Lambda block",
        Field(
            "instance_types",
            ListOf(Text("an instance type", _NAME)),
            "which machines will do, in the order in which they are tried: gpu_1x_h100_pcie",
            "none: a run on Lambda names at least one",
        ),
        Field("regions", ListOf(Text("a region", _NAME)), "in the order in which they are tried", "any with capacity"),
        Field("ssh_key", Text("an SSH key's name", r"[^\n]+", longest=64), "a key of the account; Lambda wants one"),
        Field(
            "file_systems",
            ListOf(Text("a file system's name", r"[A-Za-z0-9][A-Za-z0-9_-]*")),
            "a file system of the account, mounted at /lambda/nfs/NAME; at most one",
        ),
        Field("image_family", Text("an image family", r"[A-Za-z0-9][A-Za-z0-9._-]*"), "of the machine", "Lambda's own"),
        Field(
            "account",
            Text("a name", r"[a-z0-9][a-z0-9-]*", "a-z, 0-9 and -", 30),
            "tells accounts that share a store from each other: machines of one account are launched one at a time",
            "default",
        ),
        Field("role", Text("a role", r"arn:[^\s]+"), "of AWS, which a machine takes for the store", "the user's own"),
        Field(
            "secrets",
            MapOf(VARIABLE, Text("an ARN", ARN)),
            "where secrets live: NAME: the ARN of a secret or parameter of AWS",
        ),
        Field(
            "renew",
            Text("an ARN", r"arn:aws[a-z-]*:ssm:[a-z0-9-]+:\d{12}:parameter/[A-Za-z0-9/_.-]+"),
            "a path of parameters of Systems Manager, in which `launcher reap` keeps new credentials of long runs",
            "none; a machine lives no longer than its first credentials",
        ),
        Field(
            "venv",
            Struct(
                "a Python environment",
                Field(
                    "lock",
                    Text("a path", r"[^\n]+"),
                    "a file of `uv pip compile --generate-hashes`, relative to the file that names it",
                    required=True,
                ),
                Field(
                    "python",
                    Text("a version of Python", r"3\.(?:1[1-9]|[2-9]\d)(?:\.\d+)?", "3.11 or newer: 3.12, 3.12.4"),
                    "its version: 3.12",
                    required=True,
                ),
            ),
            "the Python environment of roles that name no image, made on the machine",
            "none: every role names an image",
        ),
        Field("wait_for_capacity", DURATION, "how long submit waits for a machine to be free", "0"),
    ),
    venv=True,
    defaults={"account": "default", "wait_for_capacity": 0.0},
)
