"""The frame around every trainer: arguments, configuration, output folder, resuming, SIGTERM, exit codes.

Exit codes: 0 done, or stopped by SIGTERM (then without .done); 78 what no retry can mend, one line on stderr.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from eval import config as configuration
from eval.config import Config, ConfigError
from training.options import TrainerConfig, computed

C = TypeVar("C", bound=Config)
STATE: Final = "trainer_state.json"
FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def entry(
    argv: Sequence[str] | None,
    *,
    prog: str,
    description: str,
    kind: type[C],
    train: Callable[[C, Path, str | None], bool],
) -> int:
    """Parses --config, --out and --resume, and calls train(config, out, resume)."""
    parser = argparse.ArgumentParser(prog=f"python -m {prog}", description=description)
    parser.add_argument("--config", required=True, help=f"a JSON or YAML file, see {kind.__name__}")
    parser.add_argument("--out", help="where everything goes; default $SLIPWAY_OUTPUTS")
    parser.add_argument("--resume", help="a checkpoint to go on from; default $SLIPWAY_RESUME")
    arguments = parser.parse_args(argv)

    def run() -> int:
        config = configuration.load(Path(arguments.config), kind)
        out = arguments.out or os.environ.get("SLIPWAY_OUTPUTS")
        if out is None:
            raise ConfigError("name a folder with --out, or set SLIPWAY_OUTPUTS")
        try:
            train(config, Path(out), arguments.resume or os.environ.get("SLIPWAY_RESUME") or None)
        except Exception as error:
            if not disk_full(error):
                raise
            raise ConfigError(
                f"no space left on the disk of {out}; raise resources.disk, or lower keep_checkpoints"
            ) from None
        return 0

    return configuration.run(run)


def disk_full(error: BaseException) -> bool:
    """Whether an exception, or one behind it, says that the disk is full. safetensors and torch use words."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in FULL:
            return True
        if "No space left on device" in str(seen) or "Disk quota exceeded" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def check_resume(config: TrainerConfig, resume: str | None) -> None:
    """Raises ConfigError when `resume` is no checkpoint, or one of a configuration that computes something else."""
    if resume is None:
        return
    path = Path(resume) / STATE
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
        saved: dict[str, Any] = state["stateful_callbacks"]["Reporting"]["args"]["config"]
    except (OSError, ValueError):
        raise ConfigError(f"resume: {resume} is no complete checkpoint: {STATE} is missing or broken") from None
    except (KeyError, TypeError):
        return  # written by another trainer: nothing to compare with
    now = computed(config)
    if different := sorted(name for name in {*saved, *now} if saved.get(name) != now.get(name)):
        told = "; ".join(f"{name}: {saved.get(name)!r} there, {now.get(name)!r} here" for name in different)
        raise ConfigError(f"resume: {resume} was made with another configuration: {told}")


def run_training(trainer: Any, config: TrainerConfig, out: Path, resume: str | None) -> bool:
    """Trains with progress, metrics and SIGTERM handling. False: SIGTERM came first, a checkpoint is there."""
    from transformers import PrinterCallback

    from training.reporting import Reporting, StopRequest

    trainer.remove_callback(PrinterCallback)  # Reporting prints
    with StopRequest() as stop:
        trainer.add_callback(Reporting(stop, computed(config)))
        trainer.train(resume_from_checkpoint=resume)
    step = trainer.state.global_step
    if stop.asked and step < trainer.state.max_steps:
        print(f"stopped after step {step}", flush=True)
        return False
    return True
