"""Makes launcher/backends/kubernetes/schemas: strict JSON Schemas from the API documents in Go modules.

    python tools/schemas.py          fetches the modules (needs Go) and writes the files; the same bytes every time
    python tools/schemas.py --check  writes nothing; 1 when a file is not what the modules give

What is kept: structure, types, formats, enums, bounds, patterns, the keys of list maps. What is left out: descriptions,
defaults, `status`, and rules in CEL. Objects with fixed fields get `additionalProperties: false`, so that a misspelt
field is found. Enums come from the generated Go code, because the published OpenAPI document has none.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).resolve().parents[1] / "launcher" / "backends" / "kubernetes" / "schemas"
# the first is whole, the others hold what differs from it
KUBERNETES: Final = ("1.33.4", "1.34.4", "1.35.1", "1.36.4", "1.37.2")
_KUEUE: Final = (
    *("admissionchecks", "clusterqueues", "cohorts", "localqueues", "provisioningrequestconfigs"),
    *("resourceflavors", "topologies", "workloadpriorityclasses", "workloads"),
)
_MULTIKUEUE: Final = ("multikueueclusters", "multikueueconfigs")
# file name -> (module, version, folder of CRDs, names of the CRDs to take; empty: all)
CRDS: Final[dict[str, list[tuple[str, str, str, tuple[str, ...]]]]] = {
    "jobset-0.10.1": [("sigs.k8s.io/jobset", "v0.10.1", "config/components/crd/bases", ())],
    "jobset-0.12.0": [("sigs.k8s.io/jobset", "v0.12.0", "config/components/crd/bases", ())],
    "kueue-0.14.0": [("sigs.k8s.io/kueue", "v0.14.0", "config/components/crd/bases", _KUEUE)],
    "kueue-0.19.1": [("sigs.k8s.io/kueue", "v0.19.1", "config/components/crd/bases", (*_KUEUE, *_MULTIKUEUE))],
    "gitops": [
        ("github.com/argoproj/argo-cd/v3", "v3.5.7", "manifests/crds", ("application", "appproject")),
        ("github.com/fluxcd/kustomize-controller", "v1.9.5", "config/crd/bases", ()),
        ("github.com/fluxcd/source-controller", "v1.9.6", "config/crd/bases", ("gitrepositories", "ocirepositories")),
    ],
    "monitoring": [
        (
            "github.com/prometheus-operator/prometheus-operator",
            "v0.85.0",
            "example/prometheus-operator-crd",
            ("podmonitors", "prometheusrules", "servicemonitors"),
        )
    ],
}
# answers and events, which nobody keeps in a file
NOT_MANIFESTS: Final = ("Binding", "ComponentStatus", "Event")
_STABLE: Final = re.compile(r"v\d+")
# fields that the document calls required although the server takes an object without them (seen: its answers to
# tests/unit/kubernetes_validate/manifests)
OPTIONAL: Final[dict[str, tuple[str, ...]]] = {
    "io.k8s.api.batch.v1.PodFailurePolicy": ("rules",),
    "io.k8s.api.batch.v1.PodFailurePolicyOnPodConditionsPattern": ("status",),
    "io.k8s.api.core.v1.LimitRange": ("metadata",),
    "io.k8s.api.core.v1.LimitRangeSpec": ("limits",),
    "io.k8s.api.discovery.v1.EndpointSlice": ("endpoints",),
    "io.k8s.api.networking.v1.NetworkPolicySpec": ("podSelector",),
    "io.k8s.api.rbac.v1.RoleRef": ("apiGroup",),
    "io.k8s.api.resource.v1.DeviceClass": ("spec",),
    "io.k8s.api.resource.v1.ResourceClaim": ("spec",),
    "io.k8s.api.resource.v1.ResourceClaimTemplate": ("spec",),
    "io.k8s.api.resource.v1.ResourceClaimTemplateSpec": ("spec",),
    "io.k8s.api.scheduling.v1.PriorityClass": ("value",),
    "io.k8s.api.storage.v1.CSIDriver": ("spec",),
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionVersion": ("served", "storage"),
}
META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
# copied unchanged from the document
PLAIN: Final = (
    *("type", "format", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
    *("minProperties", "maxProperties", "required", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
    *("x-kubernetes-preserve-unknown-fields",),
)
# definitions that the document calls `string` although the server accepts more
SPECIAL: Final[dict[str, dict[str, Any]]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"], "format": "quantity"},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"], "format": "int-or-string"},
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": {},
}


def download(module: str, version: str) -> dict[str, str]:
    """Downloads a module; returns its folder (Dir) and checksum (Sum). Raises SystemExit with Go's message."""
    with tempfile.TemporaryDirectory() as outside:  # a folder without go.mod
        done = subprocess.run(
            ["go", "mod", "download", "-json", f"{module}@{version}"],
            cwd=outside,
            capture_output=True,
            text=True,
            check=False,
        )
    module_info: dict[str, str] = json.loads(done.stdout or "{}")
    if done.returncode != 0 or "Dir" not in module_info:
        raise SystemExit(f"{module}@{version}: {module_info.get('Error', done.stderr.strip())}")
    return module_info


