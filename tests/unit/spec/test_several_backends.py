"""`backend: [a, b]`: the backends on which a run may go on, in their order."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.errors import BadInput
from launcher.spec.hashing import decode_job, encode_job, run_hash, run_id, work_hash
from launcher.spec.model import as_written, at_turn, backend_order
from launcher.spec.profile import LocalSettings, Profile
from tests.unit.spec.support import group

IMAGE = "registry/name@sha256:" + "1" * 64
BASE = f"""
name: a
image: {IMAGE}
command: [x]
limits: {{deadline: 1h}}
kubernetes: {{namespace: ml}}
lambda: {{instance_types: [gpu_1x_a10], ssh_key: mine}}
"""
BOTH = BASE + "backend: [kubernetes, lambda]\n"


def test_the_first_is_the_job_s_and_the_others_follow_with_their_own_blocks(tmp_path: Path) -> None:
    (job,) = group(BOTH, tmp_path).runs
    assert backend_order(job) == ("kubernetes", "lambda")
    assert (job.backend, job.options["namespace"], job.turn) == ("kubernetes", "ml", 0)
    (other,) = job.alternatives
    assert (other.backend, other.options["instance_types"]) == ("lambda", ["gpu_1x_a10"])
    assert decode_job(encode_job(job)) == job


def test_a_run_is_the_same_at_every_turn(tmp_path: Path) -> None:
    (job,) = group(BOTH, tmp_path).runs
    there = at_turn(job, 1)
    assert (there.backend, there.options["ssh_key"], there.turn) == ("lambda", "mine", 1)
    assert backend_order(there) == backend_order(job)
    assert (run_id(there), run_hash(there), work_hash(there)) == (run_id(job), run_hash(job), work_hash(job))
    assert as_written(there) == job
    assert at_turn(there, 0) == job
    assert at_turn(decode_job(encode_job(there)), 1) == there


@pytest.mark.parametrize("turn", [1, 2])
def test_three_backends_and_back(tmp_path: Path, turn: int) -> None:
    (job,) = group(BASE + "backend: [docker, kubernetes, lambda]\n", tmp_path).runs
    there = at_turn(at_turn(job, 2), turn)
    assert there.backend == ("docker", "kubernetes", "lambda")[turn]
    assert backend_order(there) == ("docker", "kubernetes", "lambda")
    assert as_written(there) == job


def test_the_work_is_that_of_each_of_them_alone(tmp_path: Path) -> None:
    (both,) = group(BOTH, tmp_path).runs
    for name in ("kubernetes", "lambda"):
        (alone,) = group(BASE + f"backend: {name}\n", tmp_path).runs
        assert work_hash(alone) == work_hash(both)
        assert run_hash(alone) != run_hash(both)


def test_one_name_in_a_list_is_that_name(tmp_path: Path) -> None:
    (listed,) = group(BASE + "backend: [kubernetes]\n", tmp_path).runs
    (plain,) = group(BASE + "backend: kubernetes\n", tmp_path).runs
    assert listed == plain
    assert b"alternatives" not in encode_job(plain)


def test_a_job_with_one_backend_keeps_the_id_that_it_had(tmp_path: Path) -> None:
    """The id of the same file, computed by the commit before lists were read."""
    (job,) = group(BASE + "backend: kubernetes\n", tmp_path).runs
    assert run_id(job) == "a-1b2066c28429"


def test_the_option_of_the_command_line_names_one(tmp_path: Path) -> None:
    (job,) = group(BOTH, tmp_path, backend="lambda").runs
    assert (job.backend, job.alternatives) == ("lambda", ())


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("backend: [kubernetes, lambda, kubernetes]\n", r"job.yaml:\d+:\d+: backend\[2\]: `kubernetes` is named twice"),
        ("backend: []\n", r"job.yaml:\d+:\d+: backend: the list is empty"),
        ("backend: [kubernetes, lamda]\n", r"backend\[1\]: `lamda` is not known \(did you mean `lambda`\?\)"),
        ("backend: {kubernetes: 1}\n", r"backend: a mapping is not a backend or a list of backends"),
        ("backend: [local, kubernetes]\n", r"backend\[1\]: a run can't move between local and kubernetes: local runs"),
    ],
)
def test_a_wrong_list_is_one_clear_error(tmp_path: Path, lines: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        group(BASE + lines, tmp_path)


def test_every_backend_of_the_list_has_its_rules(tmp_path: Path) -> None:
    text = BOTH.replace("limits: {deadline: 1h}\n", "").replace("[kubernetes, lambda]", "[docker, lambda]")
    with pytest.raises(BadInput, match=r"limits.deadline: is missing: lambda bills"):
        group(text, tmp_path)
    text = BOTH.replace(IMAGE, "name:1").replace("[kubernetes, lambda]", "[docker, lambda]")
    with pytest.raises(BadInput, match=r"image: `name:1` has no digest"):
        group(text, tmp_path)
    with pytest.raises(BadInput, match=r"secrets\[0\]: nothing says where `TOKEN` is kept on lambda"):
        group(BOTH.replace("[kubernetes, lambda]", "[docker, lambda]") + "secrets: [TOKEN]\n", tmp_path)


def test_a_stage_of_a_pipeline_has_one_backend(tmp_path: Path) -> None:
    reader = BASE.replace("name: a", "name: b") + "inputs: {x: {job: a, output: o}}\n"
    pipeline = BOTH + "outputs: [o]\n---" + reader + "backend: kubernetes\n"
    with pytest.raises(BadInput, match=r"backend: several backends are for jobs that are no stage of a pipeline"):
        group(pipeline, tmp_path)


def test_a_budget_counts_at_the_price_of_the_dearest_backend(tmp_path: Path) -> None:
    prices = Profile(store="s3://b/r", local=LocalSettings(Path("/s")), prices={"A10": (100.0, "USD")})
    text = BASE.replace("deadline: 1h", "deadline: 1h, budget: 40 USD") + "resources: {gpu: A10}\n"
    budgets = {}
    for backend in ("kubernetes", "lambda", "[kubernetes, lambda]", "[lambda, kubernetes]"):
        (job,) = group(text + f"backend: {backend}\n", tmp_path, profile=prices).runs
        assert job.limits.budget is not None
        budgets[backend] = job.limits.budget.price
    dearest = max(budgets["kubernetes"], budgets["lambda"])
    assert budgets["[kubernetes, lambda]"] == budgets["[lambda, kubernetes]"] == dearest
    assert budgets["kubernetes"] != budgets["lambda"]
