"""Merges a LoRA into its base model's weights: `python -m training.merge --config $SLIPWAY_CONFIG`.

Writes model/ under $SLIPWAY_OUTPUTS (or --out): safetensors, processor, chat template, generation settings and a card.
The merged model must give the same logits as base and adapter together, before it is written and after it is loaded
from the disk. Exit code 78 for an adapter of another base, a quantised base, or different logits.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from eval import config as configuration
from eval.config import Config, ConfigError
from eval.config import help as config_help
from eval.prompts import PromptConfig
from training.common.model.folder import Dtype, load_base, save


class MergeConfig(Config, frozen=True, kw_only=True):
    """
    model           the base: a folder, or hf://OWNER/NAME[@REVISION]; not a quantised one
    adapter         the folder of the LoRA
    dtype           of the merged weights; None keeps the base's
    max_shard_size  of a safetensors file, as transformers writes it: 5GB
    episodes        a folder of episodes: logits are compared on `samples` of their steps, asked as `prompt` says;
                    without it on one drawn screen
    samples         how many steps of the episodes logits are compared on
    prompt          how those steps are asked: give the training's section
    tolerance       largest difference of logits, as a share of the largest; None: by dtype
    licence         of the result, for the card
    """

    model: str
    adapter: str
    dtype: Dtype | None = None
    max_shard_size: str = "5GB"
    episodes: str | None = None
    prompt: PromptConfig = PromptConfig()
    samples: Annotated[int, msgspec.Meta(ge=1)] = 4
    tolerance: Annotated[float, msgspec.Meta(gt=0)] | None = None
    licence: str | None = None


def merge(config: MergeConfig, out: Path) -> list[str]:
    """Writes out/model; returns the report of the comparison. Raises ConfigError."""
    from training.common.model import comparison
    from training.common.model.adapter import with_adapter
    from training.common.model.merging import merged

    if not Path(config.adapter).is_dir():
        raise ConfigError(f"adapter: there is no folder {config.adapter}")
    base, processor = load_base(config.model, config.dtype)
    model = with_adapter(base, config.adapter, base=config.model, trainable=False)
    inputs = comparison.probes(processor, config.episodes, config.prompt, config.samples)
    whole, told = merged(
        model, lambda each: comparison.logits(each, inputs), share=config.tolerance, otherwise="Nothing was written"
    )
    del base, model
    together = comparison.logits(whole, inputs)
    return [told, save(whole, processor, out / "model", config, together, inputs, config.max_shard_size)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = config_help.parser("training.merge", "Merge a LoRA into its base model.", MergeConfig)
    parser.add_argument("--out", help="where model/ goes; default $SLIPWAY_OUTPUTS")
    given = parser.parse_args(argv)

    def run() -> int:
        config = configuration.load(Path(given.config), MergeConfig)
        out = configuration.output_folder(given.out)
        for line in merge(config, out):
            print(line, flush=True)
        return 0

    return configuration.run(run)


if __name__ == "__main__":
    sys.exit(main())
