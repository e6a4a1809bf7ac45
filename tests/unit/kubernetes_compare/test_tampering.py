"""An object that was changed after rendering is never taken for the one that its jobs render to."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from launcher.backends.kubernetes.check.carried import inspect
from launcher.backends.kubernetes.check.differences import tolerated
from launcher.backends.kubernetes.names import OWNED_KINDS, RENDERER, RENDERER_VERSION, RUNS
from launcher.backends.kubernetes.render.manifests import objects, render
from launcher.cli import main
from launcher.cli.verbs.render import write
from launcher.spec.model import ResolvedJob
from tests.support.tampering import EXTRA_ENV, tamperings
from tests.unit.kubernetes.support import chain, job, needs


def shapes() -> dict[str, list[ResolvedJob]]:
    """A Job, one with a ConfigMap, a JobSet of ranks, an array, and a pipeline."""
    of_ranks = {"main": msgspec.structs.replace(needs(gpus=1, gpu="H100", shm=1 << 20), replicas=2, leader=True)}
    options = {"service_account": "trainer", "store_secret": "store", "namespace": "ml", "queue": "team"}
    return {
        "job": [job(config={"seed": 1}, options=options, secrets={"TOKEN": "tokens/hf"}, ports={"http": 8080})],
        "large": [job("large", config={"text": "x" * 100_000})],
        "ranks": [job("ranks", roles=of_ranks)],
        "many ranks": [of_many_ranks()],
        "array": [job("seeds", config={"seed": seed}, options={"array": True}) for seed in range(3)],
        "pipeline": chain("first", "second"),
    }


def of_many_ranks() -> ResolvedJob:
    """A thousand pods: together they would hold 40 MB of job.json."""
    role = msgspec.structs.replace(needs(gpus=1, gpu="H100"), replicas=1000, leader=True)
    return job("many", roles={"main": role}, config={"text": "x" * 40_000})


def inspected(documents: list[dict[str, Any]], *, served: bool = False) -> tuple[list[str], list[str]]:
    """The errors, and the warnings and notes."""
    maps = {each["metadata"].get("name"): each for each in documents if each["kind"] in OWNED_KINDS}
    faults = inspect(documents[-1], maps, served=served).faults
    return [f.message for f in faults if f.level == "error"], [f.message for f in faults if f.level != "error"]


def renamed(documents: list[dict[str, Any]], renderer: str | None) -> list[dict[str, Any]]:
    """The same, said to be written by another launcher; None: by this one, "": by nobody."""
    if renderer is not None:
        notes = documents[-1].get("metadata", {}).get("annotations", {})
        notes.pop(RENDERER, None)
        if renderer:
            notes[RENDERER] = renderer
    return documents


@pytest.mark.parametrize("renderer", [None, "0.0.9", ""], ids=["ours", "another", "nameless"])
@pytest.mark.parametrize("shape", shapes())
def test_every_change_is_refused_whatever_version_the_object_names(shape: str, renderer: str | None) -> None:
    (rendered,) = objects(shapes()[shape])
    passed = []
    for tampering in tamperings(rendered.documents):
        kind = tampering.documents[tampering.index].get("kind", "")
        errors, others = inspected(renamed(tampering.documents, renderer))
        if not errors and not (renderer is not None and others and tolerated(kind, tampering.route)):
            passed.append(tampering.change)
    assert passed == []


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize("shape", shapes())
def test_what_was_rendered_is_accepted(shape: str, served: bool) -> None:
    (rendered,) = objects(shapes()[shape])
    assert inspected(list(rendered.documents), served=served) == ([], [])


@pytest.mark.parametrize("renderer", ["0.1.0", "0.0.9", "99.0.0"])
@pytest.mark.parametrize("change", ["variable", "digest", "account", "init container", "command"])
def test_lint_strict_refuses_a_job_that_was_tampered_with(
    change: str, renderer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    ((name, text),) = render([job(config={"seed": 1})]).documents.items()
    value = yaml.safe_load(text)
    value["metadata"]["annotations"][RENDERER] = renderer
    pod = value["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    match change:
        case "variable":
            container["env"].append(EXTRA_ENV)
        case "digest":
            container["image"] = container["image"].partition("@")[0] + "@sha256:" + "f" * 64
        case "account":
            pod["serviceAccountName"] = "admin"
        case "init container":
            pod["initContainers"] = [{**container, "name": "before"}]
        case "command":
            container["command"] = ["python", "-c", "print(0.99)"]
    Path("jobs").mkdir()
    Path("jobs", name).write_text(yaml.safe_dump(value, sort_keys=False))
    assert main(["lint", "jobs", "--strict"]) == 2
    assert main(["lint", "jobs"]) == 2  # an error also without it
    assert "edited after rendering" in capsys.readouterr().out


def test_an_unknown_renderer_is_an_error_only_with_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    ((name, text),) = render([job()]).documents.items()
    Path("jobs").mkdir()
    Path("jobs", name).write_text(
        text.replace(f'{RENDERER}: "{RENDERER_VERSION}"', f'{RENDERER}: "0.0.9"').replace(
            f"{RENDERER}: {RENDERER_VERSION}", f'{RENDERER}: "0.0.9"'
        )
    )
    assert main(["lint", "jobs"]) == 0
    assert main(["lint", "jobs", "--strict"]) == 2
    assert "rendered by launcher 0.0.9, which this one does not know; known: 0.1.0" in capsys.readouterr().out


def test_what_an_older_launcher_repeated_in_each_pod_is_still_the_same_run() -> None:
    """Untouched it is taken, beside the ConfigMap of today; a changed one is not."""
    group = [of_many_ranks()]
    (older,), (today,) = objects(group, repeated=True), objects(group)
    assert [each["kind"] for each in older.documents] == ["JobSet"]
    assert [each["kind"] for each in today.documents] == ["ConfigMap", "JobSet"]
    assert older.runs == today.runs
    assert older.name == today.name
    assert inspected(list(older.documents)) == ([], [])
    assert inspected(list(today.documents)) == ([], [])
    assert inspected(list(today.documents)[1:])[0] != []  # without its ConfigMap
    changed = copy.deepcopy(list(older.documents))
    pod = changed[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["env"].append({"name": "SCORE", "value": "0.99"})
    assert inspected(changed)[0] != []


OF_28_NOVEMBER = sorted((Path(__file__).parent / "of_28_november").glob("*.yaml"))  # rendered at 6594be4e


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize("file", OF_28_NOVEMBER, ids=lambda file: file.stem)
def test_what_launchers_of_28_november_rendered_is_known(file: Path, served: bool) -> None:
    documents = list(yaml.safe_load_all(file.read_text()))
    assert inspected(documents, served=served) == ([], [])


def test_every_change_of_an_object_of_28_november_is_refused() -> None:
    (file,) = (each for each in OF_28_NOVEMBER if each.stem.startswith("sft-qwen3vl-8b"))
    passed = [
        each.change
        for each in tamperings(list(yaml.safe_load_all(file.read_text())))
        if not inspected(each.documents)[0] and not tolerated(each.documents[each.index].get("kind", ""), each.route)
    ]
    assert passed == []


@pytest.mark.parametrize(("renderer", "number"), [("0.1.0", 12), ("0.1.0", 95), (RENDERER_VERSION, 96), ("0.0.9", 96)])
def test_only_the_number_of_threads_that_its_launcher_gave_is_taken(renderer: str, number: int) -> None:
    (file,) = (each for each in OF_28_NOVEMBER if each.stem.startswith("sft-qwen3vl-8b"))
    documents = list(yaml.safe_load_all(file.read_text()))
    (container,) = documents[-1]["spec"]["template"]["spec"]["containers"]
    (variable,) = (each for each in container["env"] if each["name"] == "OMP_NUM_THREADS")
    assert variable["value"] == "96"
    variable["value"] = str(number)
    errors, _ = inspected(renamed(documents, renderer))
    told = [error.partition("edited after rendering: ")[2] for error in errors]
    # launchers of before gave a pod with a service account its token
    token = [] if renderer == "0.1.0" else ["is missing; its job gives `false`"]
    assert [text.partition(",")[0] for text in told[:1]] == [f"`{number}`"]
    assert told[1:] == token


@pytest.mark.parametrize("file", OF_28_NOVEMBER, ids=lambda file: file.stem)
def test_lint_strict_and_render_leave_the_files_of_28_november_alone(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    Path("jobs").mkdir()
    Path("jobs", file.name).write_bytes(file.read_bytes())
    documents = list(yaml.safe_load_all(file.read_text()))
    runs = json.loads(documents[-1]["metadata"]["annotations"][RUNS])
    main(["lint", "jobs", "--strict"])
    assert "rendere" not in capsys.readouterr().out
    write(Path("jobs"), {file.name: "another text"}, {file.name: list(runs)})
    assert Path("jobs", file.name).read_bytes() == file.read_bytes()
