"""Secrets and the keys of stores outside Azure: kept in Key Vault, named in the job, and read by the real runtime on a
node of the stand-in with the node's identity. The job is sent by the unmodified SDK."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from launcher.errors import Unreachable
from launcher.protocol.read import read_run
from launcher.runtime.secrets import fetch
from launcher.runtime.secrets.credentials import values
from launcher.runtime.secrets.fetch import SecretRefused, SecretUnanswered
from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob
from launcher.store import open_store
from launcher.store.layout import RunKeys
from launcher.store.logs import Log
from launcher.verbs.submit import submit
from tests.fakes.azureml.cloud import NODE_WORD
from tests.fakes.azureml.running import FakeAzure
from tests.integration.azureml.conftest import PLACE, Tenant
from tests.support.jobs import group
from tests.support.s3 import KEY, SECRET, S3Server
from tests.support.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the SDK's marshmallow
HOST = "lab-kv.vault.azure.net"
ADDRESS = f"https://{HOST}/secrets"
SAY = """
import os
E = os.environ
print("token", E["HF_TOKEN"], "length", len(E["HF_TOKEN"]), flush=True)
print("hidden", sorted(name for name in E if name.startswith(("AWS_", "MSI_")) and "REGION" not in name))
print("told", [name for name in E if "SECRET" in name and name != "HF_TOKEN"])
"""
OPTIONS: dict[str, Any] = {**PLACE, "compute": "gpu", "identity": {"kind": "managed"}}


@pytest.fixture
def tenant(nodes: FakeAzure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tenant:
    nodes.admin("reset")
    nodes.admin("settings", queue=2.0, cancel=2.0)
    for name, value in {**nodes.environ, "AZURE_CONFIG_DIR": str(tmp_path / "az")}.items():
        monkeypatch.setenv(name, value)
    for name in ("https_proxy", "no_proxy", "AZURE_SUBSCRIPTION_ID"):
        monkeypatch.delenv(name, raising=False)
    return Tenant(nodes, tmp_path)


def kept(tenant: Tenant, **secrets: str) -> None:
    tenant.azure.admin("settings", vault={f"{HOST}/secrets/{name}": value for name, value in secrets.items()})


def job(tenant: Tenant, **changes: Any) -> ResolvedJob:
    one = tenant.job("one", **{"options": OPTIONS, "secrets": {"HF_TOKEN": f"{ADDRESS}/hf"}, **changes})
    return replace(one, roles={name: replace(role, command=("python", "-c", SAY)) for name, role in one.roles.items()})


def logs(tenant: Tenant) -> str:
    return "\n".join(path.read_text() for path in tenant.azure.folder.glob("*/*/node-*/std_log.txt"))


def run_it(tenant: Tenant, one: ResolvedJob) -> str:
    """Its output, when it has its result."""
    submit(group(one), tenant.store, tenant.backend())
    until(lambda: tenant.store.head(RunKeys(run_id(one)).result), lambda: logs(tenant))
    log = Log(tenant.store, RunKeys(run_id(one)).attempt(1), "main-0")
    return b"".join(piece.body for piece in log.more() if piece.body).decode()


def test_a_run_whose_store_is_s3_gets_its_keys_and_its_secrets_from_key_vault(
    tenant: Tenant, s3_url: str, s3_server: S3Server
) -> None:
    tenant.store = open_store(s3_url)
    kept(tenant, hf="value-of-the-token", key=KEY, secret=SECRET)
    keys = {"AWS_ACCESS_KEY_ID": f"{ADDRESS}/key", "AWS_SECRET_ACCESS_KEY": f"{ADDRESS}/secret"}
    one = job(tenant, options={**OPTIONS, "store_secrets": keys})
    output = run_it(tenant, one)
    result = read_run(tenant.store, run_id(one)).result
    assert result is not None
    assert (result.outcome, result.message) == ("succeeded", "")
    assert f"token *** length {len('value-of-the-token')}" in output
    assert "hidden []" in output  # the store's keys and the identity are the runtime's alone
    assert "told []" in output
    # whoever may read the workspace sees where they are, and no value
    shown = json.dumps([tenant.azure.bodies(), tenant.azure.admin("ledger")]) + logs(tenant)
    assert f"{ADDRESS}/secret" in shown
    for value in ("value-of-the-token", SECRET, NODE_WORD):
        assert value not in shown
    record = tenant.store.get(RunKeys(run_id(one)).job).decode()
    assert SECRET not in record
    assert {entry["path"] for entry in tenant.azure.ledger("secret")} == {
        "/secrets/hf",
        "/secrets/key",
        "/secrets/secret",
    }


@pytest.mark.parametrize(
    ("rights", "there", "said"),
    [(True, False, "SecretNotFound"), (False, True, "Forbidden (ForbiddenByRbac)")],
)
def test_a_secret_that_key_vault_does_not_give_ends_the_run_with_its_reason(
    tenant: Tenant, rights: bool, there: bool, said: str
) -> None:
    kept(tenant, **({"hf": "x"} if there else {}))
    tenant.azure.admin("settings", vault_rights=rights)
    one = job(tenant)
    run_it(tenant, one)
    result = read_run(tenant.store, run_id(one)).result
    assert result is not None
    assert (result.outcome, str(result.reason)) == ("failed", "config_error")
    assert result.message == f"secret HF_TOKEN: Key Vault refuses {ADDRESS}/hf: {said}"


def test_keys_of_the_store_that_key_vault_does_not_give_end_the_job_at_once(tenant: Tenant, s3_url: str) -> None:
    """Nothing can be told in the store: the job's own log says it, and no node is billed until the limit."""
    tenant.store = open_store(s3_url)
    kept(tenant, hf="x", key=KEY)
    keys = {"AWS_ACCESS_KEY_ID": f"{ADDRESS}/key", "AWS_SECRET_ACCESS_KEY": f"{ADDRESS}/secret"}
    one = job(tenant, options={**OPTIONS, "store_secrets": keys})
    submit(group(one), tenant.store, tenant.backend())
    until(lambda: tenant.status(run_id(one)) == "Failed", lambda: logs(tenant))
    said = f"AWS_SECRET_ACCESS_KEY, which opens the store: Key Vault refuses {ADDRESS}/secret: SecretNotFound"
    assert f"[slipway] {said}" in logs(tenant)


