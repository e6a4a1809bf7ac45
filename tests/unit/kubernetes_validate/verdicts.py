"""Whole manifests with a real API server's verdict on each, and what `validate` says to the same manifest.

`manifests/workloads.yaml`, `manifests/others.yaml`: written from the documentation of the API.
`manifests/rendered.yaml`: what the launcher renders, changed at random (made once, by
`python -m tests.unit.kubernetes_validate.verdicts`). Each holds `manifest`, and under `variants` single changes of it.
Besides, each field of the first two that the schema calls required is left out. The verdicts are written by the server:
`SLIPWAY_UPDATE=1 .venv/bin/pytest -q tests/cluster/test_verdicts.py`. With `SLIPWAY_CLUSTER_SET=oldest` that writes
`verdicts-1.33.yaml` and `less-1.33.yaml`: what the oldest supported server says otherwise.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from launcher.backends.kubernetes import schemas
from launcher.backends.kubernetes.check import validate
from tests.unit.kubernetes_validate.support import GOLDEN, changed

FOLDER: Final = Path(__file__).parent / "manifests"
FILES: Final = ("workloads", "others", "rendered")
VERDICTS: Final = FOLDER / "verdicts.yaml"
LESS: Final = FOLDER / "less.yaml"  # what the server refuses and validate takes
ASKED: Final = ("1.33", schemas.DEFAULT)  # versions whose servers' verdicts are kept
NAMESPACE: Final = "ml"  # that all these manifests name
# a random change of what we render
REPLACEMENTS: Final[tuple[Any, ...]] = (..., None, "", "x", "Not A Name", 0, -1, 7, True, [], {}, ["x"], {"a": "b"})


class Manifest(NamedTuple):
    """`key`: which manifest of which file, with its change."""

    key: str
    value: dict[str, Any]

    @property
    def kind(self) -> str:
        return f"{self.value.get('apiVersion')}/{self.value.get('kind')}"


def manifests() -> list[Manifest]:
    return [manifest for name in FILES for manifest in _of(name)]


def _of(name: str) -> Iterator[Manifest]:
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    for entry in yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        base = entry["manifest"]
        key = f"{base['apiVersion']}/{base['kind']} {base['metadata']['name']}"
        yield Manifest(key, base)
        for variant in entry.get("variants", ()):
            value = base
            for path, new in variant.get("set", {}).items():
                value = changed(value, path, new)
            if "drop" in variant:
                value = changed(value, variant["drop"], ...)
            yield Manifest(f"{key}: {_said(variant)}", value)
        given = {variant.get("drop") for variant in entry.get("variants", ())}
        for route in _required(base, name):
            if route not in given:
                yield Manifest(f"{key}: no {route}", changed(base, route, ...))


def _said(variant: Mapping[str, Any]) -> str:
    if "drop" in variant:
        return f"no {variant['drop']}"
    return yaml.safe_dump(variant["set"], default_flow_style=True, width=10_000, sort_keys=False).strip()[1:-1]


def _required(base: Mapping[str, Any], file: str) -> list[str]:
    """The places of all fields that the schema calls required: whether the server does is another matter."""
    known = schemas.load()
    name = known.kinds.get(f"{base['apiVersion']}/{base['kind']}")
    if name is None or file == "rendered":
        return []
    routes: list[str] = []

    def walk(value: Any, schema: Mapping[str, Any], route: str) -> None:
        while "$ref" in schema:
            schema = known.definitions[schema["$ref"].removeprefix("#/$defs/")]
        if isinstance(value, dict):
            routes.extend(f"{route}{field}" for field in schema.get("required", ()) if field in value)
            for key, item in value.items():
                inner = schema.get("properties", {}).get(key)
                if inner is not None:
                    walk(item, inner, f"{route}{key}.")
        elif isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, schema.get("items", {}), f"{route}{index}.")

    walk(base, known.definitions[name], "")
    return routes


def kept(file: Path, version: str) -> Path:
    """VERDICTS or LESS of a version. Those of another version than the default hold what differs."""
    return file if version == schemas.DEFAULT else file.with_stem(f"{file.stem}-{version}")


def verdicts(version: str = schemas.DEFAULT) -> dict[str, str]:
    """key -> `takes`, `refuses`, or `does not serve`, as an API server of that version said it."""
    return _merged(VERDICTS, version)


def less(version: str = schemas.DEFAULT) -> dict[str, str]:
    """key -> the server's words, of manifests that it refuses and `validate` takes."""
    return {key: words for key, words in _merged(LESS, version).items() if words}


def _merged(file: Path, version: str) -> dict[str, str]:
    known: dict[str, str] = yaml.safe_load(file.read_text(encoding="utf-8"))
    if version != schemas.DEFAULT:
        known.update(yaml.safe_load(kept(file, version).read_text(encoding="utf-8")) or {})
    return known


def ours(value: Mapping[str, Any], version: str = schemas.DEFAULT) -> str:
    """`takes`, `refuses`, `passes over`: what `validate` says where every house policy is switched off."""
    if validate.passed_over(value, version):
        return "passes over"
    return "refuses" if validate.findings(value, version, validate.NO_POLICY) else "takes"


def mutations(seed: int = 1, each: int = 16) -> Iterator[dict[str, Any]]:
    """What is rendered, as it is in the golden files, with `each` changes at random. Of a JobSet its first Job: nobody
    judges a JobSet here."""
    chance = random.Random(seed)
    for path in GOLDEN:
        for value in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            name, spec = value["metadata"]["name"], value.get("spec", {})
            if value["kind"] == "JobSet":
                job = spec["replicatedJobs"][0]["template"]["spec"]
                value = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": job}
            base = copy.deepcopy(value) | {"metadata": {"name": name, "namespace": NAMESPACE}}
            for container in base.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ()):
                for item in container.get("env", ()):
                    if len(item.get("value", "")) > 200:
                        item["value"] = "a job"
            if len(yaml.safe_dump(base)) > 20_000:
                continue
            routes = [route for route in _routes(base) if not route.startswith(("metadata", "apiVersion", "kind"))]
            variants: list[dict[str, Any]] = []
            for route in sorted(chance.sample(routes, min(each, len(routes)))):
                new = chance.choice(REPLACEMENTS)
                variants.append({"drop": route} if new is ... else {"set": {route: new}})
            yield {"manifest": base, "variants": variants}


def _routes(value: Any, route: str = "") -> Iterator[str]:
    entries: Any = ()
    if isinstance(value, dict):
        entries = [(str(key).replace(".", ":"), item) for key, item in value.items()]
    elif isinstance(value, list):
        entries = [(str(index), item) for index, item in enumerate(value)]
    for key, item in entries:
        inner = f"{route}.{key}" if route else key
        yield inner
        yield from _routes(item, inner)


if __name__ == "__main__":
    head = "# As workloads.yaml: what the launcher rendered on 2026-11-23, with random changes (see verdicts.py).\n"
    text = yaml.safe_dump(list(mutations()), sort_keys=False, width=10_000)
    (FOLDER / "rendered.yaml").write_text(head + text, encoding="utf-8")
