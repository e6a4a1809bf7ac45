"""Replay of successes: where every rollout of a group failed, a success of before stands in for one of them.

The newest success of each task is kept with its tokens, their log probabilities and its pictures, in each checkpoint,
too. A success that is replayed was sampled by the policy of then: the loss's ratio compares the policy of now with that
one, by the log probabilities that were kept. Source: ARPO (arXiv 2505.16282).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
from PIL import Image
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from eval.config import ResumeError
from eval.desktop import Task
from training.common.checkpoints import also_save
from training.rl.rollouts.curriculum import StoredSuccess, SuccessPool
from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration, RolloutGroup
from training.rl.rollouts.policy import SampledTurn
from training.rl.sections import ReplayConfig

FOLDER: Final = "successes"  # in a checkpoint
INDEX: Final = "index.json"


class StoredTurn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A turn without its pictures, of which there are `images`: NAME-TURN-IMAGE.png."""

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    cut: bool
    images: int


class StoredRollout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A success. `reward`: its return when it was played."""

    reward: float
    turns: tuple[StoredTurn, ...]


class StoredSuccesses(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """index.json: which successes a task has, and what each one is."""

    pool: dict[str, list[StoredSuccess]]
    rollouts: dict[str, StoredRollout]


class SuccessReplay(TrainerCallback):  # type: ignore[misc]
    """The successes of one training.

    trainer  whose checkpoints hold them
    resume   tells the checkpoint that the training goes on from, or None
    """

    def __init__(self, trainer: Any, config: ReplayConfig, resume: Callable[[], str | None]) -> None:
        self.config = config
        self.resume = resume
        self.pool = SuccessPool(config.max_age, keep=1)
        self.rollouts: dict[str, tuple[float, tuple[SampledTurn, ...]]] = {}  # name: (return, turns), the newest last
        also_save(trainer, self.save)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Raises ConfigError."""
        if (checkpoint := self.resume()) is not None:
            self.restore(Path(checkpoint))

    def stand_in(self, made: RolloutGeneration) -> RolloutGeneration:
        """The stage: the generation with successes in the place of rollouts of groups that failed as a whole. Its own
        successes are kept."""
        groups = [self._with_success(group, made.number) for group in made.groups]
        self.note(made)
        return replace(made, groups=groups)

    def _with_success(self, group: RolloutGroup, generation: int) -> RolloutGroup:
        outcomes = [bool(each.episode.success) for each in group.rollouts]
        found = self.pool.replay(_key(group.task), outcomes, generation)
        if found is None:
            return group
        at, success = found
        reward, turns = self.rollouts[success.rollout]
        rollouts = list(group.rollouts)
        rollouts[at] = replace(rollouts[at], reward=reward, turns=turns, replayed=True)
        return replace(group, rollouts=tuple(rollouts))

    def note(self, made: RolloutGeneration) -> None:
        """Keeps the newest success of each task of a generation, and forgets the oldest where there are too many."""
        for group in made.groups:
            solved = [each for each in group.rollouts if each.episode.success and each.turns]
            if solved:
                self._keep(
                    _key(group.task), f"{made.number}-{group.number}-{solved[-1].number}", solved[-1], made.number
                )
        there = sorted(self.pool.stored.items(), key=lambda item: list(self.rollouts).index(item[1][-1].rollout))
        self.pool.stored = dict(there[-self.config.kept :])
        used = self.pool.in_use()
        self.rollouts = {name: held for name, held in self.rollouts.items() if name in used}

    def _keep(self, task: str, name: str, played: PlayedRollout, generation: int) -> None:
        self.pool.add(task, name, generation)
        self.rollouts[name] = (played.reward, played.turns)

    def save(self, checkpoint: Path) -> None:
        """Writes the successes into a checkpoint."""
        folder = checkpoint / FOLDER
        folder.mkdir(exist_ok=True)
        told = {}
        for name, (reward, turns) in self.rollouts.items():
            told[name] = StoredRollout(reward=reward, turns=tuple(map(_plain, turns)))
            for number, turn in enumerate(turns):
                for place, image in enumerate(turn.images):
                    image.save(_picture(folder, name, number, place), format="PNG")
        (folder / INDEX).write_bytes(msgspec.json.encode(StoredSuccesses(pool=self.pool.stored, rollouts=told)))

    def restore(self, checkpoint: Path) -> None:
        """Goes on with a checkpoint's successes. Raises ConfigError where they cannot be read."""
        folder = checkpoint / FOLDER
        try:
            held = msgspec.json.decode((folder / INDEX).read_bytes(), type=StoredSuccesses)
            self.rollouts = {
                name: (one.reward, tuple(_whole(folder, name, number, turn) for number, turn in enumerate(one.turns)))
                for name, one in held.rollouts.items()
            }
        except (OSError, SyntaxError, msgspec.DecodeError) as error:
            raise ResumeError(f"resume: {folder} cannot be read: {error}") from None
        self.pool.stored = held.pool
        if missing := sorted(self.pool.in_use() - self.rollouts.keys()):
            raise ResumeError(f"resume: {folder / INDEX}: {missing[0]} is in the pool, and not among the rollouts")


def _key(task: Task) -> str:
    return f"{task.task_id} {task.seed}"


def _picture(folder: Path, name: str, turn: int, image: int) -> Path:
    return folder / f"{name}-{turn}-{image}.png"


def _plain(turn: SampledTurn) -> StoredTurn:
    return StoredTurn(
        prompt_ids=turn.prompt_ids, ids=turn.ids, logprobs=turn.logprobs, cut=turn.cut, images=len(turn.images)
    )


def _whole(folder: Path, name: str, number: int, turn: StoredTurn) -> SampledTurn:
    images = []
    for place in range(turn.images):
        with Image.open(_picture(folder, name, number, place)) as image:
            image.load()
            images.append(image.copy())
    return SampledTurn(turn.prompt_ids, tuple(images), turn.ids, turn.logprobs, turn.cut)
