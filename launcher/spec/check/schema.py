"""The fields of a job, declared once: accepted values, meaning, default."""

from __future__ import annotations

from typing import Any, Final

from launcher.errors import BadInput
from launcher.reasons import NAMED
from launcher.spec.backends import backends
from launcher.spec.values.structures import (
    GPU,
    LABEL_KEY,
    LABEL_VALUE,
    ROLE,
    VARIABLE,
    AnyMapping,
    Anything,
    Field,
    Forms,
    ListOf,
    MapOf,
    Struct,
)
from launcher.spec.values.types import DURATION, MONEY, SIZE, Choice, Flag, Integer, Number, Text, Type

NAME_LENGTH: Final = 27  # then a run's id, <name>-<hash12>, has at most 40 characters
RUN_ID: Final = r"[a-z0-9](?:[a-z0-9-]{0,25}[a-z0-9])?-[0-9a-f]{12}"

NAME: Final = Text(
    "a name", r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", "a-z, 0-9 and - within, at most 27 characters", NAME_LENGTH
)
PORT: Final = Text("a port's name", ROLE.pattern, ROLE.allowed, 15)
FOLDER: Final = Text("a name", r"[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?", "a-z, 0-9, and - or _ within", 40)
ARGUMENT: Final = Text(numbers=True)
IMAGE: Final = Text(
    "an image",
    r"[a-z0-9][A-Za-z0-9._/:-]*(?:@sha256:[0-9a-f]{64})?",
    "a name from the catalogue, or registry/name@sha256:<64 hex digits>",
)
DIGEST: Final = Text("a digest", r"sha256:[0-9a-f]{64}", "sha256:<64 hex digits>")
RUN: Final = Text("a run's id", RUN_ID, "<name>-<12 hex digits>")
URL: Final = Text(
    "a URL or a path",
    r"(?:(?:hf|s3|gs|az|https?|file)://.+|(?![a-z0-9+]+://).+)",
    "hf:// s3:// gs:// az:// https:// file:// or a path",
)
COMMAND: Final = ListOf(ARGUMENT, least=1, hint="[program, argument, ...]; for a shell [bash, -c, '...']")
STEP: Final[Type] = Forms(
    "a step",
    {str: (Choice(("latest", "best")), str), int: (Integer(0), str)},
    {},
)

_RESOURCES: Final = (
    Field("cpus", Number(), "CPU cores for each rank", "1"),
    Field("memory", SIZE, "memory for each rank", "no limit"),
    Field("gpus", Integer(0, 64), "GPUs for each rank", "0; 1 when `gpu` is given"),
    Field("gpu", GPU, "which GPU: H100, A100-80GB, L4", "any"),
    Field("shm", SIZE, "/dev/shm, for data loader workers", "the backend's default"),
    Field("disk", SIZE, "scratch space", "the backend's default"),
)
RESOURCES: Final = Struct(
    "a mapping of resources",
    *_RESOURCES,
    Field("nodes", Integer(1, 1000), "ranks of `main`, with torchrun's variables", "1"),
)
ENV: Final = MapOf(VARIABLE, ARGUMENT)
READY: Final = Struct(
    "a readiness check",
    Field("http", Text("a path", r"/\S*", "/health"), "path that answers 2xx when the role is ready", required=True),
    Field("port", PORT, "name of the port", "http"),
)

ROLES: Final = MapOf(
    ROLE,
    Struct(
        "a role",
        Field("leader", Flag(), "the run ends with this role; exactly one, where there are several roles", "false"),
        Field("replicas", Integer(1, 1000), "how many ranks", "1"),
        Field("image", IMAGE, "as `image` above, for this role", "the job's"),
        Field("command", COMMAND, "as `command` above, for this role", "the job's"),
        Field("env", ENV, "added to the job's `env`", "the job's"),
        Field("resources", Struct("a mapping of resources", *_RESOURCES), "replace the job's one by one", "the job's"),
        Field(
            "ports",
            MapOf(PORT, Integer(0, 65535)),
            "named ports, $SLIPWAY_PORT_<NAME>; 0 lets the runtime pick a free one",
            "none",
        ),
        Field("ready", READY, "when this role counts as ready", "once its command runs"),
        Field("needs", ListOf(ROLE), "roles that must be ready first; gives SLIPWAY_ENDPOINT_<ROLE>", "none"),
        Field("restarts", Integer(0, 1000), "how often its command may die and start again in place", "0"),
    ),
    least=1,
)

