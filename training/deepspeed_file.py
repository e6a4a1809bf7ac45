"""A DeepSpeed configuration file: it must say what the trainer's configuration says, and need no missing compiler.

DeepSpeed compiles some of its parts when a training starts. Without the compiler that is a traceback, minutes after the
model was loaded. Read from DeepSpeed 0.19.8: its engine (`_configure_basic_optimizer`), its op builders, and
accelerate's choice of an optimiser for offloading. Parts of the CPU are compiled by a C++ compiler, those of the GPU by
nvcc, which no image has.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from eval import config as configuration
from eval.config import ConfigError

CPU_OPTIMIZERS: Final = {"adagrad": "cpu_adagrad", "lion": "cpu_lion"}  # others become DeepSpeed's Adam
GPU_OPTIMIZERS: Final = {"adam": "fused_adam", "adamw": "fused_adam", "lamb": "fused_lamb", "lion": "fused_lion"}
SECTIONS: Final = (
    "optimizer.params",
    "zero_optimization.offload_optimizer",
    "zero_optimization.offload_param",
    "bf16",
    "fp16",
)
QUANTIZED: Final = ("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients")
ADAM: Final = ("adam", "adamw")  # DeepSpeed makes both AdamW, unless adam_w_mode is false


class TrainerFields(Protocol):
    """What the trainer's configuration says of the things that a DeepSpeed file can say too."""

    @property
    def batch_size(self) -> int: ...
    @property
    def accumulate(self) -> int: ...
    @property
    def max_grad_norm(self) -> float: ...
    @property
    def precision(self) -> str: ...
    @property
    def optimizer(self) -> str: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def adam_beta2(self) -> float: ...


@dataclass(frozen=True)
class CompiledPart:
    """A part of DeepSpeed (`name`) that `field` of its configuration asks for; `instead` does without it."""

    name: str
    field: str
    compiler: Literal["c++", "nvcc"]
    instead: str


def compiled_parts(settings: Mapping[str, Any], optimizer: str) -> Iterator[CompiledPart]:
    """The parts that a DeepSpeed configuration needs. optimizer: the trainer's, where the file has no section of it."""
    zero = settings.get("zero_optimization", {})
    offload = str(zero.get("offload_optimizer", {}).get("device", "none"))
    section = settings.get("optimizer", {})
    named = str(section.get("type", "")).lower()
    if named in ADAM and section.get("params", {}).get("torch_adam"):
        named = "torch"
    if offload != "none" and named != "torch" and (named or settings.get("zero_force_ds_cpu_optimizer", True)):
        kind = named or optimizer.partition("_")[0]
        yield CompiledPart(
            CPU_OPTIMIZERS.get(kind, "cpu_adam"),
            f"zero_optimization.offload_optimizer.device: {offload}",
            "c++",
            "set zero_force_ds_cpu_optimizer: false",
        )
    elif offload == "none" and named in GPU_OPTIMIZERS:
        yield CompiledPart(
            GPU_OPTIMIZERS[named],
            f"optimizer.type: {section['type']}",
            "nvcc",
            "leave the section optimizer out, so that the trainer's own field decides",
        )
    for name in QUANTIZED:  # ZeRO++
        if zero.get(name):
            yield CompiledPart("quantizer", f"zero_optimization.{name}: true", "nvcc", "leave it out")
    for name in ("offload_optimizer", "offload_param"):
        if str(zero.get(name, {}).get("device", "none")) == "nvme":
            yield CompiledPart("async_io", f"zero_optimization.{name}.device: nvme", "nvcc", "take device: cpu")


def check_compilers(file: Path, optimizer: str) -> None:
    """Raises ConfigError for a part that is not compiled yet and whose compiler is not here."""
    ready, settings = built(), _read(file)
    for part in compiled_parts(settings, optimizer):
        if part.name not in ready and not has_compiler(part.compiler):
            raise ConfigError(
                f"deepspeed: {file}: {part.field} needs {part.name}, which DeepSpeed compiles with {part.compiler} "
                f"when the training starts, and there is no {part.compiler} here; {part.instead}"
            )


