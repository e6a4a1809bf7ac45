"""The command's environment, config and process; why commands end; the address of a rank."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from launcher.errors import BadInput
from launcher.reasons import Reason
from launcher.runtime.folders import Folders
from launcher.runtime.member import command
from launcher.runtime.process.verdict import Ended, verdict
from launcher.runtime.settings import AttemptError, MemberAddress, Tuning
from launcher.spec.model import Code, Image, ResolvedJob, Resources, Role

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | FLOATS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
PRINTABLE = st.characters(min_codepoint=32, max_codepoint=126)


def address(**changes: str) -> MemberAddress:
    return MemberAddress.read({"SLIPWAY_STORE": "file:///s", "SLIPWAY_RUN": "x-000000000000", **changes})


def job(backend: str = "local", **changes: object) -> ResolvedJob:
    values = {"roles": {"main": Role(command=("true",))}, **changes}
    return ResolvedJob(name="x", store="file:///s", backend=backend, **values)  # type: ignore[arg-type]


@given(JSON)
def test_a_config_is_the_same_for_json(value: object) -> None:
    assert json.loads(command._json(value)) == value


@given(st.dictionaries(st.text(PRINTABLE), FLOATS | st.text(PRINTABLE)))
def test_a_config_is_the_same_for_yaml_1_1(value: dict[str, object]) -> None:
    assert yaml.safe_load(command._json(value)) == value


def test_a_variable_that_is_not_set_here_is_told(tmp_path: Path) -> None:
    with pytest.raises(AttemptError, match="SLIPWAY_NOTHING is not set here"):
        command.write_config(job(config={"a": "$SLIPWAY_NOTHING"}), Folders(tmp_path, False), {})


def environment(
    made: ResolvedJob, environ: dict[str, str], peers: command.Peers | None = None, kind: str = "process"
) -> dict[str, str]:
    folders = Folders(Path("/w"), False)
    peers = peers or command.Peers()
    own = command.variables(made, address(), folders, 1, None, peers)
    place = address(SLIPWAY_PLACEMENT=json.dumps({"kind": kind}))
    return command.environment(made, place, folders, own, peers, 1, environ)


def test_python_is_the_launchers_own_where_a_runtime_is_a_process_unless_the_job_says_otherwise() -> None:
    path = {"PATH": "/usr/bin"}
    assert environment(job(), path)["PATH"].split(":")[0] == str(Path(sys.executable).parent)
    assert environment(job("kubernetes"), path, kind="job")["PATH"] == "/usr/bin"
    own = job(roles={"main": Role(command=("true",), env={"PATH": "/opt/bin"})})
    assert environment(own, path)["PATH"] == "/opt/bin"


def test_code_comes_first_on_the_python_path() -> None:
    assert environment(job(code=Code("0" * 64)), {"PYTHONPATH": "/x"})["PYTHONPATH"] == "/w/source:/x"


def test_torchruns_variables_only_for_several_ranks() -> None:
    assert not {"RANK", "WORLD_SIZE", "PET_NNODES"} & environment(job(), {}).keys()
    role = Role(command=("true",), replicas=2, resources=Resources(gpus=8))
    env = environment(job(roles={"main": role}), {}, command.Peers(master=("a", 1)))
    wanted = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1", "PET_NPROC_PER_NODE": "8"}
    assert wanted.items() <= env.items()


def test_a_user_keeps_the_last_word_but_on_slipways_own() -> None:
    role = Role(command=("true",), env={"WANDB_RESUME": "must", "PYTHONUNBUFFERED": ""})
    env = environment(job(roles={"main": role}), {"WANDB_RUN_ID": "mine", "SLIPWAY_RUN": "not this"})
    assert (env["WANDB_RESUME"], env["PYTHONUNBUFFERED"], env["WANDB_RUN_ID"]) == ("must", "", "mine")
    assert env["SLIPWAY_RUN"] == "x-000000000000"


def test_addresses_of_needed_roles_are_there_and_others_are_empty() -> None:
    roles = {"main": Role(command=("true",), leader=True, needs=("a",)), "a": Role(("x",)), "b-c": Role(("x",))}
    env = environment(job(roles=roles), {}, command.Peers(endpoints={"a": ("h:1", "h:2")}, ports={"my-port": 7}))
    assert (env["SLIPWAY_ENDPOINT_A"], env["SLIPWAY_ENDPOINT_B_C"], env["SLIPWAY_PORT_MY_PORT"]) == ("h:1,h:2", "", "7")


def test_images_are_told_by_their_digests_and_no_images_not_at_all() -> None:
    assert "SLIPWAY_IMAGES" not in environment(job(), {"SLIPWAY_IMAGES": "not this"})
    roles = {"main": Role(("x",), leader=True), "desk": Role(("x",), image=Image("r/x", "sha256:b"))}
    made = job("docker", roles=roles)
    assert json.loads(environment(made, {})["SLIPWAY_IMAGES"]) == {"desk": "sha256:b"}
    here = address(SLIPWAY_IMAGE="sha256:id")
    assert command._images(made, here) == {"desk": "sha256:b", "main": "sha256:id"}
    roles["main"] = Role(("x",), image=Image("r/y", "sha256:a"), leader=True)
    assert command._images(job("docker", roles=roles), here) == {"desk": "sha256:b", "main": "sha256:a"}


def test_the_address_of_a_rank() -> None:
    place = '{"kind": "job", "where": "u"}'
    full = address(SLIPWAY_ROLE="agent", SLIPWAY_RANK="3", SLIPWAY_TUNING='{"poll": 2}', SLIPWAY_PLACEMENT=place)
    assert (full.member, full.tuning) == ("agent-3", Tuning(poll=2))
    assert (full.placement.kind, full.placement.where, full.placement.pid) == ("job", "u", os.getpid())
    for wrong in (
        {"SLIPWAY_RUN": ""},
        {"SLIPWAY_RANK": "x"},
        {"SLIPWAY_TUNING": "{"},
        {"SLIPWAY_TUNING": '{"pol": 1}'},
    ):
        with pytest.raises(BadInput, match="SLIPWAY"):
            address(**wrong)


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (Ended(0), Reason.SUCCEEDED),
        (Ended(1), Reason.USER_ERROR),
        (Ended(137), Reason.USER_ERROR),
        (Ended(143), Reason.USER_ERROR),
        (Ended(75), Reason.USER_ERROR),
        (Ended(78), Reason.CONFIG_ERROR),
        (Ended(78, forgiven=True), Reason.USER_ERROR),
        (Ended(1, inner=78), Reason.CONFIG_ERROR),  # torchrun's process exited with 78, torchrun itself with 1
        (Ended(1, inner=78, forgiven=True), Reason.USER_ERROR),
        (Ended(1, inner=1), Reason.USER_ERROR),
        (Ended(78, terminated=True), Reason.PREEMPTED),
        (Ended(78, stop=Reason.LOST), Reason.LOST),
        (Ended(78, oom_kills=1), Reason.OUT_OF_MEMORY),
        (Ended(-signal.SIGKILL), Reason.USER_ERROR),
        (Ended(-signal.SIGKILL, oom_kills=1), Reason.OUT_OF_MEMORY),
        (Ended(137, oom_kills=1, oom_shared=True), Reason.OUT_OF_MEMORY),
        (Ended(1, oom_kills=1), Reason.OUT_OF_MEMORY),  # a worker was killed, and its parent told so
        (Ended(1, oom_kills=1, oom_shared=True), Reason.USER_ERROR),  # somebody else's kill, perhaps
        (Ended(0, oom_kills=1), Reason.SUCCEEDED),
        (Ended(0, terminated=True), Reason.PREEMPTED),
        (Ended(0, terminated=True, done=True), Reason.SUCCEEDED),
        (Ended(1, terminated=True, done=True), Reason.PREEMPTED),
        (Ended(-signal.SIGTERM, terminated=True), Reason.PREEMPTED),
        (Ended(-signal.SIGKILL, terminated=True, oom_kills=1), Reason.PREEMPTED),
        (Ended(-signal.SIGTERM, stop=Reason.CANCELLED), Reason.CANCELLED),
        (Ended(0, stop=Reason.LOST, done=True), Reason.LOST),
        (Ended(0, stop=Reason.DEADLINE), Reason.DEADLINE),
        (Ended(0, stop=Reason.DEADLINE, done=True), Reason.SUCCEEDED),
    ],
)
def test_verdict(ended: Ended, reason: Reason) -> None:
    assert verdict(ended)[0] is reason


def test_the_message_says_what_is_known() -> None:
    told = verdict(Ended(-9, last_line="killed", disk_full=True))[1]
    assert told == (
        "the command was ended by SIGKILL from outside; the kernel counted no kill because memory ran out; "
        "the disk of its outputs is full: killed"
    )
