"""Changes of what is in a cluster already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.backends.kubernetes.check.files import gather
from launcher.backends.kubernetes.check.lint import changes, lint
from launcher.cli import main
from tests.unit.kubernetes.support import job
from tests.unit.kubernetes_validate.support import BASES, JOB, JOB_SET, changed
from tests.unit.kubernetes_validate.test_lint import folder

CONFIG = {**BASES["CONFIG_MAP"], "immutable": True}
REFUSED: list[tuple[dict[str, Any], str, Any, str]] = [
    (JOB, "spec.template.spec.containers.0.name", "other", "`other`, was `main`"),
    (JOB, "spec.template.metadata.labels.new", "x", "it had no such field"),
    (JOB, "spec.completions", 3, "`3`, was `2`"),
    (JOB, "spec.podFailurePolicy.rules.0.onExitCodes.values.0", 79, "`79`, was `78`"),
    (JOB_SET, "spec.failurePolicy.maxRestarts", 4, "`4`, was `3`"),
    (JOB_SET, "spec.replicatedJobs.0.replicas", 2, "`2`, was `1`"),
    (BASES["DEPLOYMENT"], "spec.selector.matchLabels.app", "x", "`x`, was `serve`"),
    (BASES["BINDING"], "roleRef.name", "x", "`x`, was `submitter`"),
    (BASES["PRIORITY"], "value", 7, "`7`, was `1000`"),
    (BASES["SECRET"], "type", "Opaque", "`Opaque`, was `kubernetes.io/ssh-auth`"),
    (CONFIG, "data.new", "x", "it had no such field"),
]
TAKEN: list[tuple[dict[str, Any], str, Any]] = [
    (JOB, "spec.parallelism", 1),
    (JOB, "spec.backoffLimit", 9),
    (JOB, "spec.activeDeadlineSeconds", 9),
    (JOB, "metadata.labels.new", "x"),
    (JOB_SET, "spec.ttlSecondsAfterFinished", 5),
    (BASES["CONFIG_MAP"], "data.new", "x"),
    (BASES["DEPLOYMENT"], "spec.template.spec.containers.0.name", "x"),
]


@pytest.mark.parametrize(("base", "path", "value", "words"), REFUSED)
def test_what_a_cluster_refuses(base: dict[str, Any], path: str, value: Any, words: str) -> None:
    route = tuple(int(key) if key.isdigit() else key for key in path.split("."))
    assert changes(base, changed(base, path, value)) == [(route, words)]
    assert changes(base, base) == []


@pytest.mark.parametrize(("base", "path", "value"), TAKEN)
def test_what_a_cluster_takes(base: dict[str, Any], path: str, value: Any) -> None:
    assert changes(base, changed(base, path, value)) == []


def test_an_elastic_job_grows() -> None:
    assert changes(JOB, changed(changed(JOB, "spec.completions", 5), "spec.parallelism", 5)) == []


def test_a_folder_against_what_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    before = folder(tmp_path / "old", job(config={"seed": 1}), job("gone"))
    after = folder(tmp_path / "new", job(config={"seed": 1}), job(config={"seed": 2}))
    (gone,) = before.glob("gone-*")
    assert [str(line) for line in lint(gather([after]), {}, before=gather([before]))] == [
        f"{gone}:2: warning: Job `{gone.stem}` is gone: a controller that prunes deletes it, running or not; "
        "`launcher cancel` it, or wait for its end, first"
    ]
    kept = next(file for file in after.iterdir() if (before / file.name).exists())
    kept.write_text(kept.read_text().replace("imagePullPolicy: IfNotPresent", "imagePullPolicy: Always"))
    assert main(["lint", str(after), "--against", str(before)]) == 2
    said = capsys.readouterr().out
    assert (
        "spec.template.spec.containers[0].imagePullPolicy: cannot be changed: `Always`, was `IfNotPresent`; "
        "change the job: another one has another name"
    ) in said
