"""`padding_free`: the language model computes the tokens of a batch as one row, without the padding between them.

TRL and transformers have this for text alone. Of a batch with images, the vision tower never sees padding, and what
follows the language model (the loss) does not cost much by place; so only the language model's input is made one row,
and its output is put back. Everything around it, the collators and losses of all trainers among it, stays as it is:
position ids too are those that the model makes of the padded batch, for each sample by itself.

No sample sees another: attention is computed sample by sample (as transformers does it for the images of its vision
tower), or by flash attention's kernel for sequences of different lengths, which is told where each begins. No mask is
made.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from eval.config import ConfigError

PROVED: Final = ("Qwen2_5_VLTextModel", "Qwen3VLTextModel")  # the language models whose gradients a test compares
BY_SAMPLE: Final = "sdpa_by_sample"  # our attention's name among transformers'


def without_padding(model: Any) -> None:
    """Lets `model`, a vision-language model with or without a LoRA, compute without padding from now on.

    Generation is as before. Raises ConfigError for a model or an attention with which this is not proved.
    """
    texts = [module for module in model.modules() if type(module).__name__ in PROVED]
    if len(texts) != 1:
        raise ConfigError(
            f"padding_free: {type(model).__name__} has no language model for which it is proved; allowed: Qwen2.5-VL "
            "and Qwen3-VL"
        )
    (text,) = texts
    if "sliding_attention" in (getattr(text.config, "layer_types", None) or ()):
        raise ConfigError("padding_free: this model has layers with a sliding window, for which it is not proved")
    attention = text.config._attn_implementation
    if attention == "sdpa":
        _register()
        text.config._attn_implementation = BY_SAMPLE
    elif attention != "flash_attention_2":
        raise ConfigError(
            f"padding_free: attention {attention} would let samples see one another; allowed: sdpa, flash_attention_2"
        )
    row = _Row(by_sample=attention == "sdpa")
    text.register_forward_pre_hook(row.gather, with_kwargs=True)
    text.register_forward_hook(row.scatter)


class _Row:
    """Makes the inputs of a language model one row, and its output a padded batch again."""

    def __init__(self, by_sample: bool) -> None:
        self.by_sample = by_sample
        self.mask: Tensor | None = None  # (batch, length), between the two

    def gather(self, module: Any, args: tuple[Any, ...], inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        """The inputs without padding: embeddings (1, tokens, width) of (batch, length, width), and so on."""
        mask, embeddings = inputs.get("attention_mask"), inputs.get("inputs_embeds")
        self.mask = None
        if args or mask is None or mask.dim() != 2 or embeddings is None or inputs.get("past_key_values") is not None:
            return None  # generation, or another's call
        mask = mask.bool()
        if len(mask) == 1 and bool(mask.all()):
            return None  # nothing to leave out
        self.mask, lengths = mask, mask.sum(dim=1)
        inputs = {**inputs, "attention_mask": None, "use_cache": False}
        inputs["inputs_embeds"] = embeddings[mask][None]
        positions = inputs.get("position_ids")
        if positions is None:  # of a batch without images: the place in the padded row, as the model has it
            positions = torch.arange(mask.shape[1], device=mask.device).expand(3, *mask.shape)
        # three rows: a fourth would let transformers make a mask of all tokens by all tokens
        inputs["position_ids"] = positions[-3:][:, mask][:, None]
        if inputs.get("visual_pos_masks") is not None:
            inputs["visual_pos_masks"] = inputs["visual_pos_masks"][mask][None]
        if self.by_sample:
            inputs["sample_lengths"] = lengths.tolist()
        else:
            starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
            longest = int(lengths.max())
            inputs |= {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts}
            inputs |= {"max_length_q": longest, "max_length_k": longest}
        return args, inputs

    def scatter(self, module: Any, args: tuple[Any, ...], output: Any) -> Any:
        """The output with last_hidden_state (batch, length, width), zero where there is padding."""
        if self.mask is None:
            return output
        mask, self.mask = self.mask, None
        hidden = output.last_hidden_state
        padded = hidden.new_zeros(*mask.shape, hidden.shape[-1])
        output.last_hidden_state = padded.masked_scatter(mask[..., None], hidden)
        return output


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """transformers' sdpa attention, sample by sample where `sample_lengths` says that the row holds several.

    query is (1, heads, tokens, width), key and value have as many heads or fewer; returns (1, tokens, heads, width).
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    lengths = options.pop("sample_lengths", None)
    if lengths is None:
        whole: Tensor = sdpa_attention_forward(module, query, key, value, attention_mask, **options)[0]
        return whole, None
    parts = zip(*(torch.split(tensor, lengths, dim=2) for tensor in (query, key, value)), strict=True)
    return torch.cat([sdpa_attention_forward(module, *part, None, **options)[0] for part in parts], dim=1), None


def _register() -> None:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(BY_SAMPLE, _attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(BY_SAMPLE, sdpa_mask)
