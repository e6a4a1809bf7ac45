"""Compares two models by their logits on real prompts with screenshots."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from eval.config import ConfigError
from eval.prompts import PromptConfig

# Largest difference of logits that rounding explains, as a share of the largest logit (at least 1). float32: sums in
# another order; bfloat16: a weight has 8 bits, so the merged one is the nearest of those.
TOLERANCE: Final = {"float32": 1e-4, "bfloat16": 6e-2, "float16": 2e-2}


def probes(processor: Any, episodes: str | None, prompt: PromptConfig, count: int) -> list[Any]:
    """Inputs of `count` samples, evenly spread over the episodes; without episodes, of a drawn screen. Raises
    ConfigError."""
    if episodes is None:
        chats = [(_messages(), [_screen()])]
    else:
        from training.data.samples import load, open_images

        samples = load(Path(episodes), prompt.builder())
        chosen = [samples[index * len(samples) // count] for index in range(min(count, len(samples)))]
        chats = [(sample.messages, open_images(sample)) for sample in chosen]
    inputs = []
    for messages, images in chats:
        text = processor.apply_chat_template(messages, tokenize=False)
        inputs.append(processor(text=[text], images=images, return_tensors="pt"))
    return inputs


def _messages() -> list[dict[str, Any]]:
    asked = [{"type": "text", "text": "Goal: click the button\n"}, {"type": "image"}]
    answer = [{"type": "text", "text": "Action: CLICK(x=0.5000, y=0.2500)"}]
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]


def _screen() -> Any:
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (640, 400), "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((270, 80, 370, 120), fill=(40, 90, 200))
    draw.text((290, 95), "button", fill="white")
    return image


def logits(model: Any, inputs: Sequence[Any]) -> list[Any]:
    """float32 logits on CPU, one tensor (tokens, vocabulary) per sample."""
    import torch

    model.eval()
    with torch.no_grad():
        return [model(**batch.to(model.device)).logits[0].float().cpu() for batch in inputs]


def difference(before: Sequence[Any], after: Sequence[Any]) -> tuple[float, float, float]:
    """(largest difference, largest logit, share of positions with the same most likely token)"""
    gap = max(float((tensor - other).abs().max()) for tensor, other in zip(before, after, strict=True))
    scale = max(float(tensor.abs().max()) for tensor in before)
    equal = sum(int((o.argmax(-1) == p.argmax(-1)).sum()) for o, p in zip(before, after, strict=True))
    return gap, scale, equal / sum(len(tensor) for tensor in before)


def require_same(
    before: Sequence[Any], after: Sequence[Any], share: float, title: str, otherwise: str = "Nothing was written"
) -> str:
    """A line with the difference. Raises ConfigError when it exceeds `share` of the largest logit; the error ends with
    `otherwise`."""
    gap, scale, equal = difference(before, after)
    told = f"{title}: logits differ by at most {gap:.3g} (largest {scale:.3g}), {equal:.1%} of the tokens are the same"
    if not gap <= share * max(1.0, scale):  # also refuses NaN
        raise ConfigError(f"{told}; allowed is {share * max(1.0, scale):.3g}. {otherwise}")
    return told
