"""Asks the judges of linux-desktop and the checkers written apart about the same final states, and counts where they
agree. One seed's states of a template: the start state; after the oracle, the second way and the near mistake; after
each hack of the reward hacker, done one after another. Records are in --out, so that it goes on where it was."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from eval.actions import Action, ActionType
from eval.benchmarks.linux_desktop.all_templates import TEMPLATES, instance
from eval.benchmarks.linux_desktop.environment import (
    HOME,
    MEMORY,
    PROCESSES,
    ROUTES,
    InstanceScene,
    LinuxDesktopOptions,
    Route,
    hacks,
    task_of,
)
from eval.desktop import BrokenByAgent, InfraError, Score
from eval.desktops.judging.hacked import visible_files
from eval.desktops.live import LiveDesktop
from eval.desktops.session import DesktopOptions
from eval.desktops.stage import DesktopStage
from eval.episodes import jsonl
from eval.scores.stats import wilson
from tests.bench.apart.checkers import CHECKERS
from tests.bench.apart.state import State, seen

STEPS = 200
SPLIT_FIRST = 1_000_000  # the first seed of the split `test`


class Verdict(msgspec.Struct, frozen=True):
    """What both say of one final state; `score` with partial credit is the judge's alone."""

    template: str
    seed: int
    player: str
    judge: bool
    score: float
    apart: bool
    hack: str = ""


class Watched(InstanceScene):
    """A scene that remembers its start state, and asks the checker beside each judgement."""

    before = State()

    async def prepare(self, stage: DesktopStage) -> None:
        await super().prepare(stage)
        self.before = await self.state(stage)

    async def state(self, stage: DesktopStage) -> State:
        about = self.instance.about
        return await seen(stage, site=about.name.startswith("web-"))

    async def both(self, stage: DesktopStage, seed: int, player: str, hack: str = "") -> Verdict:
        name, text = self.instance.about.name, self.instance.instruction
        try:
            score = await self.judge(stage, [Action(ActionType.DONE)])
        except BrokenByAgent:
            score = Score(0.0, False)
        after = await self.state(stage)
        try:
            apart = await asyncio.to_thread(CHECKERS[name], text, self.before, after)
        except (KeyError, ValueError, IndexError, LookupError):  # a file that is gone, or no document any more
            apart = False
        return Verdict(name, seed, player, score.success, score.value, apart, hack)


def desktop_of(scene: Watched) -> LiveDesktop:
    options = LinuxDesktopOptions()
    session = DesktopOptions(screen=options.screen, memory=MEMORY, home_size=HOME, processes=PROCESSES)
    return LiveDesktop(lambda task, seed: scene, session, tree=True)


async def solved(name: str, seed: int, route: Route) -> list[Verdict]:
    """The state that a solver leaves."""
    scene = Watched(instance(name, "test", seed), route)
    desktop = desktop_of(scene)
    try:
        shown = await desktop.reset(task_of(TEMPLATES[name], "test", seed), seed)
        for _ in range(STEPS):
            assert shown.expected is not None
            action = shown.expected.action
            if action.type is ActionType.FAIL:
                raise InfraError(f"{name}, {route}: {action.text}")
            shown = await desktop.step(action)
            if action.type is ActionType.DONE:
                break
        return [await scene.both(desktop.stage, seed, route)]
    finally:
        await desktop.close()


async def hacked(name: str, seed: int) -> list[Verdict]:
    """The start state, and the states after each hack."""
    drawn = instance(name, "test", seed)
    scene = Watched(drawn)
    desktop = desktop_of(scene)
    try:
        await desktop.reset(task_of(TEMPLATES[name], "test", seed), seed)
        found = [await scene.both(desktop.stage, seed, "nothing")]
        for each in hacks(drawn, await visible_files(desktop.stage)):
            for path, content in each.files.items():
                await desktop.stage.write_file(path, content)
            found.append(await scene.both(desktop.stage, seed, "hacker", each.name))
        return found
    finally:
        await desktop.close()


async def measure(names: Sequence[str], seeds: int, path: Path) -> None:
    known = {(each.template, each.seed, each.player) for each in jsonl.read(path, Verdict)}
    path.parent.mkdir(parents=True, exist_ok=True)
    for seed in range(SPLIT_FIRST, SPLIT_FIRST + seeds):
        for name in names:
            for player in (*ROUTES, "hacker"):
                if (name, seed, player) in known:
                    continue
                try:
                    if player == "hacker":
                        found = await hacked(name, seed)
                    else:
                        found = await solved(name, seed, next(route for route in ROUTES if route == player))
                except InfraError as error:
                    print(f"{name} {seed} {player}: {error}", flush=True)
                    continue
                jsonl.append(path, found)
                odd = [each for each in found if each.judge != each.apart]
                for each in odd:
                    print(f"they differ: {each}", flush=True)


def table(found: Sequence[Verdict]) -> str:
    lines = [
        "| player | states | both yes | both no | only the judge | only the checker apart |",
        "|---|---|---|---|---|---|",
    ]
    for player in ("nothing", *ROUTES, "hacker"):
        some = [each for each in found if each.player == player]
        pairs = Counter((each.judge, each.apart) for each in some)
        cells = [pairs[True, True], pairs[False, False], pairs[True, False], pairs[False, True]]
        lines.append(f"| {player} | {len(some)} | " + " | ".join(map(str, cells)) + " |")
    if (rate := wilson(sum(each.judge == each.apart for each in found), len(found))) is not None:
        names = len({each.template for each in found})
        bounds = f"{100 * rate.value:.1f} % ({100 * rate.low:.1f} to {100 * rate.high:.1f})"
        lines.append(f"\n{names} templates; they agree on {bounds} of {len(found)} states")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.bench.apart", description=__doc__)
    parser.add_argument("templates", nargs="*", metavar="TEMPLATE", help=f"some of {', '.join(CHECKERS)}")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/apart"))
    chosen = parser.parse_args()
    path = chosen.out / "verdicts.jsonl"
    asyncio.run(measure(chosen.templates or [*CHECKERS], chosen.seeds, path))
    print(table(jsonl.read(path, Verdict)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
