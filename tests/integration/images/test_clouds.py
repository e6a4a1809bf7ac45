"""Pushing to the clouds' registries: the commands of the administrators' page, typed against a local registry with
stand-ins for the clouds' own programs, and tags that cannot be moved."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.images.engine import Engine as Client
from launcher.images.publish import PushFailed, push
from launcher.spec.images import catalogue
from tests.integration.images.conftest import NOBODY, Registry, build, flags
from tests.support.documented import ROOT, Shown, blocks
from tests.support.engine import Engine
from tests.support.faultproxy import FaultProxy

PAGE = ROOT / "docs/howto/kubernetes-admin.md"
# what each program does, of what the page asks it for: it hands a password to `docker login` or names a helper
PROGRAMS = {
    "aws": """
[ "$1 $2" != "ecr get-login-password" ] || echo secret-word
""",
    "az": f"""
[ "$1 $2" != "acr login" ] || echo secret-word | docker login -u {NOBODY} --password-stdin HOST
""",
    "gcloud": """
[ "$1 $2" = "auth configure-docker" ] || exit 0
mkdir -p "$DOCKER_CONFIG"
echo '{"credHelpers": {"HOST": "gcloud"}}' > "$DOCKER_CONFIG/config.json"
""",
    "docker-credential-gcloud": """
cat > /dev/null
echo '{"ServerURL": "HOST", "Username": "oauth2accesstoken", "Secret": "secret-word"}'
""",
}
HOSTS = {
    "aws": "ACCOUNT.dkr.ecr.REGION.amazonaws.com",
    "gcloud": "europe-docker.pkg.dev",
    "az": "REGISTRY.azurecr.io",
}


class ImmutableTags(FaultProxy):
    """A registry like ECR with immutable tags: a tag that is there is not written again, not even with the same image.
    The words are those that users of ECR report (github.com/osscontainertools/kaniko/pull/204)."""

    def _forward(
        self, method: str, target: str, headers: http.client.HTTPMessage, body: bytes, how: str = ""
    ) -> tuple[int, str, list[tuple[str, str]], bytes]:
        name = re.fullmatch(r"/v2/(.*)/manifests/([^:]*)", target)
        if method == "PUT" and name and super()._forward("HEAD", target, headers, b"")[0] == 200:
            message = (
                f"The image tag '{name[2]}' already exists in the '{name[1]}' repository and cannot be overwritten "
            )
            message += "because the tag is immutable."
            error: dict[str, Any] = {"errors": [{"code": "TAG_INVALID", "message": message}]}
            return 400, "Bad Request", [("Content-Type", "application/json")], json.dumps(error).encode()
        return super()._forward(method, target, headers, body, how)


@pytest.fixture
def immutable(registry: Registry) -> Iterator[Registry]:
    with ImmutableTags(registry.port) as proxy:
        yield Registry(registry.port, registry.folder, proxy)


def test_a_version_that_an_immutable_registry_has_is_taken_from_it(
    root: Path, engine: Engine, immutable: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(engine, "--push", immutable.name) == 0
    first = catalogue.load(catalogue.path(root))["tiny"]
    catalogue.save(catalogue.path(root), {})
    capsys.readouterr()
    assert build(engine, "--push", immutable.name) == 0
    assert catalogue.load(catalogue.path(root))["tiny"].reference == first.reference
    assert "is in the registry already" in "".join(capsys.readouterr())
    # another image of the same version: built elsewhere, with other times
    local = f"tiny:{first.version}"
    (tmp_path / "other").mkdir()
    (tmp_path / "other/Dockerfile").write_text(
        "FROM scratch\nCOPY Dockerfile /other\nLABEL org.opencontainers.image.title=tiny\n"
    )
    engine.docker("build", "--network", "none", "-t", local, str(tmp_path / "other"))
    said: list[str] = []
    assert push(Client(), local, immutable.name, said.append) == first.reference
    assert len(said) == 1


def test_a_repository_that_does_not_exist_is_said_once() -> None:
    class Absent(Client):
        def __init__(self) -> None: ...

        def tag(self, *_: str) -> None: ...

        def push(self, *_: str) -> Iterator[dict[str, Any]]:
            text = "name unknown: The repository with name 'slipway/tiny' does not exist in the registry with id '1'"
            yield {"error": text}

    said: list[str] = []
    with pytest.raises(PushFailed, match=r"no such repository.*create it, then push again"):
        push(Absent(), "tiny:1", "1.dkr.ecr.eu-west-1.amazonaws.com/slipway", said.append, pause=lambda _: None)
    assert not said


def shown(program: str) -> list[Shown]:
    (block,) = [
        block
        for block in blocks(PAGE)
        if block[0].line.startswith(f"{program} ") and any("images push" in one.line for one in block)
    ]
    return block


@pytest.mark.parametrize("registry", ["password"], indirect=True)
@pytest.mark.parametrize("program", HOSTS)
def test_the_commands_of_the_page_log_in_and_push(
    root: Path, engine: Engine, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    host = f"127.0.0.1:{registry.proxy.port}"
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in PROGRAMS.items():
        (folder / name).write_text("#!/bin/sh" + text.replace("HOST", host))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    assert build(engine) == 0
    for one in shown(program):
        line = one.line.replace(HOSTS[program], host).replace(
            "launcher images push", f"{sys.executable} -m launcher.cli images push tiny"
        )
        if "images push" in line:
            line = f"PYTHONPATH={ROOT} {line} {' '.join(flags(engine)[:2])}"
        done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, f"{one.place}\n$ {line}\n{done.stdout}{done.stderr}"
        assert "secret-word" not in done.stdout + done.stderr
    assert f"{host}/" in catalogue.load(catalogue.path(root))["tiny"].reference
