"""YAML files -> checked jobs. Reads only files: no network, clock or randomness."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from launcher.errors import BadInput
from launcher.spec.check.fields import check_job, check_reference_values, declared, find_cycle, topological
from launcher.spec.check.schema import JOB
from launcher.spec.profile import FILE as PROFILE_FILE
from launcher.spec.read import matrix, override
from launcher.spec.secrets.disclosure import disclosures
from launcher.spec.values.problems import Problems, near, show
from launcher.spec.values.source import STDIN, Places, Route, YamlDocument, read_file
from launcher.spec.values.types import Context, plain, refuse_nul, refuse_tokens

if TYPE_CHECKING:
    from launcher.spec.code.overlay import Overlay


class Variant(msgspec.Struct, frozen=True):
    """One combination of a matrix. A job without a matrix has a single variant; its `chosen` is empty."""

    values: Mapping[str, Any]  # checked, in final form: seconds, bytes, texts
    chosen: Mapping[str, Any]  # matrix path -> value
    at: Context


class LoadedJob(msgspec.Struct, frozen=True):
    """One document."""

    name: str
    folder: Path  # of the file; local paths are relative to it
    variants: tuple[Variant, ...]
    at: Context
    code: Overlay | None = None  # as in the file; `resolve` adds the folders that are never packed


class Loaded(msgspec.Struct, frozen=True):
    """Jobs; each comes after the jobs that it takes inputs from."""

    jobs: tuple[LoadedJob, ...]


def load(paths: Sequence[str], *, overrides: Sequence[str] = (), cwd: Path) -> Loaded:
    """Files and folders -> jobs; `-` is standard input, whose paths are relative to `cwd`. Raises one BadInput with the
    problems of all files."""
    problems = Problems()
    contexts: list[Context] = []
    folders: list[Path] = []
    for file, shown, from_folder in _files(paths, cwd, problems):
        for document in read_file(file, shown, problems):
            if from_folder and not looks_like_job(document.value):
                continue
            contexts.append(Context(document, problems))
            folders.append(file.parent if file is not None else cwd)
    if not contexts and not problems.found:
        raise BadInput(f"no job in {', '.join(paths) or 'nothing'}: a job has `name:` and `command:` or `roles:`")
    return _loaded(contexts, folders, overrides, problems)


def load_value(
    value: Mapping[str, Any], sources: dict[Route, tuple[str, int, int]], *, cwd: Path, overrides: Sequence[str] = ()
) -> Loaded:
    """Reads a job that is not in a file as `load` would. `sources`: field -> (its place for messages, 0, 0). Local
    paths are relative to `cwd`. Raises BadInput."""
    problems = Problems()
    at = Context(YamlDocument("the job", None), problems, sources)
    at.document.value = plain(at, value)
    problems.check()
    return _loaded([at], [cwd], overrides, problems)


def _loaded(
    contexts: Sequence[Context], folders: Sequence[Path], overrides: Sequence[str], problems: Problems
) -> Loaded:
    override.apply(overrides, contexts, problems)
    jobs = [job for at, folder in zip(contexts, folders, strict=True) if (job := _job(at, folder)) is not None]
    needs = edges(jobs)
    problems.check()
    by_name = {job.name: job for job in jobs}
    return Loaded(tuple(_with_code(by_name[name], problems) for name in topological(needs)))


def _files(paths: Sequence[str], cwd: Path, problems: Problems) -> Iterator[tuple[Path | None, str, bool]]:
    """(file, its name in messages, whether it comes from a folder), each file once. The file is None for standard
    input."""
    seen: set[str] = set()
    for index, given in enumerate(paths):
        if given == "-":
            if "-" in paths[:index]:
                problems.add(STDIN, 0, 0, "", "named twice; it can be read only once")
            else:
                yield None, STDIN, False
            continue
        if not given:
            problems.add(f"path {index + 1}", 0, 0, "", "is empty", "a file or a folder; `.` is the working folder")
            continue
        path = cwd / given
        try:
            if path.is_dir():
                inside = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml"))
                files = [(file, os.path.join(given, file.name), True) for file in inside if file.name != PROFILE_FILE]  # noqa: PTH118 - keeps the user's own spelling
            elif path.exists():
                files = [(path, given, False)]
            else:
                problems.add(given, 0, 0, "", "no such file or folder")
                continue
        except OSError as error:
            problems.add(given, 0, 0, "", f"cannot be read: {error.strerror}")
            continue
        for file, shown, from_folder in files:
            real = os.path.realpath(file)  # Path.resolve() raises for a link that leads to itself
            if real not in seen:
                seen.add(real)
                yield file, shown, from_folder


def looks_like_job(value: Any) -> bool:
    """Whether a document that nobody called a job is one: it has at least two fields of a job. So a misspelled
    `command` is reported, and a kustomization is not taken for a job."""
    return type(value) is dict and len(value.keys() & JOB.fields.keys()) >= 2 and "apiVersion" not in value


def _job(at: Context, folder: Path) -> LoadedJob | None:
    raw = at.document.value
    refuse_tokens(at, raw)
    for route, message, allowed in disclosures(raw):
        at.problem(route, message, allowed)
    refuse_nul(at, raw)
    if type(raw) is not dict:
        JOB.check(raw, (), at)
        return None
    if {"apiVersion", "kind"} <= raw.keys():
        told = f"is a manifest of Kubernetes ({show(raw['kind'])}), not a job"
        at.problem((), told, "a job; `kubectl apply` sends a manifest to a cluster, `launcher validate` checks it")
        return None
    variants = tuple(_variants(at, folder)) if "matrix" in raw else (_checked(at, {}, folder),)
    name = raw.get("name")
    return LoadedJob(name, folder, variants, at) if type(name) is str else None


def _checked(at: Context, chosen: Mapping[str, Any], folder: Path) -> Variant:
    values = JOB.check(at.document.value, (), at)
    check_job(values, at)
    return Variant(_located(values, folder), chosen, at)


def _located(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The values with local paths of inputs as file:// URLs."""
    inputs = values.get("inputs")
    if not inputs:
        return values
    return {**values, "inputs": {name: _located_input(item, folder) for name, item in inputs.items()}}


