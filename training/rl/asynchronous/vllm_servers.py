"""Answers of vLLM servers that others started, each of a known version.

A LoRA is sent as it is published, its name is in the answer, and a LoRA that nothing asks any more is unloaded. All
weights (vLLM 0.32, started with VLLM_SERVER_DEV_MODE=1) change in place: no question of this training begins while
another version's run. The server gets a label with each version and forgets the label when it ends. After each answer
it is asked for the label, so an answer of a server that has started anew is never taken for one of the training's.

A question goes to the server with the fewest running ones. A server that does not answer is left alone for a while and
its question asked elsewhere, for `timeout` seconds. One that has started anew does not know the weights, says so, and
is given them again.
"""

from __future__ import annotations

import asyncio
import os
import shutil
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
from training.common.vllm_client import UNKNOWN, Client, Sampling, ServerGone, ServerRefuses, data_url, question
from training.rl.asynchronous.vllm_policy import TokenAnswer, TokenPrompt, TokenRules
from training.rl.vllm_config import FIELD, SamplerConfig
from training.rl.weights.lora_folders import SETTINGS, LoraFolders

LOADING: Final = "loading"  # the label while weights change: of no version


class VllmWeightsServer:
    """One server, and what is known of it. `folder`: where the weights are published."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.seen = False  # whether `version` is what the server has; False: it may have started anew
        self.version = -1
        self.running: Counter[int] = Counter()  # questions of each version, waiting ones among them
        self.loaded: frozenset[int] = frozenset()  # no version needs its file any more
        self.rests = 0.0  # until when
        self._turn = threading.Condition()
        self._asking = 0  # questions that the server answers now
        self._loading = False

    @contextmanager
    def holding(self, version: int, file: Path) -> Iterator[tuple[str, int]]:
        """The model's name, and the version that the server has while this is open: the asked one, or a newer one.
        Raises ServerGone, ConfigError, FileNotFoundError."""
        with self._turn:
            while self._loading or (self._asking and not self._has(version)):
                self._turn.wait()
            if not self._has(version):
                self._loading = True
                self._turn.release()
                try:
                    self._load(version, file)
                finally:
                    self._turn.acquire()
                    self._loading = False
                    self._turn.notify_all()
            held = self.version
            self._asking += 1
        try:
            yield self.client.model, held
        finally:
            with self._turn:
                self._asking -= 1
                self._turn.notify_all()

    def _has(self, version: int) -> bool:
        return self.seen and self.version >= version

    def _label(self, version: int) -> str:
        return f"{self.folder.name}-{version}"

    def _load(self, version: int, file: Path) -> None:
        try:
            served, label = self.client.served(), self.client.weights_label()
        except ServerRefuses as error:
            raise _unable(error) from None
        if self.client.model not in served:
            raise ConfigError(f"{FIELD}.name: {self.client.url} serves {', '.join(served)}, not {self.client.model}")
        if label != self._label(version):
            place = self.folder / f".whole-{version}-{id(self)}"  # vLLM reads all safetensors of a folder
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            place.chmod(0o755)  # the server may be another user
            try:
                os.link(file, place / "model.safetensors")
                self.client.label_weights(LOADING)
                self.client.load_weights(place)
                self.client.label_weights(self._label(version))
            except ServerRefuses as error:
                raise _unable(error) from None
            finally:
                shutil.rmtree(place, ignore_errors=True)
        self.version, self.seen = version, True

    def confirm(self, version: int) -> None:
        """After an answer, inside `holding`: it was by this version. Raises ServerRefuses with the status UNKNOWN where
        the server has started anew meanwhile, ServerGone."""
        if (label := self.client.weights_label()) != self._label(version):
            raise ServerRefuses(f"{FIELD}: {self.client.url} has the weights {label!r}", UNKNOWN)

    def tidy(self, newest: int) -> None:
        """Nothing is left there but the newest weights."""


def _unable(error: ServerRefuses) -> ConfigError:
    return ConfigError(
        f"{error}; to take all weights the server must be vLLM 0.32 or later, started with VLLM_SERVER_DEV_MODE=1"
    )


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
