"""The pages of the two clouds, as far as they come without an account: the profile and the first job, copied as they
stand into an empty folder, are rendered, priced and not refused for their price."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from launcher import api
from launcher.cli import main
from launcher.spec.prices.missing import missing_prices
from launcher.verbs.estimate import check_price, estimates
from tests.support.documented import ROOT


@pytest.mark.parametrize("page", ["lambda", "azure"])
def test_the_first_job_of_the_page_is_taken_with_the_profile_of_the_page(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / f"docs/howto/{page}.md").read_text(encoding="utf-8")
    profile = re.search(r"^```yaml\n(store: .*?)^```", text, re.DOTALL | re.MULTILINE)
    job = re.search(r"^## A job\n+```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert profile is not None
    assert job is not None
    (tmp_path / "slipway.yaml").write_text(profile[1])
    (tmp_path / "job.yaml").write_text(job[1])
    monkeypatch.chdir(tmp_path)
    for name in ("SLIPWAY_STORE", "SLIPWAY_BACKEND", "SLIPWAY_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    assert main(["render", "job.yaml"]) == 0
    assert "sft-login" in capsys.readouterr().out
    jobs = api.load("job.yaml")
    check_price(jobs.group, jobs.profile.prices, None, without_price=False)
    (one,) = estimates(jobs.group.runs, jobs.names, jobs.profile.prices)
    assert one.worst is not None
    assert not [each for run in jobs.group.runs for each in missing_prices(run, jobs.profile.prices)]


def test_the_other_jobs_of_azures_page_are_taken_with_its_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The profile says where jobs run usually, a cluster. Serverless compute and a pool take its place."""
    text = (ROOT / "docs/howto/azure.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (profile,) = (each for each in blocks if each.startswith("store: az://"))
    (first,) = (each for each in blocks if each.startswith("name: sft-login"))
    (serverless,) = (each for each in blocks if each.startswith("azureml: {instance_type:"))
    (pool,) = (each for each in blocks if each.startswith("name: waa"))
    (price,) = re.findall(r"`prices: \{(azureml/Standard_D8_v3: .*?)\}`", text)
    assert "compute: gpu" in profile
    (tmp_path / "slipway.yaml").write_text(profile.replace("prices: {", f"prices: {{{price}, "))
    (tmp_path / "serverless.yaml").write_text(first + serverless)
    (tmp_path / "pool.yaml").write_text(pool)
    monkeypatch.chdir(tmp_path)
    for name in ("SLIPWAY_STORE", "SLIPWAY_BACKEND", "SLIPWAY_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    assert main(["render", "serverless.yaml"]) == 0
    shown = capsys.readouterr().out
    assert "instance_type: Standard_NC40ads_H100_v5" in shown
    assert "azureml:gpu" not in shown
    assert main(["render", "pool.yaml"]) == 0
    assert "size: Standard_D8_v3" in capsys.readouterr().out
    assert main(["render", "pool.yaml", "--set", "azureml.compute=gpu"]) == 2
    assert "one of compute, instance_type and pool" in capsys.readouterr().err
