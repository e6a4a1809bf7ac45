"""What a container is made with: limits, user, mounts, and nothing secret."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.docker import container
from launcher.backends.docker.container import ContainerSettings, settings
from launcher.backends.docker.spawner import container_settings
from launcher.runtime.secrets.credentials import adopt_private
from launcher.spec.model import Image, Input, ResolvedJob, Resources, Role
from tests.support.jobs import job

ROOT = Path(__file__).parents[3]

PLACE = ContainerSettings("1234:100", Path("/state/work"), Path("/state/private.json"))


def made(one: ResolvedJob, place: ContainerSettings = PLACE, member: str = "main-0", start: int = 1) -> dict[str, Any]:
    return settings(one, "hello-1", member, start, "mark", place, {})


def one(**changes: Any) -> ResolvedJob:
    role = Role(command=("true",), image=Image(reference="slipway-cpu:0.1.0-00000000"), **changes.pop("role", {}))
    return job("hello", store="s3://bucket/x", backend="docker", roles={"main": role}, **changes)


def test_nobody_gains_privileges_and_the_engine_never_restarts() -> None:
    host = made(one())["host_config"]
    assert host["cap_drop"] == ["ALL"]
    assert host["security_opt"] == ["no-new-privileges"]
    assert host["restart_policy"] == {"Name": "no"}


def test_two_queues_containers_of_one_run_have_places_of_their_own() -> None:
    """On two hosts that share a store: a place that is the same would prove the other's living container dead. On one
    engine: a name that is the same would be refused, and other ranks would be found by it."""
    places = [settings(one(), "hello-1", "main-0", 1, f"{queue}:hello-1:main-0", PLACE, {}) for queue in ("a", "b")]
    first, second = (json.loads(each["environment"]["SLIPWAY_PLACEMENT"])["where"] for each in places)
    assert first != second
    assert len({each["name"] for each in places}) == len({each["hostname"] for each in places}) == 2


def test_limits_become_the_engines() -> None:
    need = Resources(cpus=2.5, memory=1 << 30, shm=1 << 20)
    host = made(one(role={"resources": need}))["host_config"]
    assert host["nano_cpus"] == 2_500_000_000
    assert host["mem_limit"] == host["memswap_limit"] == 1 << 30
    assert host["shm_size"] == 1 << 20


def test_the_gpus_of_the_slots_and_no_others() -> None:
    with_gpus = made(one(), ContainerSettings("1:1", Path("/w"), Path("/p"), ("2", "3")))
    assert with_gpus["host_config"]["device_requests"][0]["device_ids"] == ["2", "3"]
    assert "CUDA_VISIBLE_DEVICES" not in with_gpus["environment"]
    without = made(one())
    assert "device_requests" not in without["host_config"]
    assert without["environment"]["CUDA_VISIBLE_DEVICES"] == ""


@pytest.mark.parametrize(
    ("options", "user"),
    [({}, "1234:100"), ({"user": "image"}, None), ({"user": "7:8"}, "7:8"), ({"user": "me"}, "1234:100")],
)
def test_the_user(options: dict[str, Any], user: str | None) -> None:
    assert made(one(options=options))["user"] == user


def test_a_read_only_root_leaves_room_for_temporary_files() -> None:
    host = made(one(options={"read_only": True}))["host_config"]
    assert host["read_only"]
    assert list(host["tmpfs"]) == ["/tmp"]
    assert not made(one())["host_config"]["read_only"]


def test_files_on_this_machine_are_seen_under_their_own_paths_inputs_read_only() -> None:
    found = one(inputs={"a": Input(url="file:///data/a"), "b": Input(url="/data/b"), "c": Input(url="s3://x/c")})
    local = job("hello", store="file:///store", backend="docker", roles=found.roles, inputs=found.inputs)
    assert made(local)["host_config"]["mounts"] == [
        ("/state/work", "/work", False),
        ("/state/private.json", "/run/slipway/private.json", False),
        ("/store", "/store", False),
        ("/data/a", "/data/a", True),
        ("/data/b", "/data/b", True),
    ]


def test_a_folder_is_the_one_that_the_store_and_the_runtime_open() -> None:
    found = one(inputs={"a": Input(url="file:///data/50%25 off:a/")})
    local = job("hello", store="file:///my%20runs/./x", backend="docker", roles=found.roles, inputs=found.inputs)
    assert [each.source for each in made(local)["host_config"]["mounts"][2:]] == ["/my runs/x", "/data/50% off:a"]


def test_nothing_is_mounted_twice_in_one_place_and_the_jobs_own_volumes_come_first() -> None:
    found = one(inputs={"a": Input(url="file:///store")}, options={"volumes": ["/elsewhere:/data:ro"]})
    inputs = {**found.inputs, "b": Input(url="file:///data")}
    options = found.options
    local = job("x", store="file:///store", backend="docker", roles=found.roles, inputs=inputs, options=options)
    host = made(local)["host_config"]
    assert host["mounts"][2:] == [("/store", "/store", False)]
    assert host["binds"] == ["/elsewhere:/data:ro"]


def test_no_more_cpus_are_asked_for_than_the_engine_has() -> None:
    wide = one(role={"resources": Resources(cpus=64)})
    assert (
        made(wide, ContainerSettings("1:1", Path("/w"), Path("/p"), cpus=2.0))["host_config"]["nano_cpus"]
        == 2_000_000_000
    )
    assert made(wide)["host_config"]["nano_cpus"] == 64_000_000_000


def test_a_job_too_big_for_the_environment_is_read_from_the_store() -> None:
    assert "SLIPWAY_JOB" in made(one())["environment"]
    assert "SLIPWAY_JOB" not in made(one(config={"long": "x" * 100_000}))["environment"]


@pytest.mark.parametrize(("chosen", "named"), [("me", True), ("7:8", True), ("image", False)])
def test_a_user_whom_no_image_knows_has_a_name(chosen: str, named: bool) -> None:
    """torch and others call getpass.getuser(), which raises where neither the environment nor passwd has one."""
    found = made(one(options={"user": chosen}))["environment"]
    assert ("USER" in found, "LOGNAME" in found) == (named, named)


class About:
    def __init__(self, *security: str) -> None:
        self.said = {"NCPU": 4, "SecurityOptions": ["name=seccomp,profile=default", *security]}

    def info(self) -> dict[str, Any]:
        return self.said


def placed(about: About) -> ContainerSettings:
    return container_settings(about, Path("/w"), Path("/p"), (), {})  # type: ignore[arg-type]


def test_in_a_rootless_engine_its_root_is_the_submitter() -> None:
    me = f"{os.getuid()}:{os.getgid()}"
    assert placed(About()) == ContainerSettings(me, Path("/w"), Path("/p"), cpus=4.0)
    assert placed(About("name=rootless")).user == "0:0"


def test_an_engine_that_shifts_users_is_told_not_to() -> None:
    assert "userns_mode" not in made(one())["host_config"]
    shifted = placed(About("name=userns"))
    assert made(one(), shifted)["host_config"]["userns_mode"] == "host"
    assert "userns_mode" not in made(one(options={"user": "image"}), shifted)["host_config"]  # root stays nobody


def test_several_members_get_a_network_in_which_names_are_found() -> None:
    roles = {"main": Role(command=("true",), image=Image(reference="a:1"), replicas=2)}
    several = job("hello", store="s3://bucket/x", backend="docker", roles=roles)
    assert made(several, member="main-1", start=3)["host_config"]["network_mode"] == container.NETWORK
    placement = json.loads(made(several, member="main-1", start=3)["environment"]["SLIPWAY_PLACEMENT"])
    assert placement["host"] == made(several, member="main-1", start=3)["name"] == "slipway-hello-1-main-1-3-mark"
    hosted = job("hello", store="s3://bucket/x", backend="docker", roles=roles, options={"network": "host"})
    assert json.loads(made(hosted)["environment"]["SLIPWAY_PLACEMENT"])["host"] == "127.0.0.1"
    assert made(one())["host_config"]["network_mode"] == "bridge"


def test_private_values_come_in_a_file_and_are_gone_from_the_names_that_lead_to_them(tmp_path: Path) -> None:
    file = tmp_path / "private.json"
    file.write_text(json.dumps({"HF_TOKEN": "hush"}))
    environ = {"SLIPWAY_PRIVATE": str(file), "OTHER": "1"}
    adopt_private(environ)
    assert environ == {"HF_TOKEN": "hush", "OTHER": "1"}
    adopt_private(environ)  # without the file nothing happens
    assert environ == {"HF_TOKEN": "hush", "OTHER": "1"}


def test_an_image_with_a_digest_is_asked_for_by_it() -> None:
    pinned = one()
    role = Role(command=("true",), image=Image(reference="host/a", digest="sha256:00"))
    assert (
        container.image(job("x", store="s3://b/x", backend="docker", roles={"main": role}), "main")
        == "host/a@sha256:00"
    )
    assert container.image(pinned, "main") == "slipway-cpu:0.1.0-00000000"


def test_a_host_name_always_fits_into_dns_and_stays_unique() -> None:
    long = "a-pipeline-with-a-long-name-0123456789ab"
    queues = ("0123456789ab", "ba9876543210")
    starts = [(rank, start, queue) for rank in range(12) for start in (1, 10) for queue in queues]
    names = {container.host(long, f"evaluation-server-rol-{rank}", start, queue) for rank, start, queue in starts}
    assert len(names) == 48
    assert max(map(len, names)) <= 63
    short = ("hello-0123456789ab", "main-0", 1, queues[0])
    assert container.host(*short) == container.name(*short)


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("s3://bucket/x?endpoint=http://127.0.0.1:9000&region=us-east-1", True),
        ("s3://bucket/x?endpoint=http://localhost:9000", True),
        ("s3://bucket/x?endpoint=http://[::1]:9000", True),
        ("s3://bucket/x?endpoint=http://10.0.0.1:9000", False),
        ("s3://127.0.0.1/x", False),  # a bucket's name
        ("http://localhost:9000", True),
        ("gs://bucket/x", False),
    ],
)
def test_a_store_on_loopback_is_known(url: str, loopback: bool) -> None:
    assert container.loopback(url) is loopback


def test_files_with_credentials_are_seen_and_only_they(tmp_path: Path) -> None:
    (key := tmp_path / "key.json").write_text("{}")
    (tmp_path / ".aws").mkdir()
    named = {"GOOGLE_APPLICATION_CREDENTIALS": str(key), "AWS_CA_BUNDLE": "/not/there", "AWS_PROFILE": "work"}
    found = container.credentials(named, tmp_path)
    assert found == {str(key): str(key), str(tmp_path / ".aws"): container.AWS}
    with_files = ContainerSettings("1:1", Path("/w"), Path("/p"), (), found)
    host, hidden = made(one(), with_files)["host_config"], made(one(), with_files)["environment"]["SLIPWAY_HIDE"]
    assert (str(key), str(key), False) in host["mounts"]  # of a copy, which the runtime reads and empties
    assert hidden.split(":") == [str(key), f"{container.AWS}/credentials", f"{container.AWS}/config"]
    asked = made(one(store_access=True), with_files)
    assert (str(key), str(key), True) in asked["host_config"]["mounts"]
    assert "SLIPWAY_HIDE" not in asked["environment"]
    assert made(one(), with_files)["environment"]["AWS_CONFIG_FILE"] == f"{container.AWS}/config"
    assert container.credentials({"AWS_ACCESS_KEY_ID": "x"}, tmp_path) == {}  # keys are there: nothing else is shown
    assert "AWS_CONFIG_FILE" not in made(one())["environment"]


def test_what_a_container_gets_of_credentials_are_copies_but_for_certificates(tmp_path: Path) -> None:
    from launcher.backends.docker.spawner import copies

    (key := tmp_path / "key.json").write_text("{}")
    (bundle := tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    (aws := tmp_path / ".aws").mkdir()
    (aws / "credentials").write_text("[default]")
    (aws / "cache").mkdir()
    files = {str(key): str(key), str(bundle): str(bundle), str(aws): container.AWS}
    found, written = copies(files, (str(bundle),), tmp_path / "copied")
    assert {there: Path(here).exists() for here, there in found.items()} == dict.fromkeys(files.values(), True)
    assert [here for here, there in found.items() if here == there] == [str(bundle)]
    assert sorted(path.name for path in tmp_path.glob("copied/**/*") if path.is_file()) == ["0", "credentials"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in written)
    os.truncate(next(here for here, there in found.items() if there == str(key)), 0)
    assert key.read_text() == "{}"  # the user's own is as it was


def test_a_device_comes_with_its_group_and_nothing_else_changes(tmp_path: Path) -> None:
    """/dev/kvm is for its group, in which the container's user is not: `--device` alone is refused by the kernel."""
    from launcher.backends.docker.spawner import groups

    device = Path("/dev/null")
    asked = one(options={"devices": [f"{device}:/dev/kvm:rw", "/dev/that-is-not-here"]})
    assert groups(asked) == (device.stat().st_gid,)
    host = made(asked, ContainerSettings("1:1", Path("/w"), Path("/p"), groups=(108,)))["host_config"]
    assert host["devices"] == ["/dev/null:/dev/kvm:rw", "/dev/that-is-not-here:/dev/that-is-not-here:rwm"]
    assert host["group_add"] == ["108"]
    assert host["cap_drop"] == ["ALL"]
    without = made(one())["host_config"]
    assert "devices" not in without
    assert "group_add" not in without


