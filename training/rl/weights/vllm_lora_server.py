"""Sends published LoRAs to a vLLM server, and unloads those that nothing asks any more."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from eval.config import ConfigError
from training.common.vllm_client import Client, ServerGone, ServerRefuses
from training.rl.vllm_config import FIELD
from training.rl.weights.lora_folders import LoraFolders


class VllmLoraServer:
    """One server, and what is known of it."""

    def __init__(self, client: Client, adapters: LoraFolders) -> None:
        self.client = client
        self.adapters = adapters
        self.seen = False
        self.loaded: frozenset[int] = frozenset()  # swapped as a whole: others read it
        self.running: Counter[int] = Counter()  # questions of each version
        self.rests = 0.0  # until when
        self.loading = threading.Lock()

    @contextmanager
    def holding(self, version: int, file: Path) -> Iterator[tuple[str, int]]:
        """The name of a version that the server has, and the version. Raises what `prepare` raises."""
        yield self.prepare(version, file), version

    def confirm(self, version: int) -> None:
        """An answer names its LoRA: nothing else is to be asked."""

    def prepare(self, version: int, file: Path) -> str:
        """The name of a version that the server has. Raises ServerGone, ConfigError, FileNotFoundError."""
        with self.loading:
            if not self.seen:
                self._look()
            name = self.adapters.name(version)
            if version not in self.loaded:
                folder = self.adapters.make(version, file)
                try:
                    self.client.load(name, folder)
                except ServerRefuses as error:
                    if name not in self.client.served():  # else another worker of this training has loaded it
                        if not folder.is_dir():  # another worker has newer weights, and removed these
                            raise FileNotFoundError(folder) from None
                        raise ConfigError(
                            f"{error}; the server must see {folder} under this path, and be started with "
                            "VLLM_ALLOW_RUNTIME_LORA_UPDATING, --enable-lora and --max-lora-rank "
                            f"{self.adapters.rank} or more"
                        ) from None
                self.loaded |= {version}
            return name

    def _look(self) -> None:
        served = self.client.served()
        if self.client.model not in served:
            raise ConfigError(f"{FIELD}.name: {self.client.url} serves {', '.join(served)}, not {self.client.model}")
        ours = (self.adapters.version(name) for name in served)
        self.loaded = frozenset(version for version in ours if version is not None)
        self.seen = True

    def tidy(self, newest: int) -> None:
        """Unloads what nothing asks any more."""
        with self.loading:
            for version in sorted(self.loaded):
                if version < newest and not self.running[version]:
                    with suppress(ServerGone, ConfigError):  # it forgets them when it ends
                        self.client.unload(self.adapters.name(version))
                    self.loaded -= {version}
