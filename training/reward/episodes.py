"""A reward model of whole episodes: what it is asked, the episodes that it learns from, and its judgement of one.

It is shown the goal, the actions so far as text, and the last screens, the one after the last action among them, by the
prompt builder of all else. Its score is the logit of the probability that the episode solved its task. Imports no
torch.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from eval.config import Config, ConfigError, convert
from eval.desktop import BadFrame
from eval.episodes import Episode, EpisodeError, is_complete, read_episode
from eval.episodes.images import AnyImage, check_image
from eval.prompts import Message, PastStep, PromptBuilder, PromptConfig
from training.data.faults import BadSample, Faults, is_file
from training.data.packed.pack import SplitConfig, side
from training.data.pairs.human import episode_ratings
from training.data.pairs.maker import ObservedStep
from training.data.samples import Sample
from training.reward.model import RewardModel, read_about

ASKED: Final = "An agent had a goal. Its actions and the last screens tell whether it was reached."
ToldEpisode = tuple[str, Sequence[PastStep], AnyImage]  # the goal, all steps, the screen after the last one


class JudgedEpisodesConfig(Config, frozen=True, kw_only=True):
    """
    path     a folder of episodes
    prompt   how an episode is told: its last `images` screens and its last `history` actions, in the words of its
             dialect. Without `system` a line says what is asked; without the section two screens are shown
    split    which are held out, all that are not `train`; without the section a fifth, by task, so that no task is on
             both sides
    ratings  a .csv or .jsonl file with the columns episode (its folder's name), rating and, if there are several,
             rater; or a .json file of {"EPISODE": NUMBER}. Only rated episodes count. None: an episode is solved or
             not, as its checker said
    solved   the mean rating from which an episode counts as solved
    """

    path: str
    prompt: PromptConfig = PromptConfig(images=2)
    split: SplitConfig = SplitConfig(test=0.2, by="task")
    ratings: str | None = None
    solved: float = 0.5

    def check(self) -> None:
        """Raises ConfigError for values that contradict each other."""
        self.split.check()
        self.prompt.check()
        for name, odd in (
            ("demonstration", self.prompt.demonstration is not None),
            ("observation", self.prompt.observation != "screenshot"),
        ):
            if odd:
                raise ConfigError(f"episodes.prompt.{name}: a judge of episodes reads the last screens; leave it out")


@dataclass(frozen=True)
class JudgedEpisode:
    """An episode with its outcome. `ratings`: by rater; without any, `solved` is what the checker said."""

    name: str
    task_id: str
    asked: Sample
    solved: bool
    ratings: dict[str, float]

    @property
    def given(self) -> dict[str, float]:
        """The ratings, or the checker's verdict as one."""
        return self.ratings or {"checker": float(self.solved)}


def judge_builder(prompt: PromptConfig) -> PromptBuilder:
    """The builder of what a judge of episodes is asked. Raises ConfigError."""
    return (prompt if prompt.system is not None else msgspec.structs.replace(prompt, system=ASKED)).builder()


def asked_of(folder: Path, episode: Episode) -> ToldEpisode:
    """What a recorded episode shows. Where the screen after the last action was not kept, the one before it is last.
    Raises BadSample for an episode without a step."""
    if not episode.steps:
        raise BadSample("no_steps", "an episode without a step")
    whole = ObservedStep(folder, episode, len(episode.steps))
    last = folder / episode.frame(len(episode.steps))
    return whole.goal, whole.past, last if is_file(last) else folder / episode.steps[-1].screenshot


def episode_chat(builder: PromptBuilder, asked: ToldEpisode) -> tuple[list[Message], list[AnyImage]]:
    """The chat whose last token is scored, and its pictures, not opened."""
    goal, past, last = asked
    return builder.layout(goal, [builder.as_taught(step) for step in past], last)


def judged(root: Path, config: JudgedEpisodesConfig, faults: Faults) -> list[tuple[Episode, JudgedEpisode]]:
    """The episodes of a folder that have an outcome, in order. Raises ConfigError."""
    if not root.is_dir():
        raise ConfigError(f"episodes: there is no folder {root}")
    builder = judge_builder(config.prompt)
    rated = None if config.ratings is None else episode_ratings(Path(config.ratings), faults)
    found = []
    for folder in sorted(root.iterdir()):
        if not is_complete(folder) or (rated is not None and folder.name not in rated):
            continue
        try:
            episode = read_episode(folder)
            found.append((episode, _judged(folder, episode, builder, config, (rated or {}).get(folder.name, {}))))
        except EpisodeError as error:
            faults.bad("episodes", BadSample("broken_episode", str(error)))
        except BadSample as fault:
            faults.bad(str(folder), fault)
    return found


def _judged(
    folder: Path, episode: Episode, builder: PromptBuilder, config: JudgedEpisodesConfig, ratings: dict[str, float]
) -> JudgedEpisode:
    """Raises BadSample."""
    if not ratings and episode.success is None:
        raise BadSample("no_outcome", "nothing judged the episode")
    messages, images = episode_chat(builder, asked_of(folder, episode))
    files = [image for image in images if isinstance(image, Path)]
    for file in files:
        try:
            check_image(file)
        except BadFrame as error:
            raise BadSample("image_broken" if is_file(file) else "image_missing", str(error)) from None
    mean = math.fsum(ratings.values()) / len(ratings) if ratings else float(bool(episode.success))
    solved = mean >= config.solved if ratings else bool(episode.success)
    return JudgedEpisode(folder.name, episode.task_id, Sample(messages, files), solved, ratings)


def outcomes(
    config: JudgedEpisodesConfig, other: str | None, faults: Faults
) -> tuple[list[JudgedEpisode], list[JudgedEpisode], str]:
    """(episodes to learn from, held-out ones, name of the latter). `other`: a folder of which all are held out. Raises
    ConfigError where there is nothing to learn or to measure, or a task is on both sides."""
    mine = judged(Path(config.path), config, faults)
    if other is None:
        parts: dict[bool, list[JudgedEpisode]] = {True: [], False: []}
        for episode, each in mine:
            try:
                parts[side(config.split, episode) == "train"].append(each)
            except BadSample as fault:
                faults.bad(each.name, fault)
        train, test, name = parts[True], parts[False], "test"
    else:
        train, test = [each for _, each in mine], [each for _, each in judged(Path(other), config, faults)]
        name = Path(other).name
    if len({each.solved for each in train}) < 2:
        told = "none" if not train else "all solved" if train[0].solved else "all not solved"
        raise ConfigError(f"episodes: {len(train)} to learn from, {told}: there is nothing to tell apart")
    if not test:
        raise ConfigError("episodes.split: no episode is held out; raise split.test, or name a folder as held_out")
    if shared := sorted({each.task_id for each in train} & {each.task_id for each in test}):
        raise ConfigError(
            f"held_out: {len(shared)} tasks are on both sides, {shared[0]} among them; episodes.split.by: task keeps "
            "them apart"
        )
    return train, test, name


def scores(model: RewardModel, episodes: Sequence[JudgedEpisode]) -> list[float]:
    """The logit of each episode's probability of being solved, in order. Raises as RewardModel.score."""
    return model.score([each.asked.messages for each in episodes], [each.asked.images for each in episodes])


class EpisodeJudge:
    """A trained reward model of whole episodes. `model`: of the `prompt` that it was trained with."""

    def __init__(self, model: RewardModel, prompt: PromptConfig) -> None:
        self.model = model
        self.builder = judge_builder(prompt)
        self.lock = threading.Lock()  # one at a time on one device

    @classmethod
    def load(cls, path: str, **options: Any) -> EpisodeJudge:
        """Raises ConfigError for a folder that holds no reward model of whole episodes."""
        prompt = judge_prompt(path)
        return cls(RewardModel.load(path, **options), prompt)

    def probability(self, asked: ToldEpisode) -> float:
        """That the episode solved its task. Raises as RewardModel.score."""
        messages, images = episode_chat(self.builder, asked)
        with self.lock:
            return sigmoid(self.model.score([messages], [images])[0])

    def of_folder(self, folder: Path) -> float:
        """The probability of a recorded episode. Raises ConfigError for one that cannot be judged."""
        try:
            return self.probability(asked_of(folder, read_episode(folder)))
        except (BadSample, EpisodeError, ValueError) as error:
            raise ConfigError(f"judge: {folder}: {error}") from None


def judge_prompt(path: str) -> PromptConfig:
    """The prompt that a judge of whole episodes was trained with. Raises ConfigError for any other folder."""
    about = read_about(Path(path))
    if "prompt" not in about:
        raise ConfigError(f"reward model: {path} scores single answers; it judges no episode")
    return convert(about["prompt"], PromptConfig, f"reward model: {path}")


@lru_cache(maxsize=2)
def load_judge(path: str) -> EpisodeJudge:
    """As EpisodeJudge.load, once for each process."""
    return EpisodeJudge.load(path)


def sigmoid(score: float) -> float:
    """Of a score its probability, without an overflow."""
    return 1 / (1 + math.exp(-score)) if score > -700 else 0.0
