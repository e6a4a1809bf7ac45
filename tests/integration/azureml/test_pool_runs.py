"""A run on a pool from submit to the end: the real verbs, the unmodified SDK, and the real runtime on the instances of
the stand-in."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from launcher.protocol.read import read_run
from launcher.results.run_cost import machine_times
from launcher.spec.hashing import run_id
from launcher.store.layout import RunKeys
from launcher.store.logs import Log
from launcher.userdata.cache import Cache
from launcher.verbs import leftovers
from launcher.verbs.reap import reap
from launcher.verbs.submit import submit
from tests.fakes.azureml.running import FakeAzure
from tests.integration.azureml.conftest import Tenant
from tests.support.jobs import group
from tests.support.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the SDK's marshmallow
SAY = "import os; print('I am rank', os.environ['SLIPWAY_RANK'], 'of', os.environ['SLIPWAY_NODES'], flush=True)"


def test_ranks_work_on_their_instances_until_reap_deletes_them(
    nodes: FakeAzure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.admin("settings", queue=2.0, cancel=2.0)
    nodes.admin("made", making=20.0, changing=5.0)
    for name, value in {**nodes.environ, "AZURE_CONFIG_DIR": str(tmp_path / "az"), "GIT_DIR": "/nonexistent"}.items():
        monkeypatch.setenv(name, value)
    for name in ("https_proxy", "no_proxy", "AZURE_SUBSCRIPTION_ID"):
        monkeypatch.delenv(name, raising=False)
    tenant = Tenant(nodes, tmp_path)
    one = tenant.pooled("waa")
    one = replace(one, roles={"main": replace(one.roles["main"], command=("python", "-c", SAY))})
    run, backend = run_id(one), tenant.backend()
    submit(group(one), tenant.store, backend)
    assert set(tenant.instances().values()) == {"Running"}

    def logs() -> str:
        return "\n".join(path.read_text() for path in nodes.folder.glob("*/*/node-*/std_log.txt"))

    until(lambda: tenant.store.head(RunKeys(run).result), logs)
    result = read_run(tenant.store, run).result
    assert result is not None
    assert (result.outcome, result.message) == ("succeeded", "")
    said = []
    for rank in (0, 1):
        log = Log(tenant.store, RunKeys(run).attempt(1), f"main-{rank}")
        said.append(b"".join(piece.body for piece in log.more() if piece.body).decode())
    assert [f"I am rank {rank} of 2" in text for rank, text in enumerate(said)] == [True, True]
    until(lambda: {tenant.status(name) for name in (run, f"{run}_main-1")} == {"Completed"}, logs)
    monkeypatch.setattr(leftovers, "LEAVING", -1.0)
    rows = reap(tenant.store, lambda job: backend, {"azureml": backend}, cache=Cache(tmp_path / "cache.sqlite"))
    assert [(row.run, row.did) for row in rows] == [(run, "stopped")]
    assert tenant.instances() == {}
    machines = machine_times(read_run(tenant.store, run))
    assert [(machine.type, machine.ended) for machine in machines] == [("STANDARD_D8_V3", True)] * 2
