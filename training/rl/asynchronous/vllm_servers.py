"""Answers of vLLM servers that others started, each of a version that is known: a LoRA's name is in the answer, and of
all weights the server is asked after it (`training.rl.weights.vllm_weights_server`).

A question goes to the server with the fewest running ones. A server that does not answer is left alone for a while and
its question asked elsewhere, for `timeout` seconds. One that has started anew does not know the weights, says so, and
is given them again: no answer is ever of the weights of the start.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from eval.config import ConfigError
from eval.desktop import InfraError
from training.common.vllm_client import UNKNOWN, Client, Sampling, ServerGone, ServerRefuses, data_url, question
from training.rl.asynchronous.vllm_policy import TokenAnswer, TokenPrompt, TokenRules
from training.rl.vllm_config import FIELD, SamplerConfig
from training.rl.weights.lora_folders import SETTINGS, LoraFolders
from training.rl.weights.vllm_lora_server import VllmLoraServer
from training.rl.weights.vllm_weights_server import VllmWeightsServer

REST: Final = 1.0  # seconds in which a server that does not answer is not asked
TIMES: Final = 3  # that one question may meet a server without its weights


class ServerSampler:
    """`folder`: where the weights are published. `parallel`: questions at once. Raises ConfigError."""

    who = "the vLLM server"

    def __init__(self, chosen: SamplerConfig, folder: Path, rules: TokenRules, parallel: int) -> None:
        self.chosen = chosen
        adapters = self.adapters = LoraFolders(folder) if (folder / SETTINGS).exists() else None
        clients = [Client(url, chosen.name, timeout=chosen.timeout, field=FIELD) for url in chosen.urls()]
        self.servers: list[VllmLoraServer | VllmWeightsServer]
        if adapters is None:
            self.servers = [VllmWeightsServer(each, folder) for each in clients]
        else:
            self.servers = [VllmLoraServer(each, adapters) for each in clients]
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
                        with server.holding(version, file) as (name, held):
                            body = question(name, prompt.messages, urls, self.sampling, prompt.seed)
                            body["mm_processor_kwargs"] = self.rules.bounds
                            answer = server.client.answer(body)
                            server.confirm(held)
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
                return TokenAnswer(answer.prompt_ids, answer.ids, answer.logprobs, held)
            except ServerGone as error:
                if time.monotonic() > until:
                    raise InfraError(f"{FIELD}: no server answered for {self.chosen.timeout:g} s: {error}") from None
                time.sleep(REST / 4)
            except FileNotFoundError:
                if self.newest == (version, file):
                    raise  # else newer weights have come, and these are gone

    @contextmanager
    def _asking(self) -> Iterator[tuple[VllmLoraServer | VllmWeightsServer, int, Path]]:
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
        """Removes the folders of LoRAs that no server has."""
        if self.adapters is None:
            return
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
