"""A training's records: what the writer writes is what the launcher reads, whatever crashed in between."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from launcher.results import training_records as reading
from launcher.results.read import DamagedResults, open_output
from launcher.spec.model import Output
from launcher.store.file import FileStore
from tests.support.fakerun import FakeAttempt, fake_job, write_run
from training.rl.records.entries import (
    ActionEntry,
    Entry,
    GroupEntry,
    ObservationEntry,
    RolloutEntry,
    StatusEntry,
    StepEntry,
    TrainingEntry,
    TurnEntry,
    ValidationEntry,
)
from training.rl.records.record_writer import SCHEMA_VERSION, RecordWriter

PLACE: dict[str, Any] = {"phase": "train", "step": 3, "group": 1, "rollout": 2}
EVERY_KIND: list[Entry] = [
    TrainingEntry(name="login", method="grpo", model="tiny", config={"group_size": 4}, time=1.0),
    StatusEntry(status="started", step=0, time=1.5),
    GroupEntry(phase="train", step=3, group=1, task_id="login-1", seed=1, instruction="Log in.", dropped="all failed"),
    ObservationEntry(**PLACE, turn=0, screenshot="000.png", tree="000.tree.json", size=(640, 480)),
    TurnEntry(
        **PLACE, turn=0, response="Action: CLICK", tokens=3, advantage=0.5, token_ids=[1, 2], logprobs=[-0.5, 0.0]
    ),
    ActionEntry(**PLACE, turn=0, number=0, action={"type": "click", "x": 0.5, "y": 0.5}, refused="no"),
    ValidationEntry(**PLACE, by="environment", score=1.0, success=True, detail={"screen": "welcome"}),
    RolloutEntry(**PLACE, outcome="scored", total=1.0, success=True, turns=1, tokens=3, errors={"parse": 1}, time=2.0),
    StepEntry(phase="train", step=3, metrics={"reward": 0.25}, time=3.0),
]


def lines(folder: Path) -> list[reading.RlRecord]:
    return reading.read_folder(folder)


def plain(value: msgspec.Struct) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(value)
    built.pop("record", None)
    return built


def test_every_kind_is_read_as_it_was_written(tmp_path: Path) -> None:
    with RecordWriter(tmp_path) as writer:
        writer.write(*EVERY_KIND)
    assert {type(entry) for entry in EVERY_KIND} == set(RecordWriter.KINDS)
    assert [plain(line) for line in lines(tmp_path)] == [plain(entry) for entry in EVERY_KIND]
    assert [line.KIND for line in lines(tmp_path)] == [msgspec.to_builtins(entry)["record"] for entry in EVERY_KIND]


def test_writer_and_reader_have_the_same_fields_of_the_same_types() -> None:
    for kind in RecordWriter.KINDS:
        tag = kind.__struct_config__.tag
        read = reading.LINES[str(tag)]
        written = {field.name: shape(field.type) for field in msgspec.structs.fields(kind)}
        assert {field.name: shape(field.type) for field in msgspec.structs.fields(read)} == written, tag
        # an older piece may lack any field
        assert msgspec.json.decode(b"{}", type=read)
    assert len(reading.LINES) == len(RecordWriter.KINDS)


def shape(kind: Any) -> Any:
    """A type, with Literal["a", "b"] taken for a text."""
    info = msgspec.inspect.type_info(kind)
    return msgspec.inspect.StrType() if isinstance(info, msgspec.inspect.LiteralType) else info


def test_pieces_grow_in_number_and_are_never_changed(tmp_path: Path) -> None:
    with RecordWriter(tmp_path, piece=200) as writer:
        for step in range(20):
            writer.write(StepEntry(phase="train", step=step, metrics={}, time=0.0))
            if step == 9:
                closed = {path: path.read_bytes() for path in sorted(writer.folder.iterdir())[:-1]}
    assert len(closed) > 1
    assert all(path.read_bytes() == body for path, body in closed.items())
    names = sorted(path.name for path in writer.folder.iterdir())
    assert names == [f"{number:06d}.jsonl" for number in range(1, len(names) + 1)]
    heads = [json.loads(path.read_bytes().splitlines()[0]) for path in sorted(writer.folder.iterdir())]
    assert [head["piece"] for head in heads] == list(range(1, len(names) + 1))
    assert {head["schema_version"] for head in heads} == {SCHEMA_VERSION}
    steps = [line.step for line in lines(tmp_path) if isinstance(line, reading.RlStep)]
    assert steps == list(range(20))


def test_a_torn_last_line_is_passed_over_and_the_next_writer_begins_another_piece(tmp_path: Path) -> None:
    """Cut at every byte of the last line."""
    with RecordWriter(tmp_path) as writer:
        writer.write(*EVERY_KIND)
    (piece,) = writer.folder.iterdir()
    whole = piece.read_bytes()
    last = len(whole.splitlines(keepends=True)[-1])
    for cut in range(1, last + 1):
        piece.write_bytes(whole[: len(whole) - cut])
        assert len(lines(tmp_path)) == len(EVERY_KIND) - 1, cut
    with RecordWriter(tmp_path) as writer:
        writer.write(StatusEntry(status="resumed", step=3, time=4.0))
    assert piece.read_bytes() == whole[: len(whole) - last]
    assert [path.name for path in sorted(writer.folder.iterdir())] == ["000001.jsonl", "000002.jsonl"]
    assert len(lines(tmp_path)) == len(EVERY_KIND)


def test_a_resume_throws_away_what_was_said_of_later_steps(tmp_path: Path) -> None:
    def step(number: int, reward: float) -> StepEntry:
        return StepEntry(phase="train", step=number, metrics={"reward": reward}, time=0.0)

    with RecordWriter(tmp_path) as writer:
        writer.write(EVERY_KIND[0], *(step(number, 0.0) for number in (1, 2, 3, 4)))
        writer.write(StatusEntry(status="resumed", step=2, time=5.0), step(3, 1.0), step(4, 1.0))
        writer.write(StatusEntry(status="resumed", step=3, time=6.0), step(4, 2.0))
    found = lines(tmp_path)
    assert [(line.step, line.metrics["reward"]) for line in found if isinstance(line, reading.RlStep)] == [
        (1, 0.0),
        (2, 0.0),
        (3, 1.0),
        (4, 2.0),
    ]
    assert isinstance(found[0], reading.RlTraining)
    assert [line.status for line in found if isinstance(line, reading.RlStatus)] == ["resumed", "resumed"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda body: body.replace(b'"step":3', b'"step":"3"', 1), r"000001\.jsonl:4: Expected `int`"),
        (lambda body: body.replace(b"{", b"", 1), r"000001\.jsonl:1: "),
        (lambda body: body.replace(b'"1.2.0"', b'"2.1.0"', 1), r":1: schema 2\.1\.0 is newer than this program"),
        (lambda body: body.replace(b'"piece":1', b'"piece":7', 1), r":1: the first line is not that of piece 1"),
        (lambda body: body.partition(b"\n")[2], r":1: the first line is not that of piece 1"),
        (lambda body: body.replace(b"Log in.", b"\xff"), r":4: "),
    ],
)
def test_damage_names_its_line(tmp_path: Path, change: Any, said: str) -> None:
    with RecordWriter(tmp_path) as writer:
        writer.write(*EVERY_KIND)
    (piece,) = writer.folder.iterdir()
    piece.write_bytes(change(piece.read_bytes()))
    with pytest.raises(DamagedResults, match=said):
        lines(tmp_path)


def test_a_missing_piece_is_damage(tmp_path: Path) -> None:
    with RecordWriter(tmp_path, piece=1) as writer:
        writer.write(EVERY_KIND[0])
        writer.write(EVERY_KIND[1])
        writer.write(EVERY_KIND[2])
    (writer.folder / "000002.jsonl").unlink()
    with pytest.raises(DamagedResults, match=r"000003\.jsonl: piece 2 is missing"):
        lines(tmp_path)


def test_what_a_newer_writer_adds_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "000001.jsonl").write_text(
        '{"record":"piece","schema_version":"1.7.0","piece":1,"by":"x"}\n'
        '{"record":"dream","deep":true}\n'
        '{"record":"step","phase":"train","step":1,"metrics":{},"time":1.0,"colour":"red"}\n'
    )
    (tmp_path / "records" / "notes.txt").write_text("not a piece")
    (line,) = lines(tmp_path)
    assert isinstance(line, reading.RlStep)
    assert lines(tmp_path / "nothing here") == []


def test_what_no_json_can_hold_is_written_all_the_same(tmp_path: Path) -> None:
    """Half of a surrogate pair in an answer, numbers that are none, a number of another library, line ends."""

    class Scalar:
        def item(self) -> float:
            return 2.5

    odd = "a\ud800\n\u2028\x85b"
    with RecordWriter(tmp_path) as writer:
        writer.write(TurnEntry(**PLACE, turn=0, response=odd, advantage=math.nan, logprobs=[-math.inf, -1.0]))
        writer.write(ValidationEntry(**PLACE, by="own:check", score=1.0, success=True, detail={odd: Scalar()}))
        writer.write(StepEntry(phase="eval", step=0, metrics={"kl": math.inf}, time=0.0))
    turn, validation, step = lines(tmp_path)
    assert isinstance(turn, reading.RlTurn)
    assert (turn.response, turn.advantage, turn.logprobs) == ("a?\n\u2028\x85b", None, [None, -1.0])
    assert isinstance(validation, reading.RlValidation)
    assert list(validation.detail.values()) == [2.5]
    assert isinstance(step, reading.RlStep)
    assert step.metrics == {"kl": None}


def test_records_in_a_store_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with RecordWriter(folder, piece=300) as writer:
        writer.write(*EVERY_KIND[:4])
        writer.write(*EVERY_KIND[4:])
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.glob("records/*")}
    assert len(files) > 1
    store = FileStore(tmp_path / "store", sync=False)
    job = fake_job("rl", outputs={"results": Output()})
    run = write_run(store, job, [FakeAttempt(outputs={"results": files | {"summary.json": b"[]"}})])
    output = open_output(store, run, 1)
    assert output is not None
    assert reading.read_output(output) == lines(folder)
    assert len(lines(folder)) == len(EVERY_KIND)
