"""Logins of kubeconfigs as laptops have them: login programs, OIDC, files that rotate.

What a request carries is compared with what kubectl sends with the same kubeconfig to the same HTTPS server.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.kubernetes.access import plugin
from launcher.backends.kubernetes.access.login import login
from launcher.backends.kubernetes.api import Api
from launcher.errors import BadInput, SlipwayError, Unreachable
from tests.integration.k8s_tree.building import kubectl
from tests.integration.kubernetes.authorities import Authority, authority
from tests.integration.kubernetes.speaker import Answer, Speaker, speaking

__all__ = ["authority"]

V1, V1BETA1 = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"
# a login program: notes each call, and prints what stands in the file `answer` beside it, with RUNS for its number
PROGRAM = """#!/bin/sh
here="$(dirname "$0")"
echo "$KUBERNETES_EXEC_INFO" > "$here/info"; echo run >> "$here/runs"
echo "$WHO" > "$here/who"; echo "$@" > "$here/words"
[ -f "$here/complaint" ] && cat "$here/complaint" >&2
sed "s/RUNS/$(wc -l < "$here/runs" | tr -d ' ')/" "$here/answer"
exit "$(cat "$here/code" 2>/dev/null || echo 0)"
"""


class Program:
    """A login program in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.path = folder / "fake-login"
        self.path.write_text(PROGRAM)
        self.path.chmod(0o755)

    def says(self, *, version: str = V1, expires: float | None = None, **status: Any) -> None:
        if expires is not None:
            status["expirationTimestamp"] = datetime.fromtimestamp(expires, UTC).isoformat().replace("+00:00", "Z")
        self.prints(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))

    def prints(self, text: str, code: int = 0, complaint: str = "") -> None:
        (self.folder / "answer").write_text(text)
        (self.folder / "code").write_text(str(code))
        (self.folder / "complaint").write_text(complaint)

    @property
    def runs(self) -> int:
        path = self.folder / "runs"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def user(self, version: str = V1, mode: str | None = "Never", **more: Any) -> dict[str, Any]:
        block = {"apiVersion": version, "command": str(self.path), **({"interactiveMode": mode} if mode else {})}
        return {"exec": {**block, **more}}


def version(method: str, path: str, query: dict[str, str]) -> Answer:
    return 200, {"major": "1", "minor": "34"}


@pytest.fixture
def server(authority: Authority) -> Iterator[Speaker]:
    with speaking(version, authority.server, str(authority.ca)) as speaker:
        yield speaker


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path / "program")
    program.says(token="t-RUNS")
    return program


@pytest.fixture
def api(server: Speaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Api]:
    """The API as a user of the kubeconfig sees it."""

    def opened(user: dict[str, Any], **cluster: Any) -> Api:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path, user=user, **cluster)))
        return Api(login())

    return opened


def asked_by_kubectl(*words: str) -> subprocess.CompletedProcess[str]:
    command = [kubectl(), "get", "--raw", "/version", *words]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False, env=os.environ
    )


def same_as_kubectl(server: Speaker, api: Api) -> str:
    """The login that we send and kubectl sends."""
    done = asked_by_kubectl()
    assert done.returncode == 0, done.stderr
    api.get("/version")
    theirs, ours = server.logins[-2:]
    assert ours == theirs
    return ours


# what a request carries


@pytest.mark.parametrize(("version", "mode"), [(V1, "Never"), (V1, "IfAvailable"), (V1BETA1, None)])
def test_a_token_of_a_login_program(
    server: Speaker, api: Callable[..., Api], program: Program, version: str, mode: str | None
) -> None:
    program.says(version=version, token="abc")
    user = program.user(version, mode, args=["get", "token"], env=[{"name": "WHO", "value": "jane"}])
    assert same_as_kubectl(server, api(user)) == "Bearer abc"
    assert (program.folder / "who").read_text() == "jane\n"
    assert (program.folder / "words").read_text() == "get token\n"


def test_a_login_program_is_told_of_the_cluster_what_kubectl_tells(
    server: Speaker, api: Callable[..., Api], program: Program, authority: Authority
) -> None:
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "ours"}}
    opened = api(program.user(provideClusterInfo=True), extensions=[extension, {"name": "other", "extension": {}}])
    assert asked_by_kubectl().returncode == 0
    theirs = json.loads((program.folder / "info").read_text())
    opened.get("/version")
    ours = json.loads((program.folder / "info").read_text())
    assert ours == theirs
    assert ours["spec"]["cluster"]["config"] == {"audience": "ours"}
    assert base64.b64decode(ours["spec"]["cluster"]["certificate-authority-data"]) == authority.ca.read_bytes()


