"""The table of all backends: what the rest of the launcher must know about a backend before it loads the module.

A backend is one module and one line. The module holds `TRAITS` and `make(options) -> Backend`
(`launcher/backends/base.py`); the line is in BUILT_IN or, for another distribution's package, an entry point:

    [project.entry-points."slipway.backends"]
    mycloud = "mypackage.backend:TRAITS"

The name of the line is the backend's name in `backend:` and the name of its block in a job and in slipway.yaml.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

import msgspec

from launcher.errors import BadInput
from launcher.spec.model import ResolvedJob
from launcher.spec.values.structures import Struct

GROUP: Final = "slipway.backends"
NAME: Final = r"[a-z][a-z0-9-]{0,39}"

# name -> module:variable, in the order in which users see them
BUILT_IN: Final = {
    "local": "launcher.backends.local.traits:TRAITS",
    "docker": "launcher.backends.docker.traits:TRAITS",
    "kubernetes": "launcher.backends.kubernetes.traits:TRAITS",
    "lambda": "launcher.backends.lambda_labs.traits:TRAITS",
    "azureml": "launcher.backends.azureml.traits:TRAITS",
}


class MachineChoice(NamedTuple):
    """The machines that a job allows, one for each rank. `types`: any of them may be taken; `regions`: () for any;
    `spot`: machines that may be taken away, which have prices of their own."""

    types: tuple[str, ...]
    regions: tuple[str, ...] = ()
    spot: bool = False


class Traits(msgspec.Struct, frozen=True):
    """What is known of a backend without loading it. The defaults are the careful ones: a remote backend that costs
    money.

    module           has `make(options) -> Backend`; imported when the backend is first used
    block            the backend's options: its block in a job and, unless `settings` says otherwise, in slipway.yaml
    defaults         options of the block that are left out of job.json at these values, so that no old hash changes
    choices          options of which a block uses one, each with the options that belong to it: a job that has one of
                     them takes none of the others from slipway.yaml
    machine          options of the block that mean something on this machine only (a name in its kubeconfig): never in
                     job.json, so in no hash
    settings         what its block in slipway.yaml holds instead, where that is not the defaults of jobs
    extra            the extra of this distribution that installs its SDK
    bills            it costs money while a run lasts: a job must have a deadline
    machines         the block -> the machines that a provider bills, one for each rank: a run needs a known price;
                     None: it costs what the profile says for GPUs or cores, and nothing without
    outlives         the job -> seconds for which its machines may live, and are billed, beyond its deadline;
                     None: for no longer
    needs_digest     images must be pinned by a digest
    runs_images      a role runs in an image; without it in the launcher's own Python environment
    venv             its block may have `venv`: a Python environment for roles that name no image
    on_this_machine  it shares the local supervisor, its slots and `launcher secrets` with the local backend
    carries          its objects carry their jobs (`Carries` in launcher/backends/abilities.py): others may create them
    spawners         on this machine: `module:function` that gives the supervisor its way to start members
    diagnosis        `module:function` that takes the profile and yields the CheckResults that `launcher doctor` prints;
                     without it `launcher doctor` only tries to load the backend
    """

    module: str
    block: Struct
    defaults: Mapping[str, Any] = {}
    choices: Mapping[str, Sequence[str]] = {}
    machine: frozenset[str] = frozenset()
    settings: Struct | None = None
    extra: str | None = None
    bills: bool = True
    machines: Callable[[Mapping[str, Any]], MachineChoice] | None = None
    outlives: Callable[[ResolvedJob], float] | None = None
    needs_digest: bool = True
    runs_images: bool = True
    venv: bool = False
    on_this_machine: bool = False
    carries: bool = False
    spawners: str = ""
    diagnosis: str = ""


# the traits of a backend that a run in a store names but that is not installed here
UNKNOWN: Final = Traits("", Struct("a block"))


@cache
def backends() -> Mapping[str, Traits]:
    """Name -> traits: the built-in backends, then those of installed distributions, sorted by name. Raises BadInput
    for an entry point that cannot be used."""
    table = {name: _load(name, target) for name, target in BUILT_IN.items()}
    for name, target, distribution in sorted(_installed()):
        where = f"backend `{name}` of the distribution `{distribution}`"
        if not re.fullmatch(NAME, name):
            raise BadInput(f"{where}: its name is not allowed; allowed: a-z first, then a-z, 0-9 and -")
        if name in table:
            raise BadInput(f"{where}: there is a backend of this name; uninstall one of them")
        try:
            table[name] = _load(name, target)
        except (ImportError, AttributeError, TypeError) as error:
            raise BadInput(f"{where}: `{target}` cannot be loaded: {error}; fix or uninstall it") from None
    return table


def traits(name: str) -> Traits:
    """The traits of a backend; UNKNOWN for one that is not installed here, which a run in a store may name."""
    return backends().get(name, UNKNOWN)


# The block of a backend in a job, over the one in slipway.yaml.


def merged(backend: str, general: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The profile's options (`general`) with the job's over them. Of options that exclude each other (Traits.choices)
    the job's one takes the place of the profile's."""
    choices = traits(backend).choices
    others = {option: belonging for option, belonging in choices.items() if option not in own}
    if len(others) < len(choices):
        dropped = {*others, *(name for belonging in others.values() for name in belonging)}
        general = {name: value for name, value in general.items() if name not in dropped}
    return {**general, **own}


