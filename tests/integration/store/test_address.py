"""URLs, credentials and what an error's text is taken for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from launcher.errors import Unreachable
from launcher.store.opening import open_store
from tests.support.s3 import S3Server


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_DEFAULT_REGION",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path


def test_credentials_from_a_profile_go_through_boto3(
    no_credentials: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    (no_credentials / "credentials").write_text(
        "[work]\naws_access_key_id = testkey\naws_secret_access_key = testsecret\n"
    )
    store = open_store(s3_server.url())
    with pytest.raises(Unreachable, match="no AWS credentials found"):
        store.get("a")
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert open_store(store.url).create("a", b"1")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(Unreachable, match=r"no AWS credentials found .*nobody"):
        open_store(store.url).get("a")


def test_the_endpoint_may_come_from_the_environment(
    s3_url: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.endpoint)
    bare = s3_url.partition("?")[0]
    assert open_store(bare).create("a", b"1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    assert open_store(s3_url).get("a") == b"1"  # what the URL says counts


def test_a_public_bucket_needs_no_credentials(no_credentials: Path, s3_server: S3Server) -> None:
    store = open_store(f"{s3_server.url()}&anonymous=true", deadline=2)
    if s3_server.real:
        with pytest.raises(Unreachable, match="check the credentials"):  # reached, and not public
            store.get("a")
    else:
        assert store.read("a") is None


def test_keys_in_the_environment_spare_boto3(s3_url: str) -> None:
    script = (
        "import sys; from launcher.store import open_store; s = open_store(sys.argv[1]); s.put('a', b'1')\n"
        "print([m for m in sys.modules if m.partition('.')[0] in ('boto3', 'botocore')])"
    )
    result = subprocess.run([sys.executable, "-c", script, s3_url], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
