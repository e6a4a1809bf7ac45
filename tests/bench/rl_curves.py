"""Whether reinforcement learning makes a model better:

    python -m tests.bench.rl_curves [FOLDER] [--form login | gtk-login | login-shown | login-chat] [--seeds 0 1 2]

A tiny model is taught until it solves about half of the login forms, and goes on in two ways that cost the same seconds
of CPU, by trying (`training.rl`) and by more of the same SFT. All three are asked the same fresh tasks, greedily. The
choices below were made before; the last step's model counts. The form is drawn, as in examples/rl-login, or a program
in GTK on a real desktop, as in examples/gtk-login; its SFT and its training are those of the drawn form. Or it is the
drawn one, and half of the SFT's episodes have the same form, solved, as a demonstration in their prompts; or the drawn
one, where every prompt holds all screens and answers before it.

FOLDER keeps what was made, and the same command goes on there. Hours of one core; on real desktops, of two.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from launcher.results.stats import wilson

ROOT: Final = Path(__file__).parents[2]
SEEDS: Final = (0, 1, 2)
TUNING: Final = {"count": 100, "seed": 1_400_000}  # chooses each start, and draws the curve
FRESH: Final = {"count": 400, "seed": 1_500_000}
BETWEEN: Final = (0.40, 0.65)  # of the tasks for tuning
MOST_TAUGHT: Final = 8000  # steps of SFT
EVERY: Final = 50  # steps of SFT between two checkpoints
DRAWS: Final = 10_000  # of the bootstrap


@dataclass(frozen=True)
class Form:
    """What differs between the two forms."""

    taught: int  # steps of SFT, twice as many where no checkpoint of them solves BETWEEN
    looks: tuple[int, ...]  # steps of SFT; the start is the first of them that solves BETWEEN
    generations: int
    episodes: tuple[str, str] = ("rl-login", "rl-episodes")  # the example, and its job
    evaluation: Mapping[str, Any] = field(default_factory=dict)  # other configuration of the evaluations
    training: Mapping[str, Any] = field(default_factory=dict)  # and of the training
    # before half of the SFT's episodes: the same form, solved. Nobody else is shown one, but by SDPO's teacher
    demonstration: Mapping[str, Any] = field(default_factory=dict)
    prompt: Mapping[str, Any] = field(default_factory=dict)  # of every job, in place of the example's


DRAWN: Final = Form(1400, (800, 1000, 1200, 1400, 850, 900, 950), 60)
FORMS: Final = {
    "login": DRAWN,
    "login-shown": replace(DRAWN, demonstration={"images": 1, "steps": 15}),
    "login-chat": replace(DRAWN, prompt={"dialect": "dsl", "decimals": 2, "system": "", "history_style": "chat"}),
    "gtk-login": Form(
        2000,
        (1400, 1200, 1600, 1000, 1800, 2000, 1300, 1500),
        40,
        ("gtk-login", "gtkl-episodes"),
        {"environment": "gtk-login", "benchmark": "gtk-login", "limits": {"concurrency": 6}},
        {"environment": "gtk-login", "batching": "ready", "limits": {"concurrency": 6, "attempts": 3}},
    ),
}


def jobs(example: str) -> dict[str, dict[str, Any]]:
    """The jobs of an example, by name."""
    read = yaml.safe_load_all((ROOT / f"examples/{example}/jobs.yaml").read_text())
    return {job["name"]: job for job in read}


class Bench:
    """Runs stages of the example in a folder, each once."""

    def __init__(self, folder: Path, form: Form) -> None:
        self.folder, self.form = folder, form
        self.jobs = jobs("rl-login") | jobs(form.episodes[0])

    def config(self, job: str, **other: Any) -> dict[str, Any]:
        """The configuration of a job of the example, as this form has it."""
        asked = {**self.jobs[job]["config"], **other}
        if "learning_rate" in asked:
            asked["learning_rate"] = float(asked["learning_rate"])  # YAML 1.1 reads 2e-4 as text
        if self.form.prompt:
            asked["prompt"] = dict(self.form.prompt)
        if self.form.demonstration and job != self.form.episodes[1]:
            taught = {"share": 0.5, "folder": "$SLIPWAY_INPUTS/shown"}
            way = taught if job in ("rl-model", "rl-start") else {"rule": "none"}
            asked["prompt"] = {**asked["prompt"], "demonstration": {**self.form.demonstration, **way}}
        return asked

    def run(self, name: str, job: str, inputs: Mapping[str, Path], **other: Any) -> Path:
        """The stage's folder, with what it made and `done.json`: its seconds of CPU and by the clock."""
        out = self.folder / name
        if (out / "done.json").exists():
            return out
        (out / "inputs").mkdir(parents=True, exist_ok=True)
        for key, place in inputs.items():
            (out / "inputs" / key).unlink(missing_ok=True)
            (out / "inputs" / key).symlink_to(place)
        text = json.dumps(self.config(job, **other)).replace("$SLIPWAY_INPUTS", str(out / "inputs"))
        (out / "config.json").write_text(text)
        command = [
            sys.executable,
            "-m",
            self.jobs[job]["command"][2],
            "--config",
            f"{out}/config.json",
            "--out",
            str(out),
        ]
        metrics = out / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        env = {**os.environ, **self.jobs[job]["env"], "SLIPWAY_METRICS": str(metrics)}
        before, began = _cpu(), time.monotonic()
        with (out / "log.txt").open("w") as log:
            subprocess.run(command, check=True, cwd=ROOT, env=env, stdout=log, stderr=log)
        (out / "done.json").write_text(json.dumps({"cpu": _cpu() - before, "wall": time.monotonic() - began}))
        print(f"{name}: {seconds(out):.0f} s of CPU", file=sys.stderr, flush=True)
        return out

    def asked(self, name: str, model: Path, tasks: Mapping[str, int]) -> list[bool]:
        """Whether the model solves each task."""
        out = self.run(name, "rl-before", {"model": model}, tasks=dict(tasks), **self.form.evaluation)
        rows = [json.loads(line) for line in (out / "tasks.jsonl").read_text().splitlines()]
        solved = {row["task_id"]: bool(row["success"]) for row in rows if row["outcome"] == "scored"}
        assert len(solved) == tasks["count"], f"{out}: {len(solved)} tasks were judged"
        return [solved[each] for each in sorted(solved)]

    def taught(self) -> dict[str, Path]:
        """The SFT's inputs besides the model: its episodes, and those that are shown before them."""
        episodes = self.run("episodes", self.form.episodes[1], {}) / "episodes"
        return twins(episodes, self.folder / "twins") if self.form.demonstration else {"episodes": episodes}

    def start(self, seed: int) -> Path:
        """The checkpoint at which a seed's three arms begin. Where the model learns late, the SFT is twice as long: its
        rate is constant, so its first steps are the same."""
        given = self.taught()
        given |= {"model": self.run(f"model-{seed}", "rl-model", given, seed=seed)}
        steps, below, looks = self.form.taught, 0, list(self.form.looks)
        while True:
            kept = {"save_every": EVERY, "keep_checkpoints": steps // EVERY}
            name = f"start-{seed}" if steps == self.form.taught else f"start-{seed}-{steps}"
            taught = self.run(name, "rl-start", given, seed=seed, steps=steps, **kept)
            above = steps + EVERY
            while step := looks.pop(0) if looks else middle(below, above):
                found = taught / "checkpoints" / f"checkpoint-{step}"
                solved = share(self.asked(f"tune-start-{seed}-{step}", found, TUNING))
                if BETWEEN[0] <= solved <= BETWEEN[1]:
                    return found
                below, above = (max(below, step), above) if solved < BETWEEN[0] else (below, min(above, step))
            if above <= steps or steps >= MOST_TAUGHT:
                raise SystemExit(f"seed {seed}: no checkpoint is between {BETWEEN[0]:.0%} and {BETWEEN[1]:.0%}")
            steps *= 2

    def arms(self, seed: int) -> dict[str, list[bool]]:
        """What the start, the trained model and the longer taught one solve of the fresh tasks."""
        start = self.start(seed)
        tried = self.run(
            f"rl-{seed}-a",
            "rl-train",
            {"model": start},
            seed=seed,
            steps=self.form.generations,
            save_every=10,
            keep_checkpoints=self.form.generations // 10,
            tasks={"count": 1000, "seed": 100_000},
            **self.form.training,
        )
        taught = start.parents[1]
        steps = int(seconds(tried) / seconds(taught) * json.loads((taught / "config.json").read_text())["steps"])
        given = self.taught() | {"model": start}
        longer = self.run(f"sft-{seed}", "rl-start", given, seed=seed + 10, steps=steps, save_every=5000)
        return {
            "start": self.asked(f"fresh-start-{seed}", start, FRESH),
            "training.rl": self.asked(f"fresh-rl-{seed}", tried / "model", FRESH),
            "more SFT": self.asked(f"fresh-sft-{seed}", longer / "model", FRESH),
        }

    def curve(self, seed: int) -> list[float]:
        """The share of the tuning tasks that is solved after 0, 10, ... generations."""
        places = [self.start(seed)]
        kept = self.folder / f"rl-{seed}-a/checkpoints"
        places += [kept / f"checkpoint-{step}" for step in range(10, self.form.generations + 1, 10)]
        return [share(self.asked(f"curve-{seed}-{n * 10}", place, TUNING)) for n, place in enumerate(places)]


def twins(episodes: Path, out: Path) -> dict[str, Path]:
    """Two copies of the episodes, by the name of the input: those that are taught, and those shown before them.
    A tag makes each pair a family of its own, so what is shown is the same task."""
    made = {"episodes": out / "taught", "shown": out / "shown"}
    if (out / "done").exists():
        return made
    for name, folder in made.items():
        ending = "-shown" if name == "shown" else ""
        for each in sorted(episodes.iterdir()):
            copy = folder / f"{each.name}{ending}"
            shutil.copytree(each, copy, copy_function=os.link, dirs_exist_ok=True)
            told = json.loads((each / "episode.json").read_text())
            told["tags"] = [f"family:{told['task_id']}"]
            told |= {"episode_id": f"{told['episode_id']}{ending}", "task_id": f"{told['task_id']}{ending}"}
            (copy / "episode.json").unlink()  # else the original would be written, too
            (copy / "episode.json").write_text(json.dumps(told))
    (out / "done").touch()
    return made


def middle(below: int, above: int) -> int:
    """The step of a checkpoint between these two, or 0 where there is none."""
    step = (below + above) // 2 // EVERY * EVERY
    return step if below < step < above else 0


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds(stage: Path) -> float:
    return float(json.loads((stage / "done.json").read_text())["cpu"])


def share(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def bootstrap(differences: Sequence[Sequence[int]], draws: int = DRAWS) -> tuple[float, float, float]:
    """(low, high, p) of the mean difference: seeds are drawn with replacement, and tasks within each of them.

    One draw has the same tasks for all its seeds, because they are the same tasks. p is twice the share of draws on the
    other side of 0, at most 1, and never below 2 / draws.
    """
    chance = random.Random(20261126)
    count = len(differences[0])
    means = []
    for _ in range(draws):
        tasks = chance.choices(range(count), k=count)
        chosen = chance.choices(differences, k=len(differences))
        means.append(sum(sum(map(each.__getitem__, tasks)) for each in chosen) / (count * len(chosen)))
    means.sort()
    beyond = min(sum(mean <= 0 for mean in means), sum(mean >= 0 for mean in means))
    return means[int(0.025 * draws)], means[int(0.975 * draws) - 1], min(max(2 * beyond, 2) / draws, 1.0)


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """Holm's (1979) adjusted p values: the smallest times their number, the next times one fewer, never falling."""
    made: dict[str, float] = {}
    last = 0.0
    for place, name in enumerate(sorted(values, key=values.__getitem__)):
        last = max(last, min(1.0, values[name] * (len(values) - place)))
        made[name] = last
    return made


def contrast(arms: Sequence[Mapping[str, Sequence[bool]]], better: str, worse: str) -> list[list[int]]:
    return [[int(a) - int(b) for a, b in zip(each[better], each[worse], strict=True)] for each in arms]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [head, ["---"] * len(head), *rows]
    print("\n".join(f"| {' | '.join(cells)} |" for cells in lines), end="\n\n", flush=True)


def scores(values: Sequence[bool]) -> str:
    bounds = wilson(sum(values), len(values))
    assert bounds is not None
    return f"{sum(values)}, {share(values):.1%} ({bounds.low:.1%} to {bounds.high:.1%})"


def compared(
    arms: Sequence[Mapping[str, Sequence[bool]]], pairs: Sequence[tuple[str, str]], heads: Sequence[str]
) -> None:
    """A table of (better, worse) pairs: their difference, paired by task. `arms`: of each seed, whether each task was
    solved. Holm's correction is over all pairs."""
    found = {f"{better} - {worse}": contrast(arms, better, worse) for better, worse in pairs}
    made = {name: bootstrap(each) for name, each in found.items()}
    adjusted = holm({name: p for name, (_, _, p) in made.items()})
    rows = []
    for name, (low, high, _) in made.items():
        of_seeds = [100 * share(each) for each in found[name]]
        cells = [f"{share(of_seeds):+.1f}", f"{100 * low:+.1f} to {100 * high:+.1f}", f"{adjusted[name]:.4f}"]
        rows.append([name, *cells, *(f"{value:+.1f}" for value in of_seeds)])
    table(["points", "mean", "95 %", "p by Holm", *heads], rows)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--form", choices=sorted(FORMS), default="login")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    given = parser.parse_args()
    seeds, form = given.seeds, FORMS[given.form]
    bench = Bench((given.folder or Path(tempfile.mkdtemp(prefix="rl-curves-"))).resolve(), form)
    arms = [bench.arms(seed) for seed in seeds]
    rows = [
        [str(seed), bench.start(seed).name.split("-")[1], *map(scores, each.values())]
        for seed, each in zip(seeds, arms, strict=True)
    ]
    table(["seed", "SFT steps", *(f"{name}: of {FRESH['count']}" for name in arms[0])], rows)
    heads = [f"seed {seed}" for seed in seeds]
    compared(arms, [("training.rl", "start"), ("training.rl", "more SFT"), ("more SFT", "start")], heads)
    head = ["generations", *map(str, range(0, form.generations + 1, 10))]
    table(head, [[f"seed {seed}", *(f"{value:.0%}" for value in bench.curve(seed))] for seed in seeds])
    return 0


if __name__ == "__main__":
    sys.exit(main())
