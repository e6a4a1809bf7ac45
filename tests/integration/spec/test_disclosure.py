"""Values in clear whose name or place says that they are secrets: refused by every verb that would write them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.spec.test_disclosure import VALUE

IMAGE = "registry.example.com/image@sha256:" + "ab" * 32


JOB = f"name: a\nimage: {IMAGE}\ncommand: [x]\nlimits: {{deadline: 1h}}\nkubernetes: {{namespace: ml}}\n"


def launcher(cwd: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLIPWAY_", "AWS_"))}
    environ |= {"HOME": str(cwd), "XDG_STATE_HOME": str(cwd / "state"), "XDG_CONFIG_HOME": str(cwd / "conf"), **more}
    command = [str(Path(sys.executable).with_name("launcher")), *words]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=120, check=False)


def refused(done: subprocess.CompletedProcess[str], *said: str) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    assert all(words in done.stdout + done.stderr for words in said), done.stdout + done.stderr
    assert VALUE not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("backend", ["local", "kubernetes"])
@pytest.mark.parametrize("verb", ["render", "submit", "push"])
def test_a_value_in_clear_is_refused_with_the_way_out(tmp_path: Path, verb: str, backend: str) -> None:
    (tmp_path / "job.yaml").write_text(f"{JOB}env: {{MY_PASSWORD: {VALUE}}}\n")
    done = launcher(tmp_path, verb, "job.yaml", "--backend", backend)
    refused(done, "job.yaml:6:", "env.MY_PASSWORD", "secrets: [MY_PASSWORD]", "launcher secrets set MY_PASSWORD")
    (tmp_path / "job.yaml").write_text(JOB)
    done = launcher(tmp_path, verb, "job.yaml", "--backend", backend, "--set", f"env.MY_PASSWORD={VALUE}")
    refused(done, "--set env.MY_PASSWORD")


VERBS = [
    *(("render", "job.yaml"), ("render", "job.yaml", "--explain"), ("submit", "job.yaml"), ("push", "job.yaml")),
    *(("status",), ("logs", "a"), ("cancel", "a"), ("wait", "a"), ("results", "a"), ("retry", "a")),
    *(("gather", "a", "--to", "x"), ("report", "a"), ("compare", "a", "b"), ("doctor",), ("reap",)),
]


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_no_verb_takes_a_store_with_credentials(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    refused(launcher(tmp_path, *words, "--store", f"s3://KEY:{VALUE}@bucket/x"), "--store: store", "credentials")
    if words[0] in ("render", "status"):
        refused(launcher(tmp_path, *words, SLIPWAY_STORE=f"s3://KEY:{VALUE}/x@bucket/x"), "SLIPWAY_STORE: store")
        (tmp_path / "slipway.yaml").write_text(f"store: s3://KEY:{VALUE}@bucket/x\n")
        refused(launcher(tmp_path, *words), "slipway.yaml:1:")


def test_lint_knows_what_an_older_launcher_has_rendered(tmp_path: Path) -> None:
    """A file whose job holds a value in clear, its hashes sound."""
    from launcher.backends.kubernetes.render.manifests import render
    from launcher.spec.model import Image, Role
    from tests.unit.kubernetes.support import job

    image = Image("registry.example.com/image", "sha256:" + "ab" * 32)
    one = job(roles={"main": Role(("x",), image, env={"MY_PASSWORD": VALUE})})
    (tmp_path / "jobs").mkdir()
    for name, text in render([one]).documents.items():
        (tmp_path / "jobs" / name).write_text(text)
    done = launcher(tmp_path, "lint", "jobs")
    assert done.returncode != 0
    assert "roles.main.env.MY_PASSWORD" in done.stdout + done.stderr
    assert "launcher secrets set MY_PASSWORD" in done.stdout + done.stderr
