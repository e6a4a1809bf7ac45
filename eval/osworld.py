"""`python -m eval.osworld can-run FOLDER` says which task files of OSWorld's format can run on this machine, and what
the others lack. It starts and downloads nothing. `try FOLDER` sets up and judges the tasks that can run, while nobody
acts: a task that fails there would fail each evaluation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from eval import config as configuration
from eval.benchmarks.errors import BenchError
from eval.benchmarks.osworld.machine import JUDGE, Machine, lacking_line, package_in
from eval.benchmarks.osworld.tasks import PublicTasks, load
from eval.config import ConfigError

if TYPE_CHECKING:
    from eval.rollout.loop import Rollout


def _try(rows: Sequence[RunnableTask], found: PublicTasks, arguments: argparse.Namespace) -> int:
    given = {name: getattr(arguments, name) for name in ("folder", "list", "cache", "internet", "network")}
    given["judge"] = arguments.judge
    if arguments.clone is not None:
        given["judge"] = {"path": arguments.clone, "python": arguments.judge}
    with configuration.results_folder(arguments.out, "osworld") as out:
        played = asyncio.run(without_agent(rows, {**given, "tree": False}, out, arguments.at_once))
    print(judged_table(rows, played, found.unread))
    return int(bool(faults(rows, played)))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m eval.osworld", description="Task files in OSWorld's format.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    can_run = verbs.add_parser("can-run", help="which tasks can run on this machine, and what the others lack")
    attempt = verbs.add_parser("try", help="sets up and judges every task that can run, while nobody acts")
    for verb in (can_run, attempt):
        verb.add_argument("folder", help="the task files, DOMAIN/ID.json")
        verb.add_argument("--list", help="only the tasks of this list, such as test_all.json: {DOMAIN: [ID, ...]}")
        verb.add_argument("--strict", action="store_true", help="a task that cannot be read is an error")
        verb.add_argument("--cache", help="folder of downloads as OSWorld's harness keeps them (CACHE/ID/FILE)")
        verb.add_argument("--internet", action="store_true", help="downloads can be reached")
        verb.add_argument("--network", action="store_true", help="desktops use this machine's network, for web sites")
        verb.add_argument("--judge", default=JUDGE, help=f"the Python that has desktop-env (make osworld-env): {JUDGE}")
        verb.add_argument("--clone", help="a clone whose evaluators it runs, as Windows Agent Arena's")
    can_run.add_argument("-o", "--output", choices=("table", "json"), default="table")
    attempt.add_argument(
        "--at-once", type=int, default=1, choices=range(1, 65), metavar="N", help="desktops; default 1"
    )
    attempt.add_argument("--out", help="where the records go; default $SLIPWAY_OUTPUTS/osworld")
    arguments = parser.parse_args(argv)

    def run() -> int:
        try:
            found = load(
                Path(arguments.folder),
                None if arguments.list is None else Path(arguments.list),
                strict=arguments.strict,
            )
        except BenchError as error:
            raise ConfigError(str(error)) from None
        kept = None if arguments.cache is None else Path(arguments.cache)
        package = None if arguments.clone is None else package_in(Path(arguments.clone))
        if arguments.clone is not None and package is None:
            raise ConfigError(f"--clone: {arguments.clone} has no package desktop_env")
        judge = Path(arguments.judge)
        machine = Machine(arguments.internet, kept, judge=judge, sites=arguments.network, package=package)
        rows = report(found, machine)
        if rows and arguments.verb == "try":
            return _try(rows, found, arguments)
        if arguments.verb == "can-run" and arguments.output == "json":
            told = {"tasks": msgspec.to_builtins(rows), "stale": found.stale, "unread": found.unread}
            json.dump(told, sys.stdout, indent=1)
            print()
        elif rows:
            print(table(rows, found.unread))
        else:
            name, why = next(iter(found.unread.items()))
            raise ConfigError(f"none of the {len(found.names)} tasks can be read; {name}: {why}")
        return 0

    return configuration.run(run, needs=())


class LackedNeed(msgspec.Struct, frozen=True):
    """One thing that a task needs and that is not here, and the place in its file that asks for it."""

    kind: str
    name: str
    where: str


class RunnableTask(msgspec.Struct, frozen=True):
    """Whether a task can run here; whether it could where every program, download, web site and evaluator is. `told`:
    what it lacks here, in words."""

    task: str
    infeasible: bool
    can_run: bool
    could_run: bool
    lacks: tuple[LackedNeed, ...]
    told: str


def report(found: PublicTasks, machine: Machine) -> list[RunnableTask]:
    """A row for each task."""
    rows = []
    for task in found.tasks:
        lacking = machine.lacks(task)
        lacks = tuple(LackedNeed(need.kind, need.name, need.where) for need in lacking)
        rows.append(
            RunnableTask(
                task.task_id,
                task.infeasible,
                not lacks,
                machine.could(task),
                lacks,
                lacking_line(task, lacking, machine.evaluators),
            )
        )
    return rows


def table(rows: Sequence[RunnableTask], unread: Mapping[str, str]) -> str:
    """The rows for people, and how many tasks lack what. `unread`: why a task of the set cannot be read."""
    wide = max(len(row.task) for row in rows)
    lines = [f"{row.task:<{wide}}  {'can run' if row.can_run else f'lacks {row.told}'}" for row in rows]
    count = len(rows) + len(unread)
    lines.append(f"\n{sum(row.can_run for row in rows)} of {count} tasks can run here")
    could = sum(row.could_run for row in rows)
    lines.append(f"{could} of {count} could with every program, download and web site that they need; the others need")
    lines.append("an account, rights of root, or a step that no harness does")
    counts: Counter[str] = Counter()
    for row in rows:
        judge = [need for need in row.lacks if need.kind in ("metric", "getter")]
        counts.update({f"{need.kind} {need.name}" for need in row.lacks if need not in judge})
        counts["the public evaluators"] += bool(judge)
    lines += [f"{count:4} lack {what}" for what, count in counts.most_common() if count]
    lines += [f"{name}: {why}" for name, why in unread.items()]
    return "\n".join(lines)


BENCHMARK = "osworld without an agent"


async def without_agent(
    rows: Sequence[RunnableTask], options: dict[str, Any], out: Path, at_once: int
) -> dict[str, Rollout]:
    """Task -> its episode, of those that can run. Records are below `out`; tasks that are judged there are kept.

    Raises ConfigError.
    """
    # `can-run` needs none of these
    from eval.actions.dialects.dsl import Dsl
    from eval.agents.baselines import DoesNothing
    from eval.benchmarks.osworld import environment
    from eval.environments.registry import tasks_of
    from eval.rollout.loop import RolloutLimits, rollout

    can_run = {row.task for row in rows if row.can_run}
    every = tasks_of("osworld", environment.size(options), 0, options)
    tasks = [task for task in every if task.task_id in can_run]
    found = await rollout(
        DoesNothing(Dsl(4)),
        lambda: environment.desktop(options),
        tasks,
        out=out,
        benchmark=BENCHMARK,
        environment="osworld",
        options={**options, **environment.provenance(options)},
        limits=RolloutLimits(attempts=1, concurrency=at_once),
        keep_episodes=0,
    )
    return {task.task_id: result for task, result in zip(tasks, found, strict=True)}


def faults(rows: Sequence[RunnableTask], played: dict[str, Rollout]) -> list[str]:
    """A line for each task that could run and was not judged, or was solved although nobody acted."""
    lines = []
    for row in rows:
        if (result := played.get(row.task)) is None:
            continue
        if result.record.outcome != "scored":
            lines.append(f"{row.task}: {result.record.error}")
        elif result.record.success:
            lines.append(f"{row.task}: solved while nobody acted")
    return lines


def judged_table(rows: Sequence[RunnableTask], played: dict[str, Rollout], unread: Mapping[str, str]) -> str:
    """A line for each task, and how many were judged."""
    wide = max(len(row.task) for row in rows)
    lines = []
    for row in rows:
        if (result := played.get(row.task)) is None:
            told = f"lacks {row.told}"
        elif result.record.score is None:
            told = result.record.outcome
        else:
            told = f"score {result.record.score:g}, {result.record.duration_ms / 1000:.1f} s"
        lines.append(f"{row.task:<{wide}}  {told}")
    judged = sum(result.record.score is not None for result in played.values())
    lines.append(f"\n{judged} judged, of {len(played)} that can run, of {len(rows) + len(unread)} tasks")
    lines += [f"{name}: {why}" for name, why in unread.items()]
    return "\n".join([*lines, *(f"fault: {line}" for line in faults(rows, played))])


if __name__ == "__main__":
    sys.exit(main())