_STEP: Final = Field("step", STEP, "of checkpoints: latest, best or a number", "latest")
INPUT: Final = Forms(
    "an input",
    {str: (URL, lambda url: {"url": url})},
    {
        "job": Struct(
            "an input from a job",
            Field("job", NAME, "a job of the same submit", required=True),
            Field("output", FOLDER, "which of its outputs", required=True),
            _STEP,
            Field("all", Flag(), "of a matrix: one folder per variant, instead of one consumer per variant", "false"),
        ),
        "run": Struct(
            "an input from a run",
            Field("run", RUN, "an existing run", required=True),
            Field("output", FOLDER, "which of its outputs", required=True),
            _STEP,
        ),
        "": Struct(
            "a mapping with `url`",
            Field("url", URL, "its address; a path is relative to this file", required=True),
            Field("digest", DIGEST, "the digest that its content must have", "the first attempt's bytes"),
        ),
    },
)
CODE: Final = Forms(
    "a folder",
    {str: (Text("a folder"), lambda folder: {"folder": folder})},
    {
        "": Struct(
            "a mapping of the overlay",
            Field("folder", Text("a folder"), "what is packed; relative to this file", "."),
            Field(
                "include",
                ListOf(Text("a pattern")),
                "files that are packed although they look private (.env, keys) or hold what looks like a secret",
                "none",
            ),
        )
    },
)
OUTPUT: Final = Struct(
    "an output",
    Field("kind", Choice(("files", "checkpoints")), "plain files, or training checkpoints", "files"),
    Field("sync", Choice(("end", "live")), "files: uploaded at the end, or as they are written", "end"),
    Field("match", Text("a pattern", r"[^/]+"), "checkpoints: which folders are checkpoints", "checkpoint-*"),
    Field("keep", Integer(0), "checkpoints: how many are kept; 0 keeps all", "0"),
    Field("done", Text("a file name", r"[^/]+"), "checkpoints: the file that says that a folder is complete", "none"),
)
OUTPUTS: Final = Forms(
    "a list of names or a mapping",
    {list: (ListOf(FOLDER), lambda names: {name: {} for name in names})},
    {"": MapOf(FOLDER, OUTPUT, empty=True)},
)
_BACKEND: Final = Choice(tuple(backends()))
BACKEND: Final = Forms(
    "a backend or a list of backends",
    {str: (_BACKEND, str), list: (ListOf(_BACKEND, least=1), lambda names: names if len(names) > 1 else names[0])},
    {},
)
RETRY_ON: Final = Text(
    "a failure",
    rf"{'|'.join(NAMED)}|[1-9]\d?|1\d\d|2[0-4]\d|25[0-5]",
    f'{", ".join(NAMED)}, an exit code as a text: "78"',
)
LIMITS: Final = Struct(
    "a mapping of limits",
    Field(
        "deadline", DURATION, "maximum running time, summed over the attempts", "none; required on backends that bill"
    ),
    Field("start_deadline", DURATION, "maximum waiting time before the first attempt", "none"),
    Field("retries", Integer(0, 100), "how often a failed command is tried again", "0"),
    Field("retry_on", ListOf(RETRY_ON), "failures of a command that are tried again as well", "none"),
    Field("budget", MONEY, "the run ends before it costs more, all attempts together; needs a known price", "none"),
    Field("grace", DURATION, "from SIGTERM to SIGKILL", "30s"),
    Field("gpu_idle", DURATION, "the run ends when the GPUs of a rank do nothing for so long", "a warning after 15m"),
)
TIMING: Final = Struct(
    "a mapping of times",
    Field("beat", DURATION, "time between two heartbeats of a rank", "15s"),
    Field("stale", DURATION, "an attempt without a heartbeat for this long counts as dead", "15m"),
    Field("fence", DURATION, "a rank that cannot reach the store for this long ends its command", "12m"),
)
# backend -> its options in a job
BLOCKS: Final = {name: traits.block for name, traits in backends().items()}

_BEFORE: Final = (
    Field("name", NAME, "becomes part of the run's id", required=True),
    Field("image", IMAGE, "from the catalogue, or a reference with a digest", "none; required outside `local`"),
    Field("command", COMMAND, "program and arguments; $SLIPWAY_* are replaced", "every role has its own"),
    Field("config", AnyMapping(), "any mapping; a file in the container, $SLIPWAY_CONFIG", "none"),
    Field("code", CODE, "overlay this folder over the image's code; stores and private files stay out", "none"),
    Field("inputs", MapOf(FOLDER, INPUT), "what is fetched to $SLIPWAY_INPUTS/<name>", "none"),
    Field("outputs", OUTPUTS, "what is kept of $SLIPWAY_OUTPUTS/<name>", "none"),
    Field("resources", RESOURCES, "what each rank needs", "one CPU"),
    Field("env", ENV, "environment variables", "none"),
    Field("secrets", ListOf(VARIABLE), "names only; the profile says where their values are kept", "none"),
    Field("store_access", Flag(), "the command gets the credentials by which its runtime opens the store", "false"),
    Field("limits", LIMITS, "time, tries and money", "no limits"),
    Field("labels", MapOf(LABEL_KEY, LABEL_VALUE), "to select runs by", "none"),
    Field("roles", ROLES, "kinds of containers; top-level image, command, env, resources are their defaults", "`main`"),
    Field(
        "backend",
        BACKEND,
        "where it runs; of a list the first, then each in turn when it is preempted or finds no place",
        "the profile's, or local",
    ),
)
_AFTER: Final = (
    Field(
        "matrix",
        MapOf(Text(), ListOf(Anything(), least=1), least=1),
        "one run for each combination; `+config.x` adds what `config` lacks",
        "none",
    ),
    Field("fresh", Integer(0), "another number runs the same job once more", "0"),
    Field("resume", RUN, "start from this run's newest checkpoint; its work must be equal", "none"),
    Field("timing", TIMING, "the times of the protocol", "as below"),
)
# possible only for a backend of another distribution
if taken := sorted({field.name for field in (*_BEFORE, *_AFTER)} & set(BLOCKS)):
    raise BadInput(f"backend `{taken[0]}`: a field of a job has this name; uninstall the backend or rename it")
JOB: Final = Struct(
    "a job",
    *_BEFORE,
    *(Field(name, block, f"what only {name} understands", "the profile's") for name, block in BLOCKS.items()),
    *_AFTER,
)


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one job document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Slipway job",
        **JOB.schema(),
        "anyOf": [{"required": ["command"]}, {"required": ["roles"]}],
    }
