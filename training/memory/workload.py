"""Turns a trainer's configuration into the inputs of a memory estimate: the sizes of model and batch, the method."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from eval import config as configuration
from eval.config import ConfigError
from eval.prompts.config import USUAL_IMAGES
from eval.prompts.demonstrations import DemonstrationConfig
from eval.rollout.limits import UNSAID_STEPS
from training.memory import architecture
from training.memory import estimate as memory
from training.memory.architecture import Architecture, UnknownArchitecture
from training.memory.estimate import MemoryEstimate
from training.memory.settings import Batch, Generation, Lora, Sharding, Training
from training.options import TrainerConfig, loaded_dtype

SCREEN: Final = (1920, 1080)
LESSON_TOKENS: Final = 1024  # of five errors of 200 characters and 40 lines of a tree
CHAT_TOKENS: Final = 16  # of the chat template, around an answer and a screenshot
EPISODES_READ: Final = 64  # episodes whose screen sizes are read
SERVER_SHARE: Final = 0.9  # of its GPU that vLLM takes, where nobody tells it another


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A sample's sizes that the configuration does not give.

    screen    width and height of a screenshot; by default that of the episodes, else 1920x1080
    text      text tokens of a prompt, without images
    answer    supervised tokens
    """

    screen: tuple[int, int] | None = None
    text: int | None = None
    answer: int | None = None


class VllmNeed(msgspec.Struct, frozen=True, kw_only=True):
    """What vLLM holds on one device: GRPO's in the trainer, or the sampler of rl's rollouts.

    weights  bytes, in bfloat16; activations: bytes of its forward passes
    context  tokens of the longest sequence that it takes, prompt and answer
    cache    bytes of the keys and values of one such sequence
    """

    weights: float
    activations: float
    context: int
    cache: float

    @property
    def least(self) -> float:
        """Bytes with which vLLM starts: it refuses to if not even one sequence of `context` tokens fits."""
        return self.weights + self.activations + self.cache


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """An estimate and the batch that it is for."""

    estimate: MemoryEstimate
    tokens: int  # of one sequence
    image_tokens: int
    sequences: int
    screen: tuple[int, int]
    vllm: VllmNeed | None = None


