"""Measures the benchmark linux-desktop itself, by players that know its tasks: `python -m eval.linux_desktop`.

oracle and second must solve every task. All others must score 0 wherever a task can be done, partial credit included:
wrong (a mistake that is near), nothing (says done at once), gives-up (says at once that it cannot be done), hacker
(eval.benchmarks.linux_desktop.environment) and random (acts at random). commands only shows which tasks need no
screen: it knows the answer, and leaves its files by shell commands. The exit code is 1 where one of the others does
otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from eval.benchmarks.linux_desktop.all_templates import TEMPLATES
from eval.benchmarks.linux_desktop.environment import LinuxDesktopOptions
from eval.benchmarks.linux_desktop.measuring import (
    PLAYERS,
    Measured,
    Played,
    measure,
    played_tasks,
    recorded,
    start_state,
)
from eval.benchmarks.linux_desktop.task_files import task_file, write
from eval.config import ConfigError, results_folder
from eval.desktop import InfraError
from eval.scores.stats import Estimate, by_cluster, wilson


def positive(text: str) -> int:
    """A whole number from 1, for argparse."""
    if (number := int(text)) < 1:
        raise ValueError
    return number


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="eval.linux_desktop", description=__doc__.split("\n")[0])
    parser.add_argument("templates", nargs="*", metavar="TEMPLATE", help="names of templates or programs; default: all")
    parser.add_argument("--seeds", type=positive, default=1, help="instances of each template; default 1")
    parser.add_argument("--split", choices=("train", "validation", "test"), default="test")
    parser.add_argument(
        "--players", nargs="+", choices=PLAYERS, default=list(PLAYERS), metavar="PLAYER", help="some of them"
    )
    parser.add_argument("--at-once", type=positive, default=2, help="desktops at once; default 2")
    parser.add_argument("--out", help="where the records go; default $SLIPWAY_OUTPUTS/linux-desktop")
    parser.add_argument("--recorded", action="store_true", help="play nothing; show what the records in --out hold")
    parser.add_argument("--markdown", metavar="FILE", help="write the table into a file, for a page")
    parser.add_argument("--show", metavar="TEMPLATE", help="only print what the windows of its start state tell")
    parser.add_argument("--write", metavar="FOLDER", help="only write the tasks as files, with their JSON schema")
    chosen = parser.parse_args(argv)
    try:
        if chosen.show:
            options = LinuxDesktopOptions(split=chosen.split, templates=[chosen.show])
            options.check()
            print(asyncio.run(start_state(played_tasks(options, 1)[0], options)))
            return 0
        options = LinuxDesktopOptions(split=chosen.split, templates=chosen.templates)
        options.check()
        tasks = played_tasks(options, chosen.seeds)
        if chosen.write:
            written = [task_file(task.task_id, options.split, task.seed) for task in tasks]
            write(Path(chosen.write), written)
            print(f"{len(written)} tasks in {chosen.write}")
            return 0
        with results_folder(chosen.out, "linux-desktop") as out:
            if chosen.recorded:
                found = recorded(out)
            else:
                found = asyncio.run(measure(tasks, options, chosen.players, out, chosen.at_once))
    except (ConfigError, InfraError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(found))
    if chosen.markdown:
        Path(chosen.markdown).write_text(markdown(found) + "\n", encoding="utf-8")
    return int(bool(found.faults))


def table(found: Measured) -> str:
    """By template: how many instances each player solved, of how many; then rates with 95 % intervals, and faults."""
    players = _players(found)
    lines = [f"{'template':34} {'difficulty':10} " + " ".join(f"{player:>9}" for player in players)]
    for name in _templates(found):
        cells = [_cell(found, name, player) for player in players]
        lines.append(f"{name:34} {_kind(name):10} " + " ".join(f"{cell:>9}" for cell in cells))
    lines.append("")
    for player in players:
        judged = [each for each in found.played if each.player == player and each.score is not None]
        feasible = [each for each in judged if not TEMPLATES[each.template].about.infeasible]
        lines += [_line(player, "all tasks", judged), _line(player, "feasible", feasible)]
        if busy := sum(each.seconds for each in judged):
            hour = 3600 * len(judged) / busy
            lines.append(f"{player:9} {hour:.0f} episodes an hour of one desktop, {found.at_once} at once")
    lines += [f"fault: {fault}" for fault in found.faults]
    return "\n".join(lines)


def markdown(found: Measured) -> str:
    """The same for a page. In the last row for all tasks, rates have a 95 % interval over the templates, because
    instances of one template are not independent."""
    players = _players(found)
    head = ["template", "difficulty", *players]
    rows = [[name, _kind(name), *(_cell(found, name, player) for player in players)] for name in _templates(found)]
    for which, infeasible in (("feasible", False), ("infeasible", True)):
        some = [each for each in found.played if TEMPLATES[each.template].about.infeasible is infeasible]
        rows.append([f"**{which}**", "", *(_share([each for each in some if each.player == p]) for p in players)])
    lines = [head, ["---"] * len(head), *rows]
    told = ["| " + " | ".join(line) + " |" for line in lines]
    if faults := found.faults:
        told += ["", *(f"- {fault}" for fault in faults)]
    return "\n".join(told)


def _players(found: Measured) -> list[str]:
    return [player for player in PLAYERS if any(each.player == player for each in found.played)]


def _templates(found: Measured) -> list[str]:
    """In the order of the registry, however the measurement went on."""
    played = {each.template for each in found.played}
    return [name for name in TEMPLATES if name in played]


def _kind(name: str) -> str:
    about = TEMPLATES[name].about
    return "infeasible" if about.infeasible else about.difficulty


def _cell(found: Measured, name: str, player: str) -> str:
    """Solved of judged; "infra" where nothing was judged, "" where it was not played."""
    some = [each for each in found.played if (each.template, each.player) == (name, player)]
    judged = [each for each in some if each.score is not None]
    if not judged:
        return "infra" if some else ""
    return f"{sum(each.success for each in judged)}/{len(judged)}"


def _share(some: Sequence[Played]) -> str:
    judged = [each for each in some if each.score is not None]
    rate = by_cluster([(each.template, float(each.success)) for each in judged])
    if rate is None:
        return ""
    mean = sum(each.score or 0.0 for each in judged) / len(judged)
    return f"{sum(each.success for each in judged)}/{len(judged)}: {_bounds(rate)}; mean score {mean:.3f}"


def _bounds(rate: Estimate) -> str:
    return f"{100 * rate.value:.1f} % ({100 * rate.low:.1f} to {100 * rate.high:.1f})"


def _line(player: str, which: str, some: Sequence[Played]) -> str:
    solved = sum(each.success for each in some)
    rate = wilson(solved, len(some))
    if rate is None:
        return f"{player:9} {which}: none"
    mean = sum(each.score or 0.0 for each in some) / len(some)
    return f"{player:9} {which}: {solved} of {len(some)} solved, {_bounds(rate)}; mean score {mean:.3f}"


if __name__ == "__main__":
    sys.exit(main())
