"""What the players of a measurement got, as text and as a page's table, by template and in all."""

from __future__ import annotations

from collections.abc import Sequence

from eval.benchmarks.linux_desktop.all_templates import TEMPLATES
from eval.benchmarks.linux_desktop.measuring import PLAYERS, Measured, Played
from eval.scores.stats import Estimate, by_cluster, wilson


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
