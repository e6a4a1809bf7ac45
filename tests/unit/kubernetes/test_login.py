"""Kubeconfigs that are none: one line, whatever the package makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.kubernetes.access.login import login
from launcher.errors import BadInput, Unreachable

SOUND: dict[str, Any] = {
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
    "current-context": "x",
}


def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | str) -> Path:
    path = tmp_path / "config"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{{{: [",
        "[]",
        "hello",
        "7",
        b"\xff\xfe\x00",
        json.dumps({**SOUND, "contexts": "x"}),
        json.dumps({**SOUND, "contexts": [{"context": {}}]}),
        json.dumps({**SOUND, "contexts": [{"name": "x", "context": 7}]}),
        json.dumps({**SOUND, "current-context": "other"}),
        json.dumps({**SOUND, "clusters": []}),
        json.dumps({**SOUND, "users": {"u": 1}}),
        json.dumps({**SOUND, "users": [{"name": "u", "user": {"client-certificate": "/nowhere/cert"}}]}),
    ],
)
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | str) -> None:
    path = kubeconfig(tmp_path, monkeypatch, content)
    with pytest.raises(Unreachable) as caught:
        login()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_context_that_is_not_there_is_said_with_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig(tmp_path, monkeypatch, json.dumps(SOUND))
    assert (login().context, login("x").namespace) == ("x", "team")
    with pytest.raises(BadInput, match=r"no context `y` in .*; there is: x"):
        login("y")


@pytest.mark.parametrize(
    ("user", "wrong"),
    [
        ({"as": 7}, r"as: 7 is not allowed; allowed: a text"),
        ({"as": "jane\r\nImpersonate-Group: system:masters"}, r"as: .* is not allowed"),
        ({"as": "jane", "as-groups": "admins"}, r"as-groups: 'admins' is not allowed; allowed: a list of texts"),
        ({"as": "jane", "as-user-extra": {"reason": "x"}}, r"as-user-extra: .*; allowed: a list of texts for each key"),
        ({"as-groups": ["admins"], "as-uid": "7"}, r"as-uid, as-groups without `as`: name the user to act as"),
    ],
)
def test_an_impersonation_that_cannot_be_used_is_refused_and_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: dict[str, Any], wrong: str
) -> None:
    path = kubeconfig(tmp_path, monkeypatch, json.dumps({**SOUND, "users": [{"name": "u", "user": user}]}))
    with pytest.raises(BadInput, match=rf"^kubeconfig {path}: {wrong}"):
        login()


def test_the_user_of_the_context_is_impersonated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = [{"name": "other", "user": {"as": "root"}}, {"name": "u", "user": {"as": "jané"}}]
    kubeconfig(tmp_path, monkeypatch, json.dumps({**SOUND, "users": users}))
    assert login().impersonates == (("Impersonate-User", "jané"),)
    kubeconfig(tmp_path, monkeypatch, json.dumps(SOUND))
    assert login().impersonates == ()
