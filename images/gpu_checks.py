"""What a GPU image needs on a host with a GPU and can be proved without one: `python gpu_checks.py`, in the build.

A build fails at the first thing that is missing. Each check stands for a start that failed, or was bound to:

compilers  Triton compiles a C file of its driver where it runs, torch's compiled code is C++: both need the headers
sampler    vLLM samples with FlashInfer, which compiles CUDA when the server warms up; these images have no compiler for
           it, so the sampler must be off, and nothing else of FlashInfer may be on (vllm issue 49497)
caches     what is compiled or fetched is written below a place that stays writable with a read-only root
driver     the engine and the runtime know from which driver on the packages' CUDA works
network    NCCL loads libibverbs when it starts, and without it uses TCP over InfiniBand without a word
deepspeed  it compiles parts where they are first used: the Adam for state in host memory is C++, the rest is CUDA
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

WRITABLE: Final = ("/work", "/tmp")
# Where the libraries of these images write, if nothing is set: below HOME (Triton, FlashInfer, CUDA's driver, tilelang,
# CUTLASS) or below the XDG folders (vLLM, torch, huggingface_hub, matplotlib).
FOLDERS: Final = ("HOME", "XDG_CACHE_HOME")
SET_ELSEWHERE: Final = (
    *("XDG_CONFIG_HOME", "TRITON_HOME", "TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE", "CUDA_CACHE_PATH"),
    *("VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "HF_HOME"),
)
FLOORS: Final = {13: 580}  # CUDA's major version -> the oldest branch of the driver (CUDA 13.0 release notes, table 3)
SOURCE: Final = "#include <Python.h>\n#include <stdlib.h>\n{more}int answer(void) {{ return 42; }}\n{end}"


class CheckError(Exception):
    """Something is missing; the text says what, and what to do."""


def compilers() -> str:
    """Compiles, links and loads a C and a C++ file."""
    include = f"-I{sysconfig.get_path('include')}"
    for program, suffix, more, end in (
        ("gcc", ".c", "", ""),
        ("g++", ".cpp", '#include <vector>\nextern "C" {\n', "}\n"),
    ):
        if not shutil.which(program):
            raise CheckError(f"there is no {program}: install it (Debian's packages gcc, g++)")
        with tempfile.TemporaryDirectory() as folder:
            source, library = Path(folder, f"check{suffix}"), Path(folder, "check.so")
            source.write_text(SOURCE.format(more=more, end=end), encoding="utf-8")
            command = [program, str(source), "-shared", "-fPIC", "-O2", include, "-o", str(library)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:300])
                raise CheckError(f"{program} cannot compile a file with Python's headers: {first}")
            if ctypes.CDLL(str(library)).answer() != 42:
                raise CheckError(f"what {program} compiled gives a wrong answer")
    return "gcc and g++ compile with Python's headers" + driver_source()


def driver_source() -> str:
    """Compiles the C file that Triton compiles before its first kernel, as far as that goes without libcuda."""
    spec = find_spec("triton")
    if spec is None or spec.origin is None:
        return ""
    backend = Path(spec.origin).parent / "backends" / "nvidia"
    source = backend / "driver.c"
    if not source.is_file():
        raise CheckError(f"Triton's driver is not where it was, {source}: look where it is, and mend this check")
    command = ["gcc", "-c", "-fPIC", "-O2", f"-I{sysconfig.get_path('include')}", f"-I{backend / 'include'}"]
    done = subprocess.run([*command, str(source), "-o", os.devnull], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CheckError(f"Triton's driver.c cannot be compiled: {done.stderr[:500]}")
    return ", and Triton's driver"


def sampler(environ: Mapping[str, str]) -> str:
    """Nothing of FlashInfer is used, because nothing could compile it."""
    try:
        release = version("vllm")
    except PackageNotFoundError:
        return "no vLLM for GPUs here"
    if environ.get("VLLM_USE_FLASHINFER_SAMPLER") != "0":
        raise CheckError("VLLM_USE_FLASHINFER_SAMPLER is not 0: vLLM would compile FlashInfer's sampler, without nvcc")
    from vllm.utils.flashinfer import has_flashinfer

    if has_flashinfer():
        raise CheckError(
            f"vLLM {release} takes FlashInfer for usable (an nvcc on the PATH, CUDA_HOME, or flashinfer-cubin), and "
            "would compile more than its sampler: prove that this works, or take it away"
        )
    return f"vLLM {release} samples with its own kernels, and uses nothing of FlashInfer"


def caches(environ: Mapping[str, str]) -> str:
    """Every folder for what is compiled or fetched lies below a writable place."""
    for name in (*FOLDERS, *(name for name in SET_ELSEWHERE if name in environ)):
        place = environ.get(name, "")
        if not any(place == root or place.startswith(f"{root}/") for root in WRITABLE):
            raise CheckError(
                f"{name} is `{place}`, where nothing can be written with a read-only root: set it below /work"
            )
    return "caches lie below " + " or ".join(WRITABLE)


def cuda() -> int | None:
    """The major version of the CUDA runtime among the packages; None without one."""
    try:
        return int(version("nvidia-cuda-runtime").split(".")[0])
    except PackageNotFoundError:
        return None


def driver(environ: Mapping[str, str]) -> str:
    """NVIDIA_REQUIRE_CUDA and SLIPWAY_DRIVER_FLOOR say what the packages need."""
    major = cuda()
    if major is None:
        return "no CUDA here"
    if major not in FLOORS:
        raise CheckError(
            f"the oldest driver for CUDA {major} is not known: look into its release notes, add it to FLOORS"
        )
    required = re.fullmatch(r"cuda>=(\d+)\.(\d+)", environ.get("NVIDIA_REQUIRE_CUDA", ""))
    if not required or int(required[1]) != major:
        raise CheckError(f"NVIDIA_REQUIRE_CUDA is `{environ.get('NVIDIA_REQUIRE_CUDA', '')}`, not `cuda>={major}.0`")
    if environ.get("SLIPWAY_DRIVER_FLOOR") != str(FLOORS[major]):
        raise CheckError(f"SLIPWAY_DRIVER_FLOOR is not {FLOORS[major]}, the oldest driver for CUDA {major}")
    if not {"compute", "utility"} <= set(environ.get("NVIDIA_DRIVER_CAPABILITIES", "").split(",")):
        raise CheckError("NVIDIA_DRIVER_CAPABILITIES lacks compute or utility")
    return f"CUDA {major} asks for the driver {FLOORS[major]}"


def network() -> str:
    """libibverbs can be loaded."""
    try:
        ctypes.CDLL("libibverbs.so.1")
    except OSError as error:
        raise CheckError(f"{error}: install libibverbs1 and ibverbs-providers") from None
    return "libibverbs is there"


def deepspeed() -> str:
    """DeepSpeed compiles its Adam for `offload_optimizer: {device: cpu}`, as it would at the start of a training.

    Its other parts cannot be compiled here: an `optimizer` in its file (FusedAdam, FusedLamb, FusedLion) and the
    quantised communication of ZeRO++ are CUDA, state on NVMe needs libaio's headers. DeepSpeed ends with "CUDA_HOME
    environment variable is not set" where it is asked for one (training/deepspeed_file.py refuses what it knows). ZeRO
    1 to 3 compile nothing else.
    """
    try:
        release = version("deepspeed")
    except PackageNotFoundError:
        return "no DeepSpeed here"
    if not shutil.which("ninja"):
        raise CheckError("there is no ninja, with which DeepSpeed compiles: pin the package `ninja`")
    program = "from deepspeed.ops.op_builder.cpu import CPUAdamBuilder as Builder; Builder().load(verbose=False)"
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": folder}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [""]
        said = next((line for line in lines if "error:" in line), lines[-1])
        raise CheckError(f"DeepSpeed {release} cannot compile cpu_adam: {said[:500]}")
    more = "" if shutil.which("nvcc") else "; without nvcc its file may name no optimizer, no ZeRO++ and no NVMe"
    return f"DeepSpeed {release} compiles cpu_adam{more}"


def main() -> int:
    try:
        for said in (compilers(), sampler(os.environ), caches(os.environ), driver(os.environ), network(), deepspeed()):
            print(f"gpu: {said}", flush=True)
    except CheckError as error:
        print(f"gpu: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