def test_a_login_program_beside_the_kubeconfig(
    server: Speaker, api: Callable[..., Api], program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    user = program.user(command="./program/fake-login")
    program.says(token="beside")
    assert same_as_kubectl(server, api(user)) == "Bearer beside"


def test_a_certificate_of_a_login_program(
    server: Speaker, api: Callable[..., Api], program: Program, authority: Authority
) -> None:
    certificate, key = authority.pair("jane")
    program.says(clientCertificateData=certificate, clientKeyData=key)
    opened = api(program.user())
    assert same_as_kubectl(server, opened) == "jane"
    assert program.runs == 2
    certificate, key = authority.pair("jane-renewed")  # the old one is refused: the program has another
    program.says(clientCertificateData=certificate, clientKeyData=key)
    server.admits = lambda name: name == "jane-renewed"
    opened.get("/version")
    assert server.logins[-2:] == ["jane", "jane-renewed"]


@pytest.mark.parametrize(
    ("user", "sent"),
    [
        ({"token": "plain"}, "Bearer plain"),
        ({"tokenFile": "token"}, "Bearer from-file"),
        ({"tokenFile": "token", "token": "older"}, "Bearer from-file"),
        ({"username": "jané", "password": "p:w"}, "Basic " + base64.b64encode("jané:p:w".encode()).decode()),
        ({"token": "plain", "exec": {"apiVersion": V1BETA1, "command": "false"}}, "Bearer plain"),
    ],
)
def test_logins_without_a_program(
    server: Speaker, api: Callable[..., Api], tmp_path: Path, user: dict[str, Any], sent: str
) -> None:
    (tmp_path / "token").write_text("from-file\n")
    assert same_as_kubectl(server, api(user)) == sent


def test_of_two_kubeconfigs_the_first_says_which_cluster(
    server: Speaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = []
    for name in ("first", "second"):
        config = json.loads(server.kubeconfig(tmp_path, user={"token": name}).read_text())
        config["users"][0]["name"] = config["contexts"][0]["context"]["user"] = f"of-{name}"
        config["contexts"][0]["name"] = config["current-context"] = f"in-{name}"
        config["contexts"].append({"name": "shared", "context": {"cluster": "c", "user": f"of-{name}"}})
        paths.append(tmp_path / name)
        paths[-1].write_text(json.dumps(config))
    (tmp_path / "empty").write_text("")
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, (tmp_path / "empty", tmp_path / "absent", *paths))))
    assert same_as_kubectl(server, Api(login())) == "Bearer first"
    for context, token in (("in-second", "second"), ("shared", "first")):
        assert asked_by_kubectl("--context", context).returncode == 0
        Api(login(context)).get("/version")
        assert server.logins[-2:] == [f"Bearer {token}"] * 2


# logins that end


def test_a_token_is_kept_until_it_expires(
    server: Speaker, api: Callable[..., Api], program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    program.says(token="t-RUNS", expires=now + 60)
    opened = api(program.user())
    for _ in range(3):
        opened.get("/version")
    assert (server.logins, program.runs) == (["Bearer t-1"] * 3, 1)
    program.says(token="t-RUNS", expires=now + 3600)
    monkeypatch.setattr(plugin.time, "time", lambda: now + 61)
    opened.get("/version")
    assert (server.logins[-1], program.runs) == ("Bearer t-2", 2)


def test_a_token_that_the_server_refuses_is_renewed_once(
    server: Speaker, api: Callable[..., Api], program: Program
) -> None:
    opened = api(program.user())
    opened.get("/version")
    server.admits = lambda sent: sent != "Bearer t-1"  # revoked; it says no time at which it expires
    opened.get("/version")
    assert server.logins == ["Bearer t-1", "Bearer t-1", "Bearer t-2"]
    server.admits = lambda sent: False
    with pytest.raises(Unreachable, match="refuses the credentials"):
        opened.get("/version")
    assert program.runs == 3


def test_a_stream_that_is_refused_has_another_login_the_next_time(
    server: Speaker, api: Callable[..., Api], program: Program
) -> None:
    server.admits = lambda sent: sent != "Bearer t-1"
    opened = api(program.user())
    with pytest.raises(Unreachable):
        opened.stream("/log", query={}, read=5)
    assert opened.stream("/log", query={}, read=5).read()
    assert server.logins == ["Bearer t-1", "Bearer t-2"]


def test_a_token_is_renewed_after_other_troubles_of_the_same_request(
    server: Speaker, api: Callable[..., Api], program: Program
) -> None:
    answers = iter([503, 401, 200])
    server.answer = lambda *_: (next(answers), {})
    api(program.user()).get("/version")
    assert server.logins == ["Bearer t-1", "Bearer t-1", "Bearer t-2"]


def test_a_file_of_a_token_is_read_again(server: Speaker, api: Callable[..., Api], tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    opened = api({"tokenFile": "token"})
    opened.get("/version")
    path.write_text("two\n")
    server.admits = lambda sent: sent == "Bearer two"
    opened.get("/version")
    assert server.logins == ["Bearer one", "Bearer one", "Bearer two"]
    path.write_text("")  # its writer is at work: the last token counts
    opened.login.credentials.refuse("Bearer two")
    opened.get("/version")
    assert server.logins[-1] == "Bearer two"


# login programs that do not work: one line


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"command": "no-such-login"}, "the login program `no-such-login` is not on the PATH"),
        ({"command": "no-such-login", "installHint": "brew install\n  no-such-login"}, "brew install no-such-login"),
        ({"command": "/nowhere/login"}, "the login program `/nowhere/login` does not exist"),
        ({"interactiveMode": "Always"}, "asks a person, and the input is no terminal"),
    ],
)
def test_a_login_program_that_cannot_be_run(
    api: Callable[..., Api], program: Program, change: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = api(program.user(**change))
    with Path(os.devnull).open() as nothing, monkeypatch.context() as patch:
        patch.setattr("sys.stdin", nothing)
        with pytest.raises(Unreachable) as caught:
            opened.get("/version")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert opened.where in str(caught.value)


GOOD = {"apiVersion": V1, "kind": "ExecCredential"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "printed no ExecCredential but ''"),
        ("Please log in first!", "printed no ExecCredential but 'Please log in first!'"),
        ("[1]", "printed no ExecCredential"),
        ("{}", "asks for client.authentication.k8s.io/v1 ExecCredential"),
        (json.dumps({**GOOD, "apiVersion": V1BETA1, "status": {"token": "a"}}), "printed 'client.authentication"),
        (json.dumps(GOOD), "without a status"),
        (json.dumps({**GOOD, "status": {}}), "neither a token nor a certificate"),
        (json.dumps({**GOOD, "status": {"token": 7}}), "that is no text"),
        (json.dumps({**GOOD, "status": {"clientCertificateData": "x"}}), "only one of certificate and key"),
        (json.dumps({**GOOD, "status": {"token": "a", "expirationTimestamp": "soon"}}), "RFC 3339"),
        (json.dumps({**GOOD, "status": {"clientCertificateData": "x", "clientKeyData": "y"}}), "do not fit"),
    ],
)
def test_a_login_program_that_prints_something_else(
    server: Speaker, api: Callable[..., Api], program: Program, text: str, words: str
) -> None:
    """kubectl 1.34.4 refuses each of them too."""
    program.prints(text)
    opened = api(program.user())
    with pytest.raises(Unreachable) as caught:
        opened.get("/version")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert server.logins == []  # nothing is asked as nobody


