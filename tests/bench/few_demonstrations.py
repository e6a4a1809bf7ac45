"""Whether reinforcement learning makes more of a fixed number of demonstrations than more SFT on them:

    python -m tests.bench.few_demonstrations [FOLDER] [--form dim-form | gtk-login] [--sizes 50 200 800] [--seeds 0 1 2]
                                                      [--report] [--plot FILE.svg]

A tiny model learns from the demonstrations until their held-out steps say that it gets no better. From there it goes on
in three ways, none of which takes more seconds of CPU than that SFT did: more SFT on the same demonstrations,
`training.rl`, and `training.rl` for half of the time, then SFT on what succeeded in it. All are asked the same fresh
tasks, greedily; the last model of each way counts. The jobs are those of examples/few-demonstrations. The learning
rates are chosen before, on other demonstrations and tasks.

FOLDER keeps what was made, and the same command goes on there, also within a training that was killed. `--report`
trains nothing: it tells what is there, and which cells are missing. Hours of one core; on real desktops, of two.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.bench import forked
from tests.bench.few_demonstrations_plot import draw
from tests.bench.rl_curves import FRESH, ROOT, SEEDS, TUNING, bootstrap, contrast, holm, jobs, scores, share, table

EXAMPLE: Final = ROOT / "examples/few-demonstrations"
SIZES: Final = (50, 200, 800)
WAYS: Final = ("SFT", "more SFT", "training.rl", "own successes")
START, MORE, RL, OWN = WAYS
PAIRS: Final = ((RL, MORE), (RL, START), (MORE, START), (OWN, MORE))
LONGEST: Final = 1_000_000  # steps of a training that its budget ends
ROOM_S: Final = 1.0  # of a budget, for writing the last checkpoint
GTK: Final[dict[str, Any]] = {"environment": "gtk-login", "limits": {"concurrency": 6, "attempts": 3}}
# what differs from the example's jobs, by form and job
FORMS: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "dim-form": {},
    "gtk-login": {
        "demos": {"environment": "gtk-login", "limits": {"concurrency": 4}},
        "rl": {**GTK, "batching": "ready"},
        "tries": {**GTK, "batching": "ready"},
        "asked": {"environment": "gtk-login", "benchmark": "gtk-login", "limits": {"concurrency": 6}},
    },
}
RATES: Final = {"sft": (1e-3, 5e-4), "more": (1e-3, 2e-4), "rl": (5e-5, 1e-4, 2e-4)}
Solved = dict[str, list[bool]]  # of each way, whether it solves each fresh task


@dataclass(frozen=True)
class Cell:
    """One number of demonstrations with one seed. The demonstrations of a seed are the first of the same ones."""

    size: int
    seed: int

    def __str__(self) -> str:
        return f"{self.size}-{self.seed}"


TUNED: Final = Cell(50, 10)


@dataclass(frozen=True)
class Grid:
    """The experiment in a folder.

    changes  other configuration of the jobs, by their name without `few-`, beyond that of the form
    fresh    the tasks that decide
    rates    the learning rates that each training's is chosen from; SFT on own successes has that of more SFT
    """

    folder: Path
    form: str = "dim-form"
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fresh: Mapping[str, int] = field(default_factory=lambda: FRESH)
    rates: Mapping[str, Sequence[float]] = field(default_factory=lambda: RATES)

    def config(self, job: str, **other: Any) -> dict[str, Any]:
        """The configuration of a job, as this form has it."""
        config = dict(jobs("few-demonstrations")[f"few-{job}"]["config"])
        kind = "asked" if job.endswith("asked") else job
        for each in (FORMS[self.form].get(kind, {}), other, self.changes.get(kind, {})):
            config.update(each)
        if "learning_rate" in config:
            config["learning_rate"] = float(config["learning_rate"])  # YAML 1.1 reads 2e-4 as text
        return config

    def run(self, name: str, job: str, inputs: Mapping[str, Path], budget: float | None = None, **other: Any) -> Path:
        """The folder of a job that ran, with what it made and `done.json`: its seconds of CPU, and of the budget."""
        out = self.folder / name
        if (out / "done.json").exists():
            return out
        told = jobs("few-demonstrations")[f"few-{job}"]
        spent = forked.Spent(out)
        newest = spent.newest()
        if newest is None:
            shutil.rmtree(out, ignore_errors=True)
        (out / "inputs").mkdir(parents=True, exist_ok=True)
        for key, place in inputs.items():
            (out / "inputs" / key).unlink(missing_ok=True)
            (out / "inputs" / key).symlink_to(place.resolve())
        text = json.dumps(self.config(job, **other)).replace("$SLIPWAY_INPUTS", str(out / "inputs"))
        (out / "config.json").write_text(text)
        arguments = [each.replace("$SLIPWAY_CONFIG", f"{out}/config.json") for each in told["command"][2:]]
        if newest is not None:
            arguments += ["--resume", str(newest)]
        env = {**told["env"], "SLIPWAY_OUTPUTS": str(out), "SLIPWAY_METRICS": str(out / "metrics.jsonl")}
        left = None if budget is None else budget - spent.before - ROOM_S
        began = time.monotonic()
        cpu = spent.before + forked.run(arguments, env, out / "log.txt", budget=left, look=spent.look)
        forked.write(out / "done.json", {"cpu": cpu, "budget": budget})
        print(f"{name}: {cpu:.0f} s of CPU, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        return out

    def taught(self, cell: Cell, name: str, rate: float) -> Path:
        """The SFT of a cell."""
        words, forms = (self.run(each, each, {}) / "episodes" for each in ("words", "forms"))
        first = self.run("model", "model", {"episodes": words})
        base = self.run("base", "base", {"model": model(first), "episodes": forms})
        given = {"model": model(base), "dataset": self.data(cell)}
        return self.run(name, "sft", given, seed=cell.seed, learning_rate=rate)

    def data(self, cell: Cell) -> Path:
        """The demonstrations of a cell: those of training, and a fifth that is held out."""
        tasks = {"count": cell.size, "seed": 200_000 + 10_000 * cell.seed}
        demos = self.run(f"{cell}/demos", "demos", {}, tasks=tasks)
        return self.run(f"{cell}/data", "data", {"episodes": demos / "episodes"}) / "dataset"

    def more(self, cell: Cell, name: str, sft: Path, rate: float) -> Path:
        """More SFT on the same demonstrations, at most as long as the SFT was."""
        given = {"model": model(sft), "dataset": self.data(cell)}
        other = {"seed": cell.seed + 100, "steps": LONGEST, "learning_rate": rate}
        return self.run(name, "more", given, seconds(sft), **other)

    def tried(self, cell: Cell, name: str, sft: Path, rate: float) -> Path:
        """Reinforcement learning, at most as long as the SFT was."""
        other = {"seed": cell.seed, "steps": LONGEST, "save_every": 1, "learning_rate": rate}
        return self.run(name, "rl", {"model": model(sft)}, seconds(sft), **other)

    def imitated(self, cell: Cell, sft: Path, rates: Mapping[str, float]) -> Path:
        """Reinforcement learning half as long, then SFT on what succeeded in it: together as long as the SFT was."""
        other = {"seed": cell.seed, "steps": LONGEST, "save_every": 1, "learning_rate": rates["rl"]}
        half = self.run(f"{cell}/tries", "tries", {"model": model(sft)}, seconds(sft) / 2, **other)
        if not any((half / "episodes").glob("*")):
            return half  # nothing succeeded, so there is nothing to learn from
        given = {"model": model(half), "episodes": half / "episodes"}
        other = {"seed": cell.seed + 100, "steps": LONGEST, "learning_rate": rates["more"]}
        return self.run(f"{cell}/own", "own", given, seconds(sft) - seconds(half), **other)

    def chosen(self) -> dict[str, float]:
        """The learning rate of each training: the one after which a model of TUNED, a cell of no result, solves the
        most of the tasks for tuning; the first of equals. Where there is one to choose from, nothing is trained."""
        sft = self.best("sft", lambda name, rate: self.taught(TUNED, name, rate))
        if all(len(rates) == 1 for rates in self.rates.values()):
            return {job: rates[0] for job, rates in self.rates.items()}
        start = self.taught(TUNED, f"tuning/sft-{sft:g}", sft)
        more = self.best("more", lambda name, rate: self.more(TUNED, name, start, rate))
        return {
            "sft": sft,
            "more": more,
            "rl": self.best("rl", lambda name, rate: self.tried(TUNED, name, start, rate)),
        }

    def best(self, job: str, train: Callable[[str, float], Path]) -> float:
        """The rate of a job after which the most of the tasks for tuning are solved."""
        rates = self.rates[job]
        if len(rates) == 1:
            return rates[0]
        found = {}
        for rate in rates:
            made = model(train(f"tuning/{job}-{rate:g}", rate))
            out = self.run(f"tuning/asked-{job}-{rate:g}", "sft-asked", {"model": made}, tasks=dict(TUNING))
            found[rate] = sum(judged(out, TUNING["count"]))
        print(f"{job}: of {TUNING['count']} tasks for tuning, by learning rate: {found}", file=sys.stderr, flush=True)
        return max(found, key=found.__getitem__)

    def solved(self, cell: Cell) -> Solved:
        """Runs what is missing of a cell."""
        rates = self.chosen()
        sft = self.taught(cell, f"{cell}/sft", rates["sft"])
        ways = {
            START: sft,
            MORE: self.more(cell, f"{cell}/more", sft, rates["more"]),
            RL: self.tried(cell, f"{cell}/rl", sft, rates["rl"]),
            OWN: self.imitated(cell, sft, rates),
        }
        return {way: self.asked(cell, way, model(made)) for way, made in ways.items()}

    def asked(self, cell: Cell, way: str, asked: Path) -> list[bool]:
        """Whether a model solves each fresh task."""
        name = f"{cell}/asked-{way.replace(' ', '-')}"
        return judged(self.run(name, "sft-asked", {"model": asked}, tasks=dict(self.fresh)), self.fresh["count"])

    def there(self, cell: Cell) -> Solved:
        """The ways of a cell that have been asked."""
        found = {way: self.folder / f"{cell}/asked-{way.replace(' ', '-')}" for way in WAYS}
        return {way: judged(out, self.fresh["count"]) for way, out in found.items() if (out / "done.json").exists()}


def judged(out: Path, count: int) -> list[bool]:
    """Whether each task of an evaluation was solved, in the order of their names."""
    rows = [json.loads(line) for line in (out / "results/tasks.jsonl").read_text().splitlines()]
    solved = {row["task_id"]: bool(row["success"]) for row in rows if row["outcome"] == "scored"}
    if len(solved) != count:
        raise SystemExit(f"{out}: {len(solved)} of {count} tasks were judged")
    return [solved[each] for each in sorted(solved)]


def model(made: Path) -> Path:
    """What a job trained: its model, or the newest checkpoint within the budget that ended it, or what it began with
    where the budget was too small for a step."""
    if (made / "model").is_dir():
        return made / "model"
    return [(made / "inputs/model").resolve(), *within(made)][-1]


def within(made: Path) -> list[Path]:
    """The checkpoints of a training that were written before its budget was used up, the oldest first."""
    budget = json.loads((made / "done.json").read_text())["budget"]
    seen = json.loads((made / "spent.json").read_text()) if (made / "spent.json").exists() else {}
    return [each for each in forked.checkpoints(made) if budget is None or seen[each.name] <= budget]


def seconds(made: Path) -> float:
    """Of CPU."""
    return float(json.loads((made / "done.json").read_text())["cpu"])


def steps(made: Path) -> int:
    """Optimiser steps of a training within its budget: of SFT, or generations."""
    kept = within(made)
    return int(json.loads((kept[-1] / forked.STATE).read_text())["global_step"]) if kept else 0


def complete(grid: Mapping[Cell, Solved]) -> dict[int, list[Solved]]:
    """By number of demonstrations, the cells that have all ways, in the order of their seeds."""
    found: dict[int, list[Solved]] = {}
    for cell in sorted(grid, key=lambda each: (each.size, each.seed)):
        if len(grid[cell]) == len(WAYS):
            found.setdefault(cell.size, []).append(grid[cell])
    return found


def differences(grid: Mapping[int, Sequence[Solved]]) -> list[list[str]]:
    """A row for each number of demonstrations and pair of ways, paired by task. Holm's correction is over all rows."""
    found = {(size, pair): contrast(cells, *pair) for size, cells in grid.items() for pair in PAIRS}
    made = {key: bootstrap(each) for key, each in found.items()}
    adjusted = holm({f"{size} {pair}": made[size, pair][2] for size, pair in made})
    rows = []
    for (size, pair), (low, high, _) in made.items():
        points = [100 * share(each) for each in found[size, pair]]
        rows.append(
            [
                str(size),
                " - ".join(pair),
                f"{share(points):+.1f}",
                f"{100 * low:+.1f} to {100 * high:+.1f}",
                f"{adjusted[f'{size} {pair}']:.4f}",
                ", ".join(f"{value:+.1f}" for value in points),
            ]
        )
    return rows


