"""What lint says of the settings of Argo CD and Flux: each was seen to stop a folder, or a run, on the real tools
(Argo CD 3.5.7, Flux' controllers 1.9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.backends.kubernetes.check.files import ManifestFiles, gather
from launcher.backends.kubernetes.check.lint import lint
from tests.unit.kubernetes.support import job
from tests.unit.kubernetes_validate.test_lint import folder

APPLICATION = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: jobs, namespace: argocd}
spec:
  project: default
  source: {repoURL: https://git.example.com/jobs.git, path: jobs}
  destination: {server: https://kubernetes.default.svc, namespace: ml}
  syncPolicy:
    automated: {prune: true}
    syncOptions: [Force=true, ServerSideApply=true]
"""
IGNORED = "  ignoreDifferences: [{group: batch, kind: Job, jsonPointers: [/spec/suspend]}]\n"
FLUX = """\
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: jobs, namespace: flux-system}
spec:
  interval: 10m
  sourceRef: {kind: GitRepository, name: jobs}
  prune: true
  force: true
  wait: true
"""
KEPT = """\
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: jobs, namespace: flux-system}
spec:
  interval: 10m
  sourceRef: {kind: GitRepository, name: jobs}
  prune: true
  patches:
  - target: {kind: Job}
    patch: |-
      - {op: add, path: /metadata/annotations/kustomize.toolkit.fluxcd.io~1prune, value: disabled}
"""
MERGED = """\
  - patch: |-
      apiVersion: batch/v1
      kind: Job
      metadata: {name: x, annotations: {kustomize.toolkit.fluxcd.io/ssa: IfNotPresent}}
    target: {kind: Job}
"""


def said(text: str) -> list[str]:
    return [str(line) for line in lint(ManifestFiles(whole={"a.yaml": text}), {})]


def test_argo_cd_that_prunes_or_replaces() -> None:
    assert said(APPLICATION) == [
        "a.yaml:9: warning: spec.syncPolicy.automated.prune: prunes without asking: a file that is removed takes its "
        "running job with it; prune: false",
        "a.yaml:10: spec.syncPolicy.syncOptions[0]: Force=true deletes a running job to make it again; leave it out",
    ]
    assert said(APPLICATION.replace("Force=true", "Prune=false")) == []


@pytest.mark.parametrize("prune", ["true", "false"])
def test_argo_cd_that_asks_before_it_prunes_applies_no_later_commit(prune: str) -> None:
    """Seen with `prune: false` as well, and a confirmation did not end it."""
    lines = said(APPLICATION.replace("Force=true", "Prune=confirm").replace("prune: true", f"prune: {prune}"))
    assert lines[-1] == (
        "a.yaml:10: spec.syncPolicy.syncOptions[0]: Prune=confirm: after the first file that is removed, no later "
        "commit is applied; automated: {prune: false}, without this option"
    )
    assert len(lines) == 1 + (prune == "true")


def test_argo_cd_ignores_a_difference_only_until_it_sends_it() -> None:
    text = APPLICATION.replace("Force=true, ", "").replace("prune: true", "prune: false") + IGNORED
    assert said(text) == [
        "a.yaml:11: warning: spec.ignoreDifferences: only the comparison ignores these fields: a sync sends them, so "
        "a Job that Kueue changed makes it fail; syncOptions: [RespectIgnoreDifferences=true]"
    ]
    assert said(text.replace("[Server", "[RespectIgnoreDifferences=true, Server")) == []


def test_argo_cd_that_tries_a_bad_commit_again() -> None:
    text = APPLICATION.replace("Force=true, ", "").replace("prune: true", "prune: false")
    assert said(text + "    retry: {limit: 5}\n") == [
        "a.yaml:11: note: spec.syncPolicy.retry: tries a commit that failed again until the limit, and takes its fix "
        "only then; refresh: true (Argo CD 3.2 or later)"
    ]
    assert said(text + "    retry: {limit: 5, refresh: true}\n") == []


