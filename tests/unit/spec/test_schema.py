"""The JSON Schema, the reference page and the examples agree with the loader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from launcher.errors import BadInput
from launcher.spec import profile, reference
from launcher.spec.check.schema import BLOCKS, JOB, json_schema
from launcher.spec.profile import load_profile
from launcher.spec.read.load import load
from launcher.spec.resolve.group import resolve
from launcher.spec.values.problems import Problems
from launcher.spec.values.source import read_text
from tests.support.cases import every_case
from tests.unit.spec import corpus

ROOT = Path(__file__).parents[3]
VALIDATOR = jsonschema.Draft202012Validator(json_schema())

# rules between fields, between jobs, or of YAML itself: no JSON Schema can say them
BEYOND = frozenset(
    [
        "code_missing",
        "env_and_secrets",
        "image_missing",
        "image_missing_in_role",
        "image_not_in_catalogue",
        "image_without_digest",
        "input_all_without_matrix",
        "input_cycle",
        "input_itself",
        "input_no_outputs",
        "input_step_of_files",
        "input_unknown_job",
        "input_unknown_output",
        "job_name_twice",
        "limits_budget_currency",
        "limits_budget_without_price",
        "limits_deadline_missing",
        "limits_gpu_idle_without_gpus",
        "matrix_leads_nowhere",
        "matrix_overlap",
        "matrix_paths",
        "matrix_references",
        "matrix_same_run",
        "matrix_same_value",
        "matrix_too_large",
        "matrix_values_checked",
        "name_reserved",
        "profile_fields",
        "profile_store",
        "reference_endpoint",
        "reference_in_a_role",
        "reference_port",
        "reference_undeclared_input",
        "reference_unknown_variable",
        "resources_gpu_without_gpus",
        "resume_matrix",
        "roles_needs_cycle",
        "roles_no_leader",
        "roles_two_leaders",
        "roles_unknown_need",
        "roles_without_command",
        "secrets_without_place",
        "set_leads_nowhere",
        "set_unknown_path",
        "set_wrong_value",
        "task_without_validator",
        "timing_beat",
        "timing_fence",
        "timing_grace",
        "token_in_set",
        "token_literals",
        "token_pem",
    ]
)


def documents(text: str) -> list[Any]:
    return [document.value for document in read_text(text, "f", Problems())]


def examples() -> Iterator[Path]:
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        found = documents(path.read_text(encoding="utf-8"))
        if any(isinstance(one, dict) and "name" in one and ("command" in one or "roles" in one) for one in found):
            yield path


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    jsonschema.Draft202012Validator.check_schema(profile.json_schema())


def test_there_are_examples() -> None:
    assert len(list(examples())) >= 1


def brings_code(path: Path) -> bool:
    """Then git lists the files: tests/integration/spec/test_schema.py."""
    return "\ncode:" in path.read_text(encoding="utf-8")


EXAMPLES = {str(path.relative_to(ROOT)): path for path in examples()}


@every_case("name", [name for name, path in EXAMPLES.items() if not brings_code(path)])
def test_examples_load_resolve_and_fit_the_schema(name: str) -> None:
    whole_example(EXAMPLES[name])


def whole_example(path: Path) -> None:
    for document in documents(path.read_text(encoding="utf-8")):
        VALIDATOR.validate(document)
    whole = str(path.parent.relative_to(ROOT))
    found = load_profile(ROOT, None, {"HOME": "/home/somebody"})
    assert resolve(load([whole], cwd=ROOT), found, environment="0" * 64).runs


def test_the_project_has_a_profile_that_fits_its_schema() -> None:
    path = ROOT / "slipway.yaml"
    if path.exists():
        jsonschema.Draft202012Validator(profile.json_schema()).validate(documents(path.read_text())[0])


@every_case("path", [path for path in corpus.files() if path.stem[:5] != "yaml_"], ids=lambda path: path.stem)
def test_broken_files_do_not_fit_the_schema(path: Path) -> None:
    errors = [error for one in documents(corpus.text(path).decode()) for error in VALIDATOR.iter_errors(one)]
    assert bool(errors) == (path.stem not in BEYOND)


def test_the_schema_refuses_nothing_that_loads(tmp_path: Path) -> None:
    text = """
name: a
image: ghcr.io/x/y@sha256:1111111111111111111111111111111111111111111111111111111111111111
command: [python, 3, 1.5, -x]
config: {any: [thing, {at: all}], n: null}
code: .
inputs: {a: ./x, b: {url: s3://b/c, digest: "sha256:2222222222222222222222222222222222222222222222222222222222222222"}}
outputs: {r: , s: {sync: live}, c: {kind: checkpoints, keep: 3, done: ok, match: "x-*"}}
resources: {cpus: .5, memory: 1.5Gi, gpus: 2, gpu: A100-80GB, shm: 1G, disk: 10T, nodes: 2}
env: {A: 1, B: 1.5, C: x}
secrets: [HF_TOKEN]
limits: {deadline: 1h30m, start_deadline: 2d, retries: 1, retry_on: [out_of_memory, config_error, "78"], grace: 45s}
labels: {team: 7, a.b: ""}
backend: local
local: {}
kubernetes: {namespace: ml, queue: q, node_selector: {a: b}, tolerations: [{key: x}], secrets: {HF_TOKEN: s/k}}
docker: {network: host, volumes: [/a:/b:ro]}
matrix: {config.n: [0, 1], +config.seed: [2], resources.gpus: [1, 2]}
fresh: 2
timing: {beat: 1s, stale: 90s, fence: 30s}
---
name: b
roles:
  agent: {leader: true, command: [a, $SLIPWAY_ENDPOINT_SERVER], needs: [server], resources: {gpus: 1}}
  server: {command: [b], replicas: 2, ports: {http: 8000}, ready: {http: /health}, restarts: 2, env: {X: y}}
inputs: {m: {job: a, output: c, step: best}, n: {job: a, output: c, step: 7}, o: {job: a, output: r, all: true},
  p: {run: a-0123456789ab, output: c, step: latest}}
resume: b-0123456789ab
"""
    (tmp_path / "job.yaml").write_text(text)
    assert len(load(["job.yaml"], cwd=tmp_path).jobs) == 2
    for document in documents(text):
        VALIDATOR.validate(document)


def test_every_field_says_what_it_is_and_what_happens_without_it() -> None:
    for path, item in reference.fields(JOB):
        assert item.doc, path
        assert item.required or item.default or path.split(".")[0] in BLOCKS, path


def test_a_field_explains_itself() -> None:
    text = reference.explain("limits.deadline", JOB)
    assert "maximum running time, summed over the attempts" in text
    assert "90s, 15m, 6h" in text
    assert "inputs.NAME" not in reference.explain("inputs", JOB).splitlines()[0]
    with pytest.raises(BadInput, match=r"did you mean `limits.deadline`"):
        reference.explain("limits.deadlines", JOB)
