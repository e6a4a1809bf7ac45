"""`-o json` of every verb: one document (or one a line where it follows), nothing else on standard output, and what
docs/reference/json.md says of it."""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from launcher.cli import VERBS, main
from launcher.cli.arguments import parser
from launcher.cli.json_page import DOCUMENTS, WITHOUT
from launcher.protocol.records import Beat, Result
from launcher.reasons import Reason
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from tests.support.fakerun import FakeAttempt, Pipeline, fake_job, login_pipeline, write_group, write_run

ROOT = Path(__file__).resolve().parents[3]
Capture = pytest.CaptureFixture[bytes]


def calls() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every verb, or every action of one that has some."""
    for verb, (module, _) in VERBS.items():
        made = parser(verb, module)
        actions = [one for one in made._actions if isinstance(one, argparse._SubParsersAction)]
        if not actions:
            yield verb, made
        for one in actions:
            for name, choice in one.choices.items():
                yield f"{verb} {name}", choice


@pytest.mark.parametrize(("call", "made"), [pytest.param(*one, id=one[0]) for one in calls()])
def test_every_verb_has_json_or_a_reason(call: str, made: argparse.ArgumentParser) -> None:
    """A new verb: an `-o json` with a type in cli/printing/promised.py and a case below, or a reason in WITHOUT."""
    choices = [one.choices for one in made._actions if "-o" in one.option_strings]
    has = bool(choices) and "json" in (choices[0] or ())
    assert has == (call in DOCUMENTS), f"{call}: -o json and DOCUMENTS disagree"
    assert has != (call in WITHOUT), f"{call}: neither -o json nor a reason why not, or both"
    if has:
        assert call in CASES, f"{call}: no case of it is run"


def test_the_lists_name_only_what_there_is() -> None:
    known = {call for call, _ in calls()}
    assert {re.sub(r" --.*", "", call) for call in DOCUMENTS} | set(WITHOUT) == known


class Scene:
    """A user's machine and a store with runs in every state."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.pipeline: Pipeline = login_pipeline(store, n=20)
        self.bad = write_run(
            store, fake_job("bad"), [FakeAttempt(reason=Reason.USER_ERROR, message="no", code=3)], outcome="failed"
        )
        beat = Beat(3, "running", step=5.0, total=10.0, running=60.0, usage={"cpus": 1.5, "memory": 2.0**30})
        logs = {"main-0": {0: b"one\ntwo\xff\n", 12: b"end"}}
        self.live = write_run(store, fake_job("live"), [FakeAttempt(ended=None, beat=beat, logs=logs)], outcome=None)
        self.waits = write_run(store, fake_job("waits", backend="kubernetes"), [], outcome=None)
        self.group = write_group(store, [self.bad, self.live])
        (folder / "job.yaml").write_text("name: job\ncommand: ['true']\nbackend: local\n")
        (folder / "code").mkdir()
        (folder / "code" / "main.py").write_text("print('hello')\n")
        (folder / "code.yaml").write_text("name: code\ncommand: ['true']\ncode: code\nbackend: local\n")
        (folder / "pod.yaml").write_text(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: b}]}\n"
        )
        (folder / "slipway.yaml").write_text(
            f"store: {store.url}\nlocal: {{state: {folder / 'state'}}}\nnotify: {{desk: {{command: ['true']}}}}\n"
        )


# call -> [(words, exit code)]; names in braces are the scene's
CASES: dict[str, list[tuple[str, int]]] = {
    "init": [("init new.yaml -o json", 0)],
    "validate": [("validate pod.yaml -o json", 2), ("validate ok -o json", 0)],
    "lint": [("lint pod.yaml -o json", 2), ("lint ok -o json", 0)],
    "push": [("push code.yaml -o json --dry-run", 0), ("push code.yaml -o json", 0), ("push job.yaml -o json", 0)],
    "submit": [("submit job.yaml -o json --dry-run", 0), ("submit job.yaml -o json", 0)],
    "submit --follow": [("submit job.yaml -o json --follow", 0)],
    "run": [("run -o json --name adhoc -- true", 0)],
    "status": [("status -o json", 0), ("status {bad} -o json", 0), ("status -l no=body -o json", 0)],
    "status --watch": [("status {group} --watch -o json", 1)],
    "status --paid": [("status --paid -o json", 0)],
    "groups": [("groups -o json", 0), ("groups --last 1 -o json", 0)],
    "top": [("top -o json", 0), ("top {bad} -o json", 0)],
    "queues": [("queues -o json", 0), ("queues local -o json", 0)],
    "wait": [("wait {sft} -o json", 0), ("wait {bad} {live} --timeout 0.1s -o json", 1)],
    "logs": [("logs {live} -o json", 0), ("logs {group} -o json", 0), ("logs {before} --follow -o json", 0)],
    "cancel": [("cancel {bad} -o json", 0), ("cancel -l no=body -o json", 0), ("cancel {live} -o json", 0)],
    "move": [("move {live} --to local -o json", 0)],
    "notify": [("notify -o json --dry-run", 0), ("notify -o json", 0), ("notify -o json", 0)],
    "reap": [("reap -o json --dry-run", 0)],
    "retry": [("retry {bad} -o json --dry-run", 0)],
    "retry --follow": [("retry {retried} -o json --follow", 1)],
    "rm": [("rm {bad} -o json", 0), ("rm {bad} -o json --yes", 0)],
    "gc": [("gc --older-than 1d -o json", 0)],
    "gather": [("gather {before} --to out -o json", 0), ("gather {sft} --to out -o json", 4)],
    "cost": [("cost -o json", 0), ("cost {bad} -o json", 0), ("cost -l no=body -o json", 0)],
    "cost --by": [("cost --by day -o json", 0), ("cost --by team -o json", 0)],
    "cost --storage": [("cost --storage -o json", 0)],
    "cost --job": [("cost --job job.yaml -o json", 0)],
    "results": [("results {pipeline} -o json", 0), ("results {bad} -o json", 0)],
    "compare": [("compare {before} {after} -o json", 0), ("compare {pipeline} -o json", 0)],
    "diff": [("diff {bad} {live} -o json", 1), ("diff {bad} {bad} -o json", 0), ("diff {bad} job.yaml -o json", 1)],
    "report": [("report {pipeline} -o json", 0)],
    "doctor": [("doctor -o json", 0)],
    "secrets list": [("secrets list -o json", 0)],
    "images list": [("images list -o json", 0)],
    "images scan": [("images scan a:1 -o json", 1)],
    "images check": [("images check -o json", 0)],
    "images verify": [("images verify a:1 -o json", 0)],
    "cluster status": [("cluster status -o json", 3)],
    "local status": [("local status -o json", 0)],
}


