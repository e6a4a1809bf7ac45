"""Objects -> YAML for people: keys in the order of the object, a short comment where a choice needs its reason.

It has its own emitter, because PyYAML writes no comments and its output changes with its version. Strings are unquoted
only where YAML 1.1 (PyYAML, Kubernetes) and YAML 1.2 both read them as strings. job.json is a literal block with one
field a line, so that a diff shows which field of a job changed. The emitter handles only the values that objects have:
strings, integers, booleans, mappings, and lists that contain no lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from launcher.spec.values.yaml_text import dump as dump_plain

# key, or key=value -> the reason for it. A key has the same meaning wherever it occurs
COMMENTS: Final[dict[str, str]] = {
    "backoffLimit": "restarts are the runtime's decision (exit code 78 ends it); this stops what never runs",
    "backoffLimit=0": "one rank's end is the end of the attempt: the set restarts as a whole",
    "backoffLimitPerIndex": "each run by itself; restarts are the runtime's decision (exit code 78 ends it)",
    "podReplacementPolicy": "the next attempt starts when the last one's pod is gone, never beside it",
    "podFailurePolicy": "78: never again; a disruption (drain, preemption, eviction) is nobody's failure",
    "failurePolicy": "78: never again; a disruption restarts all without being counted; anything else restarts all",
    "restartStrategy": "no pod of the next generation starts while one of the last is there",
    "network": "ranks find each other by the pods' names, before they are ready",
    "dependsOn": "started when these have succeeded",
    "activeDeadlineSeconds": "backstop of limits.deadline, which the runtime keeps; on the pod, so that its log stays",
    "terminationGracePeriodSeconds": "the command's own save (limits.grace), then the upload, then a margin",
    "configMapKeyRef": "tells this cluster from another that has the same store",
    "automountServiceAccountToken": "the runtime never talks to the cluster",
    "enableServiceLinks": "no variables about the namespace's services in the command's environment",
    "topologySpreadConstraints": "ranks on different nodes",
    "requests": "CPU has no limit, idle cores may be used; memory is asked for as much as may be used",
    "serviceAccountName": "identity towards the store and other cloud services",
    "medium": "in memory: counts as the container's memory",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "a half-empty node is cheaper than a restart from a checkpoint",
    "ttlSecondsAfterFinished": "direct submit only: a GitOps controller would make the finished object again",
}


def dump(documents: Sequence[Mapping[str, Any]], header: str = "", comments: Mapping[str, str] = COMMENTS) -> str:
    """The text of a file: `header` as a comment, then the documents, a newline at the end."""
    lines: list[str] = [f"# {header}"] if header else []
    for number, document in enumerate(documents):
        if number:
            lines.append("---")
        _mapping(document, "", lines, "", comments)
    return "\n".join(lines) + "\n"


def _mapping(
    value: Mapping[str, Any], indent: str, lines: list[str], opening: str, comments: Mapping[str, str]
) -> None:
    """Adds the lines of a mapping; `opening` comes before its first key (`- ` in a list)."""
    deeper = indent + "  "
    for key, item in value.items():
        if (comment := comments.get(key)) is not None and opening == indent:
            lines.append(f"{indent}# {comments.get(f'{key}={item}', comment) if type(item) is int else comment}")
        kind = type(item)
        if kind is str:
            lines.append(f"{opening}{_key(key)}: {_string(item, deeper)}")
        elif kind is dict and item:
            lines.append(f"{opening}{_key(key)}:")
            _mapping(item, deeper, lines, deeper, comments)
        elif kind is list and item:
            lines.append(f"{opening}{_key(key)}:")
            _list(item, indent, lines, comments)
        else:
            lines.append(f"{opening}{_key(key)}: {_other(item)}")
        opening = indent


def _list(value: Sequence[Any], indent: str, lines: list[str], comments: Mapping[str, str]) -> None:
    start = f"{indent}- "
    for item in value:
        kind = type(item)
        if kind is dict and item:
            _mapping(item, indent + "  ", lines, start, comments)
        elif kind is str:
            lines.append(start + _string(item, indent + "  "))
        else:
            lines.append(start + _other(item))


def _other(value: Any) -> str:
    """A value that is neither a string nor a block."""
    if value is True or value is False:
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    if value in ({}, []):
        return "{}" if type(value) is dict else "[]"
    raise TypeError(f"no value of a Kubernetes object: {value!r}")


@lru_cache(maxsize=1024)
def _key(value: str) -> str:
    return dump_plain({value: 0}).removesuffix(": 0\n")


@lru_cache(maxsize=4096)
def _scalar(value: str) -> str:
    """A string of one line. JSON is put in single quotes, unchanged."""
    if value.startswith('{"') and value.isascii() and value.isprintable() and "'" not in value:
        return f"'{value}'"
    return dump_plain(value)[:-1]


def _string(value: str, indent: str) -> str:
    """A string. Several lines become a literal block where YAML can hold them, and are quoted otherwise."""
    if "\n" not in value:
        return _scalar(value)
    text = dump_plain(value)[:-1]
    if not text.startswith("|"):
        return text
    first, *rest = text.split("\n")
    return "\n".join([first, *(indent + line[2:] if line else line for line in rest)])
