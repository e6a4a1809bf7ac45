"""The checker against spoiled manifests, and against the `jsonschema` package."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.backends.kubernetes import schemas
from launcher.backends.kubernetes.check import validate
from launcher.backends.kubernetes.check.strict import Compiler, SchemaFindings
from launcher.spec.values.source import Route
from tests.unit.kubernetes_validate.support import GOLDEN, JOB, JOB_SET, TREE, changed, said

KNOWN = schemas.load()
CHECK = Compiler(KNOWN.definitions)
WRONG: dict[str, list[Any]] = {
    "string": [5, True, ["x"], {"a": "b"}],
    "integer": ["5", 1.5, True, {}],
    "boolean": ["true", 1, []],
    "number": ["1", [], True],
    "object": ["x", 3, ["x"]],
    "array": ["x", {"a": 1}, 7],
    "quantity": ["1 Gi", "1GB", "", [], True, {}],
    "int-or-string": [1.5, True, [], {}],
}


def _objects() -> list[dict[str, Any]]:
    found = [JOB, JOB_SET]
    for path in [*GOLDEN, *TREE]:
        for value in yaml.load_all(path.read_text(encoding="utf-8"), yaml.CSafeLoader):
            if isinstance(value, dict) and f"{value.get('apiVersion')}/{value.get('kind')}" in KNOWN.kinds:
                found.append(value)
    return found


OBJECTS = _objects()


def _name(value: Mapping[str, Any]) -> str:
    """Of the definition of a sound object's kind."""
    return KNOWN.kinds[f"{value['apiVersion']}/{value['kind']}"]


def _schema(value: Mapping[str, Any]) -> dict[str, Any]:
    return KNOWN.definitions[_name(value)]


def _kind(schema: Mapping[str, Any]) -> str:
    form = schema.get("format")
    return form if form in ("quantity", "int-or-string") else str(schema.get("type", ""))


def _nodes(value: Any, schema: Mapping[str, Any], route: Route = ()) -> Iterator[tuple[Route, Mapping[str, Any], Any]]:
    """Every value of an object with its schema and route: an independent walk, without the checker."""
    while "$ref" in schema:
        schema = KNOWN.definitions[schema["$ref"].removeprefix("#/$defs/")]
    yield route, schema, value
    if isinstance(value, dict):
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if isinstance(inner, dict):
                yield from _nodes(item, inner, (*route, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _nodes(item, schema["items"], (*route, index))


def _found(value: Mapping[str, Any], name: str) -> SchemaFindings:
    found: SchemaFindings = []
    CHECK.named(name)(value, (), found)
    return found


def _at(value: Any, route: Route) -> Any:
    for key in route:
        value = value[key]
    return value


def test_there_is_something_to_spoil() -> None:
    kinds = {value["kind"] for value in OBJECTS}
    assert {"Job", "JobSet", "ConfigMap", "Deployment", "CronJob", "ClusterQueue", "Application"} <= kinds
    assert all(not _found(value, _name(value)) for value in OBJECTS)


@settings(deadline=None)
@given(st.data())
def test_an_unknown_field_is_found_anywhere(data: st.DataObject) -> None:
    value = copy.deepcopy(data.draw(st.sampled_from(OBJECTS)))
    name = _name(value)
    closed = [one for one in _nodes(value, _schema(value)) if one[1].get("additionalProperties") is False]
    route, schema, node = data.draw(st.sampled_from(closed))
    known = sorted(schema["properties"])
    field = data.draw(st.one_of(st.sampled_from(known).map(lambda one: one + "s"), st.text(min_size=1)))
    if field in known or not isinstance(node, dict):
        return
    node[field] = data.draw(st.sampled_from(["x", 1, None, {}, []]))
    assert [one.route for one in _found(value, name)] == [(*route, field)]
    assert any(one.route == (*route, field) for one in validate.findings(value))


@settings(deadline=None)
@given(st.data())
def test_a_wrong_type_is_found_anywhere(data: st.DataObject) -> None:
    value = copy.deepcopy(data.draw(st.sampled_from(OBJECTS)))
    name = _name(value)
    nodes = [one for one in _nodes(value, _schema(value)) if _kind(one[1]) in WRONG and one[0]]
    route, schema, _ = data.draw(st.sampled_from(nodes))
    _at(value, route[:-1])[route[-1]] = data.draw(st.sampled_from([*WRONG[_kind(schema)], None]))
    assert route in [one.route for one in _found(value, name)]
    validate.findings(value)  # no rule stumbles over it


@settings(deadline=None)
@given(st.data())
def test_a_required_field_that_is_missing_is_found(data: st.DataObject) -> None:
    value = copy.deepcopy(data.draw(st.sampled_from(OBJECTS)))
    name = _name(value)
    nodes = [one for one in _nodes(value, _schema(value)) if one[1].get("required")]
    route, schema, node = data.draw(st.sampled_from(nodes))
    field = data.draw(st.sampled_from(schema["required"]))
    del node[field]
    assert (route, f"`{field}` is missing") in [(one.route, one.what) for one in _found(value, name)]
    assert validate.findings(value)


@settings(deadline=None)
@given(st.data())
def test_what_jsonschema_refuses_is_refused_at_the_same_place(data: st.DataObject) -> None:
    value = copy.deepcopy(data.draw(st.sampled_from(OBJECTS)))
    name, schema = _name(value), _schema(value)
    routes = [route for route, _, _ in _nodes(value, schema) if route]
    # the deepest first, so that the others are still there
    for route in sorted(data.draw(st.lists(st.sampled_from(routes), min_size=1, max_size=3)), key=len, reverse=True):
        _at(value, route[:-1])[route[-1]] = data.draw(
            st.sampled_from([None, True, 0, -5, 1 << 40, "", "x" * 300, [], ["x"], {}, {"x": "y"}, 1.5])
        )
    whole = {"$defs": KNOWN.definitions, **schema}
    # an empty text counts as a field that is left out, to a server too, where a value of a list is asked for
    refused = {
        tuple(error.absolute_path)
        for error in jsonschema.Draft202012Validator(whole).iter_errors(value)
        if not (error.validator == "enum" and error.instance == "")
    }
    ours = [one.route for one in _found(value, name)]
    for place in refused:
        assert any(route[: len(place)] == place for route in ours), (place, ours)


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("5", "spec.backoffLimit: the text `5` is not a whole number; allowed: a whole number"),
        (1 << 31, "spec.backoffLimit: `2147483648` is out of range; allowed: -2147483648 to 2147483647"),
        (1.5, "spec.backoffLimit: `1.5` is not a whole number; allowed: a whole number"),
        (None, "spec.backoffLimit: has no value (house policy no-effect); allowed: a value, or leave the field out"),
    ],
)
def test_numbers(limit: Any, message: str) -> None:
    assert said(changed(JOB, "spec.backoffLimit", limit)) == [message]