def without_defaults(backend: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A backend's block without options at their defaults, so that a written default changes no hash."""
    defaults = traits(backend).defaults
    return {key: value for key, value in options.items() if key not in defaults or value != defaults[key]}


def of_machine(backend: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a backend's block that means something on this machine only."""
    own = traits(backend).machine
    return {key: value for key, value in options.items() if key in own}


def portable(backend: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a backend's block that job.json holds."""
    own = traits(backend).machine
    return {key: value for key, value in options.items() if key not in own}


FIELD: Final = "wait_for_capacity"  # of the blocks of backends that wait


def check_wait(runs: Iterable[ResolvedJob], seconds: float) -> float:
    """`seconds`. Raises BadInput where a run's backend does not wait, or where its first machine would be billed while
    it waits for the others: only what the job itself says is known to who ends such a machine (`launcher reap`)."""
    for job in runs:
        if FIELD not in traits(job.backend).block.fields:
            able = ", ".join(name for name, each in backends().items() if FIELD in each.block.fields)
            raise BadInput(f"{job.name}: {job.backend} does not wait for capacity; allowed: {able}")
        if len(job.members()) > 1:
            raise BadInput(
                f"{job.name} needs {len(job.members())} machines, and reap must know how long the first may wait for "
                f"the others; allowed: `{job.backend}: {{{FIELD}: 6h}}` in the job"
            )
    return seconds


def _load(name: str, target: str) -> Traits:
    module, _, variable = target.partition(":")
    loaded = getattr(import_module(module), variable)
    if not isinstance(loaded, Traits):
        raise TypeError(f"`{variable}` is not a launcher.spec.backends.Traits")
    return loaded


def _installed() -> Iterator[tuple[str, str, str]]:
    """(name, module:variable, distribution) of every entry point of GROUP. Imports `importlib.metadata` only if a
    distribution mentions the group, because the import takes longer than a search of the files."""
    if not any(map(_mentions, _entry_point_files())):
        return
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        yield point.name, point.value, point.dist.name if point.dist is not None else "?"


def _entry_point_files() -> Iterator[str]:
    for folder in dict.fromkeys(sys.path):
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208 - every command does this; pathlib takes twice as long
        except OSError:  # a zip file, or a missing folder
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                yield os.path.join(folder, name, "entry_points.txt")  # noqa: PTH118


def _mentions(path: str) -> bool:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return GROUP.encode() in file.read()
    except OSError:
        return False
