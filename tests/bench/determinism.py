"""How often the same task, seed and actions give the same final state and the same pictures, on real desktops.

    python -m tests.bench.determinism [TEMPLATE ...] [--times 3] [--seeds 1] [--markdown FILE]

The oracle solves each task once; its actions are then repeated on clean desktops without a look, at its pace. Two final
states are the same when score and all visible files of the home are. Two pictures are the same when every pixel is; a
line says where the first other one of an episode differs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops

from eval import config as configuration
from eval.actions.dialects.dsl import Dsl
from eval.agents.baselines import ScriptedAgent
from eval.benchmarks.linux_desktop.environment import LinuxDesktopOptions, desktop_of
from eval.benchmarks.linux_desktop.measuring import STEPS, played_tasks
from eval.benchmarks.linux_desktop.template import LARGE
from eval.desktop import Desktop, Score, Task
from eval.desktops.judging.hacked import visible_files
from eval.desktops.live import LiveDesktop
from eval.episodes import Episode, read_episode
from eval.records.earlier_results import key_of
from eval.rollout.loop import RolloutLimits, rollout
from eval.scores.stats import wilson
from eval.verify import ReplayAgent

SEED = 1_000_000


class NotedDesktop:
    """Notes the digest of the visible files, when it is judged."""

    def __init__(self, inner: LiveDesktop) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def score(self) -> Score:
        score = await self.inner.score()
        files = await visible_files(self.inner.stage)
        state = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
        return replace(score, detail={**score.detail, "state": state})


@dataclass
class Counted:
    """Of one template: replays, those with the same final state, steps, those with the same picture, and causes."""

    replays: int = 0
    states: int = 0
    steps: int = 0
    pictures: int = 0
    causes: tuple[str, ...] = ()


async def played(agent: Any, tasks: Sequence[Task], options: LinuxDesktopOptions, out: Path) -> dict[Any, Path]:
    """The folder of each task's episode, where it was judged."""

    def made() -> Desktop:
        desktop = desktop_of(options)
        assert isinstance(desktop, LiveDesktop)
        return NotedDesktop(desktop)

    results = await rollout(
        agent,
        made,
        tasks,
        out=out,
        benchmark="determinism",
        environment="linux-desktop",
        limits=RolloutLimits(max_steps=STEPS, concurrency=1, attempts=2),
    )
    pairs = zip(tasks, results, strict=True)
    return {key_of(task): out / str(each.record.episode) for task, each in pairs if each.record.outcome == "scored"}


def compared(one: Path, other: Path, found: Counted) -> Counted:
    """`found` with a replay more."""
    first, again = read_episode(one), read_episode(other)
    pictures, cause = 0, ""
    for index, (a, b) in enumerate(zip(first.steps, again.steps, strict=False)):
        box = ImageChops.difference(_picture(one / a.screenshot), _picture(other / b.screenshot)).getbbox()
        pictures += box is None
        if box is not None and not cause:
            cause = f"{first.task_id} step {index}: {box[2] - box[0]} x {box[3] - box[1]} pixels at {box[:2]}"
    return Counted(
        found.replays + 1,
        found.states + (_state(first) == _state(again)),
        found.steps + len(first.steps),
        found.pictures + pictures,
        (*found.causes, *([cause] if cause else [])),
    )


def _picture(path: Path) -> Image.Image:
    return Image.open(path).convert("RGB")


def _state(episode: Episode) -> tuple[float | None, str]:
    return episode.score, str(episode.metadata.get("score", {}).get("state"))


def measure(templates: Sequence[str], times: int, seeds: int, keep: str | None = None) -> dict[str, Counted]:
    names = [*templates]
    options = LinuxDesktopOptions(templates=names)
    options.check()
    tasks = [
        task
        for task in played_tasks(options, seeds)
        if task.feasible is not False and (templates or not {*LARGE} & {*task.programs})
    ]
    found: dict[str, Counted] = {}
    with contextlib.ExitStack() as stack:
        folder = keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="determinism-"))
        first = asyncio.run(played(ScriptedAgent(Dsl(4)), tasks, options, Path(folder) / "first"))
        episodes: Mapping[Any, Episode] = {key: read_episode(path) for key, path in first.items()}
        known = [task for task in tasks if key_of(task) in episodes]
        for number in range(times):
            agent = ReplayAgent(f"replay-{number}", episodes, paced=True)
            again = asyncio.run(played(agent, known, options, Path(folder) / f"{number}"))
            for task in known:
                if (key := key_of(task)) in again:
                    before = found.get(task.task_id, Counted())
                    found[task.task_id] = compared(first[key], again[key], before)
    return found


def table(found: Mapping[str, Counted]) -> str:
    rows = ["| template | replays | same final state | steps | same picture |", "|---|---|---|---|---|"]
    for name, each in found.items():
        rows.append(f"| {name} | {each.replays} | {each.states} | {each.steps} | {each.pictures} |")
    for what, same, of in (
        ("final states", sum(each.states for each in found.values()), sum(each.replays for each in found.values())),
        ("pictures", sum(each.pictures for each in found.values()), sum(each.steps for each in found.values())),
    ):
        if (rate := wilson(same, of)) is not None:
            told = f"{100 * rate.value:.1f} % ({100 * rate.low:.1f} to {100 * rate.high:.1f})"
            rows += ["", f"Same {what}: {same} of {of}, {told}."]
    return "\n".join([*rows, "", *(f"- {cause}" for each in found.values() for cause in each.causes)])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.bench.determinism", description=__doc__.split("\n")[0])
    parser.add_argument("templates", nargs="*", metavar="TEMPLATE")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--keep", metavar="FOLDER", help="where the episodes stay")
    parser.add_argument("--markdown", metavar="FILE")
    given = parser.parse_args(argv)

    def run() -> int:
        told = table(measure(given.templates, given.times, given.seeds, given.keep))
        print(told)
        if given.markdown:
            Path(given.markdown).write_text(told + "\n", encoding="utf-8")
        return 0

    return configuration.run(run)


if __name__ == "__main__":
    sys.exit(main())
