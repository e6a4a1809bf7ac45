"""Makes docs/reference/formats.md: every file that one part writes and another reads. `make golden` writes the page.

Names and types of the fields come from the structures that read them, their meanings from formats_meanings.py; `page`
raises KeyError for a field without one. A test reads every example (formats_examples.py) by the program's own readers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from eval.benchmarks.agentnetbench.run import BenchAnswer
from eval.benchmarks.screenspot.run import SpotAnswer
from eval.episodes import Episode, Step
from eval.failures import RULES
from eval.records import TaskRecord
from eval.scores.summary import MetricRow
from eval.steps import StepAnswer
from tools.reference import formats_examples as examples
from tools.reference import formats_meanings as meanings
from tools.reference import formats_outputs as outputs
from tools.reference import formats_training as rl
from tools.reference.formats_recordings import RECORDINGS
from training.data.packed.store import Counts, DatasetManifest, Pack, Shard, schema
from training.data.pairs.store import Pair
from training.rl.records.entries import PieceEntry
from training.rl.records.record_writer import RecordWriter

INTRO: Final = """\
# File formats

Written by `make golden` from the structures that read the files; do not edit. A test reads every example on this page
with the program's own readers.

| data | written by | read by |
|---|---|---|
| [Recordings](#recordings) | other tools | `python -m training.data ingest` |
| [Episodes](#episodes) | `ingest`, `training.make_episodes`, `eval.run` | `pack`, `pairs`, trainers, `report` |
| [Packed data](#packed-data) | `python -m training.data pack` | the trainers |
| [Preference pairs](#preference-pairs) | `python -m training.data pairs` | `training.dpo`, `training.reward` |
| [Chats](#chats) | anybody | the trainers |
| [Results](#results) | `eval`, the trainers | `launcher results`, `compare` and `report` |
| [Records of reinforcement learning](#records-of-reinforcement-learning) | `training.rl` | the launcher |
| [AgentNetBench](#agentnetbench) | the benchmark's authors | `eval.agentnetbench` |
| [ScreenSpot](#screenspot) | the benchmarks' authors | `eval.screenspot` |
| [Files for people](#files-for-people) | evaluations, trainers, `ingest`, `card` | people |

JSON and JSONL files are UTF-8. A JSONL file has one JSON object per line. Unless a field says otherwise:

- Coordinates are fractions of the screen from 0 to 1, from the top left corner.
- A **box** is `[left, top, width, height]` in the same fractions.
- Durations are seconds. Times are seconds since 1970 in UTC.

The files that the launcher itself keeps of a run are in [the protocol](../explanation/protocol.md#the-records).
"""


def page() -> str:
    """The text of docs/reference/formats.md. Raises KeyError for a field without a meaning."""
    return "\n".join(_lines()).rstrip("\n") + "\n"


def _lines() -> Iterator[str]:
    yield INTRO
    yield from _recordings()
    yield """\
## Episodes

A folder of episodes holds one folder per episode. `episode.json` is written last: a folder without it is an episode
that was cut off, and every reader passes over it.

```text
episodes/login-7/
  000.png        the frame before action 0
  001.png        the frame before action 1
  002.png        the frame after the last action; may be absent
  steps.jsonl    a line per step
  episode.json   last
```

### episode.json
"""
    yield from _struct(Episode, meanings.EPISODE, ("schema_version", "steps"))
    yield from _example("episode.json", _indented(examples.EPISODE))
    yield "### steps.jsonl\n"
    yield from _struct(Step, meanings.STEP)
    yield from _example("steps.jsonl", _jsonl(examples.STEPS))
    yield from _packed()
    yield """\
## Preference pairs

```text
pairs/
  images/<sha256>.png   every picture once, named by the sha256 of what is seen: its size and RGB values
  pairs.jsonl           a line per pair
  report.json           last: what was kept and what was dropped, by reason
```

### pairs.jsonl
"""
    yield from _struct(Pair, meanings.PAIR)
    yield from _example("pairs.jsonl", _jsonl([examples.PAIR]))
    yield """\
## Chats

General data that a trainer mixes with episodes: rows of turns, and the pictures that they name. [Chats](chats.md) says
which forms of rows are read, and where they may lie.
"""
    yield from _example("chats.jsonl", _jsonl([examples.CHAT]))
    yield """\
## Results

The launcher reads two shapes only, whatever program wrote them: the metrics of a run (JSON lines in the file
`$SLIPWAY_METRICS`, see [the runtime](runtime.md)), and the output `results`.

```text
results/
  summary.json   a list: one object per metric
  tasks.jsonl    a line per task, for paired comparisons
  replaced.jsonl the lines of tasks that were judged and are run again: by a higher limit of steps, or as they changed
  episodes/      the episodes, in the format above; of evaluations in a closed loop
```

### summary.json

A list of these objects. `benchmark` and `metric` are required, all other fields may be absent.
"""
    yield from _struct(MetricRow, meanings.ROW)
    yield from _example("summary.json", _indented(examples.SUMMARY))
    yield "### tasks.jsonl\n"
    yield from _struct(TaskRecord, meanings.RECORD)
    yield from _example("tasks.jsonl", _jsonl([examples.RECORD]))
    yield """\
`failure` comes from the first of these rules that fits the records of the episode (`eval/failures.py`). A known
solution is what the environment's expert does; without one, the rules about it do not fit.
"""
    yield "| class | rule |\n|---|---|"
    yield from (f"| {rule.kind} | {rule.words} |" for rule in RULES)
    yield ""
    yield outputs.RESULTS_FILES
    yield from _struct(StepAnswer, outputs.STEP_ANSWER)
    yield from _example("results/responses.jsonl", _jsonl(outputs.STEP_ANSWERS))
    yield rl.ABOUT
    for kind in (PieceEntry, *RecordWriter.KINDS):
        name = str(kind.__struct_config__.tag)
        yield f"### `record`: {name}\n"
        placed = {field: meaning for field, meaning in rl.PLACE.items() if field in kind.__struct_fields__}
        yield from _struct(kind, placed | rl.MEANINGS[name])
    yield from _example("records/000001.jsonl", _jsonl(rl.EXAMPLE))
    yield """\
## AgentNetBench

A folder with one JSON file per trajectory and the screenshots in `images/` beside them.

### The trajectory
"""
    yield from _table(meanings.TRAJECTORY)
    yield "An act is `{type, params, metadata}`. Types may also be written with underscores or in lower case.\n"
    yield "| type | params |\n|---|---|"
    yield from (f"| {kinds} | {params} |" for kinds, params in meanings.ACTS)
    yield """
`metadata.bboxes[].rel_bbox` of an act with a position holds the boxes in which a point counts as right.
"""
    yield from _example("trajectory.json", _indented(examples.TRAJECTORY))
    yield """\
### responses.jsonl

The scorer appends the agent's answers to `results/responses.jsonl` as they come. A run that was cut off goes on from
there. `summary.json` and `tasks.jsonl` have the formats [above](#results), with a line of `tasks.jsonl` per step.
"""
    yield from _struct(BenchAnswer, meanings.ANSWER)
    answers = ({"task_id": "20240927", "step": 1, "response": "## Code:\npyautogui.click(x=0.25, y=0.5)"},)
    yield from _example("responses.jsonl", _jsonl(answers))
    yield outputs.SCREENSPOT
    yield from _example("screenspot_web.json", _indented(examples.SCREENSPOT))
    yield "An item of ScreenSpot-Pro:\n"
    yield from _example("vscode_macos.json", _indented(examples.SCREENSPOT_PRO))
    yield "### results/responses.jsonl of ScreenSpot\n"
    yield from _struct(SpotAnswer, meanings.SPOT_ANSWER)
    spots = ({"task_id": "web/0", "size": [1920, 1080], "response": "(0.42, 0.73)"},)
    yield from _example("screenspot/responses.jsonl", _jsonl(spots))
    yield outputs.OTHER_FILES
    yield from _files(outputs.OUTPUTS)
    yield outputs.ELSEWHERE
    yield from _files(outputs.OTHERS)


def _recordings() -> Iterator[str]:
    yield "## Recordings\n\nThe configuration's `format` names the importer; `recording` names the file or folder.\n"
    for recording in RECORDINGS:
        yield f"### {recording.title}\n\n{recording.about}\n"
        yield from _table(recording.fields)
        for name, text in recording.examples:
            yield from _example(name, text)


def _packed() -> Iterator[str]:
    yield """\
## Packed data

```text
dataset/
  train-00000.parquet   a row per episode, its steps a list column
  images-00000.tar      every image once, as <sha256>.png, .jpg or .webp; uncompressed, WebDataset reads it too
  images.parquet        where each image lies
  dataset.json          last: every file with its size and sha256
```

### dataset.json
"""
    yield from _struct(DatasetManifest, meanings.MANIFEST)
    yield "A shard:\n"
    yield from _struct(Shard, meanings.SHARD)
    yield "A pack, and the index:\n"
    yield from _struct(Pack, meanings.PACK)
    yield "The counts of a split:\n"
    yield from _struct(Counts, meanings.COUNTS)
    yield from _example("dataset.json", _indented(examples.MANIFEST))
    yield "### The rows\n\nColumns without a meaning here are fields of [episode.json](#episodejson).\n"
    yield "| column | type | meaning |\n|---|---|---|"
    for column in schema():
        about = meanings.COLUMNS.get(column.name) or "as in episode.json" * (column.name in meanings.EPISODE)
        yield f"| `{column.name}` | {_arrow(column.type)} | {about or _missing(column.name)} |"
    yield "\nA step of the list `steps`:\n\n| column | type | meaning |\n|---|---|---|"
    for column in schema().field("steps").type.value_type:
        about = meanings.STEP_COLUMNS.get(column.name) or "as in steps.jsonl" * (column.name in meanings.STEP)
        yield f"| `{column.name}` | {_arrow(column.type)} | {about or _missing(column.name)} |"
    yield "\n### images.parquet\n"
    yield from _table(meanings.IMAGE_COLUMNS, "column")


def _missing(name: str) -> str:
    raise KeyError(f"tools/reference/formats_meanings.py says nothing of `{name}`")


def _arrow(kind: Any) -> str:
    text = str(kind)
    if text.startswith("list"):
        return "list"
    return {"string": "text", "int64": "whole number", "double": "number", "bool": "true or false"}.get(text, "struct")


def _struct(kind: type[msgspec.Struct], meanings: Mapping[str, str], always: Sequence[str] = ()) -> Iterator[str]:
    """The table of a structure. `always`: fields that have a default in memory but are always in the file.

    Raises KeyError when its fields and the meanings do not match.
    """
    fields = msgspec.structs.fields(kind)
    if extra := set(meanings) - {field.name for field in fields}:
        raise KeyError(f"{kind.__name__} has no field {', '.join(sorted(extra))}")
    yield "| field | type | meaning |\n|---|---|---|"
    for field in fields:
        shown = _type(msgspec.inspect.type_info(field.type))
        if kind is Episode and field.name == "steps":
            shown = "whole number"
        need = "" if field.required or field.name in always else "; may be absent"
        meaning = meanings.get(field.name) or _missing(f"{kind.__name__}.{field.name}")
        yield f"| `{field.name}` | {shown} | {meaning}{need} |"
    yield ""


def _type(info: msgspec.inspect.Type) -> str:
    match info:
        case msgspec.inspect.UnionType(types):
            return " or ".join(_type(kind) for kind in types)
        case msgspec.inspect.LiteralType(values):
            return " or ".join(f"`{value}`" for value in values)
        case msgspec.inspect.ListType(item_type=item) | msgspec.inspect.VarTupleType(item_type=item):
            return f"list of {_type(item)}"
        case msgspec.inspect.TupleType(item_types=items):
            return f"[{', '.join(_type(item) for item in items)}]"
        case msgspec.inspect.DictType(value_type=value):
            return f"object with values: {_type(value)}"
        case msgspec.inspect.StructType() | msgspec.inspect.DataclassType() | msgspec.inspect.TypedDictType():
            return "object"
    names = {"StrType": "text", "IntType": "whole number", "FloatType": "number", "BoolType": "true or false"}
    return {**names, "NoneType": "null", "AnyType": "any", "CustomType": "object"}[type(info).__name__]


def _table(rows: Sequence[tuple[str, str, str]], heading: str = "field") -> Iterator[str]:
    yield f"| {heading} | type | meaning |\n|---|---|---|"
    yield from (f"| `{name}` | {kind} | {meaning} |" for name, kind, meaning in rows)
    yield ""


def _files(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    yield "| file | written by | what it holds |\n|---|---|---|"
    yield from (f"| `{name}` | {writer} | {content} |" for name, writer, content in rows)
    yield ""


def _example(name: str, text: str) -> Iterator[str]:
    language = {"jsonl": "json", "json": "json", "sql": "sql"}.get(name.rpartition(".")[2], "text")
    yield f"Example, `{name}`:\n\n```{language}\n{text.rstrip()}\n```\n"


def _indented(value: Any) -> str:
    """JSON with the innermost lists and objects on one line each."""
    text = json.dumps(value, indent=1)
    inner = re.compile(r"([\[{])\s+([^\[\]{}]*?)\s+([\]}])")
    return inner.sub(lambda match: match[1] + re.sub(r",\s+", ", ", match[2]) + match[3], text)


def _jsonl(rows: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(json.dumps(row) for row in rows)
