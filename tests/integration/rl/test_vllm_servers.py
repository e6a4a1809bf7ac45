"""Which server and which version a question goes to, and what is done when a server starts anew; vLLM's wire alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval.config import ConfigError
from eval.desktop import InfraError
from tests.integration.rl.vllm_wire import WireServer, wire
from tests.support.waiting import until
from tests.unit.rl.adapter_files import published
from training.rl.asynchronous.rollouts import weights_folder
from training.rl.asynchronous.vllm_policy import TokenAnswer, TokenPrompt, TokenRules, check_answer
from training.rl.asynchronous.vllm_servers import ServerSampler
from training.rl.sections import AsyncConfig
from training.rl.vllm_config import SamplerConfig
from training.rl.weights.lora_folders import LoraFolders
from training.rl.weights.published import PublishedWeights

pytestmark = pytest.mark.ml
RULES = TokenRules(4, 1.0, (7, 8), (2,), 9, {"min_pixels": 64, "max_pixels": 1024})
PICTURE = Image.new("RGB", (4, 4))
MESSAGES: list[Any] = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "do"}]}]
PROMPT = TokenPrompt((1, 9, 9, 3), (PICTURE,), MESSAGES, 17)


def answered(_: dict[str, Any]) -> tuple[list[int], list[int], list[float]]:
    return [1, 9, 9, 3], [5, 2], [-0.5, -0.25]


@pytest.fixture
def servers() -> Iterator[list[WireServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(wire(answered)) for _ in range(2)]


@pytest.fixture
def weights(tmp_path: Path) -> PublishedWeights:
    return published(tmp_path / "w", 3)


def sampler_of(weights: PublishedWeights, servers: list[WireServer], timeout: float = 20.0) -> ServerSampler:
    chosen = SamplerConfig(
        mode="server", servers=[each.url for each in servers], folder=str(weights.folder), timeout=timeout
    )
    return ServerSampler(chosen, weights.folder, RULES, 8)


def ask(sampler: ServerSampler) -> TokenAnswer:
    return asyncio.run(sampler.sample(PROMPT))


def test_an_answer_is_of_the_newest_weights_and_the_old_ones_leave_the_server(
    servers: list[WireServer], weights: PublishedWeights
) -> None:
    (server, _), name = servers, weights.folder.name
    sampler = sampler_of(weights, [server])
    found = []
    for version in (0, 1, 1):
        sampler.follow(version, str(weights.file(version)))
        found.append(ask(sampler))
    assert [each.version for each in found] == [0, 1, 1]
    assert (found[0].prompt_ids, found[0].ids, found[0].logprobs) == ([1, 9, 9, 3], [5, 2], [-0.5, -0.25])
    zero, one = f"{name}-0", f"{name}-1"
    assert server.events == [
        *(("load", zero), ("chat", zero), ("load", one), ("chat", one)),
        *(("unload", zero), ("chat", one)),
    ]
    assert not (weights.folder / "lora-0").exists()
    sampler.close()
    assert not server.adapters


def test_a_request_has_every_sampling_field_and_the_bounds_of_a_picture(
    servers: list[WireServer], weights: PublishedWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "a word")
    sampler = sampler_of(weights, servers[:1])
    sampler.follow(0, str(weights.file(0)))
    ask(sampler)
    (body,) = servers[0].bodies
    want = {"max_tokens": 4, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
    want |= {"seed": 17, "logprobs": True, "return_token_ids": True, "stop_token_ids": [2]}
    want |= {"ignore_eos": True}
    want |= {"logit_bias": {"7": -100, "8": -100}, "mm_processor_kwargs": {"min_pixels": 64, "max_pixels": 1024}}
    assert {name: body[name] for name in want} == want
    (message,) = body["messages"]
    assert [part["type"] for part in message["content"]] == ["image_url", "text"]
    assert all(each["authorization"] == "Bearer a word" for each in servers[0].headers)


def test_questions_go_to_the_server_with_the_fewest(servers: list[WireServer], weights: PublishedWeights) -> None:
    sampler = sampler_of(weights, servers)
    sampler.follow(0, str(weights.file(0)))
    for each in servers:
        each.hold.clear()
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask, sampler) for _ in range(4)]
        until(lambda: sum(len(each.bodies) for each in servers) == 4)
        assert [len(each.bodies) for each in servers] == [2, 2]
        sampler.follow(1, str(weights.file(1)))
        later = pool.submit(ask, sampler)
        for each in servers:
            each.hold.set()
        assert [each.result().version for each in asked] == [0] * 4
        assert later.result().version == 1


def test_a_server_that_started_anew_is_given_the_weights_again(
    servers: list[WireServer], weights: PublishedWeights
) -> None:
    (server, _), name = servers, f"{weights.folder.name}-0"
    sampler = sampler_of(weights, [server])
    sampler.follow(0, str(weights.file(0)))
    ask(sampler)
    server.adapters.clear()
    server.events.clear()
    assert ask(sampler).version == 0
    assert server.events == [("chat", name), ("load", name), ("chat", name)]


def test_while_one_server_is_gone_the_other_one_answers(servers: list[WireServer], weights: PublishedWeights) -> None:
    sampler = sampler_of(weights, servers)
    sampler.follow(0, str(weights.file(0)))
    servers[0].down = True
    assert [ask(sampler).version for _ in range(3)] == [0, 0, 0]
    assert len(servers[1].bodies) == 3
    servers[1].down = True
    sampler.chosen = SamplerConfig(mode="server", servers=["http://x"], folder="f", timeout=0.5)
    with pytest.raises(InfraError, match=r"asynchronous\.vllm: no server answered for 0\.5 s: .*503: the engine is"):
        ask(sampler)


def test_another_worker_may_have_removed_the_folder_of_older_weights(
    servers: list[WireServer], weights: PublishedWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = sampler_of(weights, servers[:1])
    sampler.follow(0, str(weights.file(0)))
    make = LoraFolders.make

    def removed(self: LoraFolders, version: int, file: Path) -> Path:
        folder = make(self, version, file)
        if version == 0:
            self.forget(0)
            sampler.follow(1, str(weights.file(1)))
        return folder

    monkeypatch.setattr(LoraFolders, "make", removed)
    assert ask(sampler).version == 1


def test_another_worker_may_have_loaded_the_weights(servers: list[WireServer], weights: PublishedWeights) -> None:
    first, second = sampler_of(weights, servers[:1]), sampler_of(weights, servers[:1])
    first.follow(0, str(weights.file(0)))
    ask(first)  # and it dies, without a word
    servers[0].events.clear()
    second.follow(0, str(weights.file(0)))
    assert ask(second).version == 0
    second.follow(1, str(weights.file(1)))
    assert ask(second).version == 1
    assert [event for event, _ in servers[0].events] == ["chat", "load", "chat", "unload"]  # nothing is loaded twice
    assert [name.rpartition("-")[2] for name in servers[0].adapters] == ["1"]


def test_a_folder_that_the_server_does_not_see_is_one_clear_error(
    servers: list[WireServer], weights: PublishedWeights, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = sampler_of(weights, servers[:1])
    sampler.follow(0, str(weights.file(0)))
    server, reply = servers[0], servers[0].reply

    def elsewhere(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return reply(path, {**body, "lora_path": "/nowhere"} if "lora_path" in body else body)

    monkeypatch.setattr(server, "reply", elsewhere)
    with pytest.raises(ConfigError, match=r"must see .*lora-0 under this path.*--max-lora-rank 4 or more"):
        ask(sampler)


def test_an_answer_by_another_name_is_refused(servers: list[WireServer], weights: PublishedWeights) -> None:
    sampler = sampler_of(weights, servers[:1])
    sampler.follow(0, str(weights.file(0)))
    servers[0].calls_it = "model"
    with pytest.raises(ConfigError, match="answers with 'model', not"):
        ask(sampler)


def test_a_server_of_another_model_is_refused(servers: list[WireServer], weights: PublishedWeights) -> None:
    sampler = sampler_of(weights, servers[:1])
    sampler.follow(0, str(weights.file(0)))
    servers[0].model = "other"
    with pytest.raises(ConfigError, match=r"asynchronous\.vllm\.name: .* serves other, not model"):
        ask(sampler)


def test_servers_of_another_user_may_read_the_weights_and_a_file_is_no_folder(tmp_path: Path) -> None:
    def folder(place: str) -> Path:
        vllm = SamplerConfig(mode="server", servers=["http://x:1"], folder=str(tmp_path / place))
        return weights_folder(AsyncConfig(vllm=vllm))

    made = folder("new/deep")
    assert made.parent == tmp_path / "new" / "deep"
    assert made.stat().st_mode & 0o777 == 0o755
    files = published(made, 1)
    lora = LoraFolders(made).make(0, files.file(0))
    modes = {path.stat().st_mode & 0o044 for path in (files.file(0), lora, *lora.iterdir())}
    assert modes == {0o044}
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"asynchronous\.vllm\.folder: nothing can be written there: .*file"):
        folder("file")


@pytest.mark.parametrize(
    ("answer", "error", "match"),
    [
        (TokenAnswer([1, 9, 3], [5, 2], [-1.0, -1.0], 0), ConfigError, r"reads a prompt as 3 tokens \(1 of images\)"),
        (TokenAnswer(None, [5, 2], [-1.0, -1.0], 0), ConfigError, "does not tell which prompt it ran"),
        (TokenAnswer([1, 9, 9, 3], [7, 2], [-1.0, -1.0], 0), ConfigError, "sampled the token 7, although"),
        (TokenAnswer([1, 9, 9, 3], [5, 2], [-1.0], 0), ValueError, "1 log probabilities for 2 tokens"),
        (TokenAnswer([1, 9, 9, 3], [5, 6], [-1.0, -1.0], 0), ValueError, "an answer of 2 tokens without an end"),
        (TokenAnswer([1, 9, 9, 3], [5, 2], [-1.0, float("nan")], 0), ValueError, "a log probability is nan"),
    ],
)
def test_what_cannot_be_proved_or_is_not_whole_is_refused(
    answer: TokenAnswer, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        check_answer(PROMPT, answer, RULES, "vLLM")
    check_answer(PROMPT, TokenAnswer([1, 9, 9, 3], [5, 6, 5, 5], [-1.0] * 4, 0), RULES, "vLLM")  # cut at its longest