def report(grid: Grid, cells: Sequence[Cell], plot: Path | None) -> int:
    """Prints the tables, and draws the curve. 1 where a cell is missing."""
    found = {cell: grid.there(cell) for cell in cells}
    whole = complete(found)
    told = [
        [str(cell.size), str(cell.seed), *(scores(found[cell][way]) if way in found[cell] else "-" for way in WAYS)]
        for cell in cells
    ]
    table(["demonstrations", "seed", *(f"{way}: of {grid.fresh['count']}" for way in WAYS)], told)
    if whole:
        head = ["demonstrations", "points", "mean", "95 %", "p by Holm", "by seed"]
        table(head, differences(whole))
    rows = [row for cell in cells if (row := effort(grid.folder / str(cell)))]
    if rows:
        table(["cell", "SFT", *(name for name, _ in WORK[1:])], rows)
    missing = [str(cell) for cell in cells if len(found[cell]) < len(WAYS)]
    if missing:
        print(f"HALF RUN: of {len(cells)} cells (demonstrations-seed) these are missing: {', '.join(missing)}")
    if plot is not None and whole:
        plot.write_text(draw(whole, WAYS, share))
    return int(bool(missing))


WORK: Final = (("SFT", "sft"), (MORE, "more"), (RL, "rl"), ("half of training.rl", "tries"), (OWN, "own"))