def agreed_settings(file: Path, config: TrainerFields, processes: int) -> dict[str, Any]:
    """The file's settings; what the trainer's configuration says too is `auto`, also where the file leaves it out.

    Left out, such a value would be DeepSpeed's own default: no clipping, a learning rate of .001. Another value would
    replace the trainer's without a word (an optimiser, a schedule), or end the training after the model was loaded.
    processes: of the whole training. Raises ConfigError for a value that differs from the trainer's.
    """
    settings = _read(file)
    values: dict[str, tuple[str, Any]] = {
        "train_micro_batch_size_per_gpu": ("batch_size", config.batch_size),
        "gradient_accumulation_steps": ("accumulate", config.accumulate),
        "train_batch_size": (
            "batch_size x accumulate x processes",
            config.batch_size * config.accumulate * processes,
        ),
        "gradient_clipping": ("max_grad_norm", config.max_grad_norm),
        "bf16.enabled": ("precision: bf16", config.precision == "bf16"),
        "fp16.enabled": ("precision: float16", False),
    }
    if "scheduler" in settings:
        raise ConfigError(f"deepspeed: {file}: scheduler: leave it out; schedule, warmup_steps and floor decide")
    if "optimizer" in settings:
        _check_optimizer(file, settings["optimizer"], config.optimizer)
        values |= {
            "optimizer.params.lr": ("learning_rate", config.learning_rate),
            "optimizer.params.betas": ("adam_beta2", [0.9, config.adam_beta2]),
            "optimizer.params.eps": ("the trainer's", 1e-8),
            "optimizer.params.weight_decay": ("weight_decay", config.weight_decay),
        }
    for field, (name, value) in values.items():
        *sections, key = field.split(".")
        section = settings
        for part in sections:
            section = section.setdefault(part, {})
        if section.setdefault(key, "auto") not in ("auto", value):
            raise ConfigError(
                f"deepspeed: {file}: {field}: {section[key]} is not {value} ({name} of the trainer's configuration); "
                "allowed: auto, that value, or leave it out"
            )
    return settings


def _check_optimizer(file: Path, section: Mapping[str, Any], optimizer: str) -> None:
    """Raises ConfigError where the file's optimiser is not the trainer's."""
    kind = str(section.get("type", ""))
    if kind.lower() not in ADAM or not optimizer.startswith("adamw_torch"):
        raise ConfigError(
            f"deepspeed: {file}: optimizer.type: {kind or 'none'} would replace optimizer: {optimizer} of the "
            "trainer's configuration; leave the section out"
        )
    params = section.get("params", {})
    for name in ("adam_w_mode", "bias_correction"):
        if params.get(name, True) is not True:
            raise ConfigError(f"deepspeed: {file}: optimizer.params.{name}: {params[name]}: that is not AdamW")


def _read(file: Path) -> dict[str, Any]:
    """The file's settings; raises ConfigError where a section that this module reads is none."""
    settings = configuration.read(file)
    if not isinstance(settings, dict):
        raise ConfigError(f"deepspeed: {file} is no JSON object")
    for name in SECTIONS:
        section: Any = settings
        for part in name.split("."):
            section = section.get(part, {})
            if not isinstance(section, dict):
                raise ConfigError(f"deepspeed: {file}: {name} is no section")
    return settings


def built() -> frozenset[str]:
    """The parts that the installed DeepSpeed was compiled with; it is not imported, which takes seconds."""
    spec = importlib.util.find_spec("deepspeed")
    if spec is None or spec.origin is None:
        return frozenset()
    try:
        text = (Path(spec.origin).parent / "git_version_info_installed.py").read_text(encoding="utf-8")
        (line,) = (line for line in text.splitlines() if line.startswith("installed_ops="))
        parts = ast.literal_eval(line.partition("=")[2])
        return frozenset(name for name, is_built in parts.items() if is_built)
    except (OSError, ValueError, SyntaxError, AttributeError):
        return frozenset()


def has_compiler(name: Literal["c++", "nvcc"]) -> bool:
    """Whether torch.utils.cpp_extension would find the compiler."""
    if name == "c++":
        return shutil.which(os.environ.get("CXX", "c++")) is not None
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        return os.access(Path(home) / "bin" / "nvcc", os.X_OK)
    return shutil.which("nvcc") is not None or os.access("/usr/local/cuda/bin/nvcc", os.X_OK)
