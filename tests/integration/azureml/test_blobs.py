"""A run on Azure ML from the launcher to its results, with real blobs: the unmodified SDK and the stand-in for a
workspace, the real runtime on its nodes, and Azurite as the storage. The account's key stands in for the identity."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from launcher.cli import main
from launcher.protocol.read import read_run
from launcher.spec.hashing import run_id
from launcher.spec.model import Output
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.store.logs import Log
from launcher.verbs.submit import submit
from tests.fakes.azureml.running import FakeAzure
from tests.integration.azureml.conftest import PLACE, Tenant
from tests.support.azurite import KEY
from tests.support.jobs import group
from tests.support.waiting import until

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # of the SDK's marshmallow
WORK = """
import os, pathlib
out = pathlib.Path(os.environ["SLIPWAY_OUTPUTS"])
if os.environ["RANK"] == "0":
    (out / "ckpt" / "checkpoint-3").mkdir(parents=True)
    (out / "ckpt" / "checkpoint-3" / "weights").write_bytes(bytes(range(256)) * 40000)
    (out / "model" / "a b.txt").write_text("done")
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
"""


@pytest.fixture
def tenant(tmp_path: Path, az_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tenant]:
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "python"
        python.write_text(
            f"#!/bin/sh\nunset MSI_ENDPOINT MSI_SECRET\nexport AZURE_STORAGE_ACCOUNT_KEY={KEY}\n"
            f'exec "{sys.executable}" "$@"\n'
        )
        python.chmod(0o755)
        azure = FakeAzure(Path(folder) / "cloud", speed=20.0, program=python)
        try:
            azure.admin("settings", queue=2.0)
            for name, value in {**azure.environ, "AZURE_CONFIG_DIR": str(tmp_path / "az")}.items():
                monkeypatch.setenv(name, value)
            for name in ("https_proxy", "no_proxy", "AZURE_SUBSCRIPTION_ID"):
                monkeypatch.delenv(name, raising=False)
            monkeypatch.setenv("NO_PROXY", "127.0.0.1")
            made = Tenant(azure, tmp_path)
            made.store = az_store
            yield made
        finally:
            azure.close()


def test_a_run_of_two_nodes_keeps_everything_in_blobs(
    tenant: Tenant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {**PLACE, "compute": "gpu", "identity": {"kind": "managed"}}
    outputs = {"ckpt": Output(kind="checkpoints", match="checkpoint-*"), "model": Output()}
    one = tenant.job("one", options=options, outputs=outputs)
    roles = {name: replace(role, command=("python", "-c", WORK), replicas=2) for name, role in one.roles.items()}
    one = replace(one, roles=roles)
    run = run_id(one)
    consoles = tenant.azure.folder.glob
    assert [each.state for each in submit(group(one), tenant.store, tenant.backend())] == ["submitted"]
    until(
        lambda: tenant.store.head(RunKeys(run).result),
        lambda: "\n".join(path.read_text() for path in consoles("*/*/node-*/std_log.txt")),
    )
    view = read_run(tenant.store, run)
    assert view.result is not None
    assert (view.result.outcome, view.result.message) == ("succeeded", "")
    for rank in (0, 1):
        said = b"".join(piece.body for piece in Log(tenant.store, RunKeys(run).attempt(1), f"main-{rank}").more())
        assert f"\nrank {rank} of 2\n" in said.decode()
    assert [each.state for each in submit(group(one), tenant.store, tenant.backend())] == ["succeeded"]
    assert tenant.created() == [run]
    monkeypatch.setenv("SLIPWAY_STORE", tenant.store.url)
    monkeypatch.chdir(tmp_path)
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    capsys.readouterr()
    assert main(["status", run]) == 0
    assert "succeeded" in capsys.readouterr().out
    assert main(["gather", run, "--to", str(tmp_path / "got")]) == 0
    (weights,) = (tmp_path / "got").rglob("weights")
    assert weights.read_bytes() == bytes(range(256)) * 40000
    (model,) = (tmp_path / "got").rglob("a b.txt")
    assert model.read_text() == "done"
