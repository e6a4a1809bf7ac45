"""docs/reference/formats.md: its tables have the fields of the structures, and the program's own readers read every
example of the page."""

from __future__ import annotations

import ast
import json
import re
import sqlite3
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from PIL import Image

from eval.actions import Action, ActionType
from eval.agentnetbench import BenchAnswer
from eval.audit.verdicts import AuditedTask, AuditReport, FamilyVerdict
from eval.benchmarks.agentnetbench.data import load
from eval.benchmarks.screenspot.data import load as load_questions
from eval.episodes import Episode, Step, iter_episodes, jsonl, read_episode
from eval.records.failures import RULES
from eval.rollout.loop import TaskRecord
from eval.scores.judge_errors import JudgedPlayer, JudgedTemplate, JudgeErrors
from eval.scores.summary import MetricRow
from eval.screenspot import SpotAnswer
from eval.steps import StepAnswer
from eval.verify import Verification, VerifiedTask
from launcher.results import training_records
from launcher.results.read import Metric, TaskResult
from tests.support.documented import ROOT
from training.data.__main__ import main as data
from training.data.chat import ChatSamples
from training.data.faults import Faults
from training.data.packed.store import Counts, DatasetManifest, Pack, Shard, read_manifest, schema
from training.data.pairs.store import Pair, read_pairs
from training.rl.records.entries import PieceEntry
from training.rl.records.record_writer import RecordWriter

PAGE = (ROOT / "docs/reference/formats.md").read_text(encoding="utf-8")
SIZE = (320, 200)
FILE: Final = re.compile(
    r"(?:.*/)?([\w.-]+\.(?:json|jsonl|md|html|csv|txt|png|svg|parquet|tar|sqlite|db|log|yaml|safetensors|bin|pt))"
)
# the files that these name lie in the home of a desktop, and are gone with it
HOMES: Final = (
    *(
        ROOT / "eval/benchmarks" / name
        for name in ("linux_desktop/templates", "linux_chain", "linux_safety", "gtk_forms", "gtk_login")
    ),
    ROOT / "eval/desktops/judging/end_states.py",
    ROOT / "eval/audit/moves.py",
    ROOT / "eval/judge_errors/measuring.py",
)
# names in the source that are no file which we leave for anybody
FOREIGN: Final = {
    **dict.fromkeys(
        (
            *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.json"),
            *("preprocessor_config.json", "processor_config.json", "adapter_config.json", "model.safetensors"),
            *("model.safetensors.index.json", "adapter_model.safetensors"),
        ),
        "the layout of transformers and peft",
    ),
    **dict.fromkeys(
        ("history_empty.sqlite", "history_new.sqlite"), "of Windows Agent Arena's clone, of OSWorld's cache"
    ),
    **dict.fromkeys(("initial.png", "step_0.png", "runtime.log"), "beside OSWorld's results"),
    **dict.fromkeys((".images.sqlite", ".candidates.jsonl"), "scratch, deleted at the end"),
    **dict.fromkeys(("note.txt", "DONE.txt"), "in the home of a real desktop, gone with it"),
    **dict.fromkeys(
        ("env.json", "meta.json", "task.json", "validated_pi.json", "vlm_checklist.json"), "in tasks that are imported"
    ),
    **dict.fromkeys(
        ("calls.json", "docker-compose.yaml", "instruction.md", "serve.json"), "in a folder of Harbor's format"
    ),
    "x11_characters.txt": "a table of our own package",
    "top_level.txt": "in the metadata of a Python package",
    "install.md": "a page of docs/, which a message names",
    "ID.json": "a task in OSWorld's format, which others write",
    "code.tar": "the code of a job, inside the store",
    "progress.jsonl": "the runtime's own, deleted with its folder",
    "metrics.jsonl": "the runtime's own, deleted with its folder; $SLIPWAY_METRICS names it",
}

