"""Combines the variants of upstream matrix jobs: the consumer has one run for each combination of upstream runs with
equal matrix values."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from launcher.spec.hashing import canonical
from launcher.spec.model import Input, ResolvedJob

if TYPE_CHECKING:
    from launcher.spec.code.venv import VenvArchive
    from launcher.spec.read.load import LoadedJob, Variant


Axis = tuple[str, str]  # (job, path of its matrix)
_BETWEEN: Final = 10  # intermediate combinations may exceed the limit of the result by this factor


class ResolvedRun(msgspec.Struct, frozen=True):
    """A run, with the facts that downstream runs need."""

    job: ResolvedJob
    run: str
    work: str
    picks: Mapping[Axis, Any]  # its own matrix values and those of the runs it depends on
    label: str  # "lr=1e-05,seed=0"; empty without a matrix
    upstream: tuple[str, ...]
    source: tuple[LoadedJob, Variant]
    environments: tuple[VenvArchive, ...] = ()


class Runs:
    """The runs of one job, indexed once for all variants that take inputs from them."""

    def __init__(self, made: Iterable[ResolvedRun]) -> None:
        self.made = tuple(made)
        self.checkpoints = {
            name for run in self.made for name, output in run.job.outputs.items() if output.kind == "checkpoints"
        }
        self.axes = frozenset(axis for run in self.made for axis in run.picks)
        self._indexes: dict[tuple[Axis, ...], dict[bytes, list[ResolvedRun]]] = {}

    def agreeing(self, picks: Mapping[Axis, Any]) -> list[ResolvedRun]:
        """The runs, in order, whose matrix values equal those in `picks` on every axis that both have."""
        common = tuple(axis for axis in picks if axis in self.axes)
        if common not in self._indexes:
            index: dict[bytes, list[ResolvedRun]] = {}
            for run in self.made:
                index.setdefault(_form(run.picks, common), []).append(run)
            self._indexes[common] = index
        return self._indexes[common].get(_form(picks, common), [])


def _form(picks: Mapping[Axis, Any], axes: tuple[Axis, ...]) -> bytes:
    """The picks on these axes as canonical JSON, in which `1`, `1.0` and `true` differ."""
    return canonical([picks[axis] for axis in axes])


Combination = tuple[dict[Axis, Any], dict[str, Input], tuple[str, ...]]  # (matrix values, inputs, runs they come from)


def joined(
    items: Mapping[str, Mapping[str, Any]], made: Mapping[str, Runs], own: Mapping[Axis, Any], *, at_most: int
) -> list[Combination] | None:
    """The combinations of upstream runs: inputs from the same matrix are joined on their values, inputs from different
    matrices are multiplied. None if there are more than `at_most`."""
    combinations: list[tuple[dict[Axis, Any], dict[str, Input], tuple[str, ...], dict[str, ResolvedRun]]]
    combinations = [(dict(own), {}, (), {})]
    for name, item in items.items():
        if "job" not in item:
            combinations = [(p, {**i, name: plain_input(item)}, u, j) for p, i, u, j in combinations]
            continue
        job = item["job"]
        candidates = made[job] if job in made else Runs(())
        step = item.get("step") or ("latest" if item["output"] in candidates.checkpoints else None)
        common: dict[str, Any] = {"output": item["output"], "step": step, "job": job}
        if item.get("all"):
            works = Input(works={resolved.label: resolved.work for resolved in candidates.made}, **common)
            runs = tuple(resolved.run for resolved in candidates.made)
            combinations = [(p, {**i, name: works}, _union(u, runs), j) for p, i, u, j in combinations]
            continue
        further = []
        for picks, inputs, upstream, jobs in combinations:
            for resolved in [jobs[job]] if job in jobs else candidates.agreeing(picks):
                extended = {**inputs, name: Input(work=resolved.work, **common)}
                further.append(
                    ({**picks, **resolved.picks}, extended, _union(upstream, (resolved.run,)), {**jobs, job: resolved})
                )
            if len(further) > at_most * _BETWEEN:
                return None
        combinations = further
    return [(p, i, u) for p, i, u, _ in combinations] if len(combinations) <= at_most else None


def plain_input(item: Mapping[str, Any]) -> Input:
    """An input that does not come from another job of the same submit."""
    if "run" in item:
        return Input(run=item["run"], output=item["output"], step=item.get("step"))
    return Input(url=item["url"], digest=item.get("digest"))


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def label(picks: Mapping[tuple[str, str], Any]) -> str:
    """`lr=1e-05,seed=0`, from (job, path) -> value; empty without a matrix. It is also the variant's folder name in an
    `all: true` input, so it has only safe characters."""
    shorts = [path.rpartition(".")[2] for _, path in picks]
    parts = []
    for ((job, path), value), short in zip(picks.items(), shorts, strict=True):
        name = short if shorts.count(short) == 1 else f"{job}.{path}"
        text = value if type(value) is str else canonical(value).decode()
        if not re.fullmatch(r"[A-Za-z0-9._+-]{1,40}", text) or text in (".", ".."):
            text = hashlib.sha256(canonical(value)).hexdigest()[:8]
        parts.append(f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}={text}")
    return ",".join(parts)


def label_of(name: str, variant: Mapping[str, Any]) -> str:
    """The label of a resolved job `name`. In its `variant`, an axis of another job has the key `job:path`."""
    picks = {}
    for path, value in variant.items():
        job, colon, rest = path.partition(":")
        picks[(job, rest) if colon else (name, path)] = value
    return label(picks)
