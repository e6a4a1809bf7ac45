"""The YAML and Python that pages show is what the programs take, and what the examples hold."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from launcher.spec import profile
from tests.integration.k8s_tree.building import kubectl
from tests.support.documented import ROOT, tracked
from training.rewards.loading import RewardSpec, load

SHOWN = [
    (f"{path.relative_to(ROOT)}:{number}", block)
    for path in tracked("docs/*.md", "README.md")
    for number, block in enumerate(re.findall(r"```yaml\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL), 1)
]
PROFILES = [shown for shown in SHOWN if shown[1].startswith(("store:", "catalogue:"))]
OWN = ROOT / "docs/tutorials/own-folder.md"


def test_there_are_blocks_of_yaml() -> None:
    assert len(SHOWN) >= 6
    assert len(PROFILES) >= 2


@pytest.mark.parametrize(("place", "text"), SHOWN, ids=[place for place, _ in SHOWN])
def test_what_is_shown_is_yaml(place: str, text: str) -> None:
    assert isinstance(yaml.safe_load(text), dict), place


@pytest.mark.parametrize(("place", "text"), PROFILES, ids=[place for place, _ in PROFILES])
def test_a_profile_that_is_shown_fits_the_schema(place: str, text: str) -> None:
    jsonschema.Draft202012Validator(profile.json_schema()).validate(yaml.safe_load(text))


def test_the_overlays_of_the_administrators_page_can_be_built(tmp_path: Path) -> None:
    """What the page shows as changed is changed, and nothing made up is left but the image's digest."""
    (tmp_path / "k8s").symlink_to(ROOT / "k8s")
    objects = {}
    for folder in ("platform", "platform/reaper"):
        (text,) = [text for _, text in SHOWN if text.startswith(f"# {folder}/kustomization.yaml")]
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "kustomization.yaml").write_text(text)
        built = built_from(tmp_path / folder)
        objects |= {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(built)}
    for binding, group in (("submitter", "agents-team"), ("operator", "agents-team"), ("reader", "agents-readers")):
        assert objects["RoleBinding", f"slipway-{binding}"]["subjects"][0]["name"] == group
        if binding != "operator":  # the quota of the queue, which lies in no namespace
            assert objects["ClusterRoleBinding", f"slipway-{binding}"]["subjects"][0]["name"] == group
    cpus = objects["ClusterQueue", "slipway"]["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    assert cpus == {"name": "cpu", "nominalQuota": "64"}
    assert {each["spec"].get("storageClassName") for (kind, _), each in objects.items() if "VolumeClaim" in kind} == {
        "shared-files"
    }
    reaper = objects["CronJob", "slipway-reaper"]["spec"]
    assert reaper["suspend"] is False
    assert "registry.example.com/agents/slipway-cpu@sha256:1111" in str(reaper)
    assert objects["ConfigMap", "slipway-settings"]["data"]["SLIPWAY_STORE"] == "s3://team-bucket/agents"
    assert "10.20.0.0/16" in str(objects["NetworkPolicy", "allow-store"])


def test_the_overlay_of_the_lambda_page_can_be_built(tmp_path: Path) -> None:
    (tmp_path / "k8s").symlink_to(ROOT / "k8s")
    folder = tmp_path / "platform/machines"
    folder.mkdir(parents=True)
    (text,) = [text for _, text in SHOWN if text.startswith("# platform/machines/kustomization.yaml")]
    (folder / "kustomization.yaml").write_text(text)
    objects = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(built_from(folder))}
    cron = objects["CronJob", "slipway-machines"]["spec"]
    assert cron["suspend"] is False
    assert "registry.example.com/agents/slipway-cpu@sha256:1111" in str(cron)
    assert objects["ConfigMap", "slipway-settings"]["data"]["SLIPWAY_STORE"] == "s3://my-bucket/slipway"


def test_the_identity_that_the_administrators_page_adds_replaces_the_overlays(tmp_path: Path) -> None:
    (tmp_path / "k8s").symlink_to(ROOT / "k8s")
    (text,) = [text for _, text in SHOWN if text.startswith("# a patch in platform/kustomization.yaml")]
    kustomization = {"resources": ["../k8s/overlays/gke"], "patches": [yaml.safe_load(text)]}
    (tmp_path / "platform").mkdir()
    (tmp_path / "platform/kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    built = built_from(tmp_path / "platform")
    assert "my-project" in built
    assert "PROJECT" not in built


def built_from(folder: Path) -> str:
    command = [kubectl(), "kustomize", "--load-restrictor", "LoadRestrictionsNone", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def test_the_tutorial_shows_what_the_example_holds() -> None:
    text = OWN.read_text(encoding="utf-8")
    (function,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert function in (ROOT / "examples/own/my_rewards.py").read_text(encoding="utf-8")
    (evaluation,) = [text for _, text in SHOWN if text.startswith("benchmark: press")]
    assert yaml.safe_load(evaluation) == yaml.safe_load((ROOT / "examples/own/evaluate.yaml").read_text())
    job = yaml.safe_load((ROOT / "examples/own/job.yaml").read_text())
    assert yaml.safe_load(evaluation) == job["config"]


def test_the_rewards_that_the_tutorial_names_can_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples/own")
    (text,) = [text for _, text in SHOWN if text.startswith("rewards:")]
    rewards = load([RewardSpec(**reward) for reward in yaml.safe_load(text)["rewards"]])
    assert [(reward.label, reward.weight) for reward in rewards] == [("inside_box", 1.0), ("short", 0.2)]
