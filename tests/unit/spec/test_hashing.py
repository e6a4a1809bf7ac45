"""Canonical JSON, hashes and ids: the same on every machine, for ever."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.errors import BadInput
from launcher.spec.hashing import canonical, decode_job, encode_job, group_id, run_hash, run_id, work_hash
from launcher.spec.model import (
    Budget,
    Code,
    Image,
    Input,
    Limits,
    Output,
    Ready,
    ResolvedJob,
    Resources,
    Role,
    Timing,
)
from tests.unit.spec.test_source import PLAIN

SMALL = ResolvedJob(name="small", roles={"main": Role(command=("true",))}, store="s3://b/x", backend="local")
FULL = ResolvedJob(
    name="sft-login",
    roles={
        "agent": Role(
            command=("python", "-m", "training.rl", "é"),
            image=Image(reference="ghcr.io/s/trl", digest="sha256:" + "1" * 64),
            leader=True,
            replicas=2,
            env={"B": "2", "A": "1"},
            resources=Resources(cpus=8.0, memory=64 << 30, gpus=1, gpu="H100", shm=16 << 30, disk=200 << 30),
            needs=("desktop",),
        ),
        "desktop": Role(
            command=("serve",),
            image=Image(reference="ghcr.io/s/waa", digest="sha256:" + "2" * 64),
            replicas=8,
            ports={"http": 8000},
            ready=Ready(http="/health"),
            restarts=3,
        ),
    },
    store="s3://bucket/runs",
    backend="kubernetes",
    config={"lr": 1e-5, "epochs": 2, "one": 1.0, "big": 1e22, "text": "naïve ☃", "list": [None, True, 0.1]},
    code=Code("3" * 64),
    inputs={
        "data": Input(url="s3://b/d", digest="sha256:" + "4" * 64),
        "base": Input(work="5" * 64, output="checkpoints", step="latest", job="pretrain"),
        "evals": Input(works={"seed=0": "6" * 64, "seed=1": "7" * 64}, output="results", job="evaluate"),
    },
    outputs={"results": Output(sync="live"), "checkpoints": Output(kind="checkpoints", match="c-*", keep=3)},
    secrets={"HF_TOKEN": "slipway/hf"},
    limits=Limits(deadline=21600.0, retries=2, budget=Budget(40.0, "USD", 3.0)),
    labels={"team": "agents"},
    variant={"config.lr": 1e-5},
    options={"namespace": "ml"},
    fresh=1,
    resume="sft-login-0123456789ab",
    timing=Timing(beat=1.0),
)

GOLDEN = {
    "small": (
        SMALL,
        "337a5e53289eb1717f55e963539d2351e9b2d25dc1ee06e1ac857d15409a809d",
        "a4548c61bea9e97195449571ed2aa1ee42c8236184b73e7c77b6bf437a2e7590",
    ),
    "full": (
        FULL,
        "09d6339631767b4e27c6a78016e68729984faffe67d303d90f35829641ce2a19",
        "c322f8bc4ca6490a75d22779b1f1fefd9879e1baa75ddea7c7372173ad03f4d8",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_hashes(name: str) -> None:
    """A change here would make every run that exists another one: it needs a new schema number, not a new figure."""
    job, run, work = GOLDEN[name]
    assert (run_hash(job), work_hash(job)) == (run, work)
    assert run_id(job) == f"{job.name}-{run[:12]}"


def test_golden_bytes() -> None:
    data = {"b": [1, 1.0, -0.5, 1e-5, 1e16, 1e22, 0.1], "a": {"é": None, "Z": True, "\n": '"'}, "": "\u2028\x7f"}
    assert canonical(data) == (
        b'{"":"\xe2\x80\xa8\x7f","a":{"\\n":"\\"","Z":true,"\xc3\xa9":null},"b":[1,1.0,-0.5,1e-05,1e+16,1e+22,0.1]}'
    )


def test_defaults_are_left_out() -> None:
    assert encode_job(SMALL) == (
        b'{"backend":"local","name":"small","roles":{"main":{"command":["true"]}},"store":"s3://b/x"}'
    )


def test_a_value_equal_to_the_default_is_left_out_however_it_was_made() -> None:
    made = msgspec.structs.replace(SMALL.roles["main"], resources=Resources(cpus=float("1")), image=Image(reference=""))
    assert encode_job(msgspec.structs.replace(SMALL, roles={"main": made})) == encode_job(SMALL)


@pytest.mark.parametrize(
    "data",
    [
        float("nan"),
        float("inf"),
        {"a": -float("inf")},
        {1: "x"},
        {None: 1},
        2**63,
        "\ud800",
        {"\ud800": 1},
        object(),
        b"x",
    ],
)
def test_what_json_can_not_hold_is_refused(data: Any) -> None:
    with pytest.raises(BadInput):
        canonical(data)


def shuffled(value: Any, seed: int) -> Any:
    if isinstance(value, dict):
        items = list(value.items())
        random.Random(seed).shuffle(items)
        return {key: shuffled(item, seed) for key, item in items}
    return [shuffled(item, seed) for item in value] if isinstance(value, list) else value


@given(PLAIN, st.integers())
def test_key_order_does_not_matter_and_json_reads_it_back(data: Any, seed: int) -> None:
    assert canonical(shuffled(data, seed)) == canonical(data)
    assert canonical(json.loads(canonical(data))) == canonical(data)
    assert canonical(msgspec.json.decode(canonical(data))) == canonical(data)


@given(PLAIN)
def test_a_job_is_read_back_as_it_was(data: Any) -> None:
    job = msgspec.structs.replace(FULL, config={"data": data})
    assert decode_job(encode_job(job)) == job
    assert run_hash(decode_job(encode_job(job))) == run_hash(job)


def test_what_counts_as_work() -> None:
    replace = msgspec.structs.replace
    agent = FULL.roles["agent"]

    def with_agent(**changes: Any) -> ResolvedJob:
        return replace(FULL, roles={**FULL.roles, "agent": replace(agent, **changes)})

    same = [
        replace(FULL, name="other"),
        replace(FULL, store="s3://c", backend="azureml", labels={}, options={}, fresh=7, resume=None),
        replace(FULL, limits=Limits(), secrets={}, timing=Timing(), variant={}),
        replace(FULL, outputs={**FULL.outputs, "results": Output()}),
        with_agent(resources=Resources(cpus=1.0, gpus=1), restarts=2),
        with_agent(image=Image(reference="mirror/trl", digest=agent.image.digest)),
        replace(FULL, inputs={**FULL.inputs, "base": replace(FULL.inputs["base"], job="renamed")}),
    ]
    other = [
        replace(FULL, config={}),
        replace(FULL, code=None),
        replace(FULL, inputs={}),
        replace(FULL, outputs={}),
        with_agent(command=("x",)),
        with_agent(env={}),
        with_agent(replicas=3),
        with_agent(resources=Resources(gpus=2)),
        with_agent(image=Image(digest="sha256:" + "9" * 64)),
        replace(FULL, inputs={**FULL.inputs, "base": replace(FULL.inputs["base"], step="best")}),
    ]
    assert {work_hash(job) for job in same} == {work_hash(FULL)}
    assert len({work_hash(job) for job in (*other, FULL)}) == len(other) + 1
    # each of them is another run, but for what is there for people only
    assert run_hash(replace(FULL, variant={})) == run_hash(FULL)
    assert run_hash(same[-1]) == run_hash(FULL)
    assert len({run_hash(job) for job in (*same[:-1], *other, FULL)}) == len(same) + len(other)


def test_group_id_depends_on_the_set_of_runs() -> None:
    assert group_id(["b-1", "a-1"]) == group_id(["a-1", "b-1", "a-1"]) == "group-9d28274525c4"
    assert group_id(["a-1"]) != group_id(["b-1"])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "job.json: "),
        (b'{"schema": 2, "anything": 1}', "schema 2"),
        (b'{"name":"a","roles":{},"store":"x","backend":"local","stores":1}', "unknown field `stores`"),
        (b'{"name":1,"roles":{},"store":"x","backend":"local"}', "Expected `str`"),
        (b"\xff", "job.json: "),
        (b'{"name":"a","roles":{},"store":"x","backend":"local","turn":1}', "turn is 1; allowed: 0 to 0"),
        (b'{"name":"a","roles":{},"store":"x","backend":"local","turn":-1}', "turn is -1"),
    ],
)
def test_a_job_that_is_none_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        decode_job(data)
