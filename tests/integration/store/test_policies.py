"""The policies in k8s/iam: enough for every request that the launcher and the runtime make, and no right more."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import boto3
import pytest
import yaml
from moto.s3.responses import ACTION_MAP

from launcher.errors import SlipwayError
from launcher.store.objects import ObjectStore
from launcher.store.opening import open_store
from launcher.store.transfer import PIECE
from tests.support.documented import ROOT
from tests.support.faultproxy import FaultProxy, Request
from tests.support.s3 import ENVIRONMENT, KEY, REGION, SECRET, S3Server, free_port

IAM = ROOT / "k8s/iam"
PAGE = ROOT / "docs/howto/kubernetes-admin.md"
FILES = sorted(IAM.rglob("*.json"))
POLICY = json.loads((IAM / "aws/store-policy.json").read_text())
ALLOWED = {
    action
    for statement in POLICY["Statement"]
    for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
}
# What the permissions of S3 are called in the other clouds. Sources: Cloud Storage's "IAM permissions for XML requests"
# (an object that replaces another one also needs `delete`), and Azure's "Permissions for calling data operations".
ELSEWHERE = {
    "s3:GetObject": ({"storage.objects.get"}, {"read"}),
    "s3:PutObject": (
        {"storage.objects.create", "storage.objects.delete", "storage.multipartUploads.create"},
        {"write"},
    ),
    "s3:DeleteObject": ({"storage.objects.delete"}, {"delete"}),
    "s3:ListBucket": ({"storage.objects.list"}, {"read"}),
    "s3:AbortMultipartUpload": ({"storage.multipartUploads.abort"}, set()),  # Azure forgets blocks after a week
}
# writes more than one part, a checkpoint that is thinned out, and lines for the log
COMMAND = """
import os, pathlib, time
out = pathlib.Path(os.environ["SLIPWAY_OUTPUTS"])
(out / "results").mkdir(parents=True, exist_ok=True)
(out / "results" / "large").write_bytes(os.urandom(20 << 20))
for step in range(1, 5):
    folder = out / "checkpoints" / f".checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "state").write_text(str(step))
    (folder / "done").touch()
    folder.rename(folder.with_name(f"checkpoint-{step}"))
    print("step", step, flush=True)
    time.sleep(1)
