"""The configuration of training.rl and its checks. Imports no torch, so that a bad configuration fails at once."""

from __future__ import annotations

import os
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from eval.config import ConfigError
from eval.environments.registry import EnvironmentName, TasksConfig, judge_of, redrawing, tasks_of
from eval.environments.splits import SPLIT_SEED
from eval.prompts import PromptConfig
from eval.rollout.loop import RolloutLimits
from eval.scores.judge_errors import check_specific
from training.common.measuring.in_training import LOSS, EvaluationConfig, check_sharded
from training.options import NotNegative, Positive, Share, TrainerConfig, check_largest_ratio, processes
from training.reward.episodes import judge_prompt
from training.rl.sections import (
    AsyncConfig,
    CriticConfig,
    FreshConfig,
    KlConfig,
    ReplayConfig,
    SdpoConfig,
    StartConfig,
    check_trl,
    started_steps,
)
from training.rl.vllm_config import visible
from training.trl_arguments import UNREAD_BY_RL

Loss = Literal["grpo", "dapo", "cispo", "sapo"]
Average = Literal["tokens", "rollouts", "constant"]
# beyond these bounds the probabilities of a float32 softmax are no numbers
Temperature = Annotated[float, msgspec.Meta(ge=0.01, le=100)]
TOLERANCES = {"float32": 1e-3, "bf16": 0.1}  # nats
BY_VLLM = {"float32": 1e-2, "bf16": 0.2}  # other kernels, in another order


# what nothing reads where every turn learns from the teacher
UNREAD = (
    *("advantage", "gamma", "step_weight", "average", "loss", "importance", "epsilon", "epsilon_high"),
    *("scale_rewards", "turn_cost", "length_buffer", "cut_cost", "kl", "post_kl"),
)