@pytest.fixture
def node(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> Tenant:
    """This process as one of a node."""
    monkeypatch.setenv("MSI_ENDPOINT", f"{tenant.azure.address}/node/token")
    monkeypatch.setenv("MSI_SECRET", NODE_WORD)
    monkeypatch.setenv("SSL_CERT_FILE", str(tenant.azure.folder / "authority.pem"))
    monkeypatch.delenv("OBO_ENDPOINT", raising=False)
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    return tenant


@pytest.mark.parametrize("kind", ["500", "503", "429"])
def test_key_vault_that_is_busy_is_asked_again(node: Tenant, kind: str) -> None:
    kept(node, hf="v")
    node.fault("secret", kind, 2)
    assert fetch.key_vault_value(f"{ADDRESS}/hf") == "v"
    assert len(node.azure.ledger("secret")) == 3
    node.fault("secret", kind, 100)
    said = f"Key Vault does not answer for {ADDRESS}/hf: {kind} InternalServerError"
    with pytest.raises(SecretUnanswered, match=said):
        fetch.key_vault_value(f"{ADDRESS}/hf")


def test_what_is_unanswered_is_tried_again_by_the_next_start(
    node: Tenant, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node.fault("secret", "500", 100)
    for variable in (fetch.SECRETS, fetch.STORE_SECRETS):
        with pytest.raises(SystemExit) as ended:
            fetch.fetch_secrets({variable: json.dumps({"X": f"{ADDRESS}/x"})})
        assert ended.value.code == 75
    assert capsys.readouterr().out.count("[slipway] secret X: Key Vault does not answer") == 2


def test_the_request_is_that_of_microsofts_own_client(node: Tenant) -> None:
    """`expected`: what azure-keyvault-secrets 4.12.0 with api_version="7.4" and ManagedIdentityCredential of
    azure-identity 1.27.0 asked of this stand-in on 2026-11-26, after its question without a token. It read the values,
    raised HttpResponseError for 403 and ResourceNotFoundError for 404."""
    kept(node, hf="v", **{f"hf/{'a' * 32}": "older"})
    expected = [(HOST, "/secrets/hf/"), (HOST, f"/secrets/hf/{'a' * 32}")]
    assert fetch.key_vault_value(f"{ADDRESS}/hf") == "v"
    assert fetch.key_vault_value(f"{ADDRESS}/hf/{'a' * 32}") == "older"
    asked = [(entry["host"], entry["path"]) for entry in node.azure.ledger("secret")]
    assert asked == [(host, path.rstrip("/")) for host, path in expected]


def test_without_an_identity_it_is_said(node: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MSI_ENDPOINT")
    with pytest.raises(SecretRefused, match="this node has no identity with which to ask for"):
        fetch.key_vault_value(f"{ADDRESS}/hf")


def test_what_is_within_the_key_of_a_service_account_is_masked() -> None:
    private = "-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----\n"
    key = json.dumps({"type": "service_account", "private_key": private, "client_email": "a@b.example"})
    found = values({"GOOGLE_SERVICE_ACCOUNT_KEY": key})
    assert {key, private} <= found
    assert "a@b.example" not in found


def test_the_key_of_a_service_account_opens_a_store_in_gs(monkeypatch: pytest.MonkeyPatch) -> None:
    """obstore reads the variable: a key that is none is refused, and nothing is asked of a metadata service."""
    from launcher.errors import BadInput

    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", "no key at all")
    with pytest.raises((BadInput, Unreachable), match=r"(?i)key|decode|json"):
        open_store("gs://bucket/store", deadline=1.0).head("x/job.json")
