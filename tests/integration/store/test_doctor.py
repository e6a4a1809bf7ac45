"""launcher doctor against good, broken, absent and forbidden stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.cli import main
from launcher.store.opening import open_store
from tests.support.broken_s3 import broken_s3
from tests.support.faultproxy import FaultProxy, Kind
from tests.support.s3 import S3Server
from tests.support.wrong_lists import KINDS


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    code = main(["doctor", "-o", "json", *arguments])
    return code, {record["check"]: record for record in json.loads(capsys.readouterr().out)}


def test_a_good_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    url = (tmp_path / "store").as_uri()
    code, found = doctor(capsys, "--store", url)
    assert code == 0
    assert {"python", "profile", "store", "store: write", "store: list", "store: create-only"} <= set(found)
    assert {"disk", "local", "resources"} <= set(found)
    assert {name: found[name]["state"] for name in ("docker", "kubernetes", "lambda", "azureml")} == dict.fromkeys(
        ("docker", "kubernetes", "lambda", "azureml"), "unused"
    )
    assert all(record["fix"] for record in found.values() if record["state"] == "unused")
    assert found["extra train"]["state"] == "ok"
    assert all(record["state"] != "failed" for record in found.values())
    assert list(open_store(url).scan("")) == []


def test_a_good_bucket(capsys: pytest.CaptureFixture[str], s3_url: str) -> None:
    code, found = doctor(capsys, "--store", s3_url)
    assert code == 0
    assert found["store: create-only"]["state"] == "ok"
    assert list(open_store(s3_url).scan("")) == []


@pytest.mark.two_bodies  # the server that is asked is broken in just that
def test_a_bucket_with_broken_create_only_puts(
    capsys: pytest.CaptureFixture[str], s3_url: str, s3_server: S3Server
) -> None:
    with broken_s3("looks") as endpoint:
        code, found = doctor(capsys, "--store", s3_server.url("any-bucket", endpoint=endpoint))
    assert code == 4
    assert "do not work" in found["store: create-only"]["detail"]
    assert "another store" in found["store: create-only"]["fix"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_bucket_whose_lists_are_not_true(
    capsys: pytest.CaptureFixture[str], s3_url: str, s3_server: S3Server, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole key is found by its name, which says nothing of the lists."""
    monkeypatch.setattr("launcher.verbs.doctor.LISTED", 1.0)
    monkeypatch.setattr("launcher.store.retrying.SHORT", 0.0)
    with FaultProxy(s3_server.port) as proxy:
        bucket = s3_url.removeprefix("s3://").partition("/")[0]
        proxy.lists = (kind, "/checks/")
        code, found = doctor(capsys, "--store", s3_server.url(bucket, endpoint=proxy.endpoint))
    assert code == 4
    assert next(record for record in found.values() if record["state"] == "failed")["check"] in ("store", "store: list")
    assert "store: create-only" not in found
    assert list(open_store(s3_url).scan("")) == []


def test_a_bucket_whose_lists_are_old(capsys: pytest.CaptureFixture[str], s3_url: str, s3_server: S3Server) -> None:
    with FaultProxy(s3_server.port) as proxy:
        bucket = s3_url.removeprefix("s3://").partition("/")[0]
        proxy.plan(Kind.LAG, method="GET", key=f"/{bucket}", times=6, delay=30.0)
        code, found = doctor(capsys, "--store", s3_server.url(bucket, endpoint=proxy.endpoint))
    assert code == 0
    assert found["store: list"]["state"] == "warning"
    assert "is listed after" in found["store: list"]["detail"]


def test_a_bucket_that_is_not_there(capsys: pytest.CaptureFixture[str], s3_url: str, s3_server: S3Server) -> None:
    code, found = doctor(capsys, "--store", s3_server.url("nothing-here"))
    assert code == 4
    assert "the bucket does not exist" in found["store"]["detail"]
    assert "store: write" not in found


def test_a_folder_that_can_not_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = doctor(capsys, "--store", "file:///proc")
    assert code == 4
    assert found["store: folder"]["state"] == "warning"  # it holds things, and none of a store
    assert found["store: write"]["state"] == "failed"


def test_a_folder_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A typing error must not look like a good store, and nothing may be made in its place."""
    code, found = doctor(capsys, "--store", str(tmp_path / "typo"))
    assert code == 4
    assert "does not exist" in found["store"]["detail"]
    assert found["store"]["fix"].startswith("mkdir -p ")
    assert not (tmp_path / "typo").exists()


def test_a_profile_that_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "slipway.yaml").write_text("stor: x\n")
    code, found = doctor(capsys)
    assert code == 2
    assert "stor" in found["profile"]["detail"]


def test_the_table_has_a_line_and_a_fix_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--store", "ftp://x/y"]) != 0
    out = capsys.readouterr().out
    assert "python" in out
    assert "FAILED" in out
    assert "fix: " in out


def test_secrets_that_others_can_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    state = tmp_path / "state/slipway/local"
    state.mkdir(parents=True)
    (state / "secrets.json").write_text("{}")
    (state / "secrets.json").chmod(0o644)
    (tmp_path / "store").mkdir()
    code, found = doctor(capsys, "--store", (tmp_path / "store").as_uri())
    assert code == 1
    assert found["secrets"]["fix"].startswith("chmod 600 ")


def test_a_backend_that_does_not_answer_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    (tmp_path / "slipway.yaml").write_text("store: here\nkubernetes: {namespace: ml}\ndocker: {network: host}\n")
    code, found = doctor(capsys)
    assert code == 4
    assert [found[name]["state"] for name in ("store", "docker", "kubernetes")] == ["ok", "failed", "failed"]
    assert all(found[name]["detail"] and "\n" not in found[name]["detail"] for name in ("docker", "kubernetes"))


def test_backends_that_nobody_named_are_not_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    _, found = doctor(capsys, "--store", (tmp_path / "store").as_uri())
    assert {found[name]["state"] for name in ("docker", "kubernetes")} == {"unused"}
