"""The configuration of GRPO and its checks. Imports no torch, so that a bad configuration fails at once.

Only the learning rate limits a step: with one update per generation (the default) the importance ratio is 1, so
`epsilon` never clips (the measured clip ratio is exactly 0), and Adam's steps are as long as the rate says, even when
few groups have a variance to learn from. So use a warm-up and a falling rate. docs/project/benchmarks.md has the
measurements.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import msgspec

from eval.config import Config, ConfigError
from eval.prompts import PromptConfig
from training.data.faults import Policy
from training.data.source import SourceConfig
from training.options import NotNegative, Positive, TrainerConfig, check_largest_ratio, processes
from training.rewards.loading import RewardSpec
from training.trl_arguments import UNREAD_BY_GRPO

Loss = Literal["grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo"]
# beyond these bounds the probabilities of a float32 softmax are no numbers
Temperature = Annotated[float, msgspec.Meta(ge=0.01, le=100)]


class GenerationConfig(Config, frozen=True):
    """
    backend      transformers: the model that is trained. vllm: see mode
    mode         colocate: vLLM in the trainer's process and on its GPU. http: a plain vLLM server on any device, see
                 training.common.vllm_client; needs a lora. server, TRL's own, is refused: its answers do not tell which
                 prompt was run
    url          of the server (http)
    served_name  what the server calls the base model (http)
    adapters     a folder that trainer and server both see: the LoRA is handed over in it (http)
    memory       share of the GPU's memory for vLLM (colocate)
    parallel     GPUs that vLLM spreads the model over (colocate)
    context      tokens of a prompt and its answer that vLLM makes room for (colocate); None: of the longest prompt that
                 is seen at the start, a tenth more, and max_completion
    timeout      seconds to wait for a server, and for one of its answers
    """

    backend: Literal["transformers", "vllm"] = "transformers"
    mode: Literal["colocate", "server", "http"] = "colocate"
    url: str | None = None
    served_name: str = "model"
    adapters: str | None = None
    memory: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.3
    parallel: Positive = 1
    context: Positive | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 240.0


class Limit(Config, frozen=True, rename={"steps": "for"}):
    """A collapse: a measure stays out of its bounds for several generations in a row.

    below  a collapse when the measure is lower than this; None: no lower bound
    above  a collapse when the measure is higher than this; None: no upper bound
    for    generations in a row that must be out of bounds before the training stops
    """

    below: float | None = None
    above: float | None = None
    steps: Positive = 10


class WatchConfig(Config, frozen=True):
    """When to stop on a collapse; each is measured per generation, over all processes.

    entropy        mean of the sampled tokens' entropy, nats
    zero_variance  share of groups whose rewards are all the same, [0, 1]
    length         mean tokens per answer
    truncated      share of answers cut off at the longest length, [0, 1]
    kl             mean of the tokens' KL divergence from the start model, nats; needs a beta
    reward         mean weighted sum
    """

    entropy: Limit | None = None
    zero_variance: Limit | None = None
    length: Limit | None = None
    truncated: Limit | None = None
    kl: Limit | None = None
    reward: Limit | None = None

    def limits(self) -> dict[str, Limit]:
        return {name: limit for name in self.__struct_fields__ if (limit := getattr(self, name)) is not None}


class GrpoConfig(TrainerConfig, frozen=True, kw_only=True):
    """
    data                  where prompts come from, see training.data.source; each step with an action is one
    prompt                the same section as the evaluation's
    on_bad_sample         a prompt that cannot be used ends the training, or is left out and counted
    rewards               see training.rewards
    num_generations       answers per prompt: the group
    steps_per_generation  optimiser steps that one generation feeds; its prompts are
                          batch_size x accumulate x steps_per_generation x processes / num_generations
    num_iterations        times that each generation is gone through
    max_completion        tokens of an answer at most
    temperature, top_p, top_k  of the sampling
    loss                  see TRL; the paper's GSPO is loss grpo with importance sequence
    importance            of which the importance ratio is: each token, or the whole answer
    beta                  weight of the KL divergence from the start model; 0 spares its forward pass
    epsilon, epsilon_high how far the ratio may leave 1, down and up; epsilon_high None: as far as epsilon. For cispo
                          epsilon_high is the largest ratio itself, 1 or more, say 5
    scale_rewards         divide advantages by the standard deviation of the group, of the batch, or not
    mask_truncated        answers that were cut off do not count in the loss
    generation            who samples the answers: transformers, vLLM in the trainer, or a server
    watch                 measures whose collapse stops the training
    predictions           answers of the last generation that are drawn
    """

    unread: ClassVar[dict[str, str]] = UNREAD_BY_GRPO

    data: str | SourceConfig | list[SourceConfig]
    prompt: PromptConfig = PromptConfig()
    on_bad_sample: Policy = "fail"
    rewards: list[RewardSpec]
    num_generations: Annotated[int, msgspec.Meta(ge=2)] = 8
    steps_per_generation: Positive = 1
    num_iterations: Positive = 1
    max_completion: Positive = 64
    temperature: Temperature = 1.0
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, msgspec.Meta(ge=0)] = 0
    loss: Loss = "dapo"
    importance: Literal["token", "sequence"] = "token"
    beta: NotNegative = 0.0
    epsilon: NotNegative = 0.2
    epsilon_high: NotNegative | None = None
    scale_rewards: Literal["group", "batch", "none"] = "group"
    mask_truncated: bool = False
    generation: GenerationConfig = GenerationConfig()
    watch: WatchConfig = WatchConfig()
    batch_size: Positive = 64
    learning_rate: Annotated[float, msgspec.Meta(gt=0, le=1e30)] = 1e-6
    predictions: Annotated[int, msgspec.Meta(ge=0)] = 12

    @property
    def period(self) -> int:
        """Optimiser steps per generation; checkpoints are written only between generations."""
        return self.steps_per_generation * self.num_iterations

    def prompts_per_generation(self) -> int:
        return self.batch_size * self.accumulate * self.steps_per_generation * processes() // self.num_generations

    def epochs_of(self, prompts: int) -> int:
        """Passes, begun ones too, over so many prompts. An epoch leaves out what does not fill a generation."""
        if self.epochs is not None:
            return math.ceil(self.epochs)
        assert self.steps is not None
        return math.ceil(self.steps / max(1, prompts // self.prompts_per_generation() * self.period))

    def check(self) -> None:
        super().check()
        answers = self.batch_size * self.accumulate * self.steps_per_generation * processes()
        if answers % self.num_generations:
            raise ConfigError(
                f"num_generations: a generation has batch_size {self.batch_size} x accumulate {self.accumulate} x "
                f"steps_per_generation {self.steps_per_generation} x {processes()} processes = {answers} answers, "
                f"no multiple of {self.num_generations}"
            )
        if self.save_every % self.period:
            raise ConfigError(
                f"save_every must be a multiple of steps_per_generation x num_iterations ({self.period}), "
                f"not {self.save_every}: what was generated is in no checkpoint"
            )
        if self.epsilon >= 1 and self.loss not in ("cispo", "sapo", "vespo"):
            raise ConfigError(f"epsilon must be below 1, not {self.epsilon}")
        check_largest_ratio(self.loss, self.epsilon_high)
        for name, limit in self.watch.limits().items():
            if (limit.below is None) == (limit.above is None):
                raise ConfigError(f"watch.{name}: give either below or above")
        if self.watch.kl is not None and not self.beta:
            raise ConfigError("watch.kl needs a beta above 0: without one the start model is not asked")
        self._check_generation()

    def _check_generation(self) -> None:
        generation = self.generation
        mode = self.trl.get("vllm_importance_sampling_mode", "token_truncate")
        if self.loss == "vespo" and mode not in ("token_truncate", "token_mask"):
            raise ConfigError(
                f"trl.vllm_importance_sampling_mode: loss vespo takes token_truncate or token_mask: {mode!r}"
            )
        if generation.backend == "vllm" and generation.mode == "http":
            for name in ("min_p", "repetition_penalty", "vllm_structured_outputs_regex"):
                if name in self.trl:
                    raise ConfigError(f"trl.{name}: has no effect with mode http, whose requests are our own")
        if generation.backend != "vllm":
            return
        if generation.mode == "server":
            raise ConfigError(
                "generation.mode: server is not offered: TRL's client does not tell which prompt the server ran, so "
                "nothing proves that it is the trainer's; take colocate or http"
            )
        if generation.mode == "http" and generation.url is None:
            raise ConfigError("generation.url: name the server for mode http")
        if generation.url is not None and not generation.url.startswith(("http://", "https://")):
            raise ConfigError(f"generation.url: {generation.url!r} is no address; allowed: http://HOST:PORT, or https")
        if generation.context is not None and generation.mode != "colocate":
            raise ConfigError("generation.context: only for mode colocate; a server has its own --max-model-len")
        if generation.context is not None and generation.context <= self.max_completion:
            raise ConfigError(f"generation.context: {generation.context} leaves no room beside max_completion")
        if generation.mode == "http" and generation.adapters is None:
            raise ConfigError("generation.adapters: name the folder in which the server finds the LoRA")
        if generation.mode == "http" and self.lora is None and self.adapter is None:
            raise ConfigError("generation: mode http hands a LoRA over: give a lora to train")
        if generation.mode == "http" and (self.fsdp or self.deepspeed):
            raise ConfigError("generation: mode http cannot gather a LoRA from shards: leave fsdp and deepspeed out")
