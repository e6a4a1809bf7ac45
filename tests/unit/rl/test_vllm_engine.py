"""When the sampler in the worker gives vLLM new weights, and which version each answer is of; vLLM by a script."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from eval.config import ConfigError
from tests.support.waiting import until
from tests.unit.rl.adapter_files import published
from training.rl.asynchronous.vllm_engine import EngineAnswer, EngineSampler
from training.rl.asynchronous.vllm_policy import TokenAnswer, TokenPrompt

pytestmark = pytest.mark.ml


@dataclass
class ScriptedEngine:
    """An answer is the id of its prompt, and ends when a test lets it: `ended` has the prompts whose answers may."""

    context: int | None = 16
    told: list[tuple[Any, ...]] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)
    asked: dict[int, TokenPrompt] = field(default_factory=dict)
    fails: bool = False

    def ask(self, number: int, prompt: TokenPrompt, adapter: tuple[str, int, Path] | None) -> None:
        self.told.append(("ask", prompt.ids[0], None if adapter is None else adapter[1]))
        if adapter is not None:
            assert (adapter[2] / "adapter_model.safetensors").exists()
        self.asked[number] = prompt

    def step(self) -> list[EngineAnswer]:
        threading.Event().wait(0.001)
        if self.fails:
            raise RuntimeError("out of memory")
        over = [number for number, prompt in self.asked.items() if prompt.ids[0] in self.ended]
        return [EngineAnswer(number, (ids := self.asked.pop(number).ids), ids, (-0.5,)) for number in over]

    def abort(self, number: int) -> None:
        self.told.append(("abort", self.asked.pop(number).ids[0]))

    def forget(self, version: int) -> None:
        self.told.append(("forget", version))

    def take(self, file: Path) -> None:
        assert not self.asked
        file.read_bytes()
        self.told.append(("take", int(file.stem)))

    def close(self) -> None:
        self.told.append(("close",))


def prompt(number: int, long: int = 1) -> TokenPrompt:
    return TokenPrompt((number,) * long, (), [], 0)


def play(folder: Path, script: Callable[[EngineSampler, ScriptedEngine], Awaitable[None]]) -> ScriptedEngine:
    engine = ScriptedEngine()

    async def run() -> None:
        sampler = EngineSampler(folder, 4, lambda lora: engine)
        try:
            await script(sampler, engine)
        finally:
            await asyncio.to_thread(sampler.close)

    asyncio.run(run())
    return engine


def asked(sampler: EngineSampler, numbers: Sequence[int]) -> list[asyncio.Task[TokenAnswer]]:
    return [asyncio.ensure_future(sampler.sample(prompt(number))) for number in numbers]


async def there(what: Callable[[], bool]) -> None:
    await asyncio.to_thread(until, what)


def test_an_answer_goes_on_with_its_lora_and_new_questions_take_the_newest(tmp_path: Path) -> None:
    made = published(tmp_path / "w", 2)

    async def script(sampler: EngineSampler, engine: ScriptedEngine) -> None:
        sampler.follow(0, str(made.file(0)))
        old = asked(sampler, [10, 11])
        await there(lambda: len(engine.asked) == 2)
        sampler.follow(1, str(made.file(1)))
        new = asked(sampler, [12])
        await there(lambda: len(engine.asked) == 3)
        engine.ended |= {12, 10}
        assert (await new[0]).version == 1
        assert (await old[0]).version == 0
        assert ("forget", 0) not in engine.told  # 11 still runs with it
        engine.ended |= {11}
        found = await old[1]
        assert (found.version, found.ids) == (0, (11,))
        await there(lambda: ("forget", 0) in engine.told)

    told = play(tmp_path / "w", script).told
    assert [line for line in told if line[0] == "ask"] == [("ask", 10, 0), ("ask", 11, 0), ("ask", 12, 1)]
    assert not (tmp_path / "w" / "lora-0").exists()
    assert (tmp_path / "w" / "lora-1").exists()


def whole(folder: Path, versions: int) -> None:
    folder.mkdir()
    for version in range(versions):
        (folder / f"{version}.safetensors").write_bytes(b"weights")


def test_weights_that_are_gone_are_passed_over_where_newer_ones_have_come(tmp_path: Path) -> None:
    whole(tmp_path / "w", 3)

    async def script(sampler: EngineSampler, engine: ScriptedEngine) -> None:
        sampler.follow(0, str(tmp_path / "w" / "0.safetensors"))
        old = asked(sampler, [10])
        await there(lambda: len(engine.asked) == 1)
        (tmp_path / "w" / "1.safetensors").unlink()
        sampler.follow(1, str(tmp_path / "w" / "1.safetensors"))
        sampler.follow(2, str(tmp_path / "w" / "2.safetensors"))
        engine.ended |= {10, 11}
        await old[0]
        assert (await asked(sampler, [11])[0]).version == 2

    assert ("take", 1) not in play(tmp_path / "w", script).told


def test_a_question_that_nobody_waits_for_is_broken_off(tmp_path: Path) -> None:
    whole(tmp_path / "w", 1)

    async def script(sampler: EngineSampler, engine: ScriptedEngine) -> None:
        sampler.follow(0, str(tmp_path / "w" / "0.safetensors"))
        (gone, stays) = asked(sampler, [10, 11])
        await there(lambda: len(engine.asked) == 2)
        gone.cancel()
        await there(lambda: ("abort", 10) in engine.told)
        engine.ended |= {11}
        assert (await stays).ids == (11,)

    play(tmp_path / "w", script)


def test_a_prompt_without_room_is_refused_with_what_it_wants(tmp_path: Path) -> None:
    whole(tmp_path / "w", 1)

    async def script(sampler: EngineSampler, engine: ScriptedEngine) -> None:
        sampler.follow(0, str(tmp_path / "w" / "0.safetensors"))
        with pytest.raises(ConfigError, match=r"vllm\.context: 16 tokens are too few for a prompt of 13 .* to 17 at"):
            await sampler.sample(prompt(1, long=13))
        engine.ended |= {2}
        assert (await sampler.sample(prompt(2, long=12))).ids == (2,) * 12

    play(tmp_path / "w", script)


def test_what_breaks_vllm_is_told_to_all_who_wait_and_to_who_asks_later(tmp_path: Path) -> None:
    whole(tmp_path / "w", 1)

    async def script(sampler: EngineSampler, engine: ScriptedEngine) -> None:
        sampler.follow(0, str(tmp_path / "w" / "0.safetensors"))
        waiting = asked(sampler, [10, 11])
        await there(lambda: len(engine.asked) == 2)
        engine.fails = True
        for each in waiting:
            with pytest.raises(RuntimeError, match="out of memory"):
                await each
        with pytest.raises(RuntimeError, match="out of memory"):
            await sampler.sample(prompt(12))

    assert play(tmp_path / "w", script).told[-1] == ("close",)
