"""How many tasks of imported sets can be read, can run here, and can be scored here, and why the others cannot."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from eval.benchmarks.errors import BenchError
from eval.benchmarks.osworld.machine import Machine
from eval.benchmarks.osworld.needs import TaskNeed
from eval.benchmarks.osworld.tasks import load
from eval.tasks.writing import SUMMARY, read_object

# kinds of needs -> how the table says them, with the name where it tells something
WORDS: Final = {
    "live": "the check looks at what runs on the agent's desktop ({name})",
    "model": "a model judges, or plays the user",
    "harness": "{name}",
    "rights": "rights of root",
    "package": "Python package {name}",
    "site": "web sites",
    "proxy": "web sites",
    "account": "an account",
    "download": "downloads",
    "setup": "a step of the set-up that nobody knows ({name})",
}


class CountedTasks(msgspec.Struct, frozen=True):
    """One imported set.

    tasks     in the source
    loadable  that could be read
    runnable  whose set-up has here all that it needs
    scorable  whose check has so, too
    lacking   why not -> how many tasks; a task may lack several things
    """

    name: str
    revision: str
    tasks: int
    loadable: int
    runnable: int
    scorable: int
    lacking: dict[str, int]


def count(folder: Path, machine: Machine) -> CountedTasks:
    """Raises BenchError for a folder that `import` did not write."""
    told = read_object(folder / SUMMARY, f"{folder.name}/{SUMMARY}")
    left_out = told.get("left_out")
    if not isinstance(left_out, dict):
        raise BenchError(f"{folder.name}/{SUMMARY}: left_out: {left_out!r}; allowed: an object")
    found = load(folder, strict=True).tasks
    lacks = [machine.lacks(task) for task in found]
    why = Counter(reason for each in lacks for reason in {_words(need) for need in each})
    why.update({"it cannot be read": len(left_out)} if left_out else {})
    return CountedTasks(
        str(told.get("name")),
        str(told.get("revision")),
        len(found) + len(left_out),
        len(found),
        sum(all(need.judges for need in each) for each in lacks),
        sum(not each for each in lacks),
        dict(why.most_common()),
    )


def _words(need: TaskNeed) -> str:
    return WORDS.get(need.kind, "{kind} {name}").format(kind=need.kind, name=need.name)


def as_table(rows: Sequence[CountedTasks]) -> str:
    """For people, and for pages."""
    lines = ["| set | tasks | loadable | runnable here | scorable here | why not |", "|---|---|---|---|---|---|"]
    for row in rows:
        why = "; ".join(f"{reason}: {number}" for reason, number in row.lacking.items()) or "-"
        figures = f"{row.tasks} | {row.loadable} | {row.runnable} | {row.scorable}"
        lines.append(f"| {row.name}, revision {row.revision} | {figures} | {why} |")
    return "\n".join(lines)


def as_json(rows: Sequence[CountedTasks]) -> str:
    """For programs."""
    return json.dumps(msgspec.to_builtins(rows), indent=1)
