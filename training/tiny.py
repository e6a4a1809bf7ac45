"""Makes a tiny Qwen3-VL with random weights, offline, in seconds: `python -m training.tiny --config $SLIPWAY_CONFIG`.

It replaces the real models on machines without a GPU; the same code trains, serves and evaluates it. The folder holds
model, tokenizer, processor and chat template, and loads with from_pretrained.

It learns within minutes because pixel values are normalised so that a light screen is near 0 and ink is far from 0;
layers start with variance 1 / fan-in and position embeddings with variance 1 (with the usual 0.02 accuracy stays
at chance for long); each digit and each piece of the action language is one token.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from eval import config as configuration
from eval.config import Config, ConfigError
from eval.config import help as config_help
from eval.prompts import PromptConfig
from training.data import samples

SPECIAL: Final = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
MARKUP: Final = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
# The pieces that may become one token: a digit; `Action: `; an action's name with its first argument's name; the next
# argument; an action's end; a word with the space before it; spaces; other characters.
PIECES: Final = r'[0-9]|Action: |[A-Z_]+\((?:[a-z0-9]+=)?"?|, [a-z0-9]+=|"?\)|[A-Za-z]+| [A-Za-z]+|\s+|[^A-Za-z0-9\s]+'


class TinyConfig(Config, frozen=True):
    """
    episodes       a folder of episodes whose texts the tokenizer is trained on; None: the action language alone
    prompt         the form of those texts: give the training's section
    seed           of the random weights
    vocabulary     tokens of the tokenizer at most
    hidden         width of the language model
    layers         of the language model
    heads          attention heads of the language model; half as many for keys and values
    vision_hidden  width of the vision tower
    vision_layers  of the vision tower
    vision_heads   attention heads of the vision tower
    patch          side of an image patch, in pixels
    merge          patches per side that become one token: an image token covers (patch x merge) pixels each way
    position       side of the square of learnt image positions, in patches; others are interpolated
    min_pixels     smaller images are scaled up to this area
    max_pixels     larger images are scaled down to this area
    """

    episodes: str | None = None
    prompt: PromptConfig = PromptConfig()
    seed: int = 0
    vocabulary: int = 512
    hidden: int = 128
    layers: int = 2
    heads: int = 4
    vision_hidden: int = 64
    vision_layers: int = 2
    vision_heads: int = 4
    patch: int = 8
    merge: int = 2
    position: int = 12
    min_pixels: int = 32 * 32
    max_pixels: int = 512 * 512


def action_texts(count: int = 500) -> Iterator[str]:
    """Example actions, to train a tokenizer without episodes."""
    rng = random.Random(0)
    for _ in range(count):
        x, y = rng.random(), rng.random()
        yield f"Action: CLICK(x={x:.2f}, y={y:.2f})"
        yield f'Action: TYPE(text="{rng.choice(("name", "text", "word"))}")'
        yield "Thought: go on\nAction: DONE()"


def tokenizer(texts: Iterable[str], vocabulary: int) -> Any:
    """A byte-level BPE tokenizer with Qwen's special tokens, trained on `texts`; equal texts give equal tokenizers."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(SPECIAL) - len(MARKUP),
        special_tokens=[],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer=trainer)
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    bpe.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKUP])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=[t for t in SPECIAL if t not in ("<|im_end|>", "<|endoftext|>")],
        model_max_length=8192,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def _model(config: TinyConfig, tokens: Any) -> Any:
    import torch
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    ids = {token: tokens.convert_tokens_to_ids(token) for token in SPECIAL}
    head = config.hidden // config.heads
    axis = head // 2 // 3  # rotary dimensions for height and for width; time gets the rest
    text = {
        "vocab_size": len(tokens),
        "hidden_size": config.hidden,
        "intermediate_size": config.hidden * 2,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": max(1, config.heads // 2),
        "head_dim": head,
        "max_position_embeddings": 8192,
        "pad_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|im_end|>"],
        "bos_token_id": None,
        "initializer_range": 0.1,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [head // 2 - 2 * axis, axis, axis],
            "mrope_interleaved": True,
        },
        "tie_word_embeddings": True,
    }
    vision = {
        "depth": config.vision_layers,
        "hidden_size": config.vision_hidden,
        "intermediate_size": config.vision_hidden * 2,
        "num_heads": config.vision_heads,
        "patch_size": config.patch,
        "spatial_merge_size": config.merge,
        "temporal_patch_size": 2,
        "out_hidden_size": config.hidden,
        "num_position_embeddings": config.position**2,
        "deepstack_visual_indexes": [0],
        "initializer_range": 0.1,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = Qwen3VLForConditionalGeneration(
            Qwen3VLConfig(
                text_config=text,
                vision_config=vision,
                image_token_id=ids["<|image_pad|>"],
                video_token_id=ids["<|video_pad|>"],
                vision_start_token_id=ids["<|vision_start|>"],
                vision_end_token_id=ids["<|vision_end|>"],
                tie_word_embeddings=True,
            )
        )
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Linear | torch.nn.Conv3d) and name != "lm_head":
                torch.nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
        torch.nn.init.normal_(model.model.visual.pos_embed.weight, std=1.0)
    model.generation_config.eos_token_id = [ids["<|im_end|>"], ids["<|endoftext|>"]]
    model.generation_config.pad_token_id = ids["<|endoftext|>"]
    return model


def _processor(config: TinyConfig, tokens: Any) -> Any:
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    patches = {"patch_size": config.patch, "merge_size": config.merge, "temporal_patch_size": 2}
    trl = importlib.util.find_spec("trl")  # finds TRL's template without the slow import of TRL
    assert trl is not None
    assert trl.origin is not None
    template = Path(trl.origin).parent / "chat_templates" / "qwen3_vl.jinja"
    return Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(
            **patches,
            min_pixels=config.min_pixels,
            max_pixels=config.max_pixels,
            image_mean=[0.9] * 3,
            image_std=[0.25] * 3,
        ),
        tokenizer=tokens,
        video_processor=Qwen3VLVideoProcessor(**patches),
        chat_template=template.read_text(encoding="utf-8"),
    )


def build(config: TinyConfig, out: Path) -> int:
    """Writes the model folder; returns the number of parameters. The same configuration gives the same bytes.

    Raises ConfigError for sizes that do not fit together, or missing episodes.
    """
    if config.hidden % config.heads or config.heads % 2 or config.vision_hidden % config.vision_heads:
        raise ConfigError("hidden must be a multiple of heads, heads even, vision_hidden a multiple of vision_heads")
    texts: Iterable[str] = action_texts()
    if config.episodes is not None:
        loaded = samples.load(Path(config.episodes), config.prompt.builder())
        texts = [part.get("text", "") for sample in loaded for turn in sample.messages for part in turn["content"]]
        texts += ["system\n", "user\n", "assistant\n"]
    tokens = tokenizer(texts, config.vocabulary)
    model = _model(config, tokens)
    model.save_pretrained(out)
    _processor(config, tokens).save_pretrained(out)
    return sum(parameter.numel() for parameter in model.parameters())


def main(argv: Sequence[str] | None = None) -> int:
    parser = config_help.parser("training.tiny", "Make a tiny random Qwen3-VL.", TinyConfig)
    parser.add_argument("--out", help="the model's folder; default $SLIPWAY_OUTPUTS/model")
    arguments = parser.parse_args(argv)

    def run() -> int:
        config = configuration.load(Path(arguments.config), TinyConfig)
        out = configuration.output_folder(arguments.out, "model")
        print(f"{build(config, out)} parameters in {out}")
        return 0

    return configuration.run(run)


if __name__ == "__main__":
    sys.exit(main())
