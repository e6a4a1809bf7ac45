"""Objects that were changed before they were applied, ran to their end and wrote a result: no submit takes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.store.layout import RunKeys
from tests.cluster.laptop import Laptop
from tests.support.tampering import EXTRA_ENV

pytestmark = [pytest.mark.cluster("jobset"), pytest.mark.timeout(300)]
SCORING = '(out / "score").write_text(E.get("SCORE", "0.50"))'


def rendered(laptop: Laptop, job: Mapping[str, Any]) -> dict[str, Any]:
    folder = laptop.path / "rendered"
    laptop.launcher("render", laptop.write(job), "--to", folder)
    (path,) = folder.iterdir()
    value: dict[str, Any] = yaml.safe_load(path.read_text())
    return value


def ended_with_a_changed_object(laptop: Laptop, job: Mapping[str, Any]) -> str:
    """The run's id. Its Job has one variable more, ran to its end, and wrote a result that says `succeeded`."""
    laptop.cluster.jobset()
    value = rendered(laptop, job)
    value["spec"]["template"]["spec"]["containers"][0]["env"].append(EXTRA_ENV)
    laptop.cluster.apply(value, laptop.namespace)
    run = str(value["metadata"]["name"])
    assert laptop.result(run).outcome == "succeeded"
    laptop.ended_job(run)
    return run


def test_the_result_of_a_changed_object_is_not_taken_by_a_submit_of_the_same_job(laptop: Laptop) -> None:
    job = laptop.job("score", SCORING)
    run = ended_with_a_changed_object(laptop, job)
    text = laptop.launcher("submit", laptop.write(job), code=5)
    assert f"Job {run} in namespace {laptop.namespace} does not run what its job says" in text
    assert "`SCORE`" in text
    # the same work under another name: neither its own result nor the other's
    other = {**job, "limits": {**job["limits"], "deadline": "11m"}}
    text = laptop.launcher("submit", laptop.write(other), code=5)
    name = rendered_name(laptop, other)
    assert laptop.store.head(RunKeys(name).result) is None
    assert laptop.cluster.get("job", name, laptop.namespace) is None
    # what the message says: first the outputs, then the object; then the job computes its own
    assert "`SCORE`" in text
    assert f"launcher cancel {name}" in text
    laptop.launcher("cancel", name)
    laptop.launcher("rm", run, "--yes")
    laptop.cluster.kubectl("delete", "job", run, "-n", laptop.namespace)
    text = laptop.launcher("submit", laptop.write(job))
    assert "deleted" in text
    submitted = laptop.launcher("submit", laptop.write(job), "--fresh", "1", "-o", "json")
    fresh = str(json.loads(submitted[: submitted.rindex("]") + 1])[0]["run"])
    assert laptop.result(fresh).outcome == "succeeded"
    assert laptop.result(fresh).adopted is None


def rendered_name(laptop: Laptop, job: Mapping[str, Any]) -> str:
    for path in (laptop.path / "rendered").iterdir():
        path.unlink()
    return str(rendered(laptop, job)["metadata"]["name"])


def test_an_untouched_object_that_ended_gives_its_result_with_and_without_its_cluster(
    laptop: Laptop, tmp_path: Path
) -> None:
    job = laptop.job("score", SCORING)
    (run,) = laptop.submit(job)
    assert laptop.result(run).outcome == "succeeded"
    laptop.ended_job(run)
    assert "succeeded" in laptop.launcher("submit", laptop.write(job))
    whole = laptop.environment["KUBECONFIG"]
    away = yaml.safe_load(Path(whole).read_text())
    for each in away["clusters"]:
        each["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "away").write_text(yaml.safe_dump(away))
    laptop.environment["KUBECONFIG"] = str(tmp_path / "away")
    text = laptop.launcher("submit", laptop.write(job))
    assert "succeeded" in text
    assert text.count("is not compared with its job") == 1
    laptop.environment["KUBECONFIG"] = whole
    laptop.cluster.kubectl("delete", "job", run, "-n", laptop.namespace)
    text = laptop.launcher("submit", laptop.write(job))
    assert "succeeded" in text
    assert "compared" not in text
