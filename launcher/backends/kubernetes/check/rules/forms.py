"""The forms of names, labels and keys that Kubernetes accepts (apimachinery's util/validation), and helpers for
rules."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from launcher.backends.kubernetes.check.strict import SchemaFinding, SchemaFindings
from launcher.spec.values.problems import show
from launcher.spec.values.source import Route


class Form(NamedTuple):
    what: str
    pattern: re.Pattern[str]
    most: int
    allowed: str


def _form(name: str, pattern: str, most: int, allowed: str) -> Form:
    return Form(name, re.compile(pattern), most, f"{allowed}, at most {most} characters")


_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
LABEL: Final = _form("a DNS label", _LABEL, 63, "a-z, 0-9, and - within")
LABEL_1035: Final = _form("a DNS label", r"[a-z](?:[a-z0-9-]*[a-z0-9])?", 63, "a-z first, then a-z, 0-9, and - within")
SUBDOMAIN: Final = _form("a DNS name", rf"{_LABEL}(?:\.{_LABEL})*", 253, "a-z, 0-9, and - or . within")
VALUE: Final = _form("a label's value", rf"(?:{_NAME})?", 63, "letters, digits, and -, _ or . within")
NAME: Final = _form("a key's name", _NAME, 63, "letters, digits, and -, _ or . within")
DATA_KEY: Final = _form("a key", r"(?!\.\.?$|\.\.)[-._a-zA-Z0-9]+", 253, "letters, digits, -, _ and .")
PORT: Final = _form("a port's name", r"(?=.*[a-z])(?!.*--)" + _LABEL, 15, "a-z, 0-9, and - within, one letter at least")
SEGMENT: Final = _form("a name", r"(?!\.\.?$)[^/%]+", 253, "no / and no %")


@dataclass(frozen=True)
class Say:
    """Collects the errors in one object."""

    found: SchemaFindings
    version: tuple[int, int]
    policy: str = ""  # of what names none

    def __call__(self, route: Route, message: str, allowed: str = "", *, key: bool = False, policy: str = "") -> None:
        """`policy`: the house policy (check/policies.py) that is broken, where a cluster takes the object."""
        self.found.append(SchemaFinding(route, message, allowed, key, policy or self.policy))

    def under(self, policy: str) -> Say:
        """The same for a part that the chosen version's server does not judge: its errors break `policy`."""
        return replace(self, policy=policy)

    def form(self, route: Route, value: Any, form: Form, *, key: bool = False) -> bool:
        """Whether a text has the form; reports it when not."""
        if type(value) is not str:
            return False
        if len(value) > form.most:
            self(route, f"{show(value)} has {len(value)} characters", f"at most {form.most}", key=key)
        elif form.pattern.fullmatch(value) is None:
            self(route, f"{show(value)} is not {form.what}", form.allowed, key=key)
        else:
            return True
        return False

    def one_of(self, value: Mapping[str, Any], route: Route, fields: tuple[str, ...], shown: str = "") -> str:
        """The one field of several that is set; reports when it is not exactly one. `shown`: the names for the
        message."""
        present = [name for name in fields if name in value]
        if len(present) == 1:
            return present[0]
        named = " and ".join(f"`{name}`" for name in present)
        message = f"has {named}" if present else "has none of the fields that say what it is"
        self(route, message, f"one of {shown or ', '.join(fields)}")
        return ""

    def missing(self, route: Route, name: str, why: str = "", allowed: str = "", policy: str = "") -> None:
        self(route, f"`{name}` is missing{why}", allowed, key=True, policy=policy)

    def choice(self, route: Route, value: str, allowed: Collection[str], hint: str = "") -> None:
        """Reports a text that is none of a few."""
        if value not in allowed:
            self(route, f"{show(value)} is not one of them{hint}", ", ".join(allowed))


def mapping(value: Any, *path: str) -> dict[str, Any]:
    """The mapping at a path of keys; empty where there is none."""
    for key in path:
        value = value.get(key) if type(value) is dict else None
    return value if type(value) is dict else {}


