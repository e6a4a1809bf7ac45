"""The GitOps part of k8s/: rendered jobs, the objects of Flux and Argo CD, the workflow, and the texts about them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from launcher.backends.kubernetes.check.files import gather
from launcher.backends.kubernetes.check.lint import lint
from tests.integration.k8s_tree.building import ROOT, TREE, kubectl, name, of_kind


def test_the_gitops_repository_is_what_its_sources_render_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte. To update: remove k8s/gitops/jobs and call LAUNCHER=.venv/bin/launcher k8s/gitops/render.sh"""
    from launcher.cli import main

    shutil.copytree(TREE / "gitops", tmp_path / "jobs")
    committed = {path.name: path.read_bytes() for path in (TREE / "gitops/jobs").iterdir()}
    assert len(committed) >= 2
    monkeypatch.chdir(tmp_path / "jobs")
    for variable in ("SLIPWAY_STORE", "SLIPWAY_BACKEND", "SLIPWAY_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["render", "src", "--to", "anew"]) == 0
    assert {path.name: path.read_bytes() for path in Path("anew").iterdir()} == committed
    assert main(["lint", "--strict", "jobs"]) == 0


def test_flux_keeps_jobs_and_changes_nothing_else(tmp_path: Path) -> None:
    """The patches of the Kustomization, built by kustomize over the rendered jobs."""
    (sync,) = [one for one in of_kind("gitops/flux", "Kustomization") if one["metadata"]["name"] == "slipway-jobs"]
    assert sync["spec"]["prune"] is True
    assert sync["spec"]["wait"] is False
    assert sync["spec"]["force"] is False
    shutil.copytree(TREE / "gitops/jobs", tmp_path / "jobs")
    files = sorted(path.name for path in (tmp_path / "jobs").iterdir())
    (tmp_path / "jobs/kustomization.yaml").write_text(
        yaml.safe_dump({"resources": files, "patches": sync["spec"]["patches"]})
    )
    done = subprocess.run([kubectl(), "kustomize", str(tmp_path / "jobs")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    patched = {name(one): one for one in yaml.safe_load_all(done.stdout)}
    plain = {name(one): one for file in files for one in yaml.safe_load_all((tmp_path / "jobs" / file).read_text())}
    assert patched.keys() == plain.keys()
    for key, one in patched.items():
        assert one["metadata"]["annotations"].pop("kustomize.toolkit.fluxcd.io/prune") == "disabled"
        if one["kind"] in ("Job", "JobSet"):
            # else one Job that Kueue admitted is refused, and with it each later file
            assert one["metadata"]["annotations"].pop("kustomize.toolkit.fluxcd.io/ssa") == "IfNotPresent"
        assert one == plain[key]


def test_argo_cd_neither_replaces_nor_waits_for_an_answer() -> None:
    (application,) = of_kind("gitops/argocd", "Application")
    policy = application["spec"]["syncPolicy"]
    options = policy["syncOptions"]
    # a pruned Job is a running training, and with Prune=confirm no later commit is applied
    assert policy["automated"]["prune"] is False
    assert not [one for one in options if one.startswith(("Replace", "Force", "Prune"))]
    # what Kueue changed is not sent, and a bad commit does not keep back its fix
    assert "RespectIgnoreDifferences=true" in options
    assert policy["retry"]["refresh"] is True
    assert "finalizers" not in application["metadata"]


def test_lint_has_nothing_to_say_of_what_is_shipped() -> None:
    """A file and the rule about it change together: lint once recommended what stopped Argo CD."""
    assert [str(line) for line in lint(gather([TREE / "gitops"]), {})] == []


def test_no_workflow_installs_a_strangers_package() -> None:
    """PyPI's slipway is another project, and the workflow may write to the repository and to the store."""
    text = (ROOT / "k8s/gitops/.github/workflows/jobs.yaml").read_text()
    installs = [line.split("pip install")[1].split() for line in text.splitlines() if "pip install" in line]
    assert installs
    assert all(word.endswith(".whl") for words in installs for word in words)


TEXTS = (
    "k8s/gitops/.github/workflows/jobs.yaml",
    "k8s/gitops/render.sh",
    "k8s/gitops/README.md",
    "docs/howto/kubernetes.md",
    "docs/howto/kubernetes-admin.md",
    "docs/howto/gitops.md",
)


@pytest.mark.parametrize("path", TEXTS)
def test_what_is_written_uses_verbs_and_options_that_there_are(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    from launcher.cli import VERBS, main

    found = re.findall(r"(?:launcher|\$launcher) ([a-z]+)([^&|;`#\n]*)", (ROOT / path).read_text())
    calls = [(verb, rest.partition(" -- ")[0].split()) for verb, rest in found if verb in VERBS]
    assert len(calls) >= 2
    for verb, rest in calls:
        action = rest[0] if verb in ("cluster", "images") and rest and rest[0].isalpha() else None
        with pytest.raises(SystemExit):
            main([verb, *([action] if action else []), "--help"])
        said = capsys.readouterr().out
        for option in (one.partition("=")[0] for one in rest if re.fullmatch(r"--?[a-z][a-z-]*(=\S+)?", one)):
            assert option in said, f"launcher {verb} {' '.join(rest)}"
