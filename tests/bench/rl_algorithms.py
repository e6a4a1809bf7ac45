"""Which algorithm learns most from the same number of rollouts:

    python -m tests.bench.rl_algorithms [FOLDER] [--form login-shown | login-chat] [--slow 0.25] [--seeds 0 1 2]
                                        [--arms sdpo ...]

Each arm begins at the same start as `tests.bench.rl_curves` on the drawn login form, plays as many generations of 64
rollouts, and is asked the same fresh tasks, greedily; the last step's model counts. An arm is compared with GRPO on the
same tasks, and Holm's correction is over all arms. The choices below were made before. With `login-shown` the start is
an SFT in which half of the episodes had the same form, solved, as a demonstration in their prompts, so SDPO's teacher
can use what it is shown. That form was added when SDPO had collapsed without it. With `login-chat` every prompt holds
all screens and answers before it, so that a rollout can be one row of the loss: its arms have rows of one turn and of
one rollout. With `--slow 0.25` each step of a desktop takes a quarter of a second, as on real ones: there
`asynchronous` has something to gain.

FOLDER keeps what was made, also by `tests.bench.rl_curves`, and the same command goes on there. Hours of one core.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.rl_curves import FORMS, FRESH, SEEDS, TUNING, Bench, compared, scores, seconds, share, table

GENERATIONS: Final = 30
EVERY: Final = 10
FIRST: Final = "grpo"
GSPO: Final = {"loss": "grpo", "importance": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4}
ARMS: Final[dict[str, dict[str, Any]]] = {
    FIRST: {},
    "dr-grpo": {"average": "constant", "scale_rewards": "none"},
    "gspo": GSPO,
    "cispo": {"loss": "cispo", "epsilon_high": 5.0},
    "per-turn": {"advantage": "per_turn", "gamma": 0.95},
    "gigpo": {"advantage": "gigpo", "gamma": 0.95},
    "ppo": {"advantage": "gae", "critic": {"learning_rate": 2e-4, "pretrain": 2, "epochs": 2}},
    "sdpo": {"sdpo": {}},
    "sdpo, grpo where solved": {"sdpo": {"solved": "grpo"}},
    "asynchronous": {"asynchronous": {"staleness": 2}, "batching": "ready", "limits": {"concurrency": 64}},
}
# what the form login-chat compares
ROWS: Final[dict[str, dict[str, Any]]] = {
    FIRST: {},
    "whole rollouts": {"rows": "trajectory"},
    "gspo": GSPO,
    "gspo, whole rollouts": {**GSPO, "rows": "trajectory"},
}


@dataclass(frozen=True)
class Arms:
    """The trainings. slow: seconds that a desktop takes for each step, with 0 none."""

    bench: Bench
    slow: float = 0.0

    def made(self, name: str, seed: int) -> Path:
        """The folder of an arm's training."""
        slow = {"environment": "tests.bench.slow_login:SlowLogin", "options": {"split": "train", "seconds": self.slow}}
        return self.bench.run(
            f"{name.replace(', ', '-').replace(' ', '-')}{f'-slow-{self.slow:g}' if self.slow else ''}-{seed}",
            "rl-train",
            {"model": self.bench.start(seed)},
            seed=seed,
            steps=GENERATIONS,
            save_every=EVERY,
            keep_checkpoints=GENERATIONS // EVERY,
            tasks={"count": 1000, "seed": 100_000},
            collapse=None,  # all arms have as many rollouts
            **(ARMS | ROWS)[name],
            **(slow if self.slow else {}),
        )

    def asked(self, name: str, seed: int) -> list[bool]:
        """Whether the arm's last model solves each fresh task."""
        made = self.made(name, seed)
        return self.bench.asked(f"fresh-{made.name}", made / "model", FRESH)

    def curve(self, name: str, seed: int) -> list[float]:
        """The share of the tuning tasks that is solved after 0, 10, ... generations."""
        made = self.made(name, seed)
        places = {0: self.bench.start(seed)}
        places |= {step: made / "checkpoints" / f"checkpoint-{step}" for step in range(EVERY, GENERATIONS + 1, EVERY)}
        names = {step: f"curve-{made.name}-{step}" for step in places} | {0: f"curve-start-{seed}"}
        return [share(self.bench.asked(names[step], place, TUNING)) for step, place in places.items()]


def wall(made: Path) -> float:
    """Seconds that a training took, by the clock."""
    return float(json.loads((made / "done.json").read_text())["wall"])


def stale(made: Path) -> float:
    """Updates between the weights that sampled a turn and those that learned from it, the mean of the training."""
    told = [json.loads(line) for line in (made / "metrics.jsonl").read_text().splitlines()]
    values = [each["value"] for each in told if each["name"] == "train/staleness"]
    return sum(values) / len(values) if values else 0.0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--form", choices=("login", "login-shown", "login-chat"), default="login")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--arms", nargs="+", choices=list(ARMS | ROWS))
    parser.add_argument("--slow", type=float, default=0.0, help="seconds that each step of a desktop takes")
    given = parser.parse_args()
    bench = Bench((given.folder or Path(tempfile.mkdtemp(prefix="rl-algorithms-"))).resolve(), FORMS[given.form])
    usual = list(ROWS if given.form == "login-chat" else ARMS)
    names = [FIRST, *(name for name in given.arms or usual if name != FIRST)]
    arms = Arms(bench, given.slow)
    found: list[dict[str, list[bool]]] = []
    for seed in given.seeds:
        start = {"start": bench.asked(f"fresh-start-{seed}", bench.start(seed), FRESH)}
        found.append(start | {name: arms.asked(name, seed) for name in names})
    heads = [f"seed {seed}" for seed in given.seeds]
    table(
        [f"of {FRESH['count']} fresh tasks", *heads],
        [[name, *(scores(each[name]) for each in found)] for name in ("start", *names)],
    )
    compared(found, [(FIRST, "start"), *((name, FIRST) for name in names[1:])], heads)
    steps = [str(step) for step in range(0, GENERATIONS + 1, EVERY)]
    table(
        ["solved of the 100 tasks for tuning, after generations", *steps],
        [
            [f"{name}, seed {seed}", *(f"{value:.0%}" for value in arms.curve(name, seed))]
            for name in names
            for seed in given.seeds
        ],
    )
    rows = []
    for name in names:
        made = [arms.made(name, seed) for seed in given.seeds]
        cells = (" / ".join(f"{one(each):.0f}" for each in made) for one in (seconds, wall))
        rows.append([name, *cells, " / ".join(f"{stale(each):.2f}" for each in made)])
    table(["training", "seconds of CPU", "seconds", "updates between sampling and learning"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