def _listed(value: Any, path: str, route: Route, kind: type) -> Iterator[tuple[Route, Any]]:
    for key in path.split("."):
        value, route = (value.get(key) if type(value) is dict else None), (*route, key)
    for index, item in enumerate(value if type(value) is list else ()):
        if type(item) is kind:
            yield (*route, index), item


def items(value: Any, path: str, route: Route = ()) -> Iterator[tuple[Route, dict[str, Any]]]:
    """The mappings of a list at a path of keys (`spec.volumes`), each with its route."""
    return _listed(value, path, route, dict)


def texts(value: Any, path: str, route: Route = ()) -> Iterator[tuple[Route, str]]:
    """The texts of a list at a path of keys, each with its route."""
    return _listed(value, path, route, str)


def containers(spec: Any, route: Route = ()) -> Iterator[tuple[Route, dict[str, Any]]]:
    """Every container of a pod's spec, each with its route."""
    for part in ("initContainers", "containers"):
        yield from items(spec, part, route)


def string(value: Any, key: str) -> str:
    text = value.get(key) if type(value) is dict else None
    return text if type(text) is str else ""


def number(value: Any, key: str) -> int | None:
    item = value.get(key) if type(value) is dict else None
    return item if type(item) is int else None


def least(say: Say, value: Mapping[str, Any], route: Route, fields: Mapping[str, int], policy: str = "") -> None:
    """Reports numbers below their lower bound."""
    for name, bound in fields.items():
        amount = number(value, name)
        if amount is not None and amount < bound:
            say((*route, name), f"`{amount}` is too small", f"{bound} or more", policy=policy)


def qualified(say: Say, key: str, route: Route) -> bool:
    """`prefix/name` or `name`: the keys of labels and annotations, resources, conditions."""
    if _is_qualified(key):
        return True
    prefix, slash, name = key.rpartition("/")
    if slash and not say.form(route, prefix, SUBDOMAIN, key=True):
        return False
    return say.form(route, name, NAME, key=True)


@lru_cache(maxsize=1024)
def _is_qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return _fits(name, NAME) and (not slash or _fits(prefix, SUBDOMAIN))


def _fits(value: str, form: Form) -> bool:
    return len(value) <= form.most and form.pattern.fullmatch(value) is not None


def labels(say: Say, value: Mapping[str, Any], route: Route) -> None:
    for key, item in value.items():
        at = (*route, key)
        if qualified(say, key, at):
            say.form(at, item, VALUE)


MAX_ANNOTATIONS: Final = 256 * 1024


def annotation_sizes(say: Say, value: Mapping[str, Any], route: Route) -> None:
    for key in value:
        qualified(say, key.lower(), (*route, key))
    size = sum(len(key.encode()) + len(item.encode()) for key, item in value.items() if type(item) is str)
    if size > MAX_ANNOTATIONS:
        say(route, f"{size:,} bytes of annotations", f"at most {MAX_ANNOTATIONS:,}")


def selector(say: Say, value: Any, route: Route) -> None:
    """A label selector: matchLabels, matchExpressions."""
    labels(say, mapping(value, "matchLabels"), (*route, "matchLabels"))
    for at, item in items(value, "matchExpressions", route):
        say.choice((*at, "operator"), expression(say, item, at), ("In", "NotIn", "Exists", "DoesNotExist"))


def expression(say: Say, value: Mapping[str, Any], route: Route) -> str:
    """Checks an entry of matchExpressions, and returns its operator."""
    qualified(say, string(value, "key"), (*route, "key"))
    operator, values = string(value, "operator"), value.get("values")
    if operator in ("In", "NotIn") and not values:
        say(route, f"{operator} needs `values`")
    elif operator in ("Exists", "DoesNotExist") and values:
        say((*route, "values"), f"{operator} takes no values")
    return operator


def selects(chosen: Any, given: Mapping[str, Any]) -> bool:
    """Whether a selector's matchLabels match these labels; expressions are ignored."""
    return all(given.get(key) == value for key, value in mapping(chosen, "matchLabels").items())