def effort(cell: Path) -> list[str]:
    """What the trainings of a cell took: seconds of CPU, and steps; [] before the SFT is there."""
    if not (cell / "sft/done.json").exists():
        return []
    made = [cell / name for _, name in WORK]
    return [
        cell.name,
        *(f"{seconds(each):.0f} s, {steps(each)}" if (each / "done.json").exists() else "-" for each in made),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--form", choices=sorted(FORMS), default="dim-form")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--report", action="store_true", help="train nothing")
    parser.add_argument("--plot", type=Path, help="an SVG file of success against demonstrations")
    given = parser.parse_args(argv)
    if not given.report:
        settle()
    grid = Grid((given.folder or Path(tempfile.mkdtemp(prefix="few-demonstrations-"))).resolve(), given.form)
    cells = [Cell(size, seed) for seed in given.seeds for size in given.sizes]
    if not given.report:
        forked.load(EXAMPLE)
        for cell in cells:
            grid.solved(cell)
    return report(grid, cells, given.plot)


def settle() -> None:
    """Starts this program again with the example's environment, which the C library reads at its start only."""
    env = jobs("few-demonstrations")["few-sft"]["env"]
    if any(os.environ.get(name) != value for name, value in env.items()):
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.bench.few_demonstrations", *sys.argv[1:]], os.environ | env
        )


if __name__ == "__main__":
    sys.exit(main())