def test_the_engine_takes_devices_as_they_are_given() -> None:
    """docker's own client makes the request; 0.0.0.0:9 is asked for nothing."""
    docker = pytest.importorskip("docker", reason="install slipway-cua[docker]")
    asked = one(options={"devices": ["/dev/kvm:rw", "/dev/a:/dev/b", "/dev/c"]})
    host = made(asked, ContainerSettings("1:1", Path("/w"), Path("/p"), groups=(108,)))["host_config"]
    kept = {"devices": host["devices"], "group_add": host["group_add"]}
    sent = docker.APIClient(base_url="tcp://127.0.0.1:9", version="1.41").create_host_config(**kept)
    assert sent["GroupAdd"] == ["108"]
    parts = ("PathOnHost", "PathInContainer", "CgroupPermissions")
    assert [tuple(each[part] for part in parts) for each in sent["Devices"]] == [
        ("/dev/kvm", "/dev/kvm", "rw"),
        ("/dev/a", "/dev/b", "rwm"),
        ("/dev/c", "/dev/c", "rwm"),
    ]


def test_a_missing_image_is_built_by_who_has_its_definition() -> None:
    assert {path.parent.name for path in (ROOT / "images").glob("*/Dockerfile")} == container.OURS
    assert container.unbuilt("trl-grpo:0.1.0-0a1b2c3d").endswith(": `launcher images build trl-grpo`")
    assert container.unbuilt("sw:removed").endswith(": `docker build -t sw:removed FOLDER`")
