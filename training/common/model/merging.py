"""Merges a LoRA into its model's weights, and compares the merged model with base and adapter together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eval.config import ConfigError
from training.common.model import comparison


def merged(model: Any, outputs: Callable[[Any], list[Any]], *, share: float | None = None, otherwise: str) -> Any:
    """(the model with its LoRA in its weights, the line of the comparison)

    outputs    of a model, to be compared: one tensor (places, values) per input
    share      the largest difference, as a share of the largest value; None: by dtype, see `model.comparison`
    otherwise  what the error says of files, when the merged model differs

    Raises ConfigError when it differs.
    """
    base = model.get_base_model()  # the LoRA is in its layers; around it, accelerate may compute in another precision
    dtype = str(base.dtype).removeprefix("torch.")
    apart = outputs(base)
    tied = getattr(base, "all_tied_weights_keys", None)
    untie(base)
    try:
        whole = model.merge_and_unload()
    except (RuntimeError, ValueError, NotImplementedError) as error:
        raise ConfigError(f"adapter: peft cannot merge it: {' '.join(str(error).split())[:300]} {otherwise}") from None
    if _shared(whole):  # peft tied what the adapter has in place of both
        _say_tied(whole, True)
        whole.all_tied_weights_keys = tied
    told = comparison.require_same(
        apart, outputs(whole), share or comparison.TOLERANCE[dtype], f"merged ({dtype})", otherwise=otherwise
    )
    return whole, told


def untie(model: Any) -> None:
    """Gives a head that is tied to the embedding weights of its own, where an adapter lies on one of the two: merged
    into weights that both share, it would change both."""
    if not on_shared_embeddings(model):
        return
    import torch

    head = model.get_output_embeddings()
    own = _plain(head)
    own.weight = torch.nn.Parameter(own.weight.detach().clone(), requires_grad=False)
    _say_tied(model, False)
    name = next(name for name, module in model.named_modules() if module is head)
    tied = model.all_tied_weights_keys
    model.all_tied_weights_keys = {key: other for key, other in tied.items() if not key.startswith(f"{name}.")}


def on_shared_embeddings(model: Any) -> bool:
    """Whether an adapter lies on an embedding or a head, of those that share their weights."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    return _shared(model) and (_plain(head) is not head or _plain(embedding) is not embedding)


def _shared(model: Any) -> bool:
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    return None not in (head, embedding) and _plain(head).weight is _plain(embedding).weight


def _say_tied(model: Any, tied: bool) -> None:
    for config in (model.config, model.config.get_text_config()):
        config.tie_word_embeddings = tied


def _plain(layer: Any) -> Any:
    """The layer without what peft put around it."""
    inner = getattr(layer, "original_module", layer)
    return inner.get_base_layer() if hasattr(inner, "get_base_layer") else inner
