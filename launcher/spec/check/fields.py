"""Rules between the fields of a job. The values are checked already; each problem names its place in the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from launcher.spec.check.variables import ENDPOINT, NAMES, PORT, endpoint, port, references
from launcher.spec.values.problems import near, one_line
from launcher.spec.values.source import Route, dotted
from launcher.spec.values.types import Context

_NAMED: Final = r"/([A-Za-z0-9_-]+)"
_FOLDERS: Final = {"SLIPWAY_INPUTS": "inputs", "SLIPWAY_OUTPUTS": "outputs"}
RESERVED: Final = "group"  # group ids are group-<hash12>


def check_job(values: Mapping[str, Any], at: Context) -> None:
    """Applies every rule that concerns a single job (one variant)."""
    if values.get("name") == RESERVED:
        at.problem(("name",), f"`{RESERVED}` is reserved: the ids of groups begin with it")
    _backends(values, at)
    _commands(values, at)
    _roles(values, at)
    _resources(values, at)
    _outputs(values, at)
    _secrets(values, at)
    _timing(values, at)
    _judged_tasks(values.get("config"), ("config",), at)
    check_references(values, at)


def repeated(at: Context) -> Iterator[str]:
    """A line for each name that a list of the document holds twice, where the second changes nothing."""
    document = at.document.value
    limits = document.get("limits")
    lists: dict[Route, Any] = {("outputs",): document.get("outputs"), ("secrets",): document.get("secrets")}
    lists["limits", "retry_on"] = limits.get("retry_on") if type(limits) is dict else None
    for route, names in lists.items():
        for index, name in enumerate(names if type(names) is list else ()):
            if name in names[:index]:
                file, line, _ = at.place((*route, index))
                yield one_line(f"{file}:{line}: {dotted(route)}: `{name}` is named twice, and counts once", 300)


def _backends(values: Mapping[str, Any], at: Context) -> None:
    given = values.get("backend")
    names: list[str] = given if type(given) is list else []
    for index, name in enumerate(names):
        if name in names[:index]:
            message = f"`{name}` is named twice: a run goes to each of its backends once"
            at.problem(("backend", index), message, "each backend once")


def _commands(values: Mapping[str, Any], at: Context) -> None:
    document = at.document.value
    if "roles" not in document and "command" not in document:
        at.problem(("command",), "is missing: program and arguments", "`command`, or `roles` with commands")
    for name, role in values.get("roles", {}).items():
        written = document["roles"][name] if type(document.get("roles")) is dict else {}
        if "command" not in role and "command" not in document and "command" not in (written or {}):
            at.problem(("roles", name), "has no command, and the job has none either", "`command`")


def _roles(values: Mapping[str, Any], at: Context) -> None:
    roles: Mapping[str, Any] = values.get("roles", {})
    leaders = [name for name, role in roles.items() if role.get("leader")]
    if len(roles) > 1 and len(leaders) != 1:
        leader_message = f"{', '.join(leaders)} all say `leader: true`" if leaders else "no role says `leader: true`"
        at.problem(("roles",), leader_message, "exactly one leader")
    if roles and "nodes" in values.get("resources", {}):
        at.problem(("resources", "nodes"), "is for jobs without roles", "`replicas` of a role")
    for name, role in roles.items():
        for index, needed in enumerate(role.get("needs", ())):
            if needed not in roles:
                others = [other for other in roles if other != name]
                message = f"no role `{needed}`{near(needed, others)}"
                at.problem(("roles", name, "needs", index), message, ", ".join(others))
        ready = role.get("ready")
        if ready is not None and "http" in ready:
            port = ready.get("port", "http")
            if port not in role.get("ports", {}):
                ports = ", ".join(role.get("ports", {})) or f"`ports: {{{port}: 8000}}` beside it"
                at.problem(("roles", name, "ready"), f"the role has no port `{port}`", ports)
    cycle = find_cycle({name: [n for n in role.get("needs", ()) if n in roles] for name, role in roles.items()})
    if cycle:
        at.problem(("roles", cycle[0], "needs"), f"roles need each other in a cycle: {' -> '.join(cycle)}")


def _resources(values: Mapping[str, Any], at: Context) -> None:
    blocks: dict[Route, Any] = {("resources",): values.get("resources", {})}
    for name, role in values.get("roles", {}).items():
        blocks["roles", name, "resources"] = role.get("resources", {})
    for route, resources in blocks.items():
        if "gpu" in resources and resources.get("gpus") == 0:
            at.problem((*route, "gpu"), "names a GPU, but `gpus` is 0", "`gpus: 1` or more")
    asked = any(resources.get("gpus") or "gpu" in resources for resources in blocks.values())
    if "gpu_idle" in values.get("limits", {}) and not asked:
        at.problem(("limits", "gpu_idle"), "the job asks for no GPU", "`resources: {gpus: 1}`, or no `gpu_idle`")


def _outputs(values: Mapping[str, Any], at: Context) -> None:
    for name, output in values.get("outputs", {}).items():
        checkpoints = output.get("kind") == "checkpoints"
        for key in ("match", "keep", "done"):
            if key in output and not checkpoints:
                at.problem(("outputs", name, key), "is for checkpoints", "`kind: checkpoints` beside it", key=True)
        if "sync" in output and checkpoints:
            at.problem(
                ("outputs", name, "sync"), "checkpoints are always uploaded as they appear", "no `sync`", key=True
            )


def _secrets(values: Mapping[str, Any], at: Context) -> None:
    secrets = values.get("secrets", [])
    environments: dict[Route, Any] = {("env",): values.get("env", {})}
    for name, role in values.get("roles", {}).items():
        environments["roles", name, "env"] = role.get("env", {})
    for index, secret in enumerate(secrets):
        if secret in secrets[:index]:
            at.problem(("secrets", index), f"`{secret}` is named twice")
        for route, names in environments.items():
            if secret in names:
                at.problem((*route, secret), "is a secret as well", "`env` or `secrets`, not both", key=True)


def _timing(values: Mapping[str, Any], at: Context) -> None:
    timing = {"beat": 15.0, "stale": 900.0, "fence": 720.0, **values.get("timing", {})}
    grace = values.get("limits", {}).get("grace", 30.0)
    place: Route = ("timing",) if "timing" in values else ("limits", "grace")
    if timing["fence"] + grace >= timing["stale"]:
        message = f"a command may live for fence + grace = {timing['fence'] + grace:g}s, which must be below stale"
        at.problem(place, message, f"less than {timing['stale']:g}s")
    if timing["beat"] * 2 > timing["fence"]:
        at.problem(place, f"fence ({timing['fence']:g}s) must leave time for two beats ({timing['beat']:g}s each)")


def _judged_tasks(value: Any, route: Route, at: Context) -> None:
    """Tasks of one's own in a config (`environment: sources`) of which nobody says who judges them: a training would
    learn nothing from them, and only find it out on its machine."""
    if type(value) is not dict:
        return
    options = value.get("options")
    if value.get("environment") == "sources" and type(options) is dict and type(options.get("sources")) is list:
        for number, source in enumerate(options["sources"]):
            written = source.get("tasks") if type(source) is dict and source.get("source") == "custom" else None
            for index, task in enumerate(written if type(written) is list else ()):
                judged = type(task) is dict and (task.get("validator"), task.get("judge")) != (None, None)
                if not judged:
                    place = (*route, "options", "sources", number, "tasks", index)
                    at.problem(place, "nobody judges this task", "`validator` or `judge`, as package.module:name")
    for key, item in value.items():
        _judged_tasks(item, (*route, key), at)


def check_references(values: Mapping[str, Any], at: Context) -> None:
    """Checks $SLIPWAY_* in command, config and env: names must be known, inputs and outputs declared."""
    roles: Mapping[str, Any] = values.get("roles", {})
    known = _known(roles)
    for key in ("command", "env", "config"):
        _walk(values.get(key), (key,), known, at)
    for name, role in roles.items():
        needed = {endpoint(other): other for other in role.get("needs", ())}
        needed |= {port(name): name for name in role.get("ports", {})}
        for key in ("command", "env"):
            _walk(role.get(key), ("roles", name, key), needed, at)


def _known(roles: Mapping[str, Any]) -> dict[str, str]:
    """Variables of addresses and ports that are allowed at the top of the job, where any role may read them."""
    ports = {port(name): name for role in roles.values() for name in role.get("ports", {})}
    return {endpoint(role): role for role in roles} | ports


def check_reference_values(value: Any, route: Route, values: Mapping[str, Any], at: Context) -> None:
    """As `check_references`, for a single value within config."""
    _walk(value, route, _known(values.get("roles", {})), at)


def _walk(value: Any, route: Route, endpoints: Mapping[str, str], at: Context) -> None:
    if type(value) is str:
        if "$" in value:
            _text(value, route, endpoints, at)
    elif type(value) is dict:
        for key, item in value.items():
            _walk(item, (*route, key), endpoints, at)
    elif type(value) is list:
        for index, item in enumerate(value):
            _walk(item, (*route, index), endpoints, at)


def _text(text: str, route: Route, endpoints: Mapping[str, str], at: Context) -> None:
    for name, rest in references(text):
        if name.startswith((ENDPOINT, PORT)):
            if name not in endpoints:
                message = f"${name} is not known here{near(name, endpoints)}"
                where = "roles named under `needs`" if name.startswith(ENDPOINT) else "names under `ports`"
                at.problem(route, message, ", ".join(f"${known}" for known in endpoints) or where)
        elif name not in NAMES:
            at.problem(route, f"${name} is not known{near(name, NAMES)}", ", ".join(NAMES))
        elif name in _FOLDERS and (match := re.match(_NAMED, rest)) is not None:
            # the names as written, so that a mistake in a declaration is reported only once
            known = declared(at.document.value.get(_FOLDERS[name]))
            if known is not None and match[1] not in known:
                message = f"${name}/{match[1]} is not declared under `{_FOLDERS[name]}`{near(match[1], known)}"
                at.problem(route, message, ", ".join(known) or "none declared")


def declared(written: Any) -> list[str] | None:
    """The names under `inputs` or `outputs`, as written; None for a malformed value, which is reported elsewhere."""
    if written is None:
        return []
    if type(written) not in (dict, list) or any(type(name) is not str for name in written):
        return None
    return list(written)


def find_cycle(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """The names of a cycle, with the first repeated at the end; empty if there is no cycle."""
    done: set[str] = set()
    for start in edges:
        path: list[str] = []
        stack = [(start, iter(edges.get(start, ())))] if start not in done else []
        while stack:
            name, rest = stack[-1]
            if len(path) < len(stack):
                path.append(name)
            following = next(rest, None)
            if following is None:
                done.add(name)
                path.pop()
                stack.pop()
            elif following in path:
                return [*path[path.index(following) :], following]
            elif following not in done:
                stack.append((following, iter(edges.get(following, ()))))
    return []


def topological(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """The names with dependencies first, otherwise in the given order. The edges must have no cycle."""
    order: dict[str, None] = {}
    stack = list(reversed(list(edges)))
    while stack:
        name = stack[-1]
        waiting = [other for other in edges[name] if other not in order]
        if name in order or not waiting:
            stack.pop()
            order.setdefault(name)
        else:
            stack.extend(reversed(waiting))
    return list(order)
