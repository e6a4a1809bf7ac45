"""Jobs, profiles and overrides that nobody wrote: made from the schema, then bent; the same for the same seed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from launcher.spec.check import notify
from launcher.spec.check.schema import JOB
from launcher.spec.profile import PROFILE, NoPrice
from launcher.spec.values import structures, types
from tests.support import odd_values

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass
class Case:
    """One thing to try: what stands in job.yaml and slipway.yaml, the overrides, the backend (None: the job's own)."""

    seed: int
    job: str
    profile: str = ""
    overrides: list[str] = field(default_factory=list)
    backend: str | None = None


def case(seed: int) -> Case:
    """The case of a seed."""
    return _Maker(seed).case()


def override(seed: int) -> str:
    """One `--set`, often of a path that a job has."""
    return _Maker(seed).override()


class _Maker:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.noise = self.random.choice((0.0, 0.0, 0.03))  # how often a value is none that its type accepts
        self.depth = 0

    def case(self) -> Case:
        dice = self.random
        documents = [self.job() for _ in range(dice.choice((1, 1, 1, 2, 2, 3)))]
        if len(documents) > 1 and dice.random() < 0.7:
            self.bind(documents)
        for document in documents:
            for _ in range(dice.choice((0, 1, 1, 1, 2, 2, 3, 6)) if self.noise else dice.choice((0, 0, 1))):
                self.bend(document)
        text = "\n---\n".join(self.written(document) for document in documents)
        for _ in range(dice.choice((0, 0, 0, 1, 2)) if self.noise else 0):
            text = self.torn(text)
        overrides = [self.override() for _ in range(dice.choice((0, 0, 0, 1, 1, 2)) if self.noise else 0)]
        profile = ""
        if dice.random() < 0.2:
            value = self.value(PROFILE)
            for _ in range(dice.choice((0, 0, 1, 2)) if self.noise else 0):
                self.bend(value)
            profile = self.written(value)
        return Case(self.seed, text, profile, overrides, dice.choice((None, "local", "docker", "kubernetes")))

    def job(self) -> Any:
        """A job that could be one: some fields from the schema, or one that stands in this repository."""
        dice = self.random
        if dice.random() < 0.15:
            return json.loads(json.dumps(dice.choice(_written_jobs())))
        job: dict[str, Any] = {"name": self.text("a name"), "command": ["x", self.text("a text")]}
        if dice.random() < 0.8:
            job |= {"image": odd_values.IMAGE, "limits": {"deadline": "1h"}}
        if dice.random() < 0.3:
            job["kubernetes"] = {"namespace": "slipway", "store_secret": "slipway-store"}
        for name in dice.sample(sorted(JOB.fields), dice.randrange(0, 6)):
            job.setdefault(name, self.value(JOB.fields[name].type))
        if dice.random() < 0.25:
            paths = ("config.a", "config.b.c", "env.A", "resources.gpus", "command[0]", "+config.z", "outputs.m.kind")
            job.setdefault("config", {"a": 1, "b": {"c": 2}})
            job["matrix"] = {
                path: [self.any(2) for _ in range(dice.randrange(1, 4))]
                for path in dice.sample(paths, dice.randrange(1, 3))
            }
        return job

    def bind(self, documents: list[Any]) -> None:
        """Inputs from each other."""
        dice = self.random
        for document in documents[1:]:
            other = dice.choice(documents)
            if type(document) is dict and type(other) is dict:
                outputs = (["m"], {"m": {}}, {"m": {"kind": "checkpoints"}}, None, 1, {})
                other.setdefault("outputs", dice.choice(outputs if self.noise else outputs[:3]))
                item = {"job": other.get("name"), "output": "m"}
                item |= dice.choice(({}, {}, {"all": True}, {"step": "latest"}, {"step": 3}))
                document["inputs"] = {"i": item}

    def value(self, kind: Any) -> Any:
        """What a type accepts, mostly."""
        dice = self.random
        self.depth += 1
        try:
            if self.depth > 6:
                return self.any(0)
            return _MAKERS[type(kind)](self, kind) if dice.random() >= self.noise else self.any(2)
        finally:
            self.depth -= 1

    def text(self, name: str) -> str:
        return (
            self.random.choice(
                odd_values.GOOD[name] if self.noise or name not in odd_values.PLAIN else odd_values.PLAIN[name]
            )
            if name in odd_values.GOOD
            else "x"
        )

    def any(self, depth: int) -> Any:
        dice = self.random
        if depth and dice.random() < 0.3:
            if dice.random() < 0.5:
                return [self.any(depth - 1) for _ in range(dice.randrange(0, 4))]
            return {str(dice.choice(odd_values.ODD_TEXTS)): self.any(depth - 1) for _ in range(dice.randrange(0, 4))}
        return copy.deepcopy(dice.choice(odd_values.ODD))

    def bend(self, document: Any) -> None:
        """One change at a random place."""
        dice = self.random
        places = list(_places(document))
        if not places:
            return
        parent, key = dice.choice(places)
        what = dice.randrange(9)
        if what <= 3:
            parent[key] = self.any(2)
        elif what == 4:
            parent[key] = [parent[key]]
        elif what == 5:
            parent[key] = {dice.choice(("a", "x", "url", "job", "run", "kind", "")): parent[key]}
        elif what == 6:
            del parent[key]
        elif what == 7 and type(parent) is dict:
            parent[dice.choice((*JOB.fields, *odd_values.ODD_TEXTS, f"{key}s", str(key)[:-1]))] = parent.pop(key)
        else:
            other, place = dice.choice(places)
            try:
                parent[key] = json.loads(json.dumps(other[place]))
            except (KeyError, IndexError):
                parent[key] = None

    def written(self, value: Any) -> str:
        """As YAML, in one of the ways in which people and programs write it."""
        if self.random.random() < 0.5:
            return json.dumps(value, ensure_ascii=self.random.random() < 0.5)
        return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=self.random.random() < 0.5))

    def torn(self, text: str) -> str:
        """The text, damaged: characters, lines, anchors, aliases, merges, tags, duplicate keys, deep nesting."""
        dice = self.random
        at = dice.randrange(len(text) + 1)
        lines = text.split("\n")
        line = dice.randrange(len(lines))
        ways: tuple[Callable[[], str], ...] = (
            lambda: text[:at] + dice.choice("{}[],:&*!|>-?#%@`\"'\t\n\0\x07\ufffe é") + text[at:],
            lambda: text[:at] + text[at + dice.randrange(1, 20) :],
            lambda: "\n".join([*lines[:line], lines[line], *lines[line:]]),
            lambda: "\n".join([*lines[:line], *lines[line + 1 :]]),
            lambda: text[:at] + "&a " + text[at:],
            lambda: text[:at] + "*a " + text[at:],
            lambda: (
                text[:at]
                + dice.choice(("!!str ", "!!int ", "!!float ", "!!python/object:x ", "! ", "!!binary "))
                + text[at:]
            ),
            lambda: text[:at] + "{<<: *a, <<: [*a, *a]}" + text[at:],
            lambda: text[:at] + dice.choice("[{") * dice.choice((3, 70, 2000)) + text[at:],
            lambda: text + odd_values.BOMB,
            lambda: text + "\n? [a, b]\n: 1\n",
            lambda: (
                text
                + "\n"
                + dice.choice(("1: 2", "true: 1", "~: 1", "1.5: x", "a: " + "9" * 400, "config: 0x" + "f" * 99))
                + "\n"
            ),
        )
        return dice.choice(ways)()

    def override(self) -> str:
        dice = self.random
        if dice.random() < 0.2:
            return "".join(dice.choice('abc.[]=:+"0129\\$ \n*&{}') for _ in range(dice.randrange(0, 30)))
        names = [
            *JOB.fields,
            "config.a",
            "env.A",
            "resources.cpus",
            "limits.deadline",
            "roles.main.env.A",
            "matrix.config.a",
        ]
        path = dice.choice(names)
        for _ in range(dice.choice((0, 0, 1, 1, 2))):
            path += dice.choice(
                (".a", "[0]", ".0", "[99]", '."b.c"', ".m", ".kind", ".url", "." + "9" * 5000, ".", "[", "..x")
            )
        head = dice.choice(("", "", "", "+", "a:", "train:", "+b:", "nobody:"))
        return f"{head}{path}{dice.choice(('=', '=', '=', ''))}{self.written(self.any(2)).strip()}"