@pytest.fixture
def scene(tmp_path: Path, file_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "home" / name.lower()))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SLIPWAY_STORE", raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    made = Scene(file_store, folder)
    (folder / "ok").mkdir()
    yield made
    main(["local", "stop"])


def documents(out: bytes, call: str) -> list[Any]:
    """What was printed, each held to the type that the docs give."""
    printed = DOCUMENTS[call]
    texts = out.decode().splitlines() if printed.lines else [out.decode()]
    return [msgspec.convert(json.loads(text), type=printed.type, strict=True) for text in texts]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("call", CASES)
def test_what_is_printed_is_what_is_promised(
    scene: Scene, call: str, capfdbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {
        "bad": scene.bad, "live": scene.live, "group": scene.group, "pipeline": scene.pipeline.group,
        "sft": scene.pipeline.sft, "before": scene.pipeline.before, "after": scene.pipeline.after,
    }  # fmt: skip
    prepare(scene, call, names, monkeypatch)
    capfdbinary.readouterr()
    for words, code in CASES[call]:
        assert main(words.format(**names).split()) == code, (words, capfdbinary.readouterr())
        captured = capfdbinary.readouterr()
        found = documents(captured.out, call)
        assert found, f"{words}: nothing was printed"
        print(words, found[:1], file=sys.stderr)


def prepare(scene: Scene, call: str, names: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a case needs that a test's machine has not."""
    if call in ("validate", "lint"):
        (scene.folder / "ok" / "map.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
    if call == "status --watch":
        threading.Timer(1.0, lambda: end(scene)).start()
    if call == "retry --follow":
        (scene.folder / "fails.yaml").write_text("name: fails\ncommand: ['false']\nbackend: local\n")
        assert main(["submit", "fails.yaml", "--follow"]) == 1
        (names["retried"],) = [run for run in scene.store.folders("runs/") if run.startswith("fails-")]
    if call.startswith("images"):
        monkeypatch.chdir(ROOT)
    if call == "images scan":
        one = SimpleNamespace(severity="critical", id="CVE-1", package="p", version="1", fixed="")
        monkeypatch.setattr("launcher.images.scan.scanner", lambda: "trivy")
        monkeypatch.setattr("launcher.images.scan.scan", lambda *_: [one])
        monkeypatch.setattr("launcher.images.scan.failing", lambda found, limit: found)
        monkeypatch.setattr("launcher.images.engine.Engine", lambda: None)
    if call == "images verify":
        monkeypatch.setattr("launcher.images.verify.held", lambda *_: (True, "as the sources say"))
        monkeypatch.setattr("launcher.images.engine.Engine", lambda: None)
    if call == "images check":
        from launcher.images.checks import CatalogueFinding

        monkeypatch.setattr("launcher.images.checks.check", lambda root: [CatalogueFinding("tiny", False, "stale")])
    if call == "cluster status":
        from launcher.cluster.parts import ClusterPart

        monkeypatch.setattr(
            "launcher.cluster.parts.read_parts", lambda place: [ClusterPart("cluster", "absent", "none")]
        )
    if call == "secrets list":
        from launcher.userdata import secrets

        monkeypatch.setattr(secrets, "names", lambda file: {"TOKEN": "file"})


def end(scene: Scene) -> None:
    result = Result("succeeded", 1, Reason.SUCCEEDED, "", 0.0, nonce="late")
    scene.store.create(RunKeys(scene.live).result, msgspec.json.encode(result))


def test_lines_of_a_log_are_whole(scene: Scene, capfdbinary: Capture) -> None:
    assert main(["logs", scene.live, "-o", "json"]) == 0
    found = documents(capfdbinary.readouterr().out, "logs")
    assert [(one.line, one.missing) for one in found] == [("one", 0), ("two�", 0), ("", 3), ("end", 0)]
    assert {(one.run, one.name, one.member) for one in found} == {(scene.live, "live", "main-0")}


def test_following_tells_what_was_submitted_then_every_change(scene: Scene, capfdbinary: Capture) -> None:
    assert main(["submit", "job.yaml", "-o", "json", "--follow"]) == 0
    found = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [one["event"] for one in found[:2]] == ["submitted", "state"]
    assert (found[0]["state"], found[-1]["state"]) == ("submitted", "succeeded")


def test_errors_are_not_on_standard_output(scene: Scene, capfdbinary: Capture) -> None:
    calls: Sequence[Sequence[str]] = (["status", "nobody"], ["logs", "nobody"], ["diff", "nobody", "x"], ["wait", "x"])
    for words in calls:
        assert main([*words, "-o", "json"]) == 3
        captured = capfdbinary.readouterr()
        assert captured.out == b""
        assert b"no run, group or job" in captured.err
