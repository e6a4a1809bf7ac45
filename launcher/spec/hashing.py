"""Canonical JSON, the two hashes of a job, and the names made from them.

Canonical JSON: UTF-8, keys sorted by code point, no whitespace, strings unchanged (no Unicode normalisation), floats as
Python's repr writes them. So `1` and `1.0` differ, because a program may treat them differently; a typed field always
has the same type. NaN, infinities, integers beyond 64 bits and keys that are not strings are refused. Structures leave
out fields at their default, so a new field changes no old hash.
"""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Iterable
from functools import cache
from math import isfinite
from typing import Any, Final

import msgspec

from launcher.decoding import decode
from launcher.errors import BadInput
from launcher.spec.model import SCHEMA, ResolvedJob, Role, as_written

ID_DIGITS: Final = 12  # hex digits of the hash in a run's id
MAX_INTEGER: Final = 2**63 - 1

# id of a job -> that job, and its run hash: a verb asks for the same jobs' names again and again
_HASHED: Final[dict[int, tuple[weakref.ref[ResolvedJob], str]]] = {}
_AS_IT_IS: Final = frozenset((str, bool, type(None)))
_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def canonical(value: Any) -> bytes:
    """The canonical JSON of plain data and structures. Raises BadInput for a value that JSON cannot hold exactly."""
    try:
        return _encode(plain(value)).encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"a text contains a lone surrogate, which UTF-8 cannot encode: {error.object[:40]!r}") from None


def plain(value: Any) -> Any:
    """Structures as dicts without defaults, tuples as lists. Raises BadInput as `canonical` does."""
    kind: Any = type(value)
    if kind in _AS_IT_IS:
        return value
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise BadInput(f"the key {key!r} is not a text; quote it")
        return {key: item if type(item) is str else plain(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [item if type(item) is str else plain(item) for item in value]
    if kind is int:
        if not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
            raise BadInput(f"the number {value} does not fit into 64 bits; quote it")
        return value
    if kind is float:
        if not isfinite(value):
            raise BadInput(f"the number {value} has no JSON form; quote it")
        return value
    if isinstance(value, msgspec.Struct):
        return {
            name: item if type(item) is str else plain(item)
            for name, default in _fields(kind)
            if (item := getattr(value, name)) is not default and item != default
        }
    raise BadInput(f"a value of type {kind.__name__} has no JSON form: {value!r}")


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """(name, default) of every field of a structure. The default of a required field is NODEFAULT, unequal to any
    value."""
    return tuple(
        (
            field.encode_name,
            field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default,
        )
        for field in msgspec.structs.fields(kind)
    )


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


def work_hash(job: ResolvedJob) -> str:
    """sha256 (64 hex digits) over everything that determines the result: images, commands, environment variables,
    config, code, inputs, outputs, the shape of the roles. Names, the backend, memory and limits are not in it."""
    return _digest(
        {
            "roles": {name: _role(role) for name, role in job.roles.items()},
            "config": job.config,
            "code": job.code,
            "inputs": {name: msgspec.structs.replace(item, job=None) for name, item in job.inputs.items()},
            "outputs": {name: item.kind for name, item in job.outputs.items()},
        }
    )


def _role(role: Role) -> dict[str, Any]:
    image = role.image
    # a digest or an environment identifies the software; the reference is then only the user's name for it
    software = image.digest or image.environment or image.reference
    values: dict[str, Any] = {
        "image": software,
        "command": role.command,
        "env": role.env,
        "leader": role.leader,
        "replicas": role.replicas,
        "gpus": role.resources.gpus,  # replicas and GPUs give the world size, which changes the result
        "ports": role.ports,
        "needs": role.needs,
    }
    return {name: value for name, value in values.items() if value}


def run_hash(job: ResolvedJob) -> str:
    """sha256 over job.json without `variant` and the inputs' `job`, which are only displayed, and without the list
    price in a budget, which a newer launcher may list otherwise. It is the same at every turn of the job's backends."""
    known = _HASHED.get(id(job))
    if known is not None and known[0]() is job:
        return known[1]
    inputs = {name: msgspec.structs.replace(item, job=None) for name, item in job.inputs.items()}
    limits = job.limits
    if limits.budget is not None and limits.budget.listed:
        limits = msgspec.structs.replace(limits, budget=msgspec.structs.replace(limits.budget, listed=0.0))
    digest = _digest(msgspec.structs.replace(as_written(job), variant={}, inputs=inputs, limits=limits))
    key = id(job)
    _HASHED[key] = weakref.ref(job, lambda gone: _HASHED.pop(key, None)), digest
    return digest


def run_id(job: ResolvedJob, fingerprint: str = "") -> str:
    """`<name>-<first 12 hex digits of the run hash>`. `fingerprint`: the run hash, if the caller has it already."""
    return f"{job.name}-{(fingerprint or run_hash(job))[:ID_DIGITS]}"


def group_id(run_ids: Iterable[str]) -> str:
    """`group-<hash12>`, a hash over the set of run ids. No job may have the name `group`."""
    return f"group-{_digest(sorted(set(run_ids)))[:ID_DIGITS]}"


def encode_job(job: ResolvedJob) -> bytes:
    """job.json."""
    return canonical(job)


class _Version(msgspec.Struct):
    schema: int = 1


def decode_job(data: bytes) -> ResolvedJob:
    """Decodes job.json. Raises BadInput for a newer schema, an unknown field or a wrong type."""
    try:
        version = decode(data, _Version).schema
        if version > SCHEMA:
            raise BadInput(
                f"job.json has schema {version}, this launcher reads up to {SCHEMA}: the image (or install) is too old"
            )
        job = decode(data, ResolvedJob)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"job.json: {error}") from None
    if not 0 <= job.turn <= len(job.alternatives):
        raise BadInput(f"job.json: turn is {job.turn}; allowed: 0 to {len(job.alternatives)}, one per alternative")
    return job
