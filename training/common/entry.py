"""What every trainer's command does: arguments, configuration, output folder, resuming, SIGTERM, exit codes.

Exit code 0: finished, or stopped by SIGTERM (then without .done). Exit code 1: what tells the tasks is not there now.
Exit code 78: an error that no retry can fix. Both as one line on stderr.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from eval import config as configuration
from eval.config import Config, ConfigError, ResumeError
from eval.config import help as config_help
from eval.config.strict import with_lines
from eval.desktop import SetupFailed
from training.common import identity
from training.common.checkpoints import also_save
from training.common.model.card import write_cards
from training.common.trackers import close as close_trackers
from training.memory import plan
from training.options import TrainerConfig, computed, installed

C = TypeVar("C", bound=Config)
STATE: Final = "trainer_state.json"
FULL: Final = (errno.ENOSPC, errno.EDQUOT)
# what safetensors, the system, and torch's zip writer say (torch omits the reason)
FULL_WORDS: Final = ("No space left on device", "Disk quota exceeded", "inline_container.cc", "iostream error")
IN_WORKER: Final = "Caught ConfigError in DataLoader worker"


def entry(
    argv: Sequence[str] | None,
    *,
    prog: str,
    description: str,
    kind: type[C],
    train: Callable[[C, Path, str | None], bool],
) -> int:
    """Parses --config, --out, --resume and --plan, and calls train(config, out, resume)."""
    parser = config_help.parser(prog, description, kind)
    parser.add_argument("--out", help="where everything goes; default $SLIPWAY_OUTPUTS")
    parser.add_argument("--resume", help="a checkpoint to go on from; default $SLIPWAY_RESUME")
    parser.add_argument("--resume-anyway", action="store_true", help="go on with another model or other data")
    parser.add_argument("--plan", action="store_true", help="print the estimate of its memory, and stop")
    arguments = parser.parse_args(argv)

    def run() -> int:
        if not arguments.plan:
            configuration.need("torch", "transformers", "trl")
        config = configuration.load(Path(arguments.config), kind)
        if arguments.plan and isinstance(config, TrainerConfig):
            bitsandbytes = installed("bitsandbytes")
            return plan.show(config, prog.removeprefix("training."), size=plan.device_size(), bitsandbytes=bitsandbytes)
        identity.ANYWAY.set(arguments.resume_anyway)
        out = configuration.output_folder(arguments.out)
        try:
            done = train(config, out, arguments.resume or os.environ.get("SLIPWAY_RESUME") or None)
            if done and os.environ.get("RANK", "0") == "0":
                write_cards(out, config, prog.removeprefix("training."))
        except Exception as error:
            if not disk_full(error):
                raise
            raise ConfigError(
                f"no space left on the disk of {out}; raise resources.disk, or lower keep_checkpoints"
            ) from None
        finally:
            close_trackers()
        leave_group()
        return 0

    def with_places() -> int:
        with with_lines(Path(arguments.config)):
            return run()

    return configuration.run(with_places, needs=(), failures=(SetupFailed,))


def leave(code: int) -> NoReturn:
    """Ends a trainer's process. One of several leaves without Python's exit: everything is written and closed by then,
    and there a thread of gloo or of torch may abort the process (-6; "terminate called without an active exception",
    seen in sharded training though its group was ended), so that a finished training counts as failed."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        sys.exit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def leave_group() -> None:
    """Ends the process group of a finished training, so that the other processes see it go in order."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def disk_full(error: BaseException) -> bool:
    """Whether an exception or its causes say that the disk is full. safetensors and torch say so only in words."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in FULL:
            return True
        if any(words in str(seen) for words in FULL_WORDS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def check_resume(config: TrainerConfig, resume: str | None) -> None:
    """Raises ConfigError when `resume` is no checkpoint, or its configuration computes something else."""
    if resume is None:
        return
    state = read_state(resume)
    try:
        saved: dict[str, Any] = state["stateful_callbacks"]["Reporting"]["args"]["config"]
    except (KeyError, TypeError):
        return  # written by another trainer: nothing to compare with
    if "dtype" in saved:  # the field's name until precision; its bfloat16 rounded the trained weights
        former = {"float32": "float32"}.get(saved["dtype"], "bfloat16 weights")
        saved = {**{name: value for name, value in saved.items() if name != "dtype"}, "precision": former}
    now = computed(config)
    before = with_defaults(saved, config)
    if "warmup_steps" not in saved:  # computed from its default
        before["warmup_steps"] = msgspec.structs.replace(config, warmup_steps=None).warmup(config.steps)
    saved = {name: value for name, value in before.items() if name in saved or name in now}
    if different := sorted(name for name in saved if saved[name] != now.get(name)):
        told = "; ".join(f"{name}: {saved.get(name)!r} there, {now.get(name)!r} here" for name in different)
        raise ResumeError(f"resume: {resume} was made with another configuration: {told}")


def with_defaults(saved: Any, config: Any) -> Any:
    """A section as a checkpoint has it, with the defaults of the fields that the checkpoint's version did not have.

    config  the same section of the configuration now, by which the fields are known
    """
    if isinstance(saved, list) and isinstance(config, list | tuple) and len(saved) == len(config):
        return [with_defaults(*both) for both in zip(saved, config, strict=True)]
    if isinstance(saved, dict) and isinstance(config, dict):
        return {name: with_defaults(value, config.get(name)) for name, value in saved.items()}
    if not isinstance(saved, dict) or not isinstance(config, msgspec.Struct):
        return saved
    values = dict(saved)
    for field in msgspec.structs.fields(config):
        name = field.encode_name  # as it is written: `for` cannot be an attribute's name
        if name in saved:
            values[name] = with_defaults(saved[name], getattr(config, field.name))
        elif field.default is not msgspec.NODEFAULT:
            values[name] = msgspec.to_builtins(field.default)
        elif field.default_factory is not msgspec.NODEFAULT:
            values[name] = msgspec.to_builtins(field.default_factory())
    return values


def read_state(resume: str) -> dict[str, Any]:
    """A checkpoint's trainer_state.json, which is written last. Raises ConfigError for an incomplete checkpoint."""
    try:
        state = json.loads((Path(resume) / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        state = None
    if not isinstance(state, dict) or not isinstance(state.get("global_step"), int):
        raise ResumeError(f"resume: {resume} is no complete checkpoint: {STATE} is missing or broken")
    return state


def is_over(trainer: Any, state: dict[str, Any]) -> bool:
    """Whether the training of this state is finished: it reached the last step, or stopped early."""
    last = trainer.args.max_steps if trainer.args.max_steps > 0 else state["max_steps"]
    callbacks = state.get("stateful_callbacks", {}).values()
    stopped = any(callback.get("attributes", {}).get("stopped") for callback in callbacks if isinstance(callback, dict))
    return bool(stopped or state["global_step"] >= last)


def run_training(trainer: Any, config: TrainerConfig, out: Path, resume: str | None, period: int = 1) -> bool:
    """Trains with progress, metrics and SIGTERM handling. Returns False when SIGTERM stopped it, after a checkpoint.

    `period`: a checkpoint is complete only at every `period`-th step; after SIGTERM training goes on to the next.
    Incomplete checkpoints are deleted, so that nothing resumes from them. Raises ConfigError.
    """
    from transformers import PrinterCallback, TrainerState

    from training.common import trackers
    from training.common.model import ema, sharding
    from training.common.model.loading import load_weights
    from training.common.model.parts import check_parts
    from training.common.model.saving import check_shared_embeddings
    from training.common.model.sharding import float32_masters
    from training.common.rates import give_rates
    from training.common.reporting import Reporting, StopRequest

    sharding.ensure(trainer, config)
    check_shared_embeddings(trainer.accelerator.unwrap_model(trainer.model), config)
    float32_masters(trainer.model, config)
    give_rates(trainer, config)
    told = check_parts(trainer.accelerator.unwrap_model(trainer.model), config)
    if trainer.is_world_process_zero():
        print(told, flush=True)
    if resume is not None:
        restore_counts(trainer, resume)
    identify(trainer, config, resume)
    trainer.remove_callback(PrinterCallback)  # Reporting prints
    if resume is not None and is_over(trainer, read_state(resume)):
        load_weights(trainer.model, Path(resume))  # all steps are done: only what follows them is missing
        trainer.state = TrainerState.load_from_json(str(Path(resume) / STATE))
        for callback in trainer.callback_handler.callbacks:
            if hasattr(callback, "resume"):
                callback.resume = resume
        return True
    warm_up(trainer, config)
    with StopRequest() as stop:
        for callback in trainer.callback_handler.callbacks:
            if type(callback).__name__ == "TensorBoardCallback" and callback.logging_dir is None:
                callback.logging_dir = str(out / "tensorboard")  # not among the checkpoints
            if hasattr(callback, "stop"):
                callback.stop, callback.resume = stop, resume
        if config.ema is not None:  # first, because other callbacks evaluate the average
            trainer.callback_handler.callbacks.insert(0, ema.Average(trainer, config.ema, resume))
        trackers.follow(trainer)
        trainer.add_callback(Reporting(stop, computed(config), period, lambda: counted(trainer)))
        try:
            trainer.train(resume_from_checkpoint=resume)
        except Exception as error:
            remove_torn(out / "checkpoints")
            if isinstance(error, ConfigError) and IN_WORKER in str(error):
                raise ConfigError(str(error).strip().rsplit("ConfigError: ", 1)[-1]) from None
            raise
    step = trainer.state.global_step
    if stop.asked and step < trainer.state.max_steps and not is_over(trainer, read_state(newest(out, step))):
        if trainer.is_world_process_zero():
            print(f"stopped after step {step}", flush=True)
        return False
    ema.take_average(trainer.model)
    return True


TOKENS: Final = "_total_train_tokens"  # where TRL's SFTTrainer and DPOTrainer and our RewardTrainer count; 0 at first


def counted(trainer: Any) -> dict[str, int]:
    """What a checkpoint tells of the training so far: the samples of its data, the tokens seen."""
    tokens = getattr(trainer, TOKENS, None)
    return {"samples": len(trainer.train_dataset), **({} if tokens is None else {"tokens": int(tokens)})}


def restore_counts(trainer: Any, resume: str) -> None:
    """Lets the count of tokens go on where the checkpoint's ended.

    Raises ConfigError when the data has another number of samples than then: the order of all that is left would
    differ, and the training would not be the one that was interrupted.
    """
    saved = read_state(resume).get("stateful_callbacks", {}).get("Reporting", {}).get("attributes", {})
    now = len(trainer.train_dataset)
    if (before := saved.get("samples", now)) != now and not identity.ANYWAY.get():
        raise ResumeError(
            f"resume: {resume} was made with {before} samples, and the data has {now} now: it has "
            f"{'shrunk' if now < before else 'grown'} since; give the same data, or start anew without a checkpoint"
        )
    if hasattr(trainer, TOKENS) and "tokens" in saved:
        setattr(trainer, TOKENS, saved["tokens"])


def warm_up(trainer: Any, config: TrainerConfig) -> None:
    """Sets the warm-up of a training whose length follows from its epochs. Raises ConfigError when it is too long."""
    if config.epochs is None:
        return
    import math

    passes = math.ceil(len(trainer.train_dataset) / (config.batch_size * trainer.args.world_size))
    steps = math.ceil(config.epochs * max(1, math.ceil(passes / config.accumulate)))
    config.check_warmup(steps)
    trainer.args.warmup_steps = config.warmup(steps)


def identify(trainer: Any, config: TrainerConfig, resume: str | None) -> None:
    """Lets each checkpoint say of which content the training is. Raises ResumeError when `resume` is of another."""
    from training.common.reporting import from_first

    problem: ConfigError | None = None
    others = False
    if trainer.is_world_process_zero():
        try:
            found = identity.identity(config, None if resume is None else identity.load(resume))
            for line in [] if resume is None else identity.check(found, resume):
                print(line, flush=True)
            others = resume is not None and identity.measures_another(found, resume)
        except ConfigError as error:
            problem = error
        else:
            also_save(trainer, lambda checkpoint: identity.save(found, checkpoint))
    said, others = from_first(trainer.args, (None if problem is None else str(problem), others))
    if said is not None:
        raise ResumeError(said)
    for callback in trainer.callback_handler.callbacks:
        if hasattr(callback, "other_episodes"):
            callback.other_episodes = others


def newest(out: Path, step: int) -> str:
    return str(out / "checkpoints" / f"checkpoint-{step}")


def remove_torn(checkpoints: Path) -> None:
    """Deletes incomplete checkpoints."""
    for folder in checkpoints.glob("checkpoint-*"):
        try:
            read_state(str(folder))
        except ConfigError:
            shutil.rmtree(folder, ignore_errors=True)
