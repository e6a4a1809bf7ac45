"""launcher gather, between real stores."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from launcher.cli import main
from launcher.errors import BadInput
from launcher.protocol.records import Complete
from launcher.reasons import Reason
from launcher.spec.hashing import decode_job, work_hash
from launcher.spec.model import Output
from launcher.store.base import Store
from launcher.store.layout import RunKeys, group, work_run
from launcher.store.opening import open_store
from launcher.verbs.gather import Gathered, gather
from tests.support.fakerun import FakeAttempt, fake_job, write_group, write_output, write_run
from tests.support.faultproxy import FaultProxy, Kind
from tests.support.s3 import S3Server
from tests.support.trees import write_tree

BIG = random.Random(5).randbytes(9 << 20)


@dataclass(frozen=True)
class Runs:
    store: Store
    trained: str  # two attempts, checkpoints, results of the second
    going: str  # still running, with live results of its first attempt
    group: str

    def again(self, store: Store) -> Runs:
        return Runs(store, self.trained, self.going, self.group)


def write_checkpoint(store: Store, run: str, attempt: int, step: int, tmp: Path, files: dict[str, bytes]) -> None:
    keys = RunKeys(run).attempt(attempt)
    members = ("main-0", "main-1")
    for member in members:
        root = tmp / f"{attempt}-{step}-{member}"
        root.mkdir()
        for name, body in files.items():
            (root / name.replace("RANK", member)).write_bytes(body)
        write_tree(store, keys.checkpoint_files(step, member), keys.checkpoint_manifest(step, member), root)
    record = Complete(step=step, name=f"checkpoint-{step}", members=members, nonce="c")
    store.create(keys.checkpoint_complete(step), msgspec.json.encode(record))


def fill(store: Store, tmp: Path) -> Runs:
    tmp.mkdir()
    outputs = {"results": Output(sync="live"), "model": Output(), "checkpoints": Output(kind="checkpoints")}
    job = fake_job("train", outputs=outputs, replicas=2)
    logs = {"main-0": {0: b"first line\n", 11: b"second line\n"}, "main-1": {0: b"rank one\n"}}
    trained = write_run(
        store,
        job,
        [
            FakeAttempt(reason=Reason.LOST, code=None, logs=logs, outputs={"results": {"summary.json": b"[1]"}}),
            FakeAttempt(
                logs={"main-0": {0: b"again\n"}},
                metrics=[("loss", 1.0, 0.5)],
                outputs={"results": {"summary.json": b"[2]", "episodes/ü 1/000.png": b"png"}, "model": {"w.bin": BIG}},
            ),
        ],
    )
    write_checkpoint(store, trained, 1, 10, tmp, {"w.bin": b"ten", "RANK.rng": b"r"})
    write_checkpoint(store, trained, 2, 10, tmp, {"w.bin": b"ten again", "RANK.rng": b"r"})
    write_checkpoint(store, trained, 2, 20, tmp, {"w.bin": b"twenty", "RANK.rng": b"r"})
    store.put(RunKeys(trained).attempt(2).checkpoint_files(30, "main-0") + "torn", b"half")
    store.create(work_run(work_hash(job), trained), b"{}")
    running = FakeAttempt(ended=None, logs={"main-0": {0: b"go\n", 9: b"on\n"}}, outputs={"results": {"a": b"live"}})
    going = write_run(store, fake_job("going", outputs=outputs), [running], outcome=None)
    return Runs(store, trained, going, write_group(store, [trained, going]))


@pytest.fixture
def runs(file_store: Store, tmp_path: Path) -> Runs:
    return fill(file_store, tmp_path / "from")


@pytest.fixture
def s3_runs(s3_store: Store, tmp_path: Path) -> Runs:
    return fill(s3_store, tmp_path / "from")


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def sent(done: Sequence[Gathered]) -> int:
    assert [item.error for item in done] == [None] * len(done)
    return sum(item.sent_files for item in done)


@pytest.mark.parametrize("kind", ["runs", "s3_runs"])
def test_into_a_folder(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    runs: Runs = request.getfixturevalue(kind)
    to = tmp_path / "to"
    first, second = gather(runs.store, [runs.trained, runs.going], str(to))
    assert (first.attempt, first.outcome, first.error, first.notes) == (2, "succeeded", None, ())
    assert (second.attempt, second.outcome, second.error) == (1, "running", None)
    got = {name.removeprefix(f"{runs.trained}/"): body for name, body in tree(to).items() if runs.trained in name}
    keys = RunKeys(runs.trained)
    assert got.pop("job.json") == runs.store.get(keys.job)
    assert got.pop("result.json") == runs.store.get(keys.result)
    assert len(json.loads(got.pop("gathered.json"))["files"]) == first.files
    assert got == {
        "outputs/results/summary.json": b"[2]",
        "outputs/results/episodes/ü 1/000.png": b"png",
        "outputs/model/w.bin": BIG,
        "checkpoints/10/w.bin": b"ten again",
        "checkpoints/10/main-0.rng": b"r",
        "checkpoints/10/main-1.rng": b"r",
        "checkpoints/20/w.bin": b"twenty",
        "checkpoints/20/main-0.rng": b"r",
        "checkpoints/20/main-1.rng": b"r",
        "logs/1/main-0.log": b"first line\nsecond line\n",
        "logs/1/main-1.log": b"rank one\n",
        "logs/2/main-0.log": b"again\n",
        "metrics/2/main-0.jsonl": runs.store.get(keys.attempt(2).metrics_piece("main-0", 0)),
    }
    gap = (to / runs.going / "logs/1/main-0.log").read_bytes()
    assert gap == b"go\n\n[slipway: 6 bytes are missing here]\non\n"
    assert not (to / ".tmp").exists()


def test_programs_stay_programs_and_empty_folders_stay(s3_store: Store, tmp_path: Path) -> None:
    """Of an output and of a checkpoint with two ranks; also through a second store."""
    root = tmp_path / "tool"
    (root / "cache/empty").mkdir(parents=True)
    (root / "run.sh").write_text("#!/bin/sh\necho it runs\n")
    (root / "run.sh").chmod(0o750)
    job = fake_job("train", outputs={"tool": Output(), "checkpoints": Output(kind="checkpoints")}, replicas=2)
    run = write_run(s3_store, job, [FakeAttempt()])
    keys = RunKeys(run).attempt(1)
    write_tree(s3_store, keys.output("tool"), keys.output_manifest("tool"), root)
    for member in ("main-0", "main-1"):
        write_tree(s3_store, keys.checkpoint_files(5, member), keys.checkpoint_manifest(5, member), root)
    record = Complete(step=5, name="checkpoint-5", members=("main-0", "main-1"), nonce="c")
    s3_store.create(keys.checkpoint_complete(5), msgspec.json.encode(record))
    [copy] = gather(s3_store, [run], f"file://{tmp_path}/copy")
    assert copy.error is None
    for number, store in enumerate((s3_store, open_store(f"file://{tmp_path}/copy"))):
        [done] = gather(store, [run], str(tmp_path / f"to-{number}"))
        assert done.error is None
        for folder in ("outputs/tool", "checkpoints/5"):
            place = tmp_path / f"to-{number}" / run / folder
            said = subprocess.run([place / "run.sh"], check=True, capture_output=True, text=True).stdout
            assert (said, (place / "cache/empty").is_dir()) == ("it runs\n", True)


@pytest.mark.parametrize("kind", ["runs", "s3_runs"])
def test_into_a_store_where_they_are_runs_again(
    kind: str, request: pytest.FixtureRequest, s3_server: S3Server, tmp_path: Path
) -> None:
    runs: Runs = request.getfixturevalue(kind)
    request.getfixturevalue("s3_url")  # its credentials
    to = s3_server.url() if kind == "runs" else (tmp_path / "copy").as_uri()
    done = gather(runs.store, [runs.trained, runs.going], to, groups=[runs.group])
    assert sent(done) > 20
    copy = open_store(to)
    for run in (runs.trained, runs.going):
        mine = {m.key: runs.store.get(m.key) for m in runs.store.scan(RunKeys(run).prefix)}
        theirs = {m.key: copy.get(m.key) for m in copy.scan(RunKeys(run).prefix)}
        left_out = set(mine) - set(theirs)
        assert theirs.items() <= mine.items()
        keys = RunKeys(runs.trained)
        if run == runs.trained:
            # the first attempt's results and its checkpoint of the same step, and a torn one
            assert {key.rpartition("/")[0] for key in left_out} == {
                f"{keys.attempt(1).prefix}outputs",
                f"{keys.attempt(1).prefix}outputs/results",
                f"{keys.attempt(1).checkpoints}10",
                f"{keys.attempt(1).checkpoints}10/manifest",
                f"{keys.attempt(1).checkpoints}10/files/main-0",
                f"{keys.attempt(1).checkpoints}10/files/main-1",
                f"{keys.attempt(2).checkpoints}30/files/main-0",
            }
        else:
            assert left_out == set()
    assert copy.get(group(runs.group)) == runs.store.get(group(runs.group))
    assert copy.get(work_run(work_hash(decode_job(copy.get(RunKeys(runs.trained).job))), runs.trained)) == b"{}"
    assert sent(gather(copy, [runs.trained, runs.going], str(tmp_path / "folder"))) > 10


@pytest.mark.two_bodies
@pytest.mark.parametrize("where", ["folder", "file", "s3"])
def test_a_second_call_sends_what_is_new(
    runs: Runs, where: str, s3_server: S3Server, s3_url: str, tmp_path: Path
) -> None:
    to = {"folder": str(tmp_path / "to"), "file": (tmp_path / "to").as_uri(), "s3": s3_url}[where]
    names = [runs.trained, runs.going]
    assert sent(gather(runs.store, names, to)) > 0
    assert sent(gather(runs.store, names, to)) == 0
    keys = RunKeys(runs.going).attempt(1)
    runs.store.put(keys.log_piece("main-0", 12), b"and on\n")
    runs.store.delete([keys.output_manifest("results")])
    write_output(runs.store, keys, "results", {"a": b"LIVE", "b": b"new"})
    assert sent(gather(runs.store, names, to)) == (3 if where == "folder" else 4)  # a, b, the log; there the manifest
    assert sent(gather(runs.store, names, to)) == 0


def test_what_was_changed_or_deleted_in_the_copy_is_sent_again(runs: Runs, tmp_path: Path) -> None:
    to = tmp_path / "to"
    gather(runs.store, [runs.trained], str(to))
    before = tree(to)
    (to / runs.trained / "outputs/model/w.bin").write_bytes(b"x" * len(BIG))
    (to / runs.trained / "checkpoints/20/w.bin").unlink()
    assert sent(gather(runs.store, [runs.trained], str(to))) == 2
    after = tree(to)
    ignored = f"{runs.trained}/gathered.json"
    assert {k: v for k, v in after.items() if k != ignored} == {k: v for k, v in before.items() if k != ignored}


def test_only_what_is_asked_for(runs: Runs, tmp_path: Path) -> None:
    gather(runs.store, [runs.trained], str(tmp_path / "to"), what=["logs"])
    names = {name.split("/")[1] for name in tree(tmp_path / "to")}
    assert names == {"job.json", "result.json", "gathered.json", "logs"}
    gather(runs.store, [runs.trained], str(tmp_path / "outputs"), what=["outputs"])
    gather(runs.store, [runs.trained], str(tmp_path / "both"), what=["results", "checkpoints"])
    both = tree(tmp_path / "both")
    assert {name.split("/")[1] for name in both} >= {"outputs", "checkpoints"}
    assert set(tree(tmp_path / "outputs")) == set(both)
    with pytest.raises(
        BadInput, match="--what models: unknown; allowed: outputs, results, checkpoints, logs, metrics, all"
    ):
        gather(runs.store, [runs.trained], str(tmp_path / "to"), what=["models"])


@pytest.fixture
def proxied(s3_server: S3Server, s3_url: str, s3_runs: Runs) -> Iterator[tuple[FaultProxy, Runs]]:
    with FaultProxy(s3_server.port, seed=11) as proxy:
        yield proxy, s3_runs.again(open_store(s3_url.replace(s3_server.endpoint, proxy.endpoint), deadline=10))


def test_through_a_storm_from_store_to_store(
    proxied: tuple[FaultProxy, Runs], s3_server: S3Server, tmp_path: Path
) -> None:
    proxy, runs = proxied
    to = s3_server.url(endpoint=proxy.endpoint)
    proxy.plan(Kind.WRONG_BYTES, method="GET", key="w.bin", times=2)
    with proxy.storm(0.1):
        done = gather(runs.store, [runs.trained, runs.going], to)
    assert sent(done) > 20
    folder = tmp_path / "to"
    gather(open_store(to), [runs.trained], str(folder))
    assert (folder / runs.trained / "outputs/model/w.bin").read_bytes() == BIG


def test_wrong_bytes_never_reach_the_copy_and_the_rest_does(proxied: tuple[FaultProxy, Runs], tmp_path: Path) -> None:
    proxy, runs = proxied
    proxy.plan(Kind.WRONG_BYTES, method="GET", key="outputs/model/w.bin", times=1000)
    to = tmp_path / "to"
    done = gather(runs.store, [runs.trained, runs.going], str(to))
    assert "w.bin" in str(done[0].error)
    assert done[1].error is None
    assert not (to / runs.trained / "outputs/model/w.bin").exists()
    assert not (to / runs.trained / "result.json").exists()  # what is last says that all is there
    proxy._planned.clear()
    before = done[0].sent_files
    (again,) = gather(runs.store, [runs.trained], str(to))
    assert again.error is None
    assert again.sent_files + before == again.files
    assert (to / runs.trained / "outputs/model/w.bin").read_bytes() == BIG


def test_a_checkpoint_that_is_rotated_away_meanwhile(runs: Runs, tmp_path: Path) -> None:
    class Rotating:
        """Deletes the older checkpoint when its first file is asked for."""

        def __init__(self, store: Store) -> None:
            self._store = store

        def __getattr__(self, name: str) -> object:
            return getattr(self._store, name)

        def stream(self, key: str) -> object:
            prefix = f"{RunKeys(runs.trained).attempt(2).checkpoints}10/"
            if key.startswith(prefix):
                self._store.delete([meta.key for meta in self._store.scan(prefix)])
            return self._store.stream(key)

    (done,) = gather(Rotating(runs.store), [runs.trained], str(tmp_path / "to"))  # type: ignore[arg-type]
    assert done.error is None
    got = tree(tmp_path / "to")
    assert got[f"{runs.trained}/checkpoints/20/w.bin"] == b"twenty"
    assert got[f"{runs.trained}/checkpoints/10/w.bin"] == b"ten"  # the first attempt's is still there


def test_the_command(runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "to"
    base = ["gather", runs.group, "--store", runs.store.url, "--to", str(to)]
    assert main(base) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["RUN", "ATTEMPT", "OUTCOME", "FILES", "SIZE", "SENT", "NOTES"]
    assert out[1].split()[:3] == [runs.trained, "2", "succeeded"]
    assert main([*base, "-o", "json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert [record["run"] for record in records] == [runs.trained, runs.going]
    assert [record["sent_files"] for record in records] == [0, 0]
    assert main(["gather", "nothing", "--store", runs.store.url, "--to", str(to)]) == 3
    assert main(["gather", runs.trained, "--store", runs.store.url, "--to", runs.store.url]) == 2
    (tmp_path / "file").write_bytes(b"")
    assert main(["gather", runs.trained, "--store", runs.store.url, "--to", str(tmp_path / "file")]) == 2
    assert main([*base, "--what", "x"]) == 2
    capsys.readouterr()


@pytest.mark.two_bodies
def test_the_command_says_what_is_damaged(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs.store.put(RunKeys(runs.trained).attempt(2).output("model") + "w.bin", os.urandom(9 << 20))
    assert main(["gather", runs.trained, "--store", runs.store.url, "--to", "to"]) == 4
    captured = capsys.readouterr()
    assert "w.bin" in captured.err
    assert "run the same command again" in captured.err
    assert not Path("to", runs.trained, "outputs/model/w.bin").exists()


def test_a_marker_that_came_late_after_its_checkpoint_was_deleted(runs: Runs, tmp_path: Path) -> None:
    """A put that is executed after the deletion makes a marker without files; it is no checkpoint, and no damage."""
    keys = RunKeys(runs.trained).attempt(2)
    body = runs.store.get(keys.checkpoint_complete(10))
    runs.store.delete([meta.key for meta in runs.store.scan(f"{keys.checkpoints}10/")])
    runs.store.create(keys.checkpoint_complete(10), body)
    (done,) = gather(runs.store, [runs.trained], str(tmp_path / "to"))
    assert done.error is None
    assert "checkpoint 10 of attempt 2 is deleted" in done.notes
    got = tree(tmp_path / "to")
    assert got[f"{runs.trained}/checkpoints/20/w.bin"] == b"twenty"
    # the first attempt's of that step was never deleted
    assert got[f"{runs.trained}/checkpoints/10/w.bin"] == b"ten"


def test_a_run_that_was_executed_there_too_is_not_overwritten(runs: Runs, tmp_path: Path) -> None:
    """The same job, submitted to two stores: the attempts have the same keys and are not the same."""
    to = open_store((tmp_path / "copy").as_uri())
    claim = RunKeys(runs.trained).attempt(1).claim("main-0")
    to.create(claim, b"another runtime's")
    (done,) = gather(runs.store, [runs.trained], to.url)
    assert "the run was executed there, too; copy it to another store" in str(done.error)
    assert done.sent_files == 0
    assert [meta.key for meta in to.scan("")] == [claim]
