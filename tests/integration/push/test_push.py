"""GitOps without a cluster: render, push, and the runtime of the rendered pod finds its code in the store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from launcher.protocol.records import Result
from launcher.store import layout
from launcher.store.base import Store
from launcher.store.opening import open_store
from tests.integration.runtime.rig import TUNING
from tests.support.s3 import ENVIRONMENT, S3Server
from tests.support.verbs import launcher
from tests.unit.kubernetes.support import environment, pods

JOB = """\
name: train
image: registry.example.com/image@sha256:abababababababababababababababababababababababababababababababab
command: [sh, -c, "cd $SLIPWAY_OUTPUTS && python -c 'import mine; print(mine.WORD)' > results/word"]
code: code
outputs: [results]
backend: kubernetes
limits: {deadline: 1h, grace: 2s}
kubernetes: {namespace: ml, caches: [{name: store, path: VOLUME}]}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    (place / "code").mkdir(parents=True)
    (place / "code" / "mine.py").write_text("WORD = 'from the overlay'\n")
    (place / "job.yaml").write_text(JOB.replace("VOLUME", str(tmp_path)))  # where pods would see a store of files
    return place


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.s3)])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "file":
        return (tmp_path / "store").as_uri()
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    server: S3Server = request.getfixturevalue("s3_server")
    return server.url()


def pushed(project: Path, url: str, *more: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(launcher(project, "push", "job.yaml", "--store", url, "-o", "json", *more))
    return found


def rendered(project: Path, url: str) -> Path:
    launcher(project, "render", "job.yaml", "--store", url, "--to", "jobs")
    (file,) = (project / "jobs").iterdir()
    return file


def runs(file: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """The rendered container's entry point, as a kubelet would start it, but on this machine."""
    (pod,) = pods(yaml.safe_load(file.read_text()))
    told = environment(pod, {"batch.kubernetes.io/controller-uid": "uid"}, podIP="127.0.0.1", name=f"{file.stem}-abcde")
    folder.mkdir()
    return subprocess.run(
        [sys.executable, "-m", "launcher.runtime"],
        env={**os.environ, **told, "SLIPWAY_WORKDIR": str(folder), "SLIPWAY_TUNING": json.dumps(TUNING)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def objects(store: Store) -> list[str]:
    return sorted(meta.key for meta in store.scan(""))


def test_what_was_pushed_is_all_a_rendered_job_needs(project: Path, url: str, tmp_path: Path) -> None:
    file, store = rendered(project, url), open_store(url)
    assert objects(store) == []  # rendering touches nothing
    ((digest, state),) = [tuple(row.values()) for row in pushed(project, url, "--dry-run")]
    assert (state, objects(store)) == ("would be put", [])

    assert pushed(project, url) == [{"overlay": digest, "state": "put"}]
    assert objects(store) == sorted([layout.blob(digest), layout.blob_note(digest)])  # and nothing of a run
    assert pushed(project, url) == [{"overlay": digest, "state": "there"}]
    launcher(project, "lint", "jobs")

    done = runs(file, tmp_path / "work")
    assert done.returncode == 0, done.stderr
    keys = layout.RunKeys(file.stem)
    assert store.get(keys.attempt(1).output("results") + "word") == b"from the overlay\n"
    assert msgspec.json.decode(store.get(keys.result), type=Result).outcome == "succeeded"
    assert store.head(keys.job) is not None  # the runtime wrote it: nobody submitted


def test_changed_code_is_another_overlay_and_another_run(project: Path, tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    (first,) = pushed(project, url)
    before = rendered(project, url)
    before.unlink()
    (project / "code" / "mine.py").write_text("WORD = 'another'\n")
    assert rendered(project, url).name != before.name
    (second,) = pushed(project, url)
    assert second["state"] == "put"
    assert second["overlay"] != first["overlay"]


def test_a_job_without_code_needs_nothing(project: Path, tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    (project / "job.yaml").write_text(JOB.replace("code: code\n", "").replace("VOLUME", "/data"))
    assert pushed(project, url) == []
    assert not (tmp_path / "store").exists()
