"""Files: places, several documents, kustomize folders, and the verb. Everything we render or ship is sound."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml

from launcher.backends.kubernetes import schemas
from launcher.backends.kubernetes.check import validate
from launcher.backends.kubernetes.check.files import gather
from launcher.backends.kubernetes.check.strict import Compiler, SchemaFindings
from launcher.cli import main
from launcher.errors import BadInput
from tests.support.cases import every_case
from tests.unit.kubernetes.support import ROOT
from tests.unit.kubernetes_validate.support import GOLDEN, TREE

NAMESPACE = """\
apiVersion: v1
kind: Namespace
metadata:
  name: devices
  labels: {pod-security.kubernetes.io/enforce: privileged}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: plugin, namespace: devices}
spec:
  containers:
  - name: main
    image: registry.example.com/x@sha256:abababababababababababababababababababababababababababababababab
    securityContext: {privileged: true}
"""


@pytest.mark.parametrize("version", schemas.VERSIONS)
@every_case("path", GOLDEN, ids=lambda path: path.parent.name)
def test_what_is_rendered_is_sound(path: Path, version: str) -> None:
    assert validate.problems({path.name: path.read_text(encoding="utf-8")}, version) == []


@pytest.mark.parametrize("version", schemas.VERSIONS)
def test_what_is_shipped_is_sound(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(TREE) > 20
    assert main(["validate", str(ROOT / "k8s"), "--kubernetes-version", version]) == 0
    out = capsys.readouterr().out
    assert "objects: no errors\n" in out
    assert f"the schemas of Kubernetes {version} and" in out


@pytest.mark.parametrize("operator", [name for name in schemas.CUSTOM if name.startswith(("jobset", "kueue"))])
def test_every_supported_operator_takes_what_is_rendered_and_shipped(operator: str) -> None:
    """JobSet and Kueue in each version of the table in docs/reference/validate.md, not only in the newest."""
    known = schemas.load(custom=(operator,))
    compiler = Compiler(known.definitions)
    checked = 0
    for path in [*GOLDEN, *TREE]:
        for value in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            kind = f"{value.get('apiVersion')}/{value.get('kind')}" if isinstance(value, dict) else ""
            if kind in known.kinds and kind not in known.builtin:
                findings: SchemaFindings = []
                compiler.named(known.kinds[kind])(value, (), findings)
                assert findings == [], path
                checked += 1
    assert checked > 2


def test_there_are_goldens() -> None:
    assert len(GOLDEN) >= 7


def test_places() -> None:
    text = """\
# two documents
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: B
  lables: {x: z}
data:
  a: 5
  b: on
  mode: 0444