# the line above a table -> the structure whose fields it lists
TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "### episode.json": Episode,
    "### steps.jsonl": Step,
    "### dataset.json": DatasetManifest,
    "A shard:": Shard,
    "A pack, and the index:": Pack,
    "The counts of a split:": Counts,
    "### pairs.jsonl": Pair,
    "### summary.json": MetricRow,
    "### tasks.jsonl": TaskRecord,
    "### Answers to recorded steps": StepAnswer,
    "### audit.json": AuditReport,
    "A family of players:": FamilyVerdict,
    "A task of a family:": AuditedTask,
    "### verified.json": Verification,
    "The verdict on a record:": VerifiedTask,
    "### judge.json": JudgeErrors,
    "The states that a player left:": JudgedPlayer,
    "The rates of a template:": JudgedTemplate,
    "### responses.jsonl": BenchAnswer,
    "### results/responses.jsonl of ScreenSpot": SpotAnswer,
    **{f"### `record`: {kind.__struct_config__.tag}": kind for kind in (PieceEntry, *RecordWriter.KINDS)},
}
# fields that have a default in memory, and are always in the file
ALWAYS: Final = ("Episode.schema_version", "Episode.steps")


def table(above: str, heading: str = "field") -> list[list[str]]:
    """The rows of the first table below a line, each without the marks of code in its first cell."""
    text = PAGE.partition(f"\n{above}\n")[2].partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    found = [line.strip("| ").split(" | ") for line in text.split("\n")[2:]]
    assert found, above
    return [[name.strip("`"), *cells] for name, *cells in found]


def type_words(info: msgspec.inspect.Type) -> str:
    match info:
        case msgspec.inspect.UnionType(types):
            return " or ".join(map(type_words, types))
        case msgspec.inspect.LiteralType(values):
            return " or ".join(f"`{value}`" for value in values)
        case msgspec.inspect.ListType(item_type=item) | msgspec.inspect.VarTupleType(item_type=item):
            return f"list of {type_words(item)}"
        case msgspec.inspect.TupleType(item_types=items):
            return f"[{', '.join(map(type_words, items))}]"
        case msgspec.inspect.DictType(value_type=value):
            return f"object with values: {type_words(value)}"
    names = {"StrType": "text", "IntType": "whole number", "FloatType": "number", "BoolType": "true or false"}
    return {**names, "NoneType": "null", "AnyType": "any"}.get(type(info).__name__, "object")


@pytest.mark.parametrize("above", TABLES)
def test_a_table_has_the_fields_of_its_structure(above: str) -> None:
    kind = TABLES[above]
    expected = []
    for field in msgspec.structs.fields(kind):
        words = type_words(msgspec.inspect.type_info(field.type))
        words = "whole number" if (kind, field.name) == (Episode, "steps") else words  # the file has their number
        required = field.required or f"{kind.__name__}.{field.name}" in ALWAYS
        expected.append((field.name, words, not required))
    assert [(name, words, meaning.endswith("; may be absent")) for name, words, meaning in table(above)] == expected


def test_the_tables_have_the_columns_of_packed_data_and_the_classes_of_failures() -> None:
    packed = schema()
    steps = packed.field("steps").type.value_type
    assert [name for name, *_ in table("### The rows", "column")] == packed.names
    assert [name for name, *_ in table("A step of the list `steps`:", "column")] == [each.name for each in steps]
    above = next(line for line in PAGE.split("\n") if line.startswith("solution is what the environment's expert"))
    assert [tuple(row) for row in table(above, "class")] == [(rule.kind, rule.words) for rule in RULES]