def test_a_set_of_applications() -> None:
    spec = "\n".join(f"    {line}" for line in APPLICATION.split("spec:\n")[1].splitlines())
    text = (
        "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: jobs}\n"
        f"spec:\n  generators: []\n  template:\n    metadata: {{name: jobs}}\n    spec:\n{spec}\n"
    )
    assert any("spec.template.spec.syncPolicy.syncOptions[0]: Force=true" in line for line in said(text))


def test_flux_that_prunes_forces_and_waits() -> None:
    assert said(FLUX) == [
        "a.yaml:7: warning: spec.prune: prunes without asking: a file that is removed takes its running job with it; "
        "prune: false, or a patch that sets kustomize.toolkit.fluxcd.io/prune: disabled on Jobs",
        "a.yaml:8: spec.force: force deletes a running job to make it again; force: false",
        "a.yaml:9: warning: spec.wait: waits until every Job is complete, and calls the folder failed when one takes "
        "longer than its timeout; wait: false for a folder of jobs",
    ]


def test_flux_that_sends_admitted_jobs_again() -> None:
    assert said(KEPT) == [
        "a.yaml:8: warning: spec.patches: sends the Jobs that are there again: the API server refuses one that Kueue "
        "changed, and then no file of the folder is applied; a patch that sets kustomize.toolkit.fluxcd.io/ssa: "
        "IfNotPresent on Jobs and JobSets"
    ]
    assert said(KEPT + MERGED) == []


@pytest.mark.parametrize(
    ("interval", "long"),
    [("29m", False), ("1500s", False), ("600000ms", False), ("30m", True), ("1h", True), ("29m60s", True)],
)
def test_flux_that_makes_a_job_again_after_status_has_ended_its_run(interval: str, long: bool) -> None:
    """`status` gives up an absent object after 30 minutes (launcher.protocol.decide.GONE_FOR_GOOD)."""
    wanted = [
        "a.yaml:5: warning: spec.interval: makes a deleted Job again too late: after 30 min without it `launcher "
        "status` and the reaper end its run as cancelled; less than 30m, for example 10m"
    ]
    assert said((KEPT + MERGED).replace("10m", interval)) == (wanted if long else [])


def test_flux_may_look_rarely_at_what_stands() -> None:
    assert said(FLUX.replace("10m", "1h").split("  prune")[0] + "  path: ./platform\n  prune: false\n") == []


def test_flux_that_looks_rarely_at_the_folder_of_the_jobs_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any patch: by the folder that it names."""
    monkeypatch.chdir(tmp_path)
    folder(tmp_path, job())
    (tmp_path / "sync.yaml").write_text(
        FLUX.replace("10m", "1h").split("  prune")[0] + "  path: ./jobs/\n  prune: false\n"
    )
    lines = [str(line) for line in lint(gather([Path("jobs"), Path("sync.yaml")]), {})]
    assert [line.partition(": makes")[0] for line in lines] == ["sync.yaml:5: warning: spec.interval"]


# go-git's own table (internal/pathutil/ntfs_test.go of v5.19.1), as far as a file of jobs can have such a name
@pytest.mark.parametrize(
    ("name", "valid"),
    [
        *((f"{name}.yaml", False) for name in ("CON", "con", "PRN", "AUX", "NUL", "COM1", "COM9", "LPT1", "LPT9")),
        *((f"{name}.yaml", False) for name in ("CONIN$", "CONOUT$", "CON ", "con.tar")),
        *((f"{name}.yaml", True) for name in ("CONNECT", "comic", "COM", "COM0", "LPT0", "a-con")),
        ("con/a.yaml", False),
        ("console/a.yaml", True),
    ],
)
def test_a_name_that_stops_flux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, valid: bool) -> None:
    monkeypatch.chdir(tmp_path)
    place = folder(tmp_path, job())
    (file,) = place.iterdir()
    (place / name).parent.mkdir(exist_ok=True)
    file.rename(place / name)
    lines = [str(line) for line in lint(gather([Path("jobs")]), {})]
    reserved = name.partition("/")[0]
    why = f"`{reserved}` is a device on Windows, so Flux takes no commit that holds this file; another name"
    assert lines == ([] if valid else [f"jobs/{name}: {why}"])