def strict(schema: Mapping[str, Any], top: bool = False) -> dict[str, Any]:
    """A schema without texts for people, closed where the fields are fixed. `top`: the schema of a kind, so `status` is
    removed."""
    if schema.get("x-kubernetes-int-or-string"):
        # CRDs mark quantities in the same way, but with a pattern
        quantity = "pattern" in schema
        return dict(
            SPECIAL["io.k8s.apimachinery.pkg.api.resource.Quantity"]
            if quantity
            else SPECIAL["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]
        )
    if "$ref" in schema:
        return {"$ref": schema["$ref"].replace("#/definitions/", "#/$defs/")}
    closed: dict[str, Any] = {key: schema[key] for key in PLAIN if key in schema}
    properties = {name: strict(item) for name, item in schema.get("properties", {}).items()}
    if top:
        properties.pop("status", None)
        # within others (claim templates) a kind needs neither; of a whole object they are looked up first
        closed["required"] = sorted({*closed.get("required", ()), "metadata"} - {"status", "apiVersion", "kind"})
    if "required" in closed and not top:
        # the server fills in defaults before it validates
        given = {name for name, item in schema.get("properties", {}).items() if "default" in item}
        closed["required"] = sorted(set(closed["required"]) - given)
        if not closed["required"]:
            del closed["required"]
    if properties:
        closed["properties"] = properties
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            closed["additionalProperties"] = False
    if isinstance(schema.get("additionalProperties"), dict):
        closed["additionalProperties"] = strict(schema["additionalProperties"])
    if "items" in schema:
        closed["items"] = strict(schema["items"])
    for word in ("anyOf", "oneOf", "allOf"):
        # the rest are alternatives of required fields
        parts = [part for item in schema.get(word, ()) if (part := strict(item)) and "properties" not in part]
        if parts and len(parts) == len(schema[word]):
            closed[word] = parts
    return closed


def enums(generated: str) -> dict[str, dict[str, tuple[str, list[str]]]]:
    """zz_generated.openapi.go -> function name -> property -> ("" or "items", values). gofmt fixes its indentation."""
    values_of: dict[str, dict[str, tuple[str, list[str]]]] = {}
    function = name = ""
    for line in generated.split("\n"):
        if line.startswith("func schema_"):
            function = line[len("func ") : line.index("(")]
        elif line.startswith('\t\t\t\t\t"') and line.endswith('": {'):
            name = line.strip()[1:-4]
        elif "Enum:" in line and (at := re.match(r"(\t+)Enum: +\[\]interface\{\}\{(.*)\},$", line)):
            where = "" if len(at[1]) == 7 else "items"
            values_of.setdefault(function, {})[name] = (where, re.findall(r'"((?:[^"\\]|\\.)*)"', at[2]))
    return values_of


def function_of(definition: str) -> str:
    """io.k8s.api.batch.v1.JobSpec -> schema_k8sio_api_batch_v1_JobSpec; the generator's rule for names of functions."""
    short = {"io.k8s.apimachinery.pkg": "pkg", "io.k8s.apiextensions-apiserver.pkg": "pkg"}
    for long, prefix in short.items():
        if definition.startswith(f"{long}."):
            return f"schema_{prefix}{definition[len(long) :].replace('.', '_')}"
    return "schema_" + re.sub(r"[.]", "_", definition.replace("io.k8s.", "k8sio_", 1)).replace("-", "_")


def kubernetes(version: str) -> dict[str, Any]:
    module = download("k8s.io/kubernetes", f"v{version}")
    folder = Path(module["Dir"])
    whole = json.loads((folder / "api/openapi-spec/swagger.json").read_text())
    document = whole["definitions"]
    listed = enums((folder / "pkg/generated/openapi/zz_generated.openapi.go").read_text())
    kinds, cluster, unchecked = offered(whole["paths"], document)
    definitions: dict[str, Any] = {}
    used: set[str] = set()
    todo = sorted(kinds.values())
    while todo:
        name = todo.pop()
        if name in definitions:
            continue
        schema = SPECIAL[name] if name in SPECIAL else strict(document[name], top=name in kinds.values())
        if name in OPTIONAL:
            schema["required"] = [field for field in schema.get("required", ()) if field not in OPTIONAL[name]]
        function = function_of(name)
        for field, (where, values) in listed.get(function, {}).items():
            used.add(function)
            target = schema.get("properties", {}).get(field)
            if target is not None:
                (target["items"] if where else target)["enum"] = values
        definitions[name] = schema
        todo += sorted(set(re.findall(r'"#/\$defs/([^"]+)"', json.dumps(schema))) - set(definitions))
    for needed in ("schema_k8sio_api_core_v1_Container", "schema_k8sio_api_batch_v1_JobSpec"):
        if needed not in used:
            raise SystemExit(f"Kubernetes {version}: no enums found for {needed}")
    sources = [source(module, "api/openapi-spec/swagger.json")]
    return {"source": sources, "kinds": kinds, "cluster": cluster, "unchecked": unchecked, "$defs": definitions}


def offered(paths: Mapping[str, Any], document: Mapping[str, Any]) -> tuple[dict[str, str], list[str], list[str]]:
    """The kinds that can be made and read again by name: those of stable versions with their definitions, those of them
    that lie in no namespace, and those of alpha and beta versions."""
    definitions = {
        _joined(entry): name for name, schema in document.items() for entry in schema.get(f"{_GROUP}-version-kind", ())
    }
    kinds: dict[str, str] = {}
    cluster, unchecked = set(), set()
    for path, operations in paths.items():
        entry = operations.get("get", {}).get(f"{_GROUP}-version-kind")
        collection = paths.get(path.removesuffix("/{name}"), {})
        if entry is None or not path.endswith("/{name}") or "post" not in collection or entry["kind"] in NOT_MANIFESTS:
            continue
        where = _joined(entry)
        if not _STABLE.fullmatch(entry["version"]):
            unchecked.add(where)
            continue
        kinds[where] = definitions[where]
        if "{namespace}" not in path:
            cluster.add(where)
    return kinds, sorted(cluster), sorted(unchecked)


_GROUP: Final = "x-kubernetes-group"


def _joined(entry: Mapping[str, str]) -> str:
    return "/".join(part for part in (entry["group"], entry["version"], entry["kind"]) if part)


def beside(base: Mapping[str, Any], value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What differs from the base, whose file is called `name`: most definitions are the same in all versions."""
    own = {key: schema for key, schema in value["$defs"].items() if base["$defs"].get(key) != schema}
    gone = sorted(set(base["$defs"]) - set(value["$defs"]))
    return {**value, "base": name, "$defs": own, "gone": gone}


def source(module: Mapping[str, str], path: str) -> dict[str, str]:
    fields = {"module": module["Path"], "version": module["Version"], "sum": module["Sum"], "path": path}
    return {**fields, "licence": "Apache-2.0"}


def custom(modules: Iterable[tuple[str, str, str, tuple[str, ...]]]) -> dict[str, Any]:
    """CRDs -> kinds. Equal parts are stored once: a JobSet contains a whole Job, a Workload contains a pod twice."""
    sources, kinds, roots, cluster = [], {}, {}, []
    for name, version, path, chosen in modules:
        module = download(name, version)
        sources.append(source(module, path))
        for file in sorted((Path(module["Dir"]) / path).glob("*.yaml")):
            if chosen and not any(re.search(rf"(^|_){one}(-crd)?\.yaml$", file.name) for one in chosen):
                continue
            crd = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
            if crd.get("kind") != "CustomResourceDefinition":
                continue
            spec = crd["spec"]
            for one in spec["versions"]:
                if one["served"]:
                    where = f"{spec['group']}/{one['name']}/{spec['names']['kind']}"
                    kinds[where] = where
                    if spec["scope"] == "Cluster":
                        cluster.append(where)
                    schema = strict(one["schema"]["openAPIV3Schema"], top=True)
                    schema["properties"]["metadata"] = {"$ref": f"#/$defs/{META}"}
                    roots[where] = schema
    return {"source": sources, "kinds": kinds, "cluster": sorted(cluster), "$defs": shared(roots)}


def shared(roots: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The same schemas, where every larger part that occurs twice has its own definition."""
    seen: dict[str, int] = {}

    def closed(schema: dict[str, Any]) -> bool:
        return schema.get("type") == "object" and "properties" in schema

    def count(schema: Any) -> None:
        if isinstance(schema, dict):
            if closed(schema):
                key = json.dumps(schema, sort_keys=True)
                seen[key] = seen.get(key, 0) + 1
                if seen[key] > 1:
                    return
            for item in schema.values():
                count(item)

    definitions: dict[str, Any] = {}

    def replace(schema: Any, root: bool = False) -> Any:
        if not isinstance(schema, dict):
            return schema
        key = json.dumps(schema, sort_keys=True) if closed(schema) and not root else ""
        made = {name: replace(item) for name, item in schema.items()}
        if seen.get(key, 0) < 2:
            return made
        name = "part-" + hashlib.sha256(key.encode()).hexdigest()[:12]
        definitions[name] = made
        return {"$ref": f"#/$defs/{name}"}

    for schema in roots.values():
        count(schema)
    return {**{name: replace(schema, root=True) for name, schema in roots.items()}, **definitions}


def packed(value: Any) -> bytes:
    """gzip of canonical JSON, without time or name in the header."""
    return gzip.compress(json.dumps(value, sort_keys=True, separators=(",", ":")).encode(), 9, mtime=0)


def readme(made: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The README.md that says where each file comes from."""
    lines = [
        "# Schemas of the API, vendored",
        "",
        "Made by `python tools/schemas.py` (needs Go) from the API documents in Go modules; nothing is edited by hand.",
        "Descriptions, defaults, `status` and rules in CEL are left out; objects with fixed fields are closed. All",
        "modules are under the Apache License 2.0, by the Kubernetes, Argo CD, Flux and Prometheus Operator authors.",
        "`sum` is a module's checksum as Go's checksum database has it.",
        "",
        "| file | module | version | path | sum |",
        "|---|---|---|---|---|",
    ]
    for name, value in made.items():
        for one in value["source"]:
            fields = (f"{name}.json.gz", one["module"], one["version"], one["path"], f"`{one['sum']}`")
            lines.append(f"| {' | '.join(fields)} |")
    lines += ["", "Kinds, of a later version those that the one before it lacks:", ""]
    before: dict[str, set[str]] = {}
    for name, value in made.items():
        project, kinds = name.rpartition("-")[0] or name, set(value["kinds"])
        listed = ", ".join(sorted(kinds - before.get(project, set()))) or "the same"
        if gone := sorted(before.get(project, set()) - kinds):
            listed += f"; without {', '.join(gone)}"
        before[project] = kinds
        lines += textwrap.wrap(f"- {name}: {listed}", 118, subsequent_indent="  ", break_on_hyphens=False)
    return ("\n".join(lines) + "\n").encode()


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes the vendored schemas of Kubernetes' kinds.")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when a file would change")
    check = parser.parse_args().check
    made = {f"kubernetes-{version.rpartition('.')[0]}": kubernetes(version) for version in KUBERNETES}
    first = next(iter(made))
    made |= {name: beside(made[first], value, first) for name, value in made.items() if name != first}
    made |= {name: custom(modules) for name, modules in CRDS.items()}
    files = {f"{name}.json.gz": packed(value) for name, value in made.items()} | {"README.md": readme(made)}
    changed = 0
    for name, data in files.items():
        path = FOLDER / name
        same = path.is_file() and path.read_bytes() == data
        changed += not same
        if not same and not check:
            path.write_bytes(data)
        print(f"{name}: {len(data)} bytes{'' if same else ', changed'}")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