"""
    assert validate.problems({"x.yaml": text}) == [
        "x.yaml:9:9: metadata.name: `B` is not a DNS name; allowed: a-z, 0-9, and - or . within, at most 253 "
        "characters",
        "x.yaml:10:3: metadata.lables: unknown field (did you mean `labels`?)",
        "x.yaml:12:6: data.a: `5` is not a text; allowed: a text; quote it",
        'x.yaml:13:6: `on` is a boolean to Kubernetes and a text to others; allowed: "on" or true, false',
        "x.yaml:14:9: data.mode: `292` is not a text; allowed: a text; quote it",
    ]


def test_file_modes_are_octal_as_kubernetes_reads_them() -> None:
    text = POD.replace("containers:", "volumes: [{name: a, configMap: {name: a, defaultMode: 0444}}]\n  containers:")
    text += "    volumeMounts: [{name: a, mountPath: /a}]\n"
    assert validate.problems({"x.yaml": text}, policy=validate.CheckPolicy("privileged")) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "x.yaml:2:1: not YAML: did not find expected node content, while parsing a flow node"),
        ("kind: Job\n", "x.yaml:1:1: `apiVersion` is missing"),
        (
            "name: a\ncommand: ['true']\n",
            "x.yaml:1:1: is a job, not a manifest; allowed: manifests; `launcher render` makes one of a job, "
            "`launcher submit --dry-run` checks the job",
        ),
        ("a: 1\na: 2\n", "x.yaml:2:1: a: duplicate key, first on line 1 and again on line 2"),
        ("apiVersion: v1\nkind: Jbo\n", "x.yaml:2:7: kind: `Jbo` of `v1` is not known here"),
        (
            f"{POD}---\n{POD}",
            "x.yaml:10:1: Pod `plugin` is in this file already, on line 1 (house policy repeated); "
            "allowed: each object once",
        ),
    ],
)
def test_what_can_not_be_read(text: str, message: str) -> None:
    assert message in validate.problems({"x.yaml": text}, policy=validate.CheckPolicy("privileged"))


def test_items_of_a_list_are_objects() -> None:
    inner = "".join(f"  {line}\n" for line in POD.splitlines()).replace("  apiVersion", "- apiVersion", 1)
    found = validate.problems({"x.yaml": f"apiVersion: v1\nkind: List\nitems:\n{inner}"})
    place = "x.yaml:11:37: items[0].spec.containers[0].securityContext.privileged: "
    assert (
        f"{place}Pod Security baseline allows no privileged container (house policy pod-security); allowed: false"
        in found
    )


def test_a_namespace_says_its_own_level() -> None:
    alone = validate.problems({"pod.yaml": POD})
    assert any("Pod Security baseline allows no privileged container" in line for line in alone)
    assert validate.problems({"pod.yaml": POD, "namespace.yaml": NAMESPACE}) == []
    lax = NAMESPACE.replace("enforce: privileged", "enforce: baseline")
    assert [line.partition(": ")[2] for line in validate.problems({"pod.yaml": POD, "namespace.yaml": lax})] == [
        "spec.containers[0].securityContext.privileged: Pod Security baseline allows no privileged container "
        "(house policy pod-security); allowed: false"
    ]


def test_kustomize_folders(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(
        "resources: [pod.yaml]\npatches: [{path: patch.yaml}]\nconfigMapGenerator: [{name: x, files: [serve.yaml]}]\n"
    )
    (tmp_path / "pod.yaml").write_text(POD.replace("devices", "ml").replace("@sha256:" + "ab" * 32, ":1"))
    (tmp_path / "patch.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: plugin}\n"
        "spec:\n  volumes: [{name: a, $patch: delete}]\n  hostPID: 1\n"
    )
    (tmp_path / "serve.yaml").write_text("kind: config of the server\n")
    (tmp_path / "job.yaml").write_text("name: sft\ncommand: [x]\n")
    (tmp_path / ".hidden.yaml").write_text("nonsense")
    found = gather([tmp_path])
    assert [Path(name).name for name in found.built] == ["pod.yaml"]
    assert [Path(name).name for name in found.patches] == ["patch.yaml"]
    assert [Path(name).name for name in found.others] == ["job.yaml"]
    policies = {name: validate.CheckPolicy(patch=True) for name in found.patches}
    policies |= {name: validate.CheckPolicy("privileged", frozenset({"digests"})) for name in found.built}
    said = [problem.what for problem in validate.check(found.objects, own=policies)]
    assert said == ["`1` is not true or false"]


def test_the_verb_says_everything_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(POD)
    (tmp_path / "b.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: B}\n")
    assert main(["validate", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"launcher validate: {tmp_path}/a.yaml:8:" in said
    assert f"{tmp_path}/b.yaml:3:18: metadata.name: `B`" in said
    assert main(["validate", str(tmp_path / "a.yaml"), "--pod-security", "privileged"]) == 0
    assert main(["validate", str(tmp_path / "nowhere")]) == 3
    assert main(["validate", str(tmp_path / "a.yaml"), "--kubernetes-version", "1.12"]) == 2
    assert "no schemas of Kubernetes 1.12; there are: 1.33, 1.34, 1.35, 1.36, 1.37" in capsys.readouterr().err


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(POD.encode())))
    assert main(["validate", "-"]) == 2
    assert "launcher validate: <stdin>:8:5: " in capsys.readouterr().err


def test_a_folder_without_manifests_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no manifests; allowed: files that end in .yaml or .yml"):
        gather([tmp_path])


@pytest.mark.parametrize("name", [*(f"kubernetes-{version}" for version in schemas.VERSIONS), *schemas.CUSTOM])
def test_every_file_names_its_source(name: str) -> None:
    data = schemas.read(name)
    readme = (schemas.FOLDER / "README.md").read_text(encoding="utf-8")
    for one in data["source"]:
        assert one["licence"] == "Apache-2.0"
        assert f"| {name}.json.gz | {one['module']} | {one['version']} | {one['path']} | `{one['sum']}` |" in readme
    assert set(data["kinds"].values()) <= set(data["$defs"])
    assert set(data["cluster"]) <= set(data["kinds"])


def test_nothing_else_lies_among_the_schemas() -> None:
    names = {f"{name}.json.gz" for name in (*(f"kubernetes-{one}" for one in schemas.VERSIONS), *schemas.CUSTOM)}
    there = {path.name for path in schemas.FOLDER.iterdir() if path.name != "__pycache__"}
    assert there == {*names, "README.md", "__init__.py"}
    assert sum((schemas.FOLDER / name).stat().st_size for name in names) < 100_000
