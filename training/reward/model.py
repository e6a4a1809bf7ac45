"""Loads a trained reward model and computes rewards of answers. Imports torch only when a model is loaded."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from eval.actions.dialects.registry import CONTROL_TOKENS
from eval.config import ConfigError
from eval.episodes.images import AnyImage
from eval.prompts import Message, PromptConfig
from eval.prompts.tokens import control_token, joined
from training.data.samples import open_image

ABOUT: Final = "reward.json"  # marks a model folder as a reward model
FORMAT: Final = "slipway-reward-model"


class RewardModel:
    """Computes rewards of chats that end with the assistant's answer. Higher is better; only differences matter.

    network     a RewardNetwork, in eval mode
    batch_size  chats per forward pass; the rewards do not depend on it
    """

    def __init__(self, network: Any, processor: Any, *, batch_size: int = 16) -> None:
        self.network = network
        self.processor = processor
        self.batch_size = batch_size

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str | None = None,
        dtype: str = "float32",
        batch_size: int = 16,
        max_pixels: int | None = None,
    ) -> RewardModel:
        """Loads the model/ folder that training.reward wrote. Raises ConfigError for any other folder."""
        folder = Path(path)
        about = read_about(folder)
        import torch
        from safetensors import SafetensorError
        from transformers import AutoConfig

        from training.common.model.loading import load_processor
        from training.reward.network import RewardNetwork

        try:
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
            network = RewardNetwork.from_pretrained(folder, config=config, dtype=getattr(torch, dtype))
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise ConfigError(f"reward model: {folder}: {' '.join(str(error).split())[:300]}") from None
        network.score.float()
        network.to(device or ("cuda" if torch.cuda.is_available() else "cpu")).eval()
        processor = load_processor(str(folder), max_pixels or about.get("max_pixels"))
        return cls(network, processor, batch_size=batch_size)

    def score(
        self, messages_with_response: Sequence[Sequence[Message]], images: Sequence[Sequence[AnyImage]]
    ) -> list[float]:
        """A reward per chat, in order. `images` are the images of each chat, in the order of their placeholders.

        Raises BadSample for an image that cannot be opened, ValueError for a reward that is not finite, or when the
        numbers of images and placeholders differ.
        """

        import torch
        from PIL import Image

        rewards: list[float] = []
        pairs = list(zip(messages_with_response, images, strict=True))
        for start in range(0, len(pairs), self.batch_size):
            part = pairs[start : start + self.batch_size]
            opened = [[i if isinstance(i, Image.Image) else open_image(i) for i in frames] for _, frames in part]
            batch = encode(self.processor, [list(chat) for chat, _ in part], opened)
            device = next(self.network.parameters()).device
            with torch.inference_mode():
                rewards += self.network(**{name: value.to(device) for name, value in batch.items()}).tolist()
        if bad := [index for index, reward in enumerate(rewards) if not math.isfinite(reward)]:
            raise ValueError(f"the reward model gave {rewards[bad[0]]} for chat {bad[0]} of {len(rewards)}")
        return rewards


def encode(processor: Any, chats: Sequence[list[Message]], images: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The network's inputs for chats that end with an answer: tensors (batch, tokens) by name, padded on the right, and
    the images' tensors. Raises ValueError when the numbers of images and placeholders differ."""
    for chat, pictures in zip(chats, images, strict=True):
        parts = [part for turn in chat for part in joined(turn["content"])]
        if (places := sum(part.get("type") == "image" for part in parts)) != len(pictures):
            raise ValueError(f"{places} places for images in a chat with {len(pictures)} images")
        if token := next(filter(None, (control_token(part.get("text", ""), CONTROL_TOKENS) for part in parts)), None):
            raise ValueError(f"a text holds {token}, a control token")
    texts = [processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=False) for chat in chats]
    flat = [image for pictures in images for image in pictures]
    batch = processor(
        text=texts,
        images=list(images) if flat else None,
        padding=True,
        padding_side="right",
        return_tensors="pt",
        add_special_tokens=False,
    )
    return dict(batch)


def with_response(prompt: Sequence[Message], response: str) -> list[Message]:
    """A chat for `RewardModel.score`: the prompt, and the answer as the assistant's turn."""
    return [*prompt, {"role": "assistant", "content": [{"type": "text", "text": response}]}]


def read_about(folder: Path) -> dict[str, Any]:
    """Reads reward.json. Raises ConfigError for a folder that holds no reward model."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ConfigError(f"reward model: {folder} holds none: {ABOUT} is missing or broken") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ConfigError(f"reward model: {folder / ABOUT} is not of the format {FORMAT}")
    return about


def merged(network: Any, processor: Any) -> Any:
    """The network with its LoRA merged into its weights. Raises ConfigError when it rewards otherwise than before."""
    from training.common.model import comparison, merging

    inputs = comparison.probes(processor, None, PromptConfig(), 1)

    def rewards(each: Any) -> list[Any]:
        import torch

        each.eval()
        with torch.no_grad():
            return [each(**batch.to(each.device)).unsqueeze(-1).float().cpu() for batch in inputs]

    return merging.merged(network, rewards, otherwise="model/ was not written")[0]


def save(trainer: Any, folder: Path, about: dict[str, Any]) -> None:
    """Writes a folder for `RewardModel.load` atomically, with a LoRA merged in. All processes must call it; the first
    process writes."""
    partial = folder.with_name(f".{folder.name}.partial")
    if trainer.is_world_process_zero():
        shutil.rmtree(partial, ignore_errors=True)
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        trainer.save_model(str(partial))  # gathers sharded weights
    elif trainer.is_world_process_zero():
        network = trainer.accelerator.unwrap_model(trainer.model)
        if hasattr(network, "merge_and_unload"):
            network = merged(network, trainer.processing_class)
        network.save_pretrained(partial)
    if trainer.is_world_process_zero():
        trainer.processing_class.save_pretrained(partial)
        (partial / ABOUT).write_text(json.dumps({"format": FORMAT, **about}, indent=1) + "\n", encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    trainer.accelerator.wait_for_everyone()
