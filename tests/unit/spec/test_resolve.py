"""Resolved runs: complete, named by their hash, joined into a pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from launcher.errors import BadInput
from launcher.spec.hashing import encode_job, run_id, work_hash
from launcher.spec.model import Budget, Image, Input, Output
from tests.unit.spec.support import ENVIRONMENT, PROFILE, group

DIGEST = "sha256:" + "1" * 64
JOB = "name: a\ncommand: [x]\n"
PIPELINE = """
name: train
command: [x]
config: {lr: 1}
outputs: {model: , checkpoints: {kind: checkpoints}}
---
name: evaluate
command: [y]
inputs: {model: {job: train, output: model}, last: {job: train, output: checkpoints}}
outputs: [results]
"""


def test_one_job(tmp_path: Path) -> None:
    made = group(JOB, tmp_path)
    (job,) = made.runs
    assert list(job.roles) == ["main"]
    assert job.roles["main"].image == Image(environment=ENVIRONMENT)
    assert (job.store, job.backend) == ("s3://bucket/runs", "local")
    assert made.names == {run_id(job): "a"}
    assert made.edges == {run_id(job): ()}
    assert len(run_id(job)) == len("a-") + 12


def test_resolving_is_the_same_every_time(tmp_path: Path) -> None:
    first, second = group(PIPELINE, tmp_path), group(PIPELINE, tmp_path)
    assert [encode_job(job) for job in first.runs] == [encode_job(job) for job in second.runs]
    assert first.id == second.id


def test_a_pipeline_is_a_merkle_tree(tmp_path: Path) -> None:
    made = group(PIPELINE, tmp_path)
    train, evaluate = made.runs
    work = work_hash(train)
    assert evaluate.inputs == {
        "model": Input(work=work, output="model", job="train"),
        "last": Input(work=work, output="checkpoints", step="latest", job="train"),
    }
    assert made.edges[run_id(evaluate)] == (run_id(train),)
    changed = group(PIPELINE, tmp_path, ["train:config.lr=2"])
    assert work_hash(changed.runs[1]) != work_hash(evaluate)
    # where a stage runs and for how long it may is not what it computes
    longer = group(PIPELINE, tmp_path, ["train:limits.deadline=1h"])
    assert run_id(longer.runs[0]) != run_id(train)
    assert run_id(longer.runs[1]) == run_id(evaluate)


def test_a_matrix_makes_a_consumer_for_each_variant(tmp_path: Path) -> None:
    text = PIPELINE.replace("config: {lr: 1}", "config: {lr: 1}\nmatrix: {config.lr: [1e-5, 3e-5]}")
    made = group(text, tmp_path)
    first, second, third, fourth = made.runs
    assert list(made.names.values()) == [
        "train[lr=1e-05]",
        "train[lr=3e-05]",
        "evaluate[lr=1e-05]",
        "evaluate[lr=3e-05]",
    ]
    assert made.edges[run_id(third)] == (run_id(first),)
    assert made.edges[run_id(fourth)] == (run_id(second),)
    assert third.variant == {"train:config.lr": 1e-5}
    # both inputs of one consumer are of the same variant
    assert {item.work for item in third.inputs.values()} == {work_hash(first)}


def test_all_takes_a_folder_for_each_variant(tmp_path: Path) -> None:
    text = PIPELINE.replace("config: {lr: 1}", "config: {lr: 1}\nmatrix: {config.lr: [1, 'a/b']}")
    table = "---\nname: table\ncommand: [z]\ninputs: {r: {job: evaluate, output: results, all: true}}\n"
    made = group(text + table, tmp_path)
    last = made.runs[-1]
    works = last.inputs["r"].works
    assert [name for name in works if name == "lr=1" or (name.startswith("lr=") and "/" not in name)] == list(works)
    assert list(works.values()) == [work_hash(job) for job in made.runs[2:4]]
    assert made.edges[run_id(last)] == tuple(run_id(job) for job in made.runs[2:4])
    assert len(made.runs) == 5


def test_variants_of_one_matrix_are_joined_and_of_two_multiplied(tmp_path: Path) -> None:
    text = """
