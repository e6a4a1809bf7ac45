"""The forms of names, labels and keys that Kubernetes accepts (apimachinery's util/validation), and helpers for
rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from launcher.backends.kubernetes.check.strict import SchemaFinding, SchemaFindings
from launcher.spec.values.problems import near, show
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
MAX_ANNOTATIONS: Final = 256 * 1024


class Say(NamedTuple):
    """Collects the errors in a value of an object. `route`: where the value is; an error is at a route below it, or at
    a name there."""

    found: SchemaFindings
    version: tuple[int, int]
    route: Route = ()

    def __call__(
        self,
        at: str | Route,
        message: str,
        allowed: str = "",
        *,
        key: bool = False,
        policy: str = "",
        judged: bool = True,
    ) -> None:
        """`policy`: the house policy (check/policies.py) that is broken, where a cluster takes the object."""
        route = (*self.route, *((at,) if at and isinstance(at, str) else at))
        self.found.append(SchemaFinding(route, message, allowed, key, policy, judged))

    def into(self, *keys: str | int) -> Say:
        """The same for a value within this one."""
        return self._replace(route=(*self.route, *keys))

    def each(self, value: Any, *paths: str) -> Iterator[tuple[Say, dict[str, Any]]]:
        """The mappings of the lists at these paths, with what says something of each."""
        for path in paths:
            for route, item in items(value, path):
                yield self.into(*route), item

    def form(self, at: str | Route, value: Any, form: Form, *, key: bool = False) -> bool:
        """Whether a text has the form; reports it when not."""
        if type(value) is not str:
            return False
        if len(value) > form.most:
            self(at, f"{show(value)} has {len(value)} characters", f"at most {form.most}", key=key)
        elif form.pattern.fullmatch(value) is None:
            self(at, f"{show(value)} is not {form.what}", form.allowed, key=key)
        else:
            return True
        return False

    def one_of(self, value: Mapping[str, Any], fields: tuple[str, ...], shown: str = "") -> str:
        """The one field of several that is set; reports when it is not exactly one. `shown`: the names for the
        message."""
        present = [name for name in fields if name in value]
        if len(present) == 1:
            return present[0]
        named = " and ".join(f"`{name}`" for name in present)
        message = f"has {named}" if present else "has none of the fields that say what it is"
        self("", message, f"one of {shown or ', '.join(fields)}")
        return ""

    def missing(self, name: str, why: str = "", allowed: str = "", policy: str = "") -> None:
        self("", f"`{name}` is missing{why}", allowed, key=True, policy=policy)

    def choice(self, at: str, value: str, allowed: Collection[str], hint: bool = False) -> None:
        """Reports a text that is none of a few."""
        if value not in allowed:
            self(at, f"{show(value)} is not one of them{near(value, allowed) if hint else ''}", ", ".join(allowed))

    def once(self, at: str, value: str, seen: set[str], message: str = "", allowed: str = "each once") -> None:
        """Reports a text that was seen before."""
        if value and value in seen:
            self(at, message or f"{show(value)} is listed twice", allowed)
        seen.add(value)


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


def qualified(say: Say, key: Any, at: Route = ()) -> bool:
    """`prefix/name` or `name`: the keys of labels and annotations, resources, conditions."""
    if type(key) is not str or _is_qualified(key):
        return type(key) is str
    prefix, slash, name = key.rpartition("/")
    if slash and not say.form(at, prefix, SUBDOMAIN, key=True):
        return False
    return say.form(at, name, NAME, key=True)


@lru_cache(maxsize=1024)
def _is_qualified(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    return _fits(name, NAME) and (not slash or _fits(prefix, SUBDOMAIN))


def _fits(value: str, form: Form) -> bool:
    return len(value) <= form.most and form.pattern.fullmatch(value) is not None


def labels(say: Say, value: Any) -> None:
    for key, item in mapping(value).items():
        if qualified(say, key, (key,)):
            say.form((key,), item, VALUE)


def annotation_sizes(say: Say, value: Any) -> None:
    given = mapping(value)
    for key in given:
        qualified(say, key.lower(), (key,))
    size = sum(len(key.encode()) + len(item.encode()) for key, item in given.items() if type(item) is str)
    if size > MAX_ANNOTATIONS:
        say("", f"{size:,} bytes of annotations", f"at most {MAX_ANNOTATIONS:,}")


def selects(chosen: Any, given: Mapping[str, Any]) -> bool:
    """Whether a selector's matchLabels match these labels; expressions are ignored."""
    return all(given.get(key) == value for key, value in mapping(chosen, "matchLabels").items())


# Rules of one field. `say` is at the field, `value` is what it holds, of any type.
FieldRule = Callable[[Say, Any], object]


def least(bound: int, policy: str = "") -> FieldRule:
    def check(say: Say, value: Any) -> None:
        if type(value) is int and value < bound:
            say("", f"`{value}` is too small", f"{bound} or more", policy=policy)

    return check


def between(low: int, high: int) -> FieldRule:
    def check(say: Say, value: Any) -> None:
        for at, item in enumerate(value) if type(value) is list else ((None, value),):
            if type(item) is int and not low <= item <= high:
                say(() if at is None else (at,), f"`{item}` is out of range", f"{low} to {high}")

    return check


def formed(form: Form, *, empty: bool = False) -> FieldRule:
    """`empty`: an empty text counts as left out."""

    def check(say: Say, value: Any) -> None:
        if value or not empty:
            say.form("", value, form)

    return check


def port(say: Say, value: Any) -> None:
    """A number, or a name where the schema allows one."""
    if type(value) is int and not 1 <= value <= 65535:
        say("", f"`{value}` is not a port", "1 to 65535")
    elif value:
        say.form("", value, PORT)


def some_port(say: Say, value: Any) -> None:
    """The same where 0 and nothing count as left out."""
    port(say, value or None)


def file_mode(say: Say, value: Any) -> None:
    if type(value) is int and not 0 <= value <= 0o777:
        say("", f"`{value}` is not a file mode", "0 to 0777, which is 511")
