"""Finds which jobs take inputs from which, and checks these inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from launcher.spec.check.fields import declared, find_cycle
from launcher.spec.values.problems import near
from launcher.spec.values.source import Route
from launcher.spec.values.types import Context

if TYPE_CHECKING:
    from launcher.spec.read.loaded import LoadedJob


def edges(jobs: Sequence[LoadedJob]) -> dict[str, list[str]]:
    """job -> the jobs that it takes inputs from. Adds a problem for each wrong link between jobs."""
    by_name: dict[str, LoadedJob] = {}
    for job in jobs:
        first = by_name.setdefault(job.name, job)
        if first is not job:
            file, line, _ = first.at.place(("name",))
            job.at.problem(("name",), f"`{job.name}` is already used in {file}:{line}", "a unique name")
    links = _Links(by_name)
    sources: dict[str, dict[str, None]] = {name: {} for name in by_name}
    for job in jobs:
        for variant in job.variants:
            for name, item in variant.values.get("inputs", {}).items():
                if "job" in item and links.check(job, variant.at, name, item):
                    sources[job.name][item["job"]] = None
    cycle = find_cycle(sources)
    if cycle:
        by_name[cycle[0]].at.problem(("inputs",), f"jobs take inputs from each other in a cycle: {' -> '.join(cycle)}")
    return {name: list(upstream) for name, upstream in sources.items()}


class _Links:
    """Checks inputs from jobs. Facts about a job are computed once, not for every variant that needs them."""

    def __init__(self, by_name: Mapping[str, LoadedJob]) -> None:
        self.by_name = by_name
        self.many: dict[str, bool] = {}
        self.kinds: dict[str, set[str]] = {}  # job -> its outputs that hold checkpoints
        self.upstream: dict[str, set[str]] = {}  # job -> jobs that it reads from variant by variant

    def check(self, job: LoadedJob, at: Context, name: str, item: Mapping[str, Any]) -> bool:
        """Whether the job that an input names exists. Adds a problem for each fault of the input."""
        route: Route = ("inputs", name)
        upstream = self.by_name.get(item["job"])
        if upstream is None:
            others = [other for other in self.by_name if other != job.name]
            message = f"no job `{item['job']}`{near(item['job'], others)}"
            at.problem((*route, "job"), message, ", ".join(others) or "no others")
            return False
        # compares with the outputs as written, so that a mistake in the upstream job is reported once
        outputs = declared(upstream.at.document.value.get("outputs"))
        wanted = item.get("output")
        if wanted is not None and outputs is not None and wanted not in outputs:
            message = f"`{item['job']}` has no output `{wanted}`{near(wanted, outputs)}"
            at.problem((*route, "output"), message, ", ".join(outputs) or "it declares none")
        elif wanted is not None and "step" in item and wanted not in self._checkpoints(upstream):
            at.problem((*route, "step"), f"`{wanted}` holds no checkpoints", "no `step`", key=True)
        if item.get("all") and not self._is_many(upstream):
            at.problem((*route, "all"), f"`{item['job']}` has no matrix", "no `all`", key=True)
        return True

    def _is_many(self, job: LoadedJob) -> bool:
        """Whether a job becomes several runs: it has a matrix, or reads variant by variant from a job that has one."""
        if job.name not in self.many:
            seen, waiting = {job.name}, [job]
            while waiting and "matrix" not in waiting[-1].at.document.value:
                for name in sorted(self._reads(waiting.pop()) - seen):
                    seen.add(name)
                    waiting.append(self.by_name[name])
            self.many[job.name] = bool(waiting)
        return self.many[job.name]

    def _reads(self, job: LoadedJob) -> set[str]:
        if job.name not in self.upstream:
            inputs = (item for variant in job.variants for item in variant.values.get("inputs", {}).values())
            names = {item["job"] for item in inputs if "job" in item and not item.get("all")}
            self.upstream[job.name] = names & self.by_name.keys()
        return self.upstream[job.name]

    def _checkpoints(self, job: LoadedJob) -> set[str]:
        if job.name not in self.kinds:
            self.kinds[job.name] = {
                name
                for variant in job.variants
                for name, output in variant.values.get("outputs", {}).items()
                if output.get("kind") == "checkpoints"
            }
        return self.kinds[job.name]
