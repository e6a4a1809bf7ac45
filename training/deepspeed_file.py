"""What a DeepSpeed configuration needs a compiler for: DeepSpeed compiles some of its parts when a training starts.

Without the compiler that is a traceback, minutes after the model was loaded. Read from DeepSpeed 0.19.8: its engine
(`_configure_basic_optimizer`), its op builders, and accelerate's choice of an optimiser for offloading. Parts of the
CPU are compiled by a C++ compiler, those of the GPU by nvcc, which no image has.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from eval import config as configuration
from eval.config import ConfigError

CPU_OPTIMIZERS: Final = {"adagrad": "cpu_adagrad", "lion": "cpu_lion"}  # others become DeepSpeed's Adam
GPU_OPTIMIZERS: Final = {"adam": "fused_adam", "adamw": "fused_adam", "lamb": "fused_lamb", "lion": "fused_lion"}


@dataclass(frozen=True)
class CompiledPart:
    """A part of DeepSpeed (`name`) that `field` of its configuration asks for; `instead` does without it."""

    name: str
    field: str
    compiler: Literal["c++", "nvcc"]
    instead: str


def compiled_parts(settings: Mapping[str, Any], optimizer: str) -> Iterator[CompiledPart]:
    """The parts that a DeepSpeed configuration needs. optimizer: the trainer's, where the file has no section of it."""
    zero = settings.get("zero_optimization") or {}
    offload = str((zero.get("offload_optimizer") or {}).get("device", "none"))
    section = settings.get("optimizer") or {}
    named = str(section.get("type", "")).lower()
    if named in ("adam", "adamw") and (section.get("params") or {}).get("torch_adam"):
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
    for name in ("offload_optimizer", "offload_param"):
        if str((zero.get(name) or {}).get("device", "none")) == "nvme":
            yield CompiledPart("async_io", f"zero_optimization.{name}.device: nvme", "nvcc", "take device: cpu")


def check_compilers(file: Path, optimizer: str) -> None:
    """Raises ConfigError for a part that is not compiled yet and whose compiler is not here."""
    settings = configuration.read(file)
    if not isinstance(settings, dict):
        raise ConfigError(f"deepspeed: {file} is no JSON object")
    ready = built()
    for part in compiled_parts(settings, optimizer):
        if part.name not in ready and not has_compiler(part.compiler):
            raise ConfigError(
                f"deepspeed: {file}: {part.field} needs {part.name}, which DeepSpeed compiles with {part.compiler} "
                f"when the training starts, and there is no {part.compiler} here; {part.instead}"
            )


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