def test_a_login_program_that_fails_is_quoted_and_later_tried_again(
    server: Speaker, api: Callable[..., Api], program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.prints("", 3, "first line\nError: the session has expired, run `fake login`\n")
    opened = api(program.user())
    with pytest.raises(
        Unreachable, match=r"failed with exit code 3: Error: the session has expired, run `fake login`$"
    ):
        opened.get("/version")
    with pytest.raises(Unreachable, match="failed with exit code 3"):
        opened.get("/version")
    assert (program.runs, server.logins) == (1, [])  # not at every request
    program.prints(json.dumps({**GOOD, "status": {"token": "after"}}))
    monkeypatch.setattr(plugin, "PAUSE", 0.0)
    opened.get("/version")
    assert server.logins == ["Bearer after"]


def test_what_a_login_program_tells_a_person_is_shown(
    api: Callable[..., Api], program: Program, capfd: pytest.CaptureFixture[str]
) -> None:
    program.prints(json.dumps({**GOOD, "status": {"token": "a"}}), 0, "open https://login.test and enter ABCD\n")
    opened = api(program.user())
    opened.get("/version")
    opened.login.credentials.refuse("Bearer a")
    opened.get("/version")
    assert capfd.readouterr().err == "open https://login.test and enter ABCD\n"  # once


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "exec.apiVersion: 'client.authentication.k8s.io/v1a"),
        ({"interactiveMode": None}, "exec.interactiveMode: it is missing; allowed: Never, IfAvailable, Always"),
        ({"interactiveMode": "Sometimes"}, "exec.interactiveMode: 'Sometimes' is not allowed"),
        ({"command": ""}, "exec.command is missing"),
        ({"env": [{"value": "x"}]}, "exec.env: allowed: a list of {name: ..., value: ...}"),
    ],
)
def test_a_block_exec_that_kubectl_refuses(
    api: Callable[..., Api], program: Program, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadInput) as caught:
        api(program.user(**change))
    assert f"kubeconfig {tmp_path / 'kubeconfig'}: user `u`: {words}" in str(caught.value)
    assert asked_by_kubectl().returncode == 1


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({"token": "a", "username": "b", "password": "c"}, "two logins, token and basicAuth"),
        ({"exec": {"command": "x"}, "auth-provider": {"name": "oidc"}}, "two logins, exec and auth-provider"),
        ({"auth-provider": {"name": "gcp"}}, "gke-gcloud-auth-plugin"),
        ({"auth-provider": {"name": "azure"}}, "kubelogin"),
        ({"auth-provider": {"name": "oidc", "config": {"client-id": "x"}}}, "idp-issuer-url is missing"),
        ({"tokenFile": "nowhere"}, "No such file or directory"),
        ({"tokenFile": "empty"}, "the file is empty"),
    ],
)
def test_other_logins_that_kubectl_refuses(
    server: Speaker, api: Callable[..., Api], tmp_path: Path, user: dict[str, Any], words: str
) -> None:
    (tmp_path / "empty").write_text("")
    with pytest.raises(SlipwayError) as caught:
        api(user).get("/version")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert server.logins == []
    if "empty" not in user.values():  # kubectl asks as nobody then
        assert asked_by_kubectl().returncode == 1
