"""What the runtime makes of a job that comes as a file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from launcher.backends.kubernetes.render.manifests import objects
from launcher.backends.kubernetes.render.pod import job_text
from launcher.errors import BadInput
from launcher.runtime.folders import Folders
from launcher.runtime.member import command
from launcher.runtime.member.command import Peers
from launcher.runtime.run import load_job
from launcher.runtime.settings import MemberAddress
from launcher.spec.hashing import run_id
from launcher.store.base import Store
from tests.unit.kubernetes.support import STORE, job, needs

JOB = job(command=("bash", "-c", "echo $(date) $$ ünï\u2028code"), config={"lr": 1e-5, "n": 2**60})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "7.json"
    path.write_text(job_text(JOB), encoding="utf-8")
    return path


def test_the_file_names_the_run(file: Path, file_store: Store) -> None:
    address = MemberAddress.read({"SLIPWAY_STORE": STORE, "SLIPWAY_JOB_FILE": str(file)})
    assert (address.run, address.member) == (run_id(JOB), "main-0")
    assert load_job(address, file_store) == JOB


def test_a_file_of_another_run_is_refused(file: Path, file_store: Store) -> None:
    told = {"SLIPWAY_STORE": STORE, "SLIPWAY_JOB_FILE": str(file), "SLIPWAY_RUN": "other-000000000000"}
    with pytest.raises(BadInput, match=f"the job that the backend passed is {run_id(JOB)}, not other-000000000000"):
        load_job(MemberAddress.read(told), file_store)


def test_an_inline_job_does_not_name_the_run() -> None:
    with pytest.raises(BadInput, match="sets SLIPWAY_RUN"):
        MemberAddress.read({"SLIPWAY_STORE": STORE, "SLIPWAY_JOB": job_text(JOB)})


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"name": 3}'])
def test_a_file_that_is_no_job_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "job.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput):
        MemberAddress.read({"SLIPWAY_STORE": STORE, "SLIPWAY_JOB_FILE": str(path)})


def test_the_command_does_not_see_it(file: Path, tmp_path: Path) -> None:
    environ = {"SLIPWAY_STORE": STORE, "SLIPWAY_JOB_FILE": str(file), "SLIPWAY_INDEX": "7"}
    address = MemberAddress.read(environ)
    folders = Folders.at(tmp_path)
    own = command.variables(JOB, address, folders, 1, None, Peers())
    found = command.environment(JOB, address, folders, own, Peers(), 1, environ)
    assert "SLIPWAY_JOB_FILE" not in found
    assert found["SLIPWAY_RUN"] == run_id(JOB)


@pytest.mark.parametrize(
    ("ranks", "size", "by_reference"), [(1000, 90_000, True), (1000, 40, False), (8, 90_000, False)]
)
def test_many_ranks_share_one_config_map(ranks: int, size: int, by_reference: bool) -> None:
    """Every pod holds its template's environment: 1,000 ranks would store a job of 90 kB 1,000 times."""
    role = msgspec.structs.replace(needs(), replicas=ranks, leader=True)
    wide = job("wide", roles={"main": role}, config={"text": "x" * size})
    (rendered,) = objects([wide])
    pod = rendered.main["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    variables = {item["name"]: item.get("value") for item in pod["containers"][0]["env"]}
    assert ("SLIPWAY_JOB" in variables) == (not by_reference)
    if not by_reference:
        assert len(rendered.documents) == 1
        return
    config_map = rendered.documents[0]
    assert config_map["immutable"] is True
    assert config_map["data"] == {f"{run_id(wide)}.json": job_text(wide)}
    assert variables["SLIPWAY_JOB_FILE"] == f"/etc/slipway/{run_id(wide)}.json"
    assert len(msgspec.json.encode(pod)) * ranks < 10_000_000  # 90 MB before
