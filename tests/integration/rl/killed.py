"""python -m tests.integration.rl.killed POINT TIME ARGUMENT...: training.rl that SIGKILL ends at a point, the TIME-th
time that it comes there.

asked       the policy is asked for the second time in generation TIME, counted from 1: rollouts run
kept        a rollout is judged and is to be kept; those before it are
gate        all rollouts of a generation are played
stepped     the optimiser has stepped, and no checkpoint of it is begun
torn        a checkpoint has its weights, and not what says that it is whole
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from transformers import TrainerState

from training.rl.learning import gate
from training.rl.rollouts.finished_rollouts import FinishedRollouts
from training.rl.rollouts.policy import Policy
from training.rl.train import main
from training.rl.trainer import RolloutTrainer

SECOND = 2
POINTS: dict[str, tuple[Any, str]] = {
    "asked": (Policy, "_act"),
    "kept": (FinishedRollouts, "keep"),
    "gate": (gate, "check"),
    "stepped": (RolloutTrainer, "_maybe_log_save_evaluate"),
    "torn": (TrainerState, "save_to_json"),
}


def kill_at(point: str, time: int) -> None:
    owner, name = POINTS[point]
    there, came = getattr(owner, name), 0
    played, check = 1, gate.check

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal came
        came += 1
        if (played, came) == (time, SECOND) if point == "asked" else came == time:
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return there(*args, **kwargs)

    def generation(*args: Any, **kwargs: Any) -> Any:
        nonlocal played, came
        played, came = played + 1, 0
        return check(*args, **kwargs)

    setattr(owner, name, counted)
    if point == "asked":
        gate.check = generation


if __name__ == "__main__":
    kill_at(sys.argv[1], int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