def example(name: str) -> str:
    """The text of an example, as a reader of the page copies it."""
    blocks = re.findall(rf"^Example, `{re.escape(name)}`:\n\n```\w+\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, name
    return str(blocks[0]) + "\n"


def picture(path: Path, shade: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", SIZE, (shade, shade, shade)).save(path)


def episode(folder: Path) -> Path:
    for name in ("episode.json", "steps.jsonl"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(example(name))
    for index in range(3):
        picture(folder / f"00{index}.png", 40 * index)
    return folder


def ingested(tmp_path: Path, **config: Any) -> Episode:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert data(["ingest", "--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "out")]) == 0
    ((_, result),) = iter_episodes(tmp_path / "out")
    return result


def test_the_episode_is_read_and_written_as_it_stands(tmp_path: Path) -> None:
    read = read_episode(episode(tmp_path / "login-7"))
    assert msgspec.json.decode(msgspec.json.encode(read.to_json())) == json.loads(example("episode.json"))
    assert json.dumps([step.to_json() for step in read.steps]) == json.dumps(
        [json.loads(line) for line in example("steps.jsonl").splitlines()]
    )


def test_the_episode_is_packed_into_files_as_the_page_describes_them(tmp_path: Path) -> None:
    episode(tmp_path / "episodes" / "login-7")
    (tmp_path / "config.json").write_text(json.dumps({"episodes": [str(tmp_path / "episodes")]}))
    assert data(["pack", "--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "packed")]) == 0
    packed = msgspec.to_builtins(read_manifest(tmp_path / "packed"))
    shown = json.loads(example("dataset.json"))
    assert msgspec.convert(shown, DatasetManifest)
    assert list(packed) == list(shown)
    for part in ("shards", "packs"):
        assert list(packed[part][0]) == list(shown[part][0])
    import pyarrow.parquet as parquet

    index = parquet.read_schema(tmp_path / "packed" / "images.parquet")
    assert index.names == [name for name, *_ in table("### images.parquet", "column")]


def test_the_pair_is_read(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(example("pairs.jsonl"))
    (tmp_path / "report.json").write_text("{}")
    picture(tmp_path / "images" / "screen.png")
    (pair,) = read_pairs(tmp_path)
    assert (pair.task_id, pair.source) == ("login", "synthetic")


def test_the_chat_is_read(tmp_path: Path) -> None:
    (tmp_path / "chats.jsonl").write_text(example("chats.jsonl"))
    picture(tmp_path / "pictures" / "button.png")
    (sample,) = ChatSamples(tmp_path, Faults())
    assert len(sample.images) == 1


def test_the_records_of_a_training_are_read_by_the_launcher_and_hold_every_kind(tmp_path: Path) -> None:
    (tmp_path / "records").mkdir()
    (tmp_path / "records/000001.jsonl").write_text(example("records/000001.jsonl"))
    lines = training_records.read_folder(tmp_path)
    assert {line.KIND for line in lines} == set(training_records.LINES)
    turn = next(line for line in lines if isinstance(line, training_records.RlTurn))
    assert (turn.phase, turn.step, turn.token_ids) == ("train", 1, [41, 2])
    for entry in (json.loads(line) for line in example("records/000001.jsonl").splitlines()[1:]):
        (kind,) = (kind for kind in RecordWriter.KINDS if kind.__struct_config__.tag == entry["record"])
        written = json.loads(msgspec.json.encode(msgspec.convert(entry, kind)))
        assert {name: written[name] for name in entry} == entry


def test_the_results_are_read_by_the_evaluation_and_by_the_launcher(tmp_path: Path) -> None:
    summary, tasks = example("summary.json"), example("tasks.jsonl")
    (row,) = msgspec.json.decode(summary, type=list[MetricRow])
    (metric,) = msgspec.json.decode(summary, type=list[Metric])
    assert (row.metric, row.value) == (metric.metric, metric.value) == ("success", 0.9)
    (tmp_path / "tasks.jsonl").write_text(tasks)
    (record,) = jsonl.read(tmp_path / "tasks.jsonl", TaskRecord)
    task = msgspec.json.decode(tasks, type=TaskResult)
    assert (record.task_id, record.seed, record.score) == (task.task_id, task.seed, task.score) == ("login", 1000, 1.0)


def test_the_trajectory_of_agentnetbench_is_read(tmp_path: Path) -> None:
    (tmp_path / "trajectory.json").write_text(example("trajectory.json"))
    (trajectory,) = load(tmp_path)
    assert [step.number for step in trajectory.steps] == [1, 2, 3]
    assert [len(step.options) for step in trajectory.steps] == [2, 1, 1]
    assert trajectory.steps[0].options[0][0].boxes == ((0.2, 0.4, 0.1, 0.2),)
    (tmp_path / "responses.jsonl").write_text(example("responses.jsonl"))
    assert [answer.step for answer in jsonl.read(tmp_path / "responses.jsonl", BenchAnswer)] == [1]


def test_the_items_of_screenspot_are_read(tmp_path: Path) -> None:
    for name, folder, edition in (("screenspot_web.json", "one", "v1"), ("vscode_macos.json", "pro", "pro")):
        place = tmp_path / folder
        (place / "annotations").mkdir(parents=True)
        (place / "images").mkdir()
        names = [f"screenspot_{p}.json" for p in ("mobile", "desktop", "web")] if edition == "v1" else [name]
        for each in names:
            (place / "annotations" / each).write_text(example(name))
        assert load_questions(place).edition == edition
    (tmp_path / "responses.jsonl").write_text(example("screenspot/responses.jsonl"))
    assert [answer.size for answer in jsonl.read(tmp_path / "responses.jsonl", SpotAnswer)] == [(1920, 1080)]


def test_the_recording_of_agentnet_becomes_an_episode(tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    for index in range(2):
        picture(recording / "images" / f"{index}.png", 40 * index)
    (recording / "agentnet.jsonl").write_text(example("agentnet.jsonl"))
    result = ingested(tmp_path, format="agentnet", recording=str(recording))
    assert [step.action for step in result.steps] == [
        Action(ActionType.CLICK, x=0.25, y=0.5),
        Action(ActionType.DONE),
    ]
    assert (result.instruction, result.success) == ("Search for bob.", True)


def test_the_recording_of_osworld_becomes_an_episode(tmp_path: Path) -> None:
    folder = tmp_path / "recording/pyautogui/screenshot/gpt/chrome/one"
    for index, name in enumerate(("initial_state.png", "step_1.png", "step_2.png")):
        picture(folder / name, 40 * index)
    (folder / "traj.jsonl").write_text(example("traj.jsonl"))
    (folder / "result.txt").write_text("1.0\n")
    (tmp_path / "tasks/chrome").mkdir(parents=True)
    (tmp_path / "tasks/chrome/one.json").write_text(json.dumps({"instruction": "Click the field."}))
    paths = {"recording": str(tmp_path / "recording"), "tasks": str(tmp_path / "tasks")}
    result = ingested(tmp_path, format="osworld", **paths)
    assert [step.action.type for step in result.steps if step.action] == ["click", "done"]
    assert (result.instruction, result.score) == ("Click the field.", 1.0)


def test_the_recording_of_openadapt_becomes_an_episode(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    folder.mkdir()
    connection = sqlite3.connect(folder / "recording.db")
    connection.executescript(example("recording.sql"))
    for seconds in (0, 2):
        image = BytesIO()
        Image.new("RGB", SIZE, (100 * seconds,) * 3).save(image, format="PNG")
        values = (1, 1_700_000_000.5 + seconds, image.getvalue())
        connection.execute("INSERT INTO screenshot (recording_id, timestamp, png_data) VALUES (?, ?, ?)", values)
    connection.commit()
    connection.close()
    result = ingested(tmp_path, format="openadapt", recording=str(folder))
    assert [step.action for step in result.steps] == [Action(ActionType.CLICK, x=80.5 / 320, y=50.5 / 200)]
    assert (result.instruction, result.success) == ("Click the button.", None)


def test_the_answers_to_recorded_steps_are_read(tmp_path: Path) -> None:
    (tmp_path / "responses.jsonl").write_text(example("results/responses.jsonl"))
    (answer,) = jsonl.read(tmp_path / "responses.jsonl", StepAnswer)
    assert answer.action is not None
    assert Action.from_json(answer.action).type is ActionType.CLICK
    assert list(json.loads(example("results/responses.jsonl"))) == list(StepAnswer.__struct_fields__)


def test_the_report_of_an_audit_reads_as_it_stands() -> None:
    (read,) = msgspec.json.decode(example("audit.json"), type=AuditReport, strict=True).families
    assert (read.verdict, read.tasks[0].bound) == ("sound", 0.7935)
    assert msgspec.to_builtins(read) == json.loads(example("audit.json"))["families"][0]


def test_the_errors_of_a_judge_read_as_they_stand() -> None:
    read = msgspec.json.decode(example("judge.json"), type=JudgeErrors, strict=True)
    assert (read.players[0].said_solved, read.templates[0].specificity) == (4, read.specificity)
    assert msgspec.to_builtins(read) == json.loads(example("judge.json"))


def named_files(path: Path) -> Iterator[str]:
    """The file names among a module's strings, docstrings left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            match = FILE.fullmatch(node.value)
            if match:
                yield match[1]


def test_every_file_that_a_run_leaves_stands_on_a_page() -> None:
    """A file of an output that no page names can be read by nobody but its author."""
    parts = [ROOT / part for part in ("eval", "training", "launcher/runtime")]
    sources = [path for part in parts for path in part.rglob("*.py") if not any(map(path.is_relative_to, HOMES))]
    named = {name for path in sources for name in named_files(path)}
    assert {"responses.jsonl", "dataset.json", "collapse.json"} <= named  # the search itself works
    pages = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs/reference").glob("*.md")))
    shown = set(re.findall(r"[\w.-]+\.\w+", pages.replace("`", " ")))
    assert sorted(named - shown - set(FOREIGN)) == []
    assert sorted(set(FOREIGN) - named) == []
