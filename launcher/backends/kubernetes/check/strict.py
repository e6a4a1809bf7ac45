"""Compiles JSON Schemas of the API to fast functions that check a value and report what is wrong and what is allowed.

Only the keywords that tools/schemas.py writes are known. A schema becomes one closure; a `$ref` is compiled at its
first use. Values that `jsonschema` refuses are refused here too (a test compares them). In addition, duplicate keys of
list maps are refused, as server-side apply does, and so are wrong formats of Kubernetes' numbers.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.quantity import is_quantity
from launcher.spec.values.problems import near, show
from launcher.spec.values.source import Route


class SchemaFinding(NamedTuple):
    """One error in an object. `key`: it is about the key, not the value. `policy`: the house policy that it breaks;
    empty where a cluster refuses the object. `judged`: the types are right, so only a server that looks at what the
    object says refuses it."""

    route: Route
    what: str
    allowed: str = ""
    key: bool = False
    policy: str = ""
    judged: bool = False

    @property
    def named(self) -> str:
        """What is wrong, with the name of the policy."""
        return policies.named(self.what, self.policy)


SchemaFindings = list[SchemaFinding]
Check = Callable[[Any, Route, SchemaFindings], None]

_INTEGERS: Final = {"int32": 31, "int64": 63}
_NAMES: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
}
_TIME: Final = r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)"
# default of a missing `protocol`, which is one of the keys of list maps
_DEFAULTS: Final = {"protocol": "TCP"}
BUILTIN: Final = "io.k8s."  # the definitions of Kubernetes itself
# lists in which the server itself refuses a repeated key; in others only server-side apply does
_ONCE: Final = frozenset(
    (name,)
    for name in (
        *("containers", "initContainers", "volumes", "volumeMounts", "volumeDevices", "topologySpreadConstraints"),
        *("resourceClaims", "claims"),
    )
)
_SERVICE_PORT: Final = ("port", "protocol")
_PLAIN: Final = frozenset((str, int, type(None)))


def anything(value: Any, route: Route, findings: SchemaFindings) -> None:
    """Accepts every value."""


def text(value: Any, route: Route, findings: SchemaFindings) -> None:
    if type(value) is not str:
        findings.append(
            SchemaFinding(route, _no(value, "string"), "a text; quote it" if _quotable(value) else "a text")
        )


def boolean(value: Any, route: Route, findings: SchemaFindings) -> None:
    if type(value) is not bool:
        findings.append(SchemaFinding(route, _no(value, "boolean"), "true or false"))


def _quotable(value: Any) -> bool:
    return type(value) in (int, float, bool)


def _no(value: Any, kind: str) -> str:
    if value is None:
        return "has no value"
    shown = f"the text {show(value)}" if type(value) is str and kind != "string" else show(value)
    return f"{shown} is not {_NAMES[kind]}"


class Compiler:
    """Definitions by name -> compiled checks by name. `rule_of`: what is checked besides the schema of a definition."""

    def __init__(
        self, definitions: Mapping[str, Mapping[str, Any]], rule_of: Callable[[str], Check | None] = lambda name: None
    ) -> None:
        self.definitions = definitions
        self.rule_of = rule_of
        self.made: dict[str, Check] = {}

    def named(self, name: str) -> Check:
        if name not in self.made:
            schema, rule = self.check(self.definitions[name], name.startswith(BUILTIN)), self.rule_of(name)
            self.made[name] = schema if rule is None else _both(schema, rule)
        return self.made[name]

    def check(self, schema: Mapping[str, Any], builtin: bool = False) -> Check:
        """`builtin`: of a kind of Kubernetes itself. Its server takes an empty text or nothing for a field that is left
        out; a custom resource is checked by its schema as it stands."""
        if "$ref" in schema:
            return self.reference(schema["$ref"].removeprefix("#/$defs/"))
        kind = schema.get("type")
        if kind == "object":
            return self.mapping(schema, builtin)
        if kind == "array":
            return self.sequence(schema, builtin)
        if kind == "string":
            return _string(schema, builtin)
        if kind == "integer":
            return _integer(schema)
        if kind == "boolean":
            return boolean
        if kind == "number":
            return _number
        if schema.get("format") == "quantity":
            return _quantity
        if schema.get("format") == "int-or-string":
            return _int_or_string
        return anything

    def reference(self, name: str) -> Check:
        """The check of a definition, compiled at its first use: the schema of a CRD refers to itself."""
        if name in self.made:
            return self.made[name]

        def check(value: Any, route: Route, findings: SchemaFindings) -> None:
            self.named(name)(value, route, findings)

        return check

    def mapping(self, schema: Mapping[str, Any], builtin: bool) -> Check:
        fields = {name: self.check(item, builtin) for name, item in schema.get("properties", {}).items()}
        required: Sequence[str] = tuple(schema.get("required", ()))
        alternatives = [tuple(part.get("required", ())) for part in schema.get("oneOf", schema.get("anyOf", ()))]
        least, most = schema.get("minProperties", 0), schema.get("maxProperties", 1 << 31)
        others: Check | None = None
        if isinstance(schema.get("additionalProperties"), dict):
            others = self.check(schema["additionalProperties"], builtin)
        elif schema.get("additionalProperties") is not False:
            others = anything

        def check(value: Any, route: Route, findings: SchemaFindings) -> None:
            if type(value) is not dict:
                findings.append(SchemaFinding(route, _no(value, "object"), "a mapping"))
                return
            for name, item in value.items():
                checker = fields.get(name, others)
                if checker is text and type(item) is str:
                    continue
                if checker is None:
                    findings.append(_unknown((*route, name), fields))
                elif item is not None or not (builtin or name in fields):
                    checker(item, (*route, name), findings)
                elif name != "creationTimestamp":
                    policy = policies.NO_EFFECT if builtin and name not in required else ""
                    allowed = "a value, or leave the field out"
                    findings.append(SchemaFinding((*route, name), "has no value", allowed, True, policy, True))
            for name in required:
                if name not in value:
                    findings.append(SchemaFinding(route, f"`{name}` is missing", "", True, judged=True))
            if alternatives and not any(all(name in value for name in names) for names in alternatives):
                ways = " or ".join(" with ".join(f"`{name}`" for name in names) for names in alternatives)
                findings.append(SchemaFinding(route, f"needs {ways}", "", True))
            if not least <= len(value) <= most:
                findings.append(SchemaFinding(route, f"has {len(value)} entries", f"{least} to {most}"))

        return check

    def sequence(self, schema: Mapping[str, Any], builtin: bool) -> Check:
        item_check = self.check(schema.get("items", {}), builtin)
        least, most = schema.get("minItems", 0), schema.get("maxItems", 1 << 31)
        keys: Sequence[str] = ()
        if schema.get("x-kubernetes-list-type") == "map":
            keys = tuple(schema["x-kubernetes-list-map-keys"])
        unique = schema.get("x-kubernetes-list-type") == "set"

        def check(value: Any, route: Route, findings: SchemaFindings) -> None:
            if type(value) is not list:
                findings.append(SchemaFinding(route, _no(value, "array"), "a list"))
                return
            for index, item in enumerate(value):
                item_check(item, (*route, index), findings)
            if not least <= len(value) <= most:
                bounds = f"at least {least}" if len(value) < least else f"at most {most}"
                findings.append(SchemaFinding(route, f"has {len(value)} items", bounds))
            if len(value) > 1 and (keys or unique):
                policy = policies.APPLY if builtin and route[-1:] not in _ONCE and keys != _SERVICE_PORT else ""
                _duplicates(value, keys, route, findings, policy)

        return check


def _both(first: Check, second: Check) -> Check:
    def check(value: Any, route: Route, findings: SchemaFindings) -> None:
        first(value, route, findings)
        second(value, route, findings)

    return check


def _unknown(route: Route, fields: Mapping[str, Check]) -> SchemaFinding:
    name = str(route[-1])
    if name == "status":
        return SchemaFinding(route, "is what the cluster writes; remove it", "", True, policies.NO_EFFECT)
    hint = near(name, fields)
    listed = ", ".join(sorted(fields))
    return SchemaFinding(route, f"unknown field{hint}", listed if not hint or len(listed) <= 120 else "", True)


def _duplicates(items: Sequence[Any], keys: Sequence[str], route: Route, findings: SchemaFindings, policy: str) -> None:
    """Reports equal items of a set, and items of a list map with equal keys. Skips values of a wrong type."""
    seen: dict[Any, int] = {}
    for index, item in enumerate(items):
        if not keys:
            identity: Any = item if type(item) is str else None
        elif type(item) is dict:
            identity = tuple([item.get(key, _DEFAULTS.get(key)) for key in keys])
            if not _PLAIN.issuperset(map(type, identity)):
                identity = None
        else:
            identity = None
        if identity is None or identity == (None,):
            continue
        first = seen.setdefault(identity, index)
        if first != index:
            parts = zip(keys, identity, strict=True) if keys else ()
            named = ", ".join(f"{key} {show(part)}" for key, part in parts if part is not None) or show(item)
            message = f"{named} is listed already, in [{first}]"
            findings.append(SchemaFinding((*route, index), message, "each once", policy=policy, judged=True))


def _string(schema: Mapping[str, Any], builtin: bool) -> Check:
    values: Sequence[str] = schema.get("enum", ())
    pattern: str = re.sub(r"(?<!\\)\$$", r"\\Z", schema.get("pattern", ""))
    least, most = schema.get("minLength", 0), schema.get("maxLength", 1 << 31)
    form = schema.get("format", "")
    if not (values or pattern or least or most < 1 << 31 or form in ("byte", "date-time")):
        return text

    def check(value: Any, route: Route, findings: SchemaFindings) -> None:
        if type(value) is not str:
            text(value, route, findings)
        elif values and value not in values and not (builtin and value == ""):
            shown = ", ".join(choice or '""' for choice in values)
            message = f"{show(value)} is not one of them{near(value, values)}"
            findings.append(SchemaFinding(route, message, shown, judged=True))
        elif not least <= len(value) <= most:
            bounds = f"at least {least}" if len(value) < least else f"at most {most}"
            findings.append(SchemaFinding(route, f"has {len(value)} characters", bounds))
        elif pattern and not re.search(pattern, value):
            findings.append(SchemaFinding(route, f"{show(value)} does not match", schema["pattern"]))
        elif form == "byte" and not _is_base64(value):
            findings.append(SchemaFinding(route, "is not base64", "base64; in a Secret, `stringData` takes plain text"))
        elif form == "date-time" and not re.fullmatch(_TIME, value):
            findings.append(SchemaFinding(route, f"{show(value)} is not a time", "2026-01-31T12:00:00Z"))

    return check


def _is_base64(value: str) -> bool:
    try:
        base64.b64decode(re.sub(r"[\r\n]", "", value), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _integer(schema: Mapping[str, Any]) -> Check:
    bits = _INTEGERS.get(schema.get("format", ""), 63)
    least = max(schema.get("minimum", -(1 << bits)), -(1 << bits))
    most = min(schema.get("maximum", (1 << bits) - 1), (1 << bits) - 1)
    values: Sequence[int] = schema.get("enum", ())

    def check(value: Any, route: Route, findings: SchemaFindings) -> None:
        if type(value) is not int:
            findings.append(SchemaFinding(route, _no(value, "integer"), "a whole number"))
        elif not least <= value <= most:
            findings.append(SchemaFinding(route, f"`{value}` is out of range", f"{least} to {most}"))
        elif values and value not in values:
            findings.append(SchemaFinding(route, f"`{value}` is not one of them", ", ".join(map(str, values))))

    return check


def _number(value: Any, route: Route, findings: SchemaFindings) -> None:
    if type(value) not in (int, float):
        findings.append(SchemaFinding(route, _no(value, "number"), "a number"))


def _quantity(value: Any, route: Route, findings: SchemaFindings) -> None:
    if not is_quantity(value):
        findings.append(SchemaFinding(route, f"{show(value)} is not a quantity", "500m, 2, 1.5Gi, 100M, 1e3"))


def _int_or_string(value: Any, route: Route, findings: SchemaFindings) -> None:
    if type(value) not in (int, str):
        findings.append(SchemaFinding(route, f"{show(value)} is neither a whole number nor a text", "8080, http, 25%"))
    elif type(value) is int and not -(1 << 31) <= value < 1 << 31:
        findings.append(SchemaFinding(route, f"`{value}` is out of range", f"{-(1 << 31)} to {(1 << 31) - 1}"))
