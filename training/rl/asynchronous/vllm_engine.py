"""vLLM in the worker's process: one thread asks, steps and changes weights, so that each answer is of one version.

A LoRA has a name for each version: what runs goes on with its own, new questions take the newest. All weights change in
place: then no question begins until those that run have ended, and what vLLM keeps of the old weights is thrown away.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from eval.config import ConfigError
from training.rl.asynchronous.vllm_policy import TokenAnswer, TokenPrompt
from training.rl.vllm_config import FIELD
from training.rl.weights.lora_folders import LoraFolders

ENDING = 10.0  # seconds in which the engine ends


@dataclass(frozen=True)
class EngineAnswer:
    """An answer that has ended. `prompt_ids`: that were run; None where the engine does not tell."""

    number: int
    prompt_ids: Sequence[int] | None
    ids: Sequence[int]
    logprobs: Sequence[float]


class SamplingEngine(Protocol):
    """What the sampler needs of vLLM (`training.rl.asynchronous.vllm_in_process`). Used by one thread."""

    context: int | None

    def ask(self, number: int, prompt: TokenPrompt, adapter: tuple[str, int, Path] | None) -> None:
        """Begins an answer, by a LoRA (name, version, folder) or by the model's own weights."""
        ...

    def step(self) -> list[EngineAnswer]:
        """One token of each answer that runs; those that ended."""
        ...

    def abort(self, number: int) -> None: ...

    def forget(self, version: int) -> None:
        """A LoRA is asked no more."""
        ...

    def take(self, file: Path) -> None:
        """Other weights of the model; nothing runs. Raises FileNotFoundError, ConfigError."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class WeightsCame:
    version: int
    file: Path


@dataclass(frozen=True)
class QuestionCame:
    prompt: TokenPrompt
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[TokenAnswer]


@dataclass
class _Running:
    came: QuestionCame
    version: int


class EngineSampler:
    """
    folder    where the weights are published; with a LoRA's settings in it, it is a LoRA
    longest   tokens of an answer at most
    start     makes the engine; given the rank of the LoRA, and whether it touches the vision tower, or None
    """

    who = "vLLM"

    def __init__(self, folder: Path, longest: int, start: Callable[[tuple[int, bool] | None], SamplingEngine]) -> None:
        self.longest = longest
        self.start = start
        self.adapters = LoraFolders(folder) if (folder / "adapter_config.json").exists() else None
        self.inbox: queue.SimpleQueue[WeightsCame | QuestionCame | None] = queue.SimpleQueue()
        self.newest: WeightsCame | None = None
        self.version = -1  # of the newest weights that are in the engine
        self.engine: SamplingEngine | None = None
        self.waiting: list[QuestionCame] = []
        self.running: dict[int, _Running] = {}
        self.loaded: dict[int, Path] = {}  # LoRAs in the engine
        self.asked = 0
        self.failed: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name="vllm", daemon=True)
        self.thread.start()

    def follow(self, version: int, file: str) -> None:
        self.inbox.put(WeightsCame(version, Path(file)))

    async def sample(self, prompt: TokenPrompt) -> TokenAnswer:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[TokenAnswer] = loop.create_future()
        self.inbox.put(QuestionCame(prompt, loop, answer))
        if self.failed is not None:  # its thread answers no more
            raise self.failed
        return await answer

    def close(self) -> None:
        self.inbox.put(None)
        self.thread.join(ENDING)

    def _run(self) -> None:
        try:
            while self._hear():
                self._catch_up()
                self._begin()
                if self.running and self.engine is not None:
                    self._end(self.engine.step())
        except BaseException as error:
            self.failed = error
            self._fail(error)
        finally:
            if self.engine is not None:
                self.engine.close()

    def _fail(self, error: BaseException) -> None:
        """Tells all who wait. Who asks from now on sees `failed`."""
        came = [each.came for each in self.running.values()] + self.waiting
        while not self.inbox.empty():
            if isinstance(item := self.inbox.get(), QuestionCame):
                came.append(item)
        for each in came:
            _tell(each, error)

    def _hear(self) -> bool:
        """Takes what has come; waits where there is nothing to do. False: it is over."""
        idle = not self.running and (not self.waiting or self.newest is None)
        while idle or not self.inbox.empty():
            item = self.inbox.get()
            idle = False
            if item is None:
                return False
            if isinstance(item, WeightsCame):
                self.newest = item
            else:
                self.waiting.append(item)
        for number in [number for number, each in self.running.items() if each.came.answer.cancelled()]:
            assert self.engine is not None
            self.engine.abort(number)  # its rollout is withdrawn
            del self.running[number]
        return True

    def _catch_up(self) -> None:
        """Gives the newest weights to the engine, where it can take them now."""
        newest = self.newest
        if newest is None or newest.version == self.version:
            return
        try:
            if self.adapters is not None:
                folder = self.adapters.make(newest.version, newest.file)
                if self.engine is None:
                    self.engine = self.start((self.adapters.rank, self.adapters.touches_vision(folder)))
                self.loaded[newest.version] = folder
            elif self.running:
                return  # when those have ended
            else:
                if self.engine is None:
                    self.engine = self.start(None)
                self.engine.take(newest.file)
        except FileNotFoundError:
            if self.inbox.empty():
                raise
            return  # newer ones have come meanwhile, and these are gone
        self.version = newest.version
        self._tidy()

    def _begin(self) -> None:
        """Begins what waits, with the newest weights."""
        if self.engine is None or self.newest is None or self.newest.version != self.version:
            return
        waiting, self.waiting = self.waiting, []
        for came in waiting:
            if came.answer.cancelled():
                continue
            if self.engine.context is not None and len(came.prompt.ids) + self.longest > self.engine.context:
                long = len(came.prompt.ids) + self.longest
                error = ConfigError(
                    f"{FIELD}.context: {self.engine.context} tokens are too few for a prompt of "
                    f"{len(came.prompt.ids)} and an answer of {self.longest}: set it to {long} at least"
                )
                _tell(came, error)
                continue
            number, self.asked = self.asked, self.asked + 1
            adapter = None
            if self.adapters is not None:
                adapter = (self.adapters.name(self.version), self.version, self.loaded[self.version])
            self.running[number] = _Running(came, self.version)
            self.engine.ask(number, came.prompt, adapter)

    def _end(self, answers: Sequence[EngineAnswer]) -> None:
        for each in answers:
            one = self.running.pop(each.number)
            found = TokenAnswer(each.prompt_ids, each.ids, each.logprobs, one.version)
            _tell(one.came, found)
        if answers:
            self._tidy()

    def _tidy(self) -> None:
        """Forgets LoRAs that nothing asks any more."""
        used = Counter(each.version for each in self.running.values())
        for version in [version for version in self.loaded if version != self.version and not used[version]]:
            assert self.engine is not None
            assert self.adapters is not None
            self.engine.forget(version)
            self.adapters.forget(version)
            del self.loaded[version]


def _tell(came: QuestionCame, found: TokenAnswer | BaseException) -> None:
    """Gives a question its answer, or what went wrong."""

    def now() -> None:
        if came.answer.done():
            return
        if isinstance(found, BaseException):
            came.answer.set_exception(found)
        else:
            came.answer.set_result(found)

    with suppress(RuntimeError):  # the loop is closed: nobody waits
        came.loop.call_soon_threadsafe(now)