"""


def action_of(request: Request) -> str:
    """The action of IAM that a request needs, by moto's table. S3's own page adds: DeleteObjects needs DeleteObject."""
    bucket, _, key = request.path.lstrip("/").partition("/")
    asked = parse_qs(request.query, keep_blank_values=True)
    assert bucket, request
    if request.method == "POST" and not key and "delete" in asked:
        return "s3:DeleteObject"
    table: dict[str, str] = ACTION_MAP["KEY" if key else "BUCKET"][request.method]
    return "s3:" + next((action for word, action in table.items() if word in asked), table.get("DEFAULT", "unknown"))


class User:
    """A project folder whose store is behind a proxy that records what is asked."""

    def __init__(self, folder: Path, proxy: FaultProxy, url: str) -> None:
        self.folder, self.proxy, self.url = folder, proxy, url
        output = {"kind": "checkpoints", "match": "checkpoint-*", "done": "done", "keep": 2}
        job = {"name": "asking", "command": ["python", "-c", COMMAND], "backend": "local"}
        job["outputs"] = {"results": {}, "checkpoints": output}
        (folder / "job.yaml").write_text(yaml.safe_dump(job))
        (folder / "slipway.yaml").write_text(yaml.safe_dump({"store": url, "local": {"state": str(folder / "local")}}))

    def type(self, *words: str, codes: tuple[int, ...] = (0,)) -> set[str]:
        """Types a command of the launcher, and gives the actions that it and the processes it started needed."""
        before = len(self.proxy.seen)
        homes = {f"XDG_{name}_HOME": str(self.folder / name.lower()) for name in ("CACHE", "STATE", "CONFIG")}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLIPWAY_", "AWS_"))}
        done = subprocess.run(
            [sys.executable, "-m", "launcher.cli", *words],
            cwd=self.folder,
            env={**kept, **homes, **ENVIRONMENT, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        assert done.returncode in codes, f"launcher {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        requests = [request for request, _ in self.proxy.seen[before:]]
        for request in requests:
            self.within(request)
        return {action_of(request) for request in requests}

    def within(self, request: Request) -> None:
        """Every object and listing is below the store's prefix: the policy's Resource."""
        bucket, _, key = request.path.lstrip("/").partition("/")
        asked = parse_qs(request.query)
        assert bucket == "team-bucket"
        assert (
            key.startswith("agents/")
            if key
            else "delete" in request.query
            or asked["prefix"][0] == "agents/"
            or (asked["prefix"][0].startswith("agents/"))
        ), request


@pytest.fixture
def user(s3_server: S3Server, tmp_path: Path) -> Iterator[User]:
    client = s3_client(s3_server.endpoint, KEY, SECRET)
    with suppress(client.exceptions.BucketAlreadyOwnedByYou):
        client.create_bucket(Bucket="team-bucket")
    with FaultProxy(s3_server.port) as proxy:
        user = User(tmp_path, proxy, s3_server.url("team-bucket", "agents", endpoint=proxy.endpoint))
        yield user
        user.type("local", "stop", "--runs", codes=(0, 1, 2, 3))
    client.close()


def s3_client(endpoint: str, key: str, secret: str, service: str = "s3") -> Any:
    return boto3.client(
        service,
        endpoint_url=endpoint,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        region_name=REGION,
    )


def test_the_launcher_and_the_runtime_need_what_the_policy_allows_and_no_more(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {
        "doctor": user.type("doctor", "--store", user.url, codes=(0, 1)),
        "a whole run": user.type("submit", "job.yaml", "--follow"),
        "readers": user.type("status") | user.type("logs", "asking") | user.type("gather", "asking", "--to", "there"),
        "cancel": user.type("cancel", "asking", codes=(0, 1, 3)),
        "reap": user.type("reap", "--backend", "local"),
        "rm": user.type("rm", "asking", "--yes"),
        "gc": user.type("gc", "--yes"),
    }
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    before = len(user.proxy.seen)

    def breaks() -> Iterator[memoryview]:
        yield from (memoryview(bytes(PIECE)) for _ in range(2))
        raise OSError("the file is gone")

    with pytest.raises((OSError, SlipwayError)):
        open_store(user.url).send("a/broken", breaks, 4 * PIECE)
    needed["an upload that breaks"] = {action_of(request) for request, _ in user.proxy.seen[before:]}
    print({who: sorted(actions) for who, actions in needed.items()})
    assert set().union(*needed.values()) == ALLOWED
    assert "s3:DeleteObject" not in needed["readers"]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """moto, which asks IAM about every request. It knows Actions; of Resources and Conditions it knows nothing."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = S3Server(f"http://127.0.0.1:{port}", False, command, tmp_path_factory.mktemp("moto") / "log")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def allowed(strict: S3Server, monkeypatch: pytest.MonkeyPatch) -> Callable[[set[str]], ObjectStore]:
    """A store as a user of IAM sees it, whose policy has these actions."""

    def login(actions: set[str]) -> ObjectStore:
        import urllib.request

        def authorize(first: str) -> None:
            text = {"Content-Type": "text/plain"}
            request = urllib.request.Request(f"{strict.endpoint}/moto-api/reset-auth", first.encode(), text)
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).close()

        authorize("inf")
        iam, s3 = (s3_client(strict.endpoint, KEY, SECRET, service) for service in ("iam", "s3"))
        bucket, name = strict.bucket(), f"user-{free_port()}"
        s3.put_object(Bucket=bucket, Key="agents/there", Body=b"there")
        iam.create_user(UserName=name)
        statement = {"Effect": "Allow", "Action": sorted(actions), "Resource": "*"}
        policy = {"Version": "2012-10-17", "Statement": [statement]}
        iam.put_user_policy(UserName=name, PolicyName="store", PolicyDocument=json.dumps(policy))
        key = iam.create_access_key(UserName=name)["AccessKey"]
        iam.close()
        s3.close()
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key["SecretAccessKey"])
        authorize("0")
        return ObjectStore.at(strict.url(bucket, "agents"), deadline=2.0)

    return login


