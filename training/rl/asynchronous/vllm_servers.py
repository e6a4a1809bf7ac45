"""Answers of vLLM servers that others started: each names the LoRA, and with it the version, that sampled it.

A question goes to the server with the fewest running ones. A server that does not answer is left alone for a while and
its question asked elsewhere, for `timeout` seconds. One that has started anew does not know the LoRA, says so, and is
given it again: no answer is ever of the weights of the start.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from eval.config import ConfigError
from eval.desktop import InfraError
from training.common.vllm_client import Client, Sampling, ServerGone, ServerRefuses, data_url, question
from training.rl.asynchronous.vllm_policy import FIELD, TokenAnswer, TokenPrompt, TokenRules
from training.rl.vllm_config import SamplerConfig
from training.rl.weights.lora_folders import AdapterFolders

REST: Final = 1.0  # seconds in which a server that does not answer is not asked
UNKNOWN: Final = 404  # how vLLM answers a request for a LoRA that it does not have
TIMES: Final = 3  # that one question may meet a server without its LoRA


class AdapterServer:
    """One server, and what is known of it."""

    def __init__(self, client: Client, adapters: AdapterFolders) -> None:
        self.client = client
        self.adapters = adapters
        self.seen = False
        self.loaded: frozenset[int] = frozenset()  # swapped as a whole: others read it
        self.running: Counter[int] = Counter()  # questions of each version
        self.rests = 0.0  # until when
        self.loading = threading.Lock()

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


class ServerSampler:
    """`folder`: where the weights are published. `parallel`: questions at once. Raises ConfigError."""

    who = "the vLLM server"

    def __init__(self, chosen: SamplerConfig, folder: Path, rules: TokenRules, parallel: int) -> None:
        self.chosen = chosen
        self.adapters = AdapterFolders(folder)
        self.servers = [
            AdapterServer(Client(url, chosen.name, timeout=chosen.timeout, field=FIELD), self.adapters)
            for url in chosen.urls()
        ]
        self.rules = rules
        self.sampling = Sampling(rules.max_tokens, rules.temperature, suppressed=rules.suppressed, ends=rules.ends)
        self.pool = ThreadPoolExecutor(parallel, thread_name_prefix="vllm")
        self.lock = threading.Lock()
        self.newest: tuple[int, Path] | None = None

    def follow(self, version: int, file: str) -> None:
        with self.lock:
            self.newest = (version, Path(file))

    async def sample(self, prompt: TokenPrompt) -> TokenAnswer:
        return await asyncio.get_running_loop().run_in_executor(self.pool, self._sample, prompt)

    def _sample(self, prompt: TokenPrompt) -> TokenAnswer:
        urls = [data_url(image) for image in prompt.images]
        until, unknown = time.monotonic() + self.chosen.timeout, 0
        while True:
            try:
                with self._asking() as (server, version, file):
                    try:
                        name = server.prepare(version, file)
                        body = question(name, prompt.messages, urls, self.sampling, prompt.seed)
                        body["mm_processor_kwargs"] = self.rules.bounds
                        answer = server.client.answer(body)
                    except ServerGone:
                        server.seen, server.rests = False, time.monotonic() + REST
                        raise
                    except ServerRefuses as error:
                        if error.code != UNKNOWN or unknown == TIMES:
                            raise
                        server.seen, unknown = False, unknown + 1
                        continue
                if answer.model != name:
                    raise ConfigError(f"{FIELD}: {server.client.url} answers with {answer.model!r}, not {name!r}")
                return TokenAnswer(answer.prompt_ids, answer.ids, answer.logprobs, version)
            except ServerGone as error:
                if time.monotonic() > until:
                    raise InfraError(f"{FIELD}: no server answered for {self.chosen.timeout:g} s: {error}") from None
                time.sleep(REST / 4)
            except FileNotFoundError:
                if self.newest == (version, file):
                    raise  # else newer weights have come, and these are gone

    @contextmanager
    def _asking(self) -> Iterator[tuple[AdapterServer, int, Path]]:
        """The server to ask, and the newest weights; while it is open they stay there."""
        with self.lock:
            if self.newest is None:
                raise RuntimeError("no weights have come yet")
            version, file = self.newest
            now = time.monotonic()
            server = min(self.servers, key=lambda each: (each.rests > now, each.running.total()))
            server.running[version] += 1
        try:
            yield server, version, file
        finally:
            with self.lock:
                server.running[version] -= 1
                newest = self.newest[0]
            if any(each < newest for each in server.loaded):
                server.tidy(newest)
                self._forget(newest)

    def _forget(self, newest: int) -> None:
        """Removes the folders of weights that no server has."""
        with self.lock:
            used = {version for each in self.servers for version in (*each.loaded, *(+each.running))}
            for place in self.adapters.folder.glob("lora-*"):
                version = int(place.name.removeprefix("lora-"))
                if version < newest and version not in used:
                    self.adapters.forget(version)

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
        for server in self.servers:
            server.tidy(1 << 62)