name: base
command: [b]
config: {seed: 0}
outputs: [o]
matrix: {config.seed: [0, 1]}
---
name: left
command: [l]
inputs: {b: {job: base, output: o}}
outputs: [o]
---
name: right
command: [r]
config: {k: 0}
inputs: {b: {job: base, output: o}}
outputs: [o]
matrix: {config.k: [0, 1, 2]}
---
name: both
command: [x]
inputs: {l: {job: left, output: o}, r: {job: right, output: o}}
"""
    made = group(text, tmp_path)
    counts = {name: sum(job.name == name for job in made.runs) for name in ("base", "left", "right", "both")}
    assert counts == {"base": 2, "left": 2, "right": 6, "both": 6}
    left = {work_hash(job): job.inputs["b"].work for job in made.runs if job.name == "left"}
    right = {work_hash(job): job.inputs["b"].work for job in made.runs if job.name == "right"}
    for job in made.runs:
        if job.name == "both":
            assert left[str(job.inputs["l"].work)] == right[str(job.inputs["r"].work)]


def test_a_matrix_value_set_by_hand_is_the_same_work_and_the_same_run(tmp_path: Path) -> None:
    text = JOB + "config: {seed: 0}\nmatrix: {config.seed: [3, 4]}\n"
    by_hand = group(JOB + "config: {seed: 4}\n", tmp_path).runs[0]
    assert run_id(group(text, tmp_path).runs[1]) == run_id(by_hand)


def test_roles_take_defaults_from_the_job(tmp_path: Path) -> None:
    text = """
name: a
image: x/y:1
command: [base]
env: {A: 1, B: 2}
resources: {cpus: 4, memory: 1Gi}
roles:
  agent: {leader: true, needs: [server], env: {B: 3}, resources: {gpu: H100}}
  server: {replicas: 2, command: [serve], image: z:2, ports: {http: 8000}, ready: {http: /health}, restarts: 1}
