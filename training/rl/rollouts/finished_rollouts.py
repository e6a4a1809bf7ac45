"""Finished rollouts of a generation that is not complete yet: a training that was interrupted plays only the others.

Each lies in a folder GROUP-ROLLOUT under results/unfinished, which travels with a live output: its pictures, and
rollout.msgpack, which is written last. It counts again only if the same weights sampled it: every checkpoint holds the
name of its weights, and the rollouts that come after it carry this name. So a rollout that was kept beside one
checkpoint is not used after another, older one.
"""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from PIL import Image
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from eval.config import ResumeError
from eval.desktop import Task
from eval.episodes import Episode
from training.common.checkpoints import also_save
from training.rl.config import RlConfig
from training.rl.rollouts.generation import PlayedRollout
from training.rl.rollouts.policy import SampledTurn
from training.rl.rollouts.screen_states import ScreenState

FOLDER: Final = "unfinished"  # in the results
FILE: Final = "rollout.msgpack"
WEIGHTS: Final = "weights.json"  # in a checkpoint
START: Final = "start"  # the name of the weights before the first step, which the configuration alone decides


class StoredWeights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """weights.json."""

    name: str


class KeptTurn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A turn; `images` names its pictures' files in the order of their places."""

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    cut: bool
    images: tuple[str, ...]


class KeptRollout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """rollout.msgpack. `config`: the hash of the configuration; `turns_allowed`: as the curriculum said."""

    weights: str
    config: str
    generation: int
    task_id: str
    seed: int
    turns_allowed: int | None
    number: int
    reward: float
    parts: dict[str, float]
    episode: Episode
    turns: tuple[KeptTurn, ...]
    states: tuple[ScreenState, ...]
    limited: bool = False


class FinishedRollouts(TrainerCallback):  # type: ignore[misc]
    """Those of one training.

    trainer  whose checkpoints hold the name of the weights
    folder   of the results
    resume   tells the checkpoint that the training goes on from, or None
    """

    def __init__(self, trainer: Any, config: RlConfig, folder: Path, resume: Callable[[], str | None]) -> None:
        self.folder = folder / FOLDER
        self.resume = resume
        self.trainer = trainer
        self.config = hashlib.sha256(msgspec.json.encode(config, order="sorted")).hexdigest()[:16]
        self.named = (0, START)  # (step, the name of the weights after it)
        self.generation = -1
        also_save(trainer, self.save)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Raises ConfigError."""
        if (checkpoint := self.resume()) is None:
            return
        file = Path(checkpoint) / WEIGHTS
        try:
            held = msgspec.json.decode(file.read_bytes(), type=StoredWeights)
        except FileNotFoundError:
            return  # a checkpoint of before: nothing was kept beside it
        except (OSError, msgspec.DecodeError) as error:
            raise ResumeError(f"resume: {file} cannot be read: {error}") from None
        self.named = (state.global_step, held.name)

    def save(self, checkpoint: Path) -> None:
        """Writes the name of the present weights into a checkpoint."""
        (checkpoint / WEIGHTS).write_bytes(msgspec.json.encode(StoredWeights(name=self.name())))

    def name(self) -> str:
        """Of the present weights."""
        step = self.trainer.state.global_step
        if self.named[0] != step:
            self.named = (step, uuid.uuid4().hex)
        return self.named[1]

    def begin(self, generation: int) -> None:
        """Before the rollouts of a generation: what was kept of others goes."""
        self.generation = generation
        for folder in self.folder.glob("*"):
            held = self._read(folder)
            if held is None or (held.weights, held.generation) != (self.name(), generation):
                shutil.rmtree(folder)

    def end(self) -> None:
        """After the last generation."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def find(self, group: int, member: int, task: Task, turns_allowed: int | None) -> PlayedRollout | None:
        """The rollout of a seat that an interrupted training finished, or None."""
        folder = self.folder / f"{group}-{member}"
        held = self._read(folder)
        if held is None or (held.task_id, held.seed, held.turns_allowed) != (task.task_id, task.seed, turns_allowed):
            return None
        try:
            turns = tuple(_whole(folder, turn) for turn in held.turns)
        except (OSError, SyntaxError):  # what PIL raises for a broken picture
            return None
        return PlayedRollout(
            member, held.episode, turns, held.reward, states=held.states, parts=held.parts, limited=held.limited
        )

    def keep(self, group: int, task: Task, turns_allowed: int | None, played: PlayedRollout) -> None:
        """Writes a rollout that was just finished. Where that fails, as on a full disk, the training goes on and says
        so."""
        folder = self.folder / f"{group}-{played.number}"
        try:
            self._write(folder, task, turns_allowed, played)
        except (OSError, TypeError, ValueError) as error:  # msgspec's, for values that no file can hold, are the latter
            shutil.rmtree(folder, ignore_errors=True)
            print(f"{folder.name}: not kept for a training that is interrupted: {error}", flush=True)

    def _write(self, folder: Path, task: Task, turns_allowed: int | None, played: PlayedRollout) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        held = KeptRollout(
            weights=self.name(),
            config=self.config,
            generation=self.generation,
            task_id=task.task_id,
            seed=task.seed,
            turns_allowed=turns_allowed,
            number=played.number,
            reward=played.reward,
            parts=dict(played.parts),
            episode=played.episode,
            turns=tuple(_stored(folder, turn) for turn in played.turns),
            states=played.states,
            limited=played.limited,
        )
        begun = folder / f".{FILE}"
        begun.write_bytes(msgspec.msgpack.encode(held))
        begun.replace(folder / FILE)

    def _read(self, folder: Path) -> KeptRollout | None:
        """None where nothing whole of this configuration is kept."""
        try:
            held = msgspec.msgpack.decode((folder / FILE).read_bytes(), type=KeptRollout)
        except (OSError, msgspec.DecodeError):
            return None
        return held if held.config == self.config else None


def _stored(folder: Path, turn: SampledTurn) -> KeptTurn:
    """A turn, its pictures written: a picture that several turns were asked with is written once."""
    names = []
    for image in turn.images:
        content = hashlib.sha256(repr((image.mode, image.size)).encode() + image.tobytes()).hexdigest()[:16]
        names.append(f"{content}.png")
        if not (file := folder / names[-1]).exists():
            image.save(file, format="PNG", compress_level=1)
    return KeptTurn(prompt_ids=turn.prompt_ids, ids=turn.ids, logprobs=turn.logprobs, cut=turn.cut, images=tuple(names))


def _whole(folder: Path, turn: KeptTurn) -> SampledTurn:
    images = []
    for name in turn.images:
        with Image.open(folder / name) as image:
            image.load()
            images.append(image.copy())
    return SampledTurn(turn.prompt_ids, tuple(images), turn.ids, turn.logprobs, turn.cut)