def _located_input(item: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    url = item.get("url")
    if url is None or ("://" in url and not url.startswith("file://")):
        return item
    path = os.path.expanduser(url.removeprefix("file://"))  # noqa: PTH111 - Path would drop a slash at the end
    return {**item, "url": f"file://{os.path.abspath(folder / path)}"}  # noqa: PTH100 - resolve() follows links


def _variants(at: Context, folder: Path) -> Iterator[Variant]:
    """The product of the matrix in the order of the file; the last path varies fastest."""
    raw = at.document.value
    axes = matrix.axes(at)
    base = {key: value for key, value in raw.items() if key != "matrix"}
    if axes is None:
        yield _checked(at, {}, folder)
        return
    first: Variant | None = None
    if all(route[0] == "config" for route, _ in axes.values()):
        # only config varies: the shared fields are checked once, and each value once
        first = _checked(at, {}, folder)
        for path, (_, items) in axes.items():
            for index, item in enumerate(items):
                check_reference_values(item, ("matrix", path, index), first.values, at)
        if at.problems.found:
            yield first
            return
        base = {"config": first.values.get("config", {})}
    moved = matrix.moved_positions(at.document, axes) if first is None else {}
    for picks in product(*(range(len(items)) for _, items in axes.values())):
        chosen: dict[str, Any] = {}
        sources = dict(at.sources)
        value = base
        places: list[Places] = []
        for pick, (path, (route, items)) in zip(picks, axes.items(), strict=True):
            try:
                value = override.replaced(value, route, items[pick])
            except KeyError as error:
                at.problem(("matrix", path), override.leads_nowhere(error), key=True)
                return
            chosen[path.removeprefix("+")] = items[pick]
            sources[route] = at.place(("matrix", path, pick))
            places.append(moved.get((path, pick), {}))
        # a ChainMap, not a copy for each variant: a large matrix has many places
        over = at.document.places if first is not None else ChainMap(*places, at.document.places)
        here = Context(YamlDocument(at.document.file, value, over), at.problems, sources)
        yield _checked(here, chosen, folder) if first is None else Variant({**first.values, **value}, chosen, here)


def _with_code(job: LoadedJob, problems: Problems) -> LoadedJob:
    code = job.variants[0].values.get("code")
    if code is None:
        return job
    from launcher.spec.code.overlay import Overlay

    given = code.get("folder", ".")
    folder = job.folder / given
    if not os.path.isdir(folder):  # noqa: PTH112 - Path.is_dir raises for a name that no system allows
        job.at.problem(("code",), f"`{given}` is not a folder", "a folder, relative to this file")
        problems.check()
    return msgspec.structs.replace(job, code=Overlay(folder, tuple(code.get("include", ()))))


# Finds which jobs take inputs from which, and checks these inputs.


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