"""
    (job,) = group(text, tmp_path, backend="docker").runs
    agent, server = job.roles["agent"], job.roles["server"]
    assert job.leading == "agent"
    assert job.members() == ("agent-0", "server-0", "server-1")
    assert agent.command == ("base",)
    assert agent.env == {"A": "1", "B": "3"}
    assert (agent.resources.cpus, agent.resources.memory, agent.resources.gpus) == (4.0, 1 << 30, 1)
    assert server.image == Image(reference="z:2")
    assert server.resources.gpus == 0
    assert agent.image == Image(reference="x/y:1")


def test_nodes_are_ranks_of_main(tmp_path: Path) -> None:
    (job,) = group(JOB + "resources: {nodes: 3, gpus: 8}\n", tmp_path).runs
    assert job.members() == ("main-0", "main-1", "main-2")


def test_one_role_needs_no_leader_and_is_the_same_with_one(tmp_path: Path) -> None:
    one = group("name: a\nroles: {r: {command: [x]}}\n", tmp_path).runs[0]
    other = group("name: a\nroles: {r: {command: [x], leader: true}}\n", tmp_path).runs[0]
    assert run_id(one) == run_id(other)
    assert one.leading == "r"


def test_checkpoints_match_what_transformers_writes(tmp_path: Path) -> None:
    (job,) = group(JOB + "outputs: {c: {kind: checkpoints, keep: 2}, r: {sync: live}, m: }\n", tmp_path).runs
    assert job.outputs == {
        "c": Output(kind="checkpoints", match="checkpoint-*", keep=2),
        "r": Output(sync="live"),
        "m": Output(),
    }


def test_the_profile_is_written_into_the_run(tmp_path: Path) -> None:
    profile = replace(
        PROFILE,
        backend="kubernetes",
        images={"trl": f"ghcr.io/s/trl:1@{DIGEST}"},
        secrets={"HF_TOKEN": "hf/token"},
        labels={"team": "x", "kind": "profile"},
        prices={"H100": (3.0, "USD")},
        blocks={"kubernetes": {"namespace": "ml", "queue": "q"}, "docker": {"user": "me"}},
    )
    text = JOB + (
        "image: trl\nsecrets: [HF_TOKEN]\nlabels: {kind: job}\nresources: {gpu: H100, gpus: 2, nodes: 4}\n"
        "limits: {deadline: 1h, budget: 40 USD}\nkubernetes: {queue: mine}\ndocker: {user: image}\n"
    )
    (job,) = group(text, tmp_path, profile=profile).runs
    assert job.backend == "kubernetes"
    assert job.roles["main"].image == Image(reference="ghcr.io/s/trl:1", digest=DIGEST)
    assert job.secrets == {"HF_TOKEN": "hf/token"}
    assert job.labels == {"team": "x", "kind": "job"}
    assert job.options == {"namespace": "ml", "queue": "mine"}
    assert job.limits.budget == Budget(40.0, "USD", 24.0)


def test_an_image_with_a_digest_needs_no_catalogue(tmp_path: Path) -> None:
    (job,) = group(JOB + f"image: r/x@{DIGEST}\nlimits: {{deadline: 1h}}\n", tmp_path, backend="kubernetes").runs
    assert job.roles["main"].image == Image(reference="r/x", digest=DIGEST)


def test_the_command_line_beats_the_file(tmp_path: Path) -> None:
    made = group(JOB + "backend: kubernetes\nfresh: 1\n", tmp_path, backend="local")
    assert made.runs[0].backend == "local"
    assert made.runs[0].fresh == 1


def test_resume_and_fresh_are_other_runs_of_the_same_work(tmp_path: Path) -> None:
    plain, fresh, resumed = (
        group(JOB + extra, tmp_path).runs[0] for extra in ("", "fresh: 1\n", "resume: a-0123456789ab\n")
    )
    assert len({run_id(job) for job in (plain, fresh, resumed)}) == 3
    assert len({work_hash(job) for job in (plain, fresh, resumed)}) == 1


def test_every_value_has_an_origin(tmp_path: Path) -> None:
    profile = replace(PROFILE, origins={"store": "slipway.yaml:1"})
    text = JOB + "config: {a: 1, b: 2}\nresources: {gpu: H100}\nmatrix: {config.b: [5, 6]}\n"
    made = group(text, tmp_path, ["config.a=9"], profile=profile, backend="local")
    origins = made.origins[run_id(made.runs[0])]
    assert origins["name"] == "job.yaml:1"
    assert origins["config.a"] == "--set config.a"
    assert origins["config.b"] == "job.yaml:5"
    assert origins["store"] == "slipway.yaml:1"
    assert origins["roles.main.resources.gpu"] == "job.yaml:4"
    assert origins["roles.main.resources.cpus"] == "default"
    assert origins["limits.grace"] == "default"
    assert origins["roles.main.image.environment"] == "the lock and the source installed here"


def test_problems_of_resolving_come_together(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        group(JOB + "secrets: [A]\nlimits: {budget: 1 USD}\n", tmp_path, backend="kubernetes")
    fields = {problem.field for problem in caught.value.problems}
    assert fields == {"image", "limits.deadline", "secrets[0]", "limits.budget"}


def test_a_name_given_twice_counts_once_and_is_said(tmp_path: Path) -> None:
    twice = group(JOB + 'outputs: [b, c, b]\nlimits:\n  retry_on: ["78", "78"]\n', tmp_path)
    line = JOB.count("\n") + 1
    assert twice.notes == [
        f"job.yaml:{line}: outputs: `b` is named twice, and counts once",
        f"job.yaml:{line + 2}: limits.retry_on: `78` is named twice, and counts once",
    ]
    once = group(JOB + 'outputs: [b, c]\nlimits:\n  retry_on: ["78"]\n', tmp_path)
    assert (once.notes, once.runs[0].outputs) == ([], twice.runs[0].outputs)


@given(
    st.permutations(["name: a", "command: [x]", "config: {a: 1, b: {c: 2}}", "env: {A: x, B: y}", "outputs: [r, s]"])
)
def test_the_order_of_fields_changes_no_run(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    made = group("\n".join(lines), tmp_path_factory.getbasetemp())
    assert run_id(made.runs[0]) == "a-db3a2723de5b"
