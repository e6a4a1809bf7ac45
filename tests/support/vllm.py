"""The real vLLM for CPUs, in environments of their own: together with TRL, or as a server of a test's own start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.needs import marked
from training.common.vllm_client import Client, ServerGone

ROOT: Final = Path(__file__).parents[2]
COLOCATED: Final = Path(os.environ.get("SLIPWAY_COLOCATE_PYTHON") or ROOT / ".venv-colocate/bin/python")
APART: Final = Path(os.environ.get("SLIPWAY_VLLM_PYTHON") or ROOT / ".venv-vllm/bin/python")
needs_colocated = marked("colocate", missing=not COLOCATED.exists())
needs_server = marked("vllm", missing=not APART.exists())


def alone() -> Mapping[str, str]:
    """The environment of a process with vLLM, which asks no other machine."""
    return {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }


@contextmanager
def serving(model: Path, name: str, log: Path, *words: str, seconds: float = 900) -> Iterator[str]:
    """The address of a server that is up and takes LoRAs, and all weights, while it runs. `words`: of its command
    line."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(str(APART), "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(port)),
        *("--model", str(model), "--served-model-name", name, "--enforce-eager", "--dtype", "float32"),
        *("--max-num-seqs", "8", *words),
    ]
    environment = {**alone(), "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_SERVER_DEV_MODE": "1"}
    with (
        log.open("wb") as said,
        subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True) as process,
    ):
        try:
            Client(f"http://127.0.0.1:{port}", name, timeout=seconds).wait()
            yield f"http://127.0.0.1:{port}"
        except ServerGone as error:
            raise AssertionError(log.read_text()[-3000:]) from error
        finally:
            os.killpg(process.pid, signal.SIGKILL)
