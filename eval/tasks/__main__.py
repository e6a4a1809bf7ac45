"""`python -m eval.tasks import FORMAT SOURCE OUT` writes tasks of another format as task files of the environment
`osworld`. `python -m eval.tasks count OUT` says how many of them can run and be scored here, and why not the others;
`python -m eval.osworld can-run OUT` says it of each task.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from eval.benchmarks.errors import BenchError
from eval.benchmarks.osworld.machine import JUDGE, Machine
from eval.tasks import cua_gym, gym_anything, osworld_2
from eval.tasks.counting import as_json, as_table, count
from eval.tasks.writing import SUMMARY, ImportedTask, write

EXIT_BAD: Final = 2


class ImportFormat(msgspec.Struct, frozen=True):
    """source: the name that results have; places: of the tasks in a file or folder; task: reads one."""

    source: str
    places: Callable[[Path], Iterable[Path]]
    task: Callable[[Path], ImportedTask]
    words: str


FORMATS: Final = {
    "cua-gym": ImportFormat(
        cua_gym.SOURCE, cua_gym.places, cua_gym.task, "CUA-Gym: ID/task.json of its data set, or a bundle ID/meta.json"
    ),
    "gym-anything": ImportFormat(
        gym_anything.SOURCE,
        gym_anything.places,
        gym_anything.task,
        "Gym-Anything: an environment (env.json, tasks/ID/task.json), or a folder of environments",
    ),
    "osworld-2": ImportFormat(
        osworld_2.SOURCE, osworld_2.places, osworld_2.task, "OSWorld 2.0: task_NNN.py; read, listed, and not run"
    ),
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m eval.tasks", description="Tasks of other formats.")
    verbs = made.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("import", help="writes them as task files of the environment osworld")
    formats = verb.add_subparsers(dest="format", required=True)
    for name, form in FORMATS.items():
        one = formats.add_parser(name, help=form.words, description=f"{form.words}.")
        one.add_argument("source", type=Path, help="the file or folder")
        one.add_argument("out", type=Path, help="a new folder, or an empty one")
        one.add_argument("--revision", help="of the tasks, as their page has it; results tell it")
        one.add_argument("--skip-bad", action="store_true", help="leaves out what cannot be read, and says why")
    verb = verbs.add_parser(
        "count", help="how many of imported tasks can run and be scored here, and why not the others"
    )
    verb.add_argument("folders", type=Path, nargs="+", metavar="OUT", help="what `import` wrote")
    verb.add_argument("--internet", action="store_true", help="downloads can be reached")
    verb.add_argument("--network", action="store_true", help="desktops use this machine's network, for web sites")
    verb.add_argument("--judge", type=Path, default=Path(JUDGE), help=f"the Python that judges: {JUDGE}")
    verb.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return made


def import_tasks(form: ImportFormat, source: Path, out: Path, *, revision: str | None, skip: bool) -> dict[str, Any]:
    """Writes all tasks, and what `import.json` says. Raises BenchError for a bad bundle, unless it is to be skipped:
    then nothing of it is written."""
    source = source.resolve()
    if not source.exists():
        raise BenchError(f"{source}: no such file or folder")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BenchError(f"{out}: is there already; allowed: a new folder, or an empty one")
    left_out: dict[str, str] = {}
    good: dict[str, Path] = {}
    for place in form.places(source):  # all are read before the first is written
        try:
            task = form.task(place)
            task.check(place.name)
            if task.folder in good:
                raise BenchError(f"{place.name}: id: {task.folder} is also that of {good[task.folder].name}")
            good[task.folder] = place
        except BenchError as error:
            if not skip:
                raise
            left_out[str(place.relative_to(source) if place.is_relative_to(source) else place)] = str(error)
    if not good:
        first = next((why for why in left_out.values()), "nothing of this format lies there")
        raise BenchError(f"{source}: no task: {first}")
    digest = hashlib.sha256()
    for path in sorted(write(form.task(place), form.source, out) for place in good.values()):
        digest.update(path.read_bytes())
    told = {
        "name": form.source,
        "revision": revision or digest.hexdigest()[:12],
        "tasks": len(good),
        "left_out": left_out,
    }
    (out / SUMMARY).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return told


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 0, or 2 for a bad bundle or folder and for wrong arguments."""
    arguments = parser().parse_args(argv)
    try:
        if arguments.verb == "count":
            machine = Machine(arguments.internet, judge=arguments.judge, sites=arguments.network)
            rows = [count(folder, machine) for folder in arguments.folders]
            print(as_json(rows) if arguments.output == "json" else as_table(rows))
            return 0
        told = import_tasks(
            FORMATS[arguments.format],
            arguments.source,
            arguments.out,
            revision=arguments.revision,
            skip=arguments.skip_bad,
        )
    except BenchError as error:
        print(f"eval.tasks: {error}", file=sys.stderr)
        return EXIT_BAD
    except OSError as error:
        print(f"eval.tasks: {error.filename or arguments.out}: {error.strerror}", file=sys.stderr)
        return EXIT_BAD
    for name, why in told["left_out"].items():
        print(f"left out: {name}: {why}")
    print(f"{told['tasks']} tasks of {told['name']}, {len(told['left_out'])} left out: {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
