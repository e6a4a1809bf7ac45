"""OIDC logins that a kubeconfig keeps (auth-provider): what is sent and what is written back, as kubectl does it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml

from launcher.backends.kubernetes.access.login import login
from launcher.backends.kubernetes.api import Api
from launcher.errors import Unreachable
from tests.integration.k8s_tree.building import OWN_KUBECTL, kubectl
from tests.integration.kubernetes.authorities import Authority, authority
from tests.integration.kubernetes.speaker import Answer, Speaker, speaking

__all__ = ["authority"]


def jwt(seconds: float, name: str) -> str:
    """An id-token that expires in so many seconds; nobody here verifies its signature."""
    parts = ({"alg": "none"}, {"exp": int(time.time() + seconds), "sub": name})
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*texts, "signature"])


class Issuer:
    """An issuer that takes each refresh-token once."""

    def __init__(self) -> None:
        self.good = "refresh-0"
        self.given = 0
        self.url = ""
        self.speaker: Speaker | None = None

    def answer(self, method: str, path: str, query: dict[str, str]) -> Answer:
        assert self.speaker is not None
        if path == "/.well-known/openid-configuration":
            return 200, {"issuer": self.url, "token_endpoint": f"{self.url}/token"}
        form = {key: values[0] for key, values in parse_qs(self.speaker.forms[-1]).items()}
        if form.get("refresh_token") != self.good or form.get("grant_type") != "refresh_token":
            return 400, {"error": "invalid_grant", "error_description": "the token was used before"}
        self.given += 1
        self.good = f"refresh-{self.given}"
        answer = {"access_token": "unused", "token_type": "Bearer", "refresh_token": self.good}
        return 200, {**answer, "id_token": jwt(3600, f"renewed-{self.given}")}


@pytest.fixture
def issuer(authority: Authority) -> Iterator[Issuer]:
    issuer = Issuer()
    with speaking(issuer.answer, authority.server, str(authority.ca)) as speaker:
        issuer.speaker, issuer.url = speaker, speaker.url
        yield issuer


def version(method: str, path: str, query: dict[str, str]) -> Answer:
    return 200, {"major": "1"}


@pytest.fixture
def server(authority: Authority) -> Iterator[Speaker]:
    with speaking(version, authority.server, str(authority.ca)) as speaker:
        yield speaker


def kubeconfig(server: Speaker, folder: Path, issuer: Issuer, authority: Authority, **changes: Any) -> Path:
    config = {
        "idp-issuer-url": issuer.url,
        "client-id": "slip way",
        "id-token": jwt(-60, "old"),
        "refresh-token": issuer.good,
        "idp-certificate-authority": str(authority.ca),
        **changes,
    }
    config = {key: value for key, value in config.items() if value is not None}
    path = server.kubeconfig(folder, user={"auth-provider": {"name": "oidc", "config": config}})
    path.chmod(0o600)
    return path


def held(path: Path) -> dict[str, str]:
    config: dict[str, str] = yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]
    return config


def kubectl_asks(path: Path) -> subprocess.CompletedProcess[str]:
    command = [kubectl(), "--kubeconfig", str(path), "get", "--raw", "/version"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=os.environ)


@pytest.mark.parametrize("secret", [None, "s:ecret"])
def test_kubectl_and_the_launcher_take_turns_with_one_refresh_token(
    server: Speaker,
    issuer: Issuer,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    secret: str | None,
) -> None:
    path = kubeconfig(server, tmp_path, issuer, authority, **{"client-secret": secret})
    monkeypatch.setenv("KUBECONFIG", str(path))

    def expire() -> None:
        text = path.read_text()
        path.write_text(text.replace(held(path)["id-token"], jwt(-60, "old")))

    done = kubectl_asks(path)
    assert done.returncode == 0, done.stderr
    expire()
    api = Api(login())
    api.get("/version")
    api.get("/version")
    expire()
    done = kubectl_asks(path)  # it finds the refresh-token that we were given
    assert done.returncode == 0, done.stderr
    assert issuer.given == 3
    subjects = [json.loads(base64.urlsafe_b64decode(sent.split(".")[1] + "=="))["sub"] for sent in server.logins]
    assert [name for name, _ in groupby(subjects)] == ["renewed-1", "renewed-2", "renewed-3"]
    assert len(subjects) == 4 or not OWN_KUBECTL.is_file()
    assert subjects.count("renewed-2") == 2  # both of ours
    assert held(path)["refresh-token"] == "refresh-3"
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kubeconfig"]  # no lock is left
    assert issuer.speaker is not None
    if secret:  # Go's client tries Basic first; what it sends then, we send
        assert issuer.speaker.logins[3] == issuer.speaker.logins[1]
    else:
        assert parse_qs(issuer.speaker.forms[3])["client_id"] == ["slip way"]


def test_a_kubeconfig_keeps_its_comments_when_the_tokens_are_renewed(
    server: Speaker, issuer: Issuer, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kubeconfig(server, tmp_path, issuer, authority)
    text = f"# mine\n{path.read_text()}\n# and a remark\n"
    old = held(path)
    path.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(path))
    Api(login()).get("/version")
    new = held(path)
    assert new["id-token"] != old["id-token"]
    for key in ("id-token", "refresh-token"):
        text = text.replace(old[key], new[key])
    assert path.read_text() == text


def test_a_kubeconfig_without_a_token_gets_one_that_kubectl_reads(
    server: Speaker, issuer: Issuer, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kubeconfig(server, tmp_path, issuer, authority, **{"id-token": None})
    config = json.loads(path.read_text())
    config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = False
    config["users"].append({"name": "y", "user": {"auth-provider": {"name": "gcp", "config": {"expiry": "EXPIRY"}}}})
    path.write_text(json.dumps(config).replace('"EXPIRY"', "2026-01-02T03:04:05Z"))
    monkeypatch.setenv("KUBECONFIG", str(path))
    Api(login()).get("/version")
    done = kubectl_asks(path)  # it reads the namespace `n` and the user `y`, which are no truth values
    assert done.returncode == 0, done.stderr
    assert (issuer.given, len(set(server.logins))) == (1, 1)
    assert "2026-01-02T03:04:05Z" in path.read_text()


def test_a_token_that_is_good_asks_no_issuer(
    server: Speaker, issuer: Issuer, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = jwt(600, "jane")
    path = kubeconfig(server, tmp_path, issuer, authority, **{"id-token": token, "refresh-token": None})
    before = path.read_text()
    monkeypatch.setenv("KUBECONFIG", str(path))
    Api(login()).get("/version")
    assert server.logins == [f"Bearer {token}"]
    assert (issuer.given, path.read_text()) == (0, before)


def test_many_requests_at_once_renew_it_once(
    server: Speaker, issuer: Issuer, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(server, tmp_path, issuer, authority)))
    api = Api(login())
    threads = [threading.Thread(target=api.get, args=("/version",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (issuer.given, len(server.logins), len(set(server.logins))) == (1, 8, 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"refresh-token": "used"}, "answers 400: the token was used before; log in again"),
        ({"refresh-token": None}, "the id-token has expired; without a refresh-token: log in again"),
        ({"id-token": "rubbish"}, "its id-token is not a JSON Web Token"),
        ({"idp-certificate-authority": None}, "cannot be asked"),  # unknown authority: the token goes to nobody
        ({"idp-certificate-authority": "/nowhere"}, "idp-certificate-authority"),
        ({"idp-issuer-url": "https://127.0.0.1:1"}, "cannot be asked"),
    ],
)
def test_a_login_that_cannot_be_renewed_is_one_line(
    server: Speaker,
    issuer: Issuer,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, str | None],
    words: str,
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(server, tmp_path, issuer, authority, **changes)))
    with pytest.raises(Unreachable) as caught:
        Api(login()).get("/version")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (server.logins, issuer.given) == ([], 0)


def test_a_kubeconfig_that_cannot_be_written_is_said_and_the_request_goes_on(
    server: Speaker,
    issuer: Issuer,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = kubeconfig(server, tmp_path, issuer, authority)
    (tmp_path / "kubeconfig.lock").write_text("")
    monkeypatch.setattr("launcher.backends.kubernetes.access.oidc.LOCKED", 0.0)
    monkeypatch.setenv("KUBECONFIG", str(path))
    Api(login()).get("/version")
    assert "kubeconfig.lock is there" in capsys.readouterr().err
    assert len(server.logins) == 1
    assert held(path)["refresh-token"] == "refresh-0"
