"""`launcher compare A B`: compares two evaluations task by task, with paired statistics."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import safe_text
from launcher.cli import arguments
from launcher.errors import BadInput, NotFound

if TYPE_CHECKING:
    from launcher.results.compare import Comparison
    from launcher.results.read import TaskResult
    from launcher.selection.select import Selection
    from launcher.store.base import Store

SUMMARY = (
    "Compare evaluations on the same tasks: the difference with its 95 % interval, and a test of no difference; by "
    "cluster where tasks are not independent. With one group: its evaluations, each later one against the first."
)
EXAMPLE = (
    "launcher compare eval-before-1a2b3c4d5e6f eval-after-6f5e4d3c2b1a\n  launcher compare GROUP/before GROUP/after"
)


def add(parser: argparse.ArgumentParser) -> None:
    from launcher.results.compare import GROUPS, METRICS

    parser.add_argument("a", metavar="A", help="the evaluation compared with: a run, a group, or GROUP/NAME")
    parser.add_argument("b", metavar="B", nargs="?", help="the other one; without it A is a group")
    parser.add_argument("--metric", choices=METRICS, default="success", help="what is compared (default: %(default)s)")
    parser.add_argument("--by", choices=tuple(GROUPS), help="then each difficulty, or each application, of the tasks")
    arguments.add_output(parser, ("table", "json"))
    arguments.add_profile(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.cli.printing.results import comparison_text
    from launcher.results.compare import compare
    from launcher.selection.select import select
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known

    profile = load_profile(Path.cwd(), args.profile, os.environ, store=args.store)
    store = open_known(profile.store)
    if args.b is None:
        comparisons = _within(store, select(store, [args.a]), args.a, args.metric, args.by)
    else:
        tasks_a, name_a = side(store, select(store, [args.a]), args.a)
        tasks_b, name_b = side(store, select(store, [args.b]), args.b)
        comparisons = compare(name_a, tasks_a, name_b, tasks_b, args.metric, args.by)
    if args.output == "json":
        print(
            safe_text.json_text(
                json.dumps([to_json(comparison) for comparison in comparisons], indent=2, ensure_ascii=False)
            )
        )
    else:
        print("\n\n".join(map(comparison_text, comparisons)))
    return 0


def side(store: Store, chosen: Selection, name: str) -> tuple[list[TaskResult], str]:
    """The tasks of all evaluations that a name means."""
    from launcher.results.facts import load_facts
    from launcher.results.rows import load_tasks

    facts = [fact for fact in load_facts(store, chosen.runs, chosen.names) if fact.evaluates or len(chosen.runs) == 1]
    tasks = [task for fact in facts for task in load_tasks(store, fact)]
    if not tasks:
        raise NotFound(f"{name} has no evaluation")
    return tasks, facts[0].run if len(facts) == 1 else name


def _within(store: Store, chosen: Selection, name: str, metric: str, by: str | None) -> list[Comparison]:
    from launcher.results.compare import compare
    from launcher.results.facts import load_facts
    from launcher.results.rows import by_depth, load_tasks

    facts = load_facts(store, by_depth(chosen.runs, chosen.edges), chosen.names)
    sides = []
    for run_facts in facts:
        try:
            sides.append((run_facts.name, load_tasks(store, run_facts)))
        except NotFound:
            if run_facts.evaluates and run_facts.state != "succeeded":
                raise
    if len(sides) < 2:
        raise BadInput(f"{name} has {len(sides)} evaluations with tasks; name two: launcher compare A B")
    first, *others = sides
    return [one for other in others for one in compare(first[0], first[1], other[0], other[1], metric, by)]


def to_json(comparison: Comparison) -> dict[str, Any]:
    def tasks(keys: Sequence[tuple[str, str, str]]) -> list[dict[str, str]]:
        return [{"benchmark": benchmark, "task_id": task, "seed": seed} for benchmark, task, seed in keys]

    listed = ("only_a", "only_b", "infra_a", "infra_b", "not_run_a", "not_run_b", "unscored", "other_task")
    return {
        **{key: value for key, value in asdict(comparison).items() if key not in listed},
        **{key: tasks(getattr(comparison, key)) for key in listed},
        "left_out": comparison.left_out,
    }
