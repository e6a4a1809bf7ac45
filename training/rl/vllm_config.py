"""What samples asynchronous rollouts: the section `asynchronous.vllm`. Imports no torch and no vLLM."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec

from eval.config import Config, ConfigError
from eval.config.roles import PREFIX, addresses
from training.options import LoraConfig, Positive

FIELD: Final = "asynchronous.vllm"
RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # those that vLLM 0.32 takes as the largest of a LoRA


class SamplerConfig(Config, frozen=True, kw_only=True):
    """
    mode     process: vLLM in the process that plays the rollouts, on `device` and the GPUs after it. server: vLLM
             servers that others started, on any machine; all weights go to those of vLLM 0.32 in its development
             mode, which this training has for itself, a LoRA to any
    servers  addresses http://HOST:PORT, or `role:NAME` for all ranks of a role of the job (server)
    name     what the servers call the model (server)
    folder   where the weights are handed over; a server must see it under the same path. None: the folder for
             temporary files (process)
    memory   share of a GPU's memory that vLLM takes (process)
    gpus     that share one copy of the model (process)
    context  tokens of a prompt and its answer that vLLM makes room for (process); None: as many as the model takes
    eager    no compiled graphs: up sooner, slower afterwards (process)
    timeout  seconds to wait for a server that is not there, and for one of its answers (server)
    """

    mode: Literal["process", "server"] = "process"
    servers: list[str] = msgspec.field(default_factory=list)
    name: str = "model"
    folder: str | None = None
    memory: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.4
    gpus: Positive = 1
    context: Positive | None = None
    eager: bool = False
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 300.0

    def check(self, lora: LoraConfig | None, max_completion: int) -> None:
        """Raises ConfigError."""
        where = "asynchronous.vllm"
        given = msgspec.structs.asdict(self)
        usual = {field.name: field.default for field in msgspec.structs.fields(self)}
        unread: tuple[str, ...]
        if self.mode == "server":
            if not self.servers:
                raise ConfigError(f"{where}.servers: name the servers of mode server: http://HOST:PORT, or role:NAME")
            for each in self.servers:
                if not each.startswith(("http://", "https://", PREFIX)):
                    raise ConfigError(
                        f"{where}.servers: {each!r} is no address; allowed: http://HOST:PORT, https, or role:NAME"
                    )
            if self.folder is None:
                raise ConfigError(f"{where}.folder: name the folder in which the servers find the weights")
            unread = ("memory", "gpus", "context", "eager")
        else:
            unread = ("name", "timeout")
            if self.servers:
                raise ConfigError(f"{where}.servers: only for mode server")
        if odd := [name for name in unread if given[name] != usual[name]]:
            raise ConfigError(f"{where}.{odd[0]}: not for mode {self.mode}")
        if lora is not None and lora.dora:
            raise ConfigError("lora.dora: vLLM takes none; leave it out, or asynchronous.vllm")
        if lora is not None and lora.rank > RANKS[-1]:
            raise ConfigError(f"lora.rank: {lora.rank}: vLLM takes {RANKS[-1]} at most")
        if self.context is not None and self.context <= max_completion:
            raise ConfigError(f"{where}.context: {self.context} leaves no room beside max_completion, {max_completion}")

    def urls(self) -> list[str]:
        """The servers, without repetition. Raises ConfigError where a role has no address here."""
        found: dict[str, None] = {}
        for each in self.servers:
            if each.startswith(PREFIX):
                ranks = addresses(each.removeprefix(PREFIX), "asynchronous.vllm.servers")
                found |= dict.fromkeys(f"http://{address}" for address in ranks)
            else:
                found[each.rstrip("/")] = None
        return list(found)


def lora_rank(wanted: int) -> int:
    """The least rank that vLLM takes and that is not less than `wanted`."""
    return next(rank for rank in RANKS if rank >= wanted)


def visible(device: str | None, gpus: int, environment: Mapping[str, str] = os.environ) -> str | None:
    """CUDA_VISIBLE_DEVICES for a process whose first GPU is `device` (`cuda:2`) and that uses `gpus`; None: as it is.

    Raises ConfigError for a device that is none, and for more than there are.
    """
    if device is None:
        return None
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number or "0").isdecimal():
        raise ConfigError(f"asynchronous.device: {device!r}: with vllm allowed: cuda, or cuda:NUMBER")
    first = int(number or 0)
    wanted = range(first, first + gpus)
    given = environment.get("CUDA_VISIBLE_DEVICES")
    if not given:
        return ",".join(map(str, wanted))
    seen = given.split(",")
    if wanted[-1] >= len(seen):
        raise ConfigError(f"asynchronous.device: {device} and vllm.gpus {gpus}: only {len(seen)} GPUs are visible here")
    return ",".join(seen[number] for number in wanted)