class RlConfig(TrainerConfig, frozen=True, kw_only=True):
    """
    environment           where the tasks come from
    options               the environment's own options
    tasks                 how many tasks, and the seed of the first; the order is drawn anew in each pass over them
    prompt                the same section as the evaluation's
    limits                steps, time limits and attempts of a rollout; `concurrency` is how many desktops run at once
    start                 tasks whose groups begin in the middle of a recorded episode, which is gone through again
    task_order            even: every task once in each pass over them; curriculum: tasks whose groups were all solved
                          or all failed are drawn less, and now and then again
    tasks_per_generation  tasks that are tried before the model is updated
    fresh                 with the curriculum: the training makes further tasks of the templates that the model solves
                          sometimes, with the seeds after those of `tasks`. None: it has those of `tasks` alone
    most_groups           dynamic sampling: groups whose rollouts all have the same return teach nothing, and further
                          tasks are tried in their place until there are tasks_per_generation that do, but so many at
                          most. Where none does, all are trained on, to no effect. None: no further tasks
    replay                where every rollout of a group failed, the newest success of its task takes the place of the
                          last one. None: a group that failed stays so
    group_size            rollouts of each task: the group whose returns are compared
    most_rollouts         with the curriculum: a group has more rollouts than group_size, up to so many, where its task
                          was nearly always solved or failed of late, so that some succeed and some fail. None:
                          group_size always
    turn_slack            with the curriculum: a rollout may take so many times the turns of its task's longest success,
                          and never more than limits say. None: as limits say
    reward                what a rollout returns: score, the environment's judgement from 0 to 1; success, 0 or 1; or
                          model, the probability of success that reward_model gives. Successes that are counted and
                          kept are the environment's in any case
    reward_model          with reward: model: a folder that training.reward wrote with `episodes`
    batching              when the model is asked. ready: as soon as it is free and some desktops wait, so that no
                          desktop waits for the slowest. together: when all wait, which gives the same bits on any
                          machine; needs as many desktops as a generation has rollouts
    unspecific_judge      where a model judges the environment's tasks (options.vlm of sources): the training goes on
                          although its specificity is below .95, or was not measured (python -m eval.judge_errors)
    turn_cost             what each turn takes off the return: .02 makes short ways better ones
    length_buffer         tokens before max_completion in which an answer begins to cost: nothing at their start, 1 at
                          their end. The mean over the rollout's answers is taken off its return. None: length costs
                          nothing
    cut_cost              what each answer that was cut off at max_completion takes off the return
    mask_truncated        answers that were cut off are in no loss; their rollout's return counts for the others
    max_void              the share of a generation's rollouts that may be lost to failures of desktops or checkers;
                          with more, the training stops with the reasons and exit code 1
    collapse              the training stops with exit code 78 where the share of rollouts that succeed, in its last 5
                          generations, is below this part of that in the best 5 in a row, if those had 20 successes.
                          None: it goes on
    steps_per_generation  optimiser steps that the turns of one generation are divided over
    num_iterations        times that each generation is gone through
    batch_size            rows per forward pass, and answers sampled at once; a step takes as many passes as its rows
                          need
    max_completion        tokens of an answer at most
    temperature           of the sampling
    top_k                 filter of the sampling: only so many of the likeliest tokens; 0: all. The loss computes with
                          the filtered distribution, too, whose logits it holds for a whole pass
    top_p                 filter of the sampling: the likeliest tokens that have this probability together
    min_p                 filter of the sampling: tokens of at least this part of the likeliest one's probability
    repetition_penalty    filter of the sampling: makes tokens that are there already less likely, as in transformers
    rows                  what is one row of the loss: turn, with the prompt that it was asked with; or trajectory, a
                          whole rollout, read once instead of once for each turn, which needs prompts that continue each
                          other (prompt.history_style chat). Where an answer's text is not tokenised again as it was
                          sampled, a new row begins (train/rows_per_rollout)
    advantage             of a turn, from the returns of its group: grpo, the rollout's return; per_turn, the return
                          from that turn on; gigpo, grpo's and that among turns that began in the same state of the
                          screen; gae, PPO's, of each token by a critic
    critic                with gae: how the critic learns. It is a second model, as large as the first
    gamma                 discount of per_turn and gigpo for each further turn
    step_weight           with gigpo: of the part that compares turns
    average               what the loss is the mean of, over the whole generation: tokens; rollouts (of their turns, of
                          their tokens: M-GRPO); or constant, Dr. GRPO's divisor of the longest rollout that any task of
                          the training allows, which wants scale_rewards: none. The last two need loss dapo or cispo
    entropy_share         the share of each group's turns, those of the highest entropy, that are trained on
    loss                  of a turn's tokens: dapo and cispo are a mean over the tokens of the generation, grpo and sapo
                          over its rows. GSPO is loss grpo with importance sequence
    importance            of which the importance ratio is: each token, or all sampled tokens of a row
    epsilon, epsilon_high how far the ratio may leave 1, down and up; epsilon_high None: as far as epsilon. For cispo
                          epsilon_high is the largest ratio itself, 1 or more, say 5
    scale_rewards         divide advantages by the standard deviation of the group, or not; with gae, of all tokens of
                          the generation
    sdpo                  the model learns, token by token, from an average of itself that is shown how a sibling did
                          the task, or how this rollout failed. None: every turn learns from its advantage
    kl                    a penalty for every token that the model of the start, the reference, would have said less
                          or more likely (train/kl). With a LoRA the reference is the model without it; else it is a
                          second model in memory. None: none
    post_kl               after the last step of each generation its tokens are read once more: how far they moved the
                          policy is train/post_kl_v1 and train/post_kl_v2
    asynchronous          rollouts run in a process of their own, with a copy of the model, while the training trains;
                          weights go there after each update, under a version. None: rollouts and updates take turns
    gate                  nats. Before a generation moves the weights, the log probabilities of every turn are computed
                          again from what the loss sees. Where a turn's mean absolute difference from those of the
                          rollout is larger, the training stops with exit code 78 and results/gate.json names the turns.
                          With asynchronous, by the weights that sampled the turn.
                          None: .001 with precision float32, .1 with bf16; by vLLM .01 and .2
    kept_groups           groups of each generation whose screens are kept, beside the records of all of them
    successes             so many of the newest rollouts that succeeded are kept as episodes, in `episodes`: an SFT can
                          learn from them, as Entropulse does. None: none
    evaluation            the same section as that of training.sft; keep: last takes the weights of the last step
    """

    unread: ClassVar[dict[str, str]] = UNREAD_BY_RL

    environment: EnvironmentName
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    tasks: TasksConfig
    prompt: PromptConfig = PromptConfig()
    limits: RolloutLimits = RolloutLimits()
    start: list[StartConfig] = msgspec.field(default_factory=list)
    task_order: Literal["even", "curriculum"] = "even"
    tasks_per_generation: Positive = 8
    fresh: FreshConfig | None = None
    most_groups: Positive | None = None
    replay: ReplayConfig | None = None
    group_size: Annotated[int, msgspec.Meta(ge=2)] = 8
    most_rollouts: Positive | None = None
    turn_slack: Annotated[float, msgspec.Meta(ge=1)] | None = None
    reward: Literal["score", "success", "model"] = "score"
    reward_model: str | None = None
    unspecific_judge: bool = False
    turn_cost: NotNegative = 0.0
    length_buffer: Annotated[int, msgspec.Meta(ge=0)] | None = None
    cut_cost: NotNegative = 0.0
    mask_truncated: bool = False
    batching: Literal["ready", "together"] = "ready"
    max_void: Share = 0.25
    collapse: Share | None = 0.1
    steps_per_generation: Positive = 1
    num_iterations: Positive = 1
    batch_size: Positive = 64
    max_completion: Positive = 64
    temperature: Temperature = 1.0
    top_k: Annotated[int, msgspec.Meta(ge=0)] = 0
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    min_p: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    repetition_penalty: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    rows: Literal["turn", "trajectory"] = "turn"
    advantage: Literal["grpo", "per_turn", "gigpo", "gae"] = "grpo"
    critic: CriticConfig | None = None
    gamma: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    step_weight: NotNegative = 1.0
    average: Average = "tokens"
    entropy_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    loss: Loss = "dapo"
    importance: Literal["token", "sequence"] = "token"
    epsilon: NotNegative = 0.2
    epsilon_high: NotNegative | None = None
    scale_rewards: Literal["group", "none"] = "group"
    sdpo: SdpoConfig | None = None
    kl: KlConfig | None = None
    post_kl: bool = False
    asynchronous: AsyncConfig | None = None
    gate: Annotated[float, msgspec.Meta(gt=0)] | None = None
    kept_groups: Annotated[int, msgspec.Meta(ge=0)] = 1
    successes: Positive | None = None
    evaluation: EvaluationConfig | None = None
    learning_rate: Annotated[float, msgspec.Meta(gt=0, le=1e30)] = 1e-6

    @property
    def period(self) -> int:
        """Optimiser steps per generation; checkpoints are written only between generations."""
        return self.steps_per_generation * self.num_iterations

    @property
    def seats(self) -> int:
        """Rollouts of a generation, at most."""
        return self.tasks_per_generation * (self.most_rollouts or self.group_size)

    @property
    def fresh_seed(self) -> int:
        """Of the first fresh task: after the seeds of `tasks`, and of an evaluation's in the same split."""
        after = self.tasks.seed + self.tasks.count
        judged = self.evaluation.tasks if self.evaluation is not None else None
        if judged is None or judged.seed // SPLIT_SEED != self.tasks.seed // SPLIT_SEED:
            return after
        return max(after, judged.seed + judged.count)

    @property
    def tolerance(self) -> float:
        """Of the gate, nats."""
        usual = (BY_VLLM if self._sampler() else TOLERANCES)[self.precision]
        return usual if self.gate is None else self.gate

    @property
    def keeps_screens(self) -> bool:
        """Whether rollouts keep what each turn was asked, screens included."""
        return self.sdpo is not None or self.successes is not None

    @property
    def reuses(self) -> bool:
        """Whether a rollout that was finished before an interruption counts after it. Not where answers depend on which
        rollouts share a batch, and not where a rollout keeps its screens, which are not written."""
        return self.batching == "ready" and not self.keeps_screens

    @property
    def filtered(self) -> list[str]:
        """The filters of the sampling that are on."""
        usual = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
        return [name for name, off in usual.items() if getattr(self, name) != off]

    @property
    def max_new_tokens(self) -> int:
        """Of an answer in the evaluation: as in a rollout."""
        return self.max_completion

    def check(self) -> None:
        self._check_processes()  # first: what is missing here may be there in the job's image
        super().check()
        check_trl(self.trl, taught=self.sdpo is not None and self.sdpo.solved == "sdpo")
        self.prompt.check()
        if self.steps is None:
            raise ConfigError("steps: give the optimiser steps; how many turns a pass has is known afterwards")
        if self.accumulate != 1:
            raise ConfigError("accumulate: allowed: 1; a step takes as many passes of batch_size as its turns need")
        if self.lora is not None and self.lora.dropout:
            raise ConfigError("lora.dropout: allowed: 0; with dropout the loss would not see the policy that sampled")
        if self.save_every % self.period:
            raise ConfigError(
                f"save_every must be a multiple of steps_per_generation x num_iterations ({self.period}), "
                f"not {self.save_every}: what was generated is in no checkpoint"
            )
        if self.steps % self.period:
            raise ConfigError(
                f"steps must be a multiple of steps_per_generation x num_iterations ({self.period}), not {self.steps}"
            )
        if self.rows == "trajectory" and self.prompt.history_style != "chat":
            raise ConfigError(
                f"rows: trajectory needs prompt.history_style chat, not {self.prompt.history_style}: only there does a "
                "prompt continue the one before"
            )
        if self.epsilon >= 1 and self.loss not in ("cispo", "sapo"):
            raise ConfigError(f"epsilon must be below 1, not {self.epsilon}")
        if self.average != "tokens" and self.loss not in ("dapo", "cispo"):
            raise ConfigError(f"average: {self.average} needs loss dapo or cispo, which are a mean over tokens")
        if self.average == "constant" and self.scale_rewards != "none":
            raise ConfigError("average: constant is Dr. GRPO's, which has scale_rewards: none")
        if self.gamma != 1.0 and self.advantage in ("grpo", "gae"):
            raise ConfigError(f"gamma: advantage {self.advantage} has no discount; take per_turn or gigpo")
        self._check_critic()
        for name, why in (
            ("sdpo", self.sdpo is not None and "whose teacher tells of all tokens"),
            ("asynchronous.vllm", self._sampler() and "which filters in another order; take temperature"),
        ):
            if self.filtered and why:
                raise ConfigError(f"{self.filtered[0]}: not with {name}, {why}")
        if self.kl is not None and self.adapter is not None:
            raise ConfigError(
                "kl: not with adapter: the reference would be the model without it, from before that training; merge "
                "the adapter (python -m training.merge) and give the result as model"
            )
        if self.length_buffer is not None and self.length_buffer > self.max_completion:
            raise ConfigError(
                f"length_buffer: {self.length_buffer} is longer than max_completion, {self.max_completion}"
            )
        if (self.reward_model is None) != (self.reward != "model"):
            raise ConfigError(
                "reward_model: goes with reward: model, and that with a reward_model; give both or neither"
            )
        if self.reward_model is not None:
            judge_prompt(self.reward_model)
        if not self.unspecific_judge and (judge := judge_of(self.environment, self.options)) is not None:
            check_specific(judge, "unspecific_judge")
        self._check_curriculum()
        if self.most_groups is not None and self.most_groups <= self.tasks_per_generation:
            raise ConfigError(
                f"most_groups: {self.most_groups} leaves no room for further tasks: allowed is more than "
                f"tasks_per_generation, {self.tasks_per_generation}"
            )
        if self.most_groups is not None and self.sdpo is not None:
            raise ConfigError("most_groups: not with sdpo, which learns from groups that are all failed or solved, too")
        if self.replay is not None:
            for name, why in (
                ("sdpo", self.sdpo is not None and "which learns from failures"),
                ("most_groups", self.most_groups is not None and "which tries other tasks in place of such groups"),
                ("advantage: gigpo", self.advantage == "gigpo" and "which compares states that no success keeps"),
            ):
                if why:
                    raise ConfigError(f"replay: not with {name}, {why}")
        self._check_sdpo()
        check_largest_ratio(self.loss, self.epsilon_high)
        self._check_asynchronous()
        if self.batching == "together" and self.limits.concurrency < self.seats:
            raise ConfigError(
                f"limits.concurrency: {self.limits.concurrency} desktops; batching: together needs {self.seats}, one "
                "for each rollout of a generation"
            )
        if self.tasks.count < self.tasks_per_generation:
            raise ConfigError(f"tasks.count: {self.tasks.count} are fewer than tasks_per_generation")
        tasks = tasks_of(self.environment, self.tasks.count, self.tasks.seed, self.options)
        started_steps(self.start, tasks)
        if self.fresh is not None:
            redrawing(self.environment)(tasks[0], self.fresh_seed, self.options)
        self.prompt.builder().check(tasks)
        if self.evaluation is not None:
            self.evaluation.check()
            if self.evaluation.every % self.period:
                raise ConfigError(
                    f"evaluation.every must be a multiple of steps_per_generation x num_iterations ({self.period}): "
                    "the best step is saved, and what was generated is in no checkpoint"
                )
            if self.evaluation.decides == LOSS:
                raise ConfigError(
                    "evaluation.metric: loss is no measure of a policy that samples; take success or score"
                )

    def _sampler(self) -> bool:
        return self.asynchronous is not None and self.asynchronous.vllm is not None

    def _check_processes(self) -> None:
        if self.deepspeed:
            raise ConfigError("deepspeed: training.rl shards with fsdp; leave it out")
        sharded = self.fsdp or os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("true", "1")
        if sharded:
            if self.asynchronous is None:
                raise ConfigError(
                    "fsdp: needs asynchronous: what samples has the whole model, and here each has a part"
                )
            check_sharded(self.evaluation, None, deepspeed=False)
        if not sharded and processes() == 1:
            return
        for name, why in (
            ("advantage: gae", self.critic is not None and "whose critic is in one process"),
            ("sdpo", self.sdpo is not None and "whose teacher is in one process"),
            ("quantization", self.quantization is not None and "which was never tried there"),
        ):
            if why:
                raise ConfigError(f"{name}: not in several processes, {why}")

    def _check_curriculum(self) -> None:
        for name in ("most_rollouts", "turn_slack", "fresh"):
            if getattr(self, name) is not None and self.task_order != "curriculum":
                raise ConfigError(f"{name}: needs task_order: curriculum, which knows how each task went before")
        if self.most_rollouts is not None and self.most_rollouts <= self.group_size:
            raise ConfigError(
                f"most_rollouts: {self.most_rollouts}: allowed is more than group_size, {self.group_size}"
            )

    def _check_critic(self) -> None:
        if (self.critic is None) != (self.advantage != "gae"):
            raise ConfigError("critic: goes with advantage: gae, and that with a critic; give both or neither")
        if self.critic is None:
            return
        for name, odd in (
            ("entropy_share", self.entropy_share < 1.0),
            ("average", self.average != "tokens"),
            ("sdpo", self.sdpo is not None),
            ("replay", self.replay is not None),
            ("most_groups", self.most_groups is not None),
            ("loader: unsloth", self.loader == "unsloth"),
            ("quantization", self.quantization is not None),
        ):
            if odd:
                raise ConfigError(f"{name}: not with advantage: gae; leave it out")

    def _check_asynchronous(self) -> None:
        if self.asynchronous is None:
            return
        for name, why in (
            ("batching: together", self.batching == "together" and "there is no moment in which all desktops wait"),
            ("most_groups", self.most_groups is not None and "groups without a signal are not replaced there yet"),
            ("replay", self.replay is not None and "its successes are told by generations"),
            ("sdpo", self.sdpo is not None and "its teacher would ask what another process was asked"),
            ("ema", self.ema is not None and "rollouts would be of other weights than those that are published"),
            ("loader: unsloth", self.loader == "unsloth" and "the worker loads by transformers"),
        ):
            if why:
                raise ConfigError(f"asynchronous: not with {name}: {why}")
        if (vllm := self.asynchronous.vllm) is None:
            return
        vllm.check(self.lora, self.max_completion)
        if vllm.mode == "server" and self.asynchronous.device is not None:
            raise ConfigError("asynchronous.device: not with vllm.mode server, whose servers have their own")
        visible(self.asynchronous.device, vllm.gpus)
        if self.quantization is not None:
            raise ConfigError("asynchronous.vllm: not with quantization: vLLM would sample with other weights")

    def _check_sdpo(self) -> None:
        if self.sdpo is None:
            return
        if self.rows == "trajectory":
            raise ConfigError("rows: trajectory: not with sdpo, whose teacher has a prompt of its own for each turn")
        if self.lora is not None and self.lora.dora:
            raise ConfigError("lora.dora: allowed with sdpo: false; its teacher averages sums of a layer and a product")
        if self.sdpo.mix is not None and self.sdpo.rate:
            raise ConfigError("sdpo.mix needs sdpo.rate: 0, which keeps the model of the start")
        if self.sdpo.solved == "grpo":
            if self.loss not in ("dapo", "cispo"):
                raise ConfigError("sdpo.solved: grpo needs loss dapo or cispo: both parts share one mean over tokens")
            if self.average != "tokens":
                raise ConfigError("sdpo.solved: grpo needs average: tokens, the mean that both parts share")
            return
        usual = {field.name: field.default for field in msgspec.structs.fields(self)}
        if odd := [name for name in UNREAD if getattr(self, name) != usual[name]]:
            raise ConfigError(
                f"{odd[0]}: does nothing where every turn learns from the teacher; leave it out, or take "
                "sdpo.solved: grpo"
            )
