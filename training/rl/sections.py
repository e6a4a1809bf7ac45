"""Sections of the configuration of training.rl. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from eval.config import Config, ConfigError
from eval.desktop import Task
from eval.environments.started import Key, first_steps
from eval.episodes import Step
from training.options import Positive
from training.rl.vllm_config import SamplerConfig

Estimator = Literal["k1", "k3"]


class KlConfig(Config, frozen=True, kw_only=True):
    """
    coefficient  what the divergence from the reference is multiplied by (TRL's `beta`)
    estimator    of it at each sampled token, where d is its log probability less that by the reference: k1, d; k3,
                 exp(-d) + d - 1, which is never below 0
    place        loss: a term of each token, in the mean that `average` and `loss` say; reward: taken off the return,
                 at each of the rollout's sampled tokens, by the weights from before the first step
    """

    coefficient: Annotated[float, msgspec.Meta(gt=0)]
    estimator: Estimator = "k3"
    place: Literal["loss", "reward"] = "loss"


class SdpoConfig(Config, frozen=True, kw_only=True):
    """
    solved  what the turns of a rollout that succeeded learn from: sdpo, as all others, from another success of the
            group; or grpo, from their advantage, by `loss`
    alpha   the divergence: 0, the forward KL; 1, the reverse one; between, Jensen-Shannon, at .5 the symmetric one
    top     tokens that are compared one by one, the student's likeliest; the others are one bucket. None: all
    rate    of the teacher: after each step it is (1 - rate) times itself plus rate times the model. 0 keeps the model
            of the start
    mix     a trust region in place of an average, with rate 0: the teacher's logits are (1 - mix) times those of the
            model of the start plus mix times those of the model now. None: no trust region
    most    a token's largest importance weight
    """

    solved: Literal["sdpo", "grpo"] = "sdpo"
    alpha: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    top: Positive | None = 100
    rate: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.05
    mix: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    most: Annotated[float, msgspec.Meta(gt=0)] = 2.0


class CriticConfig(Config, frozen=True, kw_only=True):
    """
    learning_rate  of the critic, constant
    pretrain       generations at the start in which only the critic learns, from the returns of a policy that stays as
                   it is
    epochs         times that the critic goes through each generation, in steps of batch_size turns
    critic_lambda  of its targets: with 1 they are the returns themselves
    policy_lambda  of the advantages; None: 1 - 1 / (alpha times the rollout's sampled tokens)
    alpha          of that
    value_clip     how far a value may move from what the critic said before the generation, in its loss: of the errors
                   of the value and of the clipped one the larger counts (PPO's). None: as far as it likes
    bootstrap      where the limit of steps cut a rollout that had not ended, the value after its last token stands for
                   what might have followed; else it is 0 there
    """

    learning_rate: Annotated[float, msgspec.Meta(gt=0)] = 1e-5
    pretrain: Annotated[int, msgspec.Meta(ge=0)] = 0
    epochs: Positive = 1
    critic_lambda: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    policy_lambda: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    alpha: Annotated[float, msgspec.Meta(gt=0)] = 0.05
    value_clip: Annotated[float, msgspec.Meta(gt=0)] | None = None
    bootstrap: bool = False


class StartConfig(Config, frozen=True, kw_only=True):
    """
    episode  the folder of a recorded episode of one of the training's tasks
    step     so many of its steps are done on a clean desktop before each rollout of that task; the model is not told of
             them, and its limit of steps counts from there
    """

    episode: str
    step: Positive


class FreshConfig(Config, frozen=True, kw_only=True):
    """
    each  new tasks after each group of which some rollouts failed and some succeeded: its template, drawn anew
    most  of them that are kept; beyond it those go that are drawn least
    """

    each: Positive = 1
    most: Positive = 500


class ReplayConfig(Config, frozen=True, kw_only=True):
    """
    max_age  generations after which a success is too far from the present model
    kept     successes that are kept at most, the newest ones, one of each task; every checkpoint holds their pictures
    """

    max_age: Positive = 50
    kept: Positive = 64


class AsyncConfig(Config, frozen=True, kw_only=True):
    """
    staleness  updates that may lie between the weights with which a group of rollouts began and those that learn from
               it; an older group is thrown away as a whole. So many times tasks_per_generation groups are ordered ahead
    cap        of a token's importance weight, the ratio of its probability by the weights that learn to that by those
               that sampled it
    gate_share of the turns of each older version, those that the gate computes again with the weights that sampled
               them, one at least: a forward pass more. Which ones is drawn anew for each update
    restarts   of the process that plays rollouts, where it ends by itself, before the training gives up
    device     of its model, as torch names it. None: the first GPU, which it shares with the training, or the CPU
    vllm       vLLM samples the rollouts. None: transformers
    """

    staleness: Positive = 2
    cap: Annotated[float, msgspec.Meta(ge=1)] = 2.0
    gate_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    restarts: Annotated[int, msgspec.Meta(ge=0)] = 3
    device: str | None = None
    vllm: SamplerConfig | None = None


OF_ADVANTAGES: Final = (
    *("delta", "entropy_coef", "entropy_coef_delta", "entropy_coef_max", "entropy_coef_min", "entropy_target"),
    *("off_policy_mask_threshold", "sapo_temperature_neg", "sapo_temperature_pos", "top_entropy_quantile"),
    "use_adaptive_entropy",
)


def check_trl(trl: Mapping[str, Any], *, taught: bool) -> None:
    """Raises ConfigError. `taught`: every turn learns from SDPO's teacher, and none from an advantage."""
    if taught and (unread := [name for name in OF_ADVANTAGES if name in trl]):
        raise ConfigError(
            f"trl.{unread[0]}: does nothing where every turn learns from the teacher; leave it out, or take "
            "sdpo.solved: grpo"
        )


def started_steps(starts: Sequence[StartConfig], tasks: Sequence[Task]) -> dict[Key, Sequence[Step]]:
    """The steps that are done before the rollouts of some tasks. Raises ConfigError."""
    known = {(task.task_id, task.seed): task for task in tasks}
    found: dict[Key, Sequence[Step]] = {}
    for number, start in enumerate(starts):
        key, steps = first_steps(start.episode, start.step, known, f"start[{number}]")
        if key in found:
            raise ConfigError(f"start[{number}].episode: {key[0]} with seed {key[1]} has another start already")
        found[key] = steps
    return found