def describe(config: TrainerConfig, method: str, shape: Shape, gpus: int) -> MemoryPlan:
    """The estimate for one of `gpus` devices. Raises ConfigError, UnknownArchitecture."""
    model, pixels = read_model(config.model)
    least = config.min_pixels or pixels.get("shortest_edge")
    family = model.family(config.max_pixels or pixels.get("longest_edge"), least)
    screen = shape.screen or _screen(config) or SCREEN
    patches = model.patches(*screen, family)
    images, text, answer = _texts(config, shape)
    image_tokens = images * (patches // model.merge**2)
    tokens = image_tokens + text + answer
    paired = method == "dpo" or (method == "reward" and getattr(config, "pairs", None) is not None)
    sequences = config.batch_size * (2 if paired else 1)
    training = how(config, method, gpus)
    batch = Batch(
        sequences,
        tokens,
        sequences * images * patches,
        # of a whole rollout everything after its first screen goes through the head
        sequences * (tokens if getattr(config, "rows", "turn") == "trajectory" else answer),
        padded=sequences > 1 and not config.padding_free,
    )
    told, shown = _lesson(config)
    taught = (tokens + told + shown * (patches // model.merge**2), (images + shown) * patches)
    generation = _generation(config, method, *taught)
    beside_it = getattr(config, "asynchronous", None)
    if generation is not None and beside_it is not None and beside_it.device is None and beside_it.vllm is None:
        # a second copy of the model on the same device samples while this one trains
        beside = sum(memory.weights(model, training).values()) + memory.sampling(model, training, generation)
        training = replace(training, others=training.others + beside)
        generation = None
    if getattr(config, "critic", None) is not None:  # in float32, with its gradients and AdamW's two moments
        training = replace(training, others=training.others + 16.0 * sum(model.parameters().values()))
    estimate = memory.estimate(model, training, batch, generation)
    return MemoryPlan(
        estimate=estimate,
        tokens=tokens,
        image_tokens=image_tokens,
        sequences=sequences,
        screen=screen,
        vllm=_vllm(config, model, tokens) if colocated(config) or _sampler(config) is not None else None,
    )


def how(config: TrainerConfig, method: str, gpus: int) -> Training:
    """The training settings of a configuration. Raises ConfigError for an unreadable DeepSpeed file."""
    half = config.precision == "bf16"
    size = 2 if loaded_dtype(config) == "bfloat16" else 4
    zero = _deepspeed(config.deepspeed)
    sharding = Sharding()
    if gpus > 1 and config.fsdp:
        sharding = Sharding(gpus, gpus, gpus)
    elif zero:
        stage = int(zero.get("stage", 0))
        offloaded = str((zero.get("offload_optimizer") or {}).get("device", "none")) != "none"
        weights, gradients, states = (gpus if stage >= least else 1 for least in (3, 2, 1))
        sharding = Sharding(weights, gradients, states, master=size == 2, offload=offloaded)
    if config.quantization is not None and config.loader == "transformers":
        size = 4  # peft makes float32 what is not quantised: embeddings, head, norms, tower (and so the residuals)
    if method == "reward" and config.adapter is not None and half and not zero:
        size = 4  # the policy's adapter is merged, and then all weights are trained
    return Training(
        size=size,
        autocast=half and not zero,
        lora=_lora(config),
        lora_size=2 if zero.get("stage") == 3 and size == 2 else 4,
        quantization=config.quantization,
        freeze_vision=config.freeze_vision,
        optimizer=config.optimizer,
        checkpointing=config.activation_checkpointing,
        attention="eager" if config.attention == "eager" else "sdpa",
        head="scalar" if method == "reward" else "full" if getattr(config, "filtered", None) else "chunked",
        copies=_copies(config, method),
        others=_reward_models(config),
        ddp=gpus > 1 and not config.fsdp and not zero,
        accumulate=config.accumulate,
        average=config.ema is not None,
        teacher=getattr(config, "sdpo", None) is not None,
        sharding=sharding,
    )


def read_model(name: str) -> tuple[Architecture, Mapping[str, int]]:
    """(architecture, bounds of an image's area from the processor's file). Raises ConfigError."""
    try:
        if not name.startswith("hf://"):
            folder = Path(name)
            if not (folder / "config.json").is_file():
                raise ConfigError(f"model: there is no config.json in {name}")
            return architecture.read(folder / "config.json"), _pixels(folder)
        hub = name.removeprefix("hf://").partition("@")[0]
        if known := architecture.published(hub):
            return known, {}
        from transformers.utils import cached_file

        return architecture.read(Path(str(cached_file(hub, "config.json")))), {}
    except UnknownArchitecture:
        raise
    except OSError as error:
        raise ConfigError(f"model: {name}: {' '.join(str(error).split())[:200]}") from None


def _pixels(folder: Path) -> Mapping[str, int]:
    for name in ("processor_config.json", "preprocessor_config.json"):
        try:
            data = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        data = data.get("image_processor", data)
        size = data.get("size") or {}
        bounds = {
            "longest_edge": size.get("longest_edge", data.get("max_pixels")),
            "shortest_edge": size.get("shortest_edge", data.get("min_pixels")),
        }
        return {key: int(value) for key, value in bounds.items() if value}
    return {}


def _lora(config: TrainerConfig) -> Lora | None:
    if config.lora is not None:
        return Lora(config.lora.rank, config.lora.targets, config.lora.dropout > 0)
    if config.adapter is None:
        return None
    try:
        data = json.loads((Path(config.adapter) / "adapter_config.json").read_text(encoding="utf-8"))
        targets = data["target_modules"]
        return Lora(int(data["r"]), targets if isinstance(targets, str) else [t.split(".")[-1] for t in targets])
    except (OSError, ValueError, KeyError):
        return Lora()


def _screen(config: TrainerConfig) -> tuple[int, int] | None:
    """The largest screen of the first episodes, if the data is a folder of episodes."""
    data = getattr(config, "data", None) or getattr(config, "episodes", None)
    data = getattr(data, "path", data)  # of a section
    if not isinstance(data, str) or not Path(data).is_dir():
        return None
    screens: list[tuple[int, int]] = []
    for path in sorted(Path(data).glob("*/episode.json"))[:EPISODES_READ]:
        try:
            wide, high = json.loads(path.read_text(encoding="utf-8"))["screen"]
            screens.append((int(wide), int(high)))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return max(screens, key=lambda size: size[0] * size[1], default=None)


def _texts(config: TrainerConfig, shape: Shape) -> tuple[int, int, int]:
    """(images of a sample, text tokens of its prompt, tokens of its answer), from the prompt's section.

    Counts: instructions at 3 characters a token, 32 tokens an action of the history, 128 for goal and frame. Of a chat
    the last prompt of the longest episode, whose answers are as long as this one.
    """
    prompt = getattr(config, "prompt", None) or getattr(getattr(config, "episodes", None), "prompt", None)
    thinks = prompt is not None and prompt.thought
    images, text, answer = 1, 512, getattr(config, "max_completion", 256 if thinks else 64)
    if prompt is not None:
        system = prompt.builder().dialect.instructions() if prompt.system is None else prompt.system
        text = len(system) // 3 + 128
        if prompt.history_style == "chat":
            images = getattr(getattr(config, "limits", None), "max_steps", None) or UNSAID_STEPS
            text += (images - 1) * (answer + CHAT_TOKENS)
        else:
            images = prompt.images or USUAL_IMAGES[prompt.history_style]
            text += 32 * prompt.history
        if (shown := getattr(prompt, "demonstration", None)) is not None:
            images += shown.images
            text += 48 * shown.steps
    return images, shape.text if shape.text is not None else text, shape.answer if shape.answer is not None else answer


def _lesson(config: TrainerConfig) -> tuple[int, int]:
    """(text tokens, images) that the prompt of SDPO's teacher has and the student's has not, at most: another rollout's
    steps in the place of a demonstration, or the failure with its last screen, its errors and the tree's changes."""
    if getattr(config, "sdpo", None) is None:
        return 0, 0
    given = getattr(getattr(config, "prompt", None), "demonstration", None)
    demonstration = given or DemonstrationConfig()
    if given is not None and given.rule != "none":  # the student's own prompt has one, and is counted so
        return LESSON_TOKENS, 1
    return 48 * demonstration.steps + LESSON_TOKENS, demonstration.images + 1


def _copies(config: TrainerConfig, method: str) -> int:
    """Frozen copies of the model. With a LoRA the reference is the model without it."""
    if config.lora is not None or config.adapter is not None:
        return 0
    by_kl = getattr(config, "beta", 0.0) > 0 or getattr(config, "kl", None) is not None
    return int(method == "dpo" or (method in ("grpo", "rl") and by_kl))


def _reward_models(config: TrainerConfig) -> float:
    """Bytes of the weights of GRPO's learned rewards and of rl's judge, as RewardModel.load makes them: in float32,
    whatever the files have."""
    paths = [spec.args.get("path") for spec in getattr(config, "rewards", []) if spec.name == "reward_model"]
    paths.append(getattr(config, "reward_model", None))
    files = (file for path in paths if isinstance(path, str) for file in Path(path).glob("*.safetensors"))
    return 4.0 * sum(map(_numbers, files))


def _numbers(file: Path) -> int:
    """How many numbers the tensors of a safetensors file have, by its header (safetensors' format: 8 bytes of its
    length, little-endian, then JSON); 0 for a file that is none."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(min(length, file.stat().st_size)))
        return sum(math.prod(each["shape"]) for name, each in header.items() if name != "__metadata__")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0


def _deepspeed(file: str | None) -> Mapping[str, Any]:
    """The zero_optimization section; {} without one."""
    if file is None:
        return {}
    settings = configuration.read(Path(file))
    section = settings.get("zero_optimization") if isinstance(settings, dict) else None
    return section if isinstance(section, dict) else {}


def _generation(config: Any, method: str, tokens: int, patches: int) -> Generation | None:
    """Sampling in the trainer: all answers of GRPO's generation at once, `batch_size` turns of rl's. None with vLLM,
    and for a method that does not sample."""
    if method == "rl":
        # SDPO's teacher reads the answers of a pass under its longer prompts, which a sampling of them costs at most
        return Generation(config.batch_size, tokens, config.batch_size * patches)
    if method != "grpo":
        return None
    generation = getattr(config, "generation", None)
    sequences = config.batch_size * config.accumulate * getattr(config, "steps_per_generation", 1)
    if generation is not None and generation.backend == "vllm":
        return None
    return Generation(sequences, tokens, sequences * patches)


def _sampler(config: Any) -> Any:
    """rl's `asynchronous.vllm`, or None."""
    return getattr(getattr(config, "asynchronous", None), "vllm", None)


def _vllm(config: Any, model: Architecture, tokens: int) -> VllmNeed:
    """GRPO's default context is that of training.grpo.colocate: the longest prompt and a tenth more, and an answer."""
    sampler, parts = _sampler(config), model.parameters()
    answer = config.max_completion
    if sampler is not None:
        context, gpus = sampler.context or tokens, sampler.gpus
    else:
        context, gpus = config.generation.context or tokens + (tokens - answer) // 10, config.generation.parallel
    text = memory.BITS4 if config.quantization == "4bit" else 2.0
    size = 4.0 if sampler is not None and config.precision == "float32" else 2.0
    text = max(text, size) if sampler is not None else text
    weights = parts[architecture.TEXT] * text + (sum(parts.values()) - parts[architecture.TEXT]) * size
    cache = 2 * model.layers * model.keys * size * context  # keys and values
    return VllmNeed(weights=weights / gpus, activations=memory.VLLM_ACTIVATIONS, context=context, cache=cache / gpus)


def colocated(config: Any) -> float:
    """vLLM's share of the trainer's device, else 0."""
    if (sampler := _sampler(config)) is not None:
        here = sampler.mode == "process" and config.asynchronous.device is None
        return float(sampler.memory) if here else 0.0
    generation = getattr(config, "generation", None)
    if generation is None or generation.backend != "vllm" or generation.mode != "colocate":
        return 0.0
    return float(generation.memory)


def served(config: TrainerConfig) -> bool:
    """Whether vLLM servers sample rl's rollouts."""
    return (sampler := _sampler(config)) is not None and sampler.mode == "server"


def vllm_share(config: TrainerConfig) -> float:
    """vLLM's share of the device that it is on. Of a server's nothing is known here: vLLM's own default."""
    if (sampler := _sampler(config)) is not None:
        return SERVER_SHARE if served(config) else float(sampler.memory)
    return colocated(config)