def _text(maker: _Maker, kind: types.Text) -> Any:
    return maker.text(kind.name)


def _integer(maker: _Maker, kind: types.Integer) -> Any:
    last = kind.least + 7 if kind.most is None else kind.most
    return maker.random.choice((kind.least, kind.least + 1, last, last + 1 if maker.noise else last))


def _list(maker: _Maker, kind: structures.ListOf) -> Any:
    return [maker.value(kind.item) for _ in range(maker.random.randrange(kind.least, kind.least + 3))]


def _map(maker: _Maker, kind: structures.MapOf) -> Any:
    return {
        str(maker.value(kind.key)): maker.value(kind.item)
        for _ in range(maker.random.randrange(kind.least, kind.least + 3))
    }


def _struct(maker: _Maker, kind: structures.Struct) -> Any:
    count = maker.random.randrange(0, min(5, len(kind.fields)) + 1)
    names = {*kind.required, *maker.random.sample(sorted(kind.fields), count)}
    return {name: maker.value(kind.fields[name].type) for name in kind.fields if name in names}


def _forms(maker: _Maker, kind: structures.Forms) -> Any:
    forms = [item for item, _ in kind.short.values()] + list(kind.long.values())
    return maker.value(maker.random.choice(forms))


_MAKERS: Final[dict[type, Callable[[_Maker, Any], Any]]] = {
    types.Text: _text,
    types.Integer: _integer,
    types.Number: lambda maker, kind: maker.random.choice((0.5, 1, 2, 1e6)),
    types.Flag: lambda maker, kind: maker.random.random() < 0.5,
    types.Choice: lambda maker, kind: maker.random.choice(kind.values),
    types.Quantity: lambda maker, kind: maker.text(kind.name),
    structures.ListOf: _list,
    structures.MapOf: _map,
    structures.AnyMapping: lambda maker, kind: {"a": maker.any(2), "b": {"c": maker.any(1)}},
    structures.Anything: lambda maker, kind: maker.any(2),
    structures.Reviewed: lambda maker, kind: maker.value(kind.type),
    structures.Struct: _struct,
    structures.Forms: _forms,
    notify.ChannelType: lambda maker, kind: _struct(maker, kind.fields),
    notify.SecretName: lambda maker, kind: maker.text(kind.name),
    NoPrice: lambda maker, kind: 0,
}


def _places(value: Any) -> Any:
    if type(value) is dict:
        for key in list(value):
            yield value, key
            yield from _places(value[key])
    elif type(value) is list:
        for index in range(len(value)):
            yield value, index
            yield from _places(value[index])


_cached: list[Any] = []


def _written_jobs() -> list[Any]:
    """Jobs that stand in this repository: the examples and those of the tests."""
    if not _cached:
        for folder in ("examples/hello", "examples/login", "examples/kubernetes", "tests/unit/kubernetes/jobs"):
            for path in sorted((ROOT / folder).glob("*.yaml")):
                _cached.extend(yaml.load_all(path.read_text(encoding="utf-8"), yaml.BaseLoader))
    return _cached
