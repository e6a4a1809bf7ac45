"""A model folder ready for vLLM and transformers: `python -m training.export --config $SLIPWAY_CONFIG`.

Writes model/ under $SLIPWAY_OUTPUTS (or --out): sharded safetensors, tokenizer, chat template, generation settings, and
the processor's files, also under the names that older versions need. Before the folder gets its name, it is loaded
offline and must give the same logits. With `adapter_only` writes adapter/: only the LoRA, for servers that load LoRAs.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec

from eval import config as configuration
from eval.config import Config, ConfigError
from eval.config import help as config_help
from eval.prompts import PromptConfig
from training.common.model.card import write_card
from training.common.model.folder import Dtype, load_base, read_adapter, save

ADAPTER_FILES: Final = ("adapter_config.json", "adapter_model.safetensors")


class ExportConfig(Config, frozen=True, kw_only=True):
    """
    model           a folder, or hf://OWNER/NAME[@REVISION]
    format          safetensors. GGUF is not made here
    adapter         with `adapter_only`: the LoRA to export. To put one into the weights, see training.merge
    adapter_only    the LoRA alone
    dtype           of the weights; None keeps them
    max_shard_size  of a file, as transformers writes it: 5GB
    episodes, prompt, samples  what logits are compared on, see training.merge
    licence         of the model, for the card
    """

    model: str
    format: str = "safetensors"
    adapter: str | None = None
    adapter_only: bool = False
    dtype: Dtype | None = None
    max_shard_size: str = "5GB"
    episodes: str | None = None
    prompt: PromptConfig = PromptConfig()
    samples: Annotated[int, msgspec.Meta(ge=1)] = 2
    licence: str | None = None

    def check(self) -> None:
        """Raises ConfigError."""
        if self.format.lower() == "gguf":
            raise ConfigError("format: GGUF is not made here; export safetensors and convert those with llama.cpp")
        if self.format != "safetensors":
            raise ConfigError(f"format: {self.format!r} is not known; allowed: safetensors")
        if self.adapter_only != (self.adapter is not None):
            raise ConfigError("adapter goes with adapter_only; to put one into the weights use training.merge first")


def export(config: ExportConfig, out: Path) -> list[str]:
    """Writes out/model or out/adapter; returns the report of the comparison. Raises ConfigError."""
    config.check()
    if config.adapter is not None:
        return [export_adapter(config, Path(config.adapter), out / "adapter")]
    from training.common.model import comparison

    model, processor = load_base(config.model, config.dtype)
    inputs = comparison.probes(processor, config.episodes, config.prompt, config.samples)
    expected = comparison.logits(model, inputs)
    return [save(model, processor, out / "model", config, expected, inputs, config.max_shard_size, "export")]


def export_adapter(config: ExportConfig, adapter: Path, folder: Path) -> str:
    """Copies the LoRA after a check against its base model. Raises ConfigError."""
    from training.common.model.adapter import check_adapter
    from training.common.model.loading import replace

    about = read_adapter(adapter)
    model, _ = load_base(config.model, config.dtype)
    check_adapter(adapter, model, config.model)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for name in ADAPTER_FILES:
        shutil.copyfile(adapter / name, partial / name)
    write_card(partial, config, method="export", licence=config.licence)
    replace(partial, folder)
    return f"adapter: rank {about.get('r')} on {config.model}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = config_help.parser("training.export", "Export a model for serving.", ExportConfig)
    parser.add_argument("--out", help="where model/ goes; default $SLIPWAY_OUTPUTS")
    given = parser.parse_args(argv)

    def run() -> int:
        config = configuration.load(Path(given.config), ExportConfig)
        out = configuration.output_folder(given.out)
        for line in export(config, out):
            print(line, flush=True)
        return 0

    return configuration.run(run)


if __name__ == "__main__":
    sys.exit(main())