def use(store: ObjectStore, path: Path) -> None:
    """All that a store is asked for, but an upload that breaks."""
    assert store.get("there") == b"there"
    assert store.create("new", b"1") is True
    assert store.create("new", b"2") is False
    store.put("new", b"3")
    assert store.read("absent") is None
    path.write_bytes(bytes(2 * PIECE + 1))
    store.upload("large", path)
    store.copy("large", "copied")
    assert {meta.key for meta in store.scan("")} == {"there", "new", "large", "copied"}
    store.delete(["new", "large", "copied"])
    assert [meta.key for meta in store.scan("")] == ["there"]


def test_with_the_policy_everything_is_allowed(allowed: Callable[[set[str]], ObjectStore], tmp_path: Path) -> None:
    use(allowed(ALLOWED), tmp_path / "large")


@pytest.mark.parametrize("action", sorted(ALLOWED - {"s3:AbortMultipartUpload"}))
def test_without_one_of_its_actions_something_is_refused(
    allowed: Callable[[set[str]], ObjectStore], tmp_path: Path, action: str
) -> None:
    store = allowed(ALLOWED - {action})
    with pytest.raises((SlipwayError, AssertionError)):
        use(store, tmp_path / "large")


def test_who_only_reads_needs_two_of_them(allowed: Callable[[set[str]], ObjectStore]) -> None:
    """The store's clock is read by a put; without the right to it, this machine's clock is taken."""
    store = allowed({"s3:GetObject", "s3:ListBucket"})
    assert store.get("there") == b"there"
    assert store.read("absent") is None
    assert [meta.key for meta in store.scan("")] == ["there"]
    assert store.now() > 0


def test_the_roles_of_the_other_clouds_say_the_same() -> None:
    gke = json.loads((IAM / "gke/store-role.json").read_text())["includedPermissions"]
    aks = json.loads((IAM / "aks/store-role.json").read_text())
    assert set(gke) == set().union(*(ELSEWHERE[action][0] for action in ALLOWED))
    blobs = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/"
    assert set(aks["DataActions"]) == {blobs + word for action in ALLOWED for word in ELSEWHERE[action][1]}
    assert aks["Actions"] == []


def test_trust_is_for_the_two_accounts_of_the_tree_and_nobody_else() -> None:
    from tests.integration.k8s_tree.building import of_kind

    statement = json.loads((IAM / "aws/trust-irsa.json").read_text())["Statement"][0]
    said = statement["Condition"]["StringEquals"]["ISSUER:sub"]
    there = [
        f"system:serviceaccount:{each['metadata']['namespace']}:{each['metadata']['name']}"
        for folder in ("overlays/eks", "overlays/eks/reaper")
        for each in of_kind(folder, "ServiceAccount")
        if each["metadata"].get("annotations")
    ]
    assert sorted(said) == sorted(there)
    assert not any("*" in each for each in said)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(IAM)))
def test_every_value_to_change_is_named_on_the_page(path: Path) -> None:
    text = path.read_text()
    json.loads(text)
    section = PAGE.read_text().partition("### Rights on the bucket, as files")[2].partition("\n## ")[0]
    assert f"k8s/iam/{path.relative_to(IAM)}" in section
    table = set(re.findall(r"^\| `([A-Z_]+)` \|", section, re.MULTILINE))
    values = set(re.findall(r"\b[A-Z][A-Z_]{3,}\b", text))
    assert values <= table, values - table
