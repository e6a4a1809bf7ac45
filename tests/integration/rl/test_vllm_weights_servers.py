"""All weights on vLLM servers: each answer is of a version that is known, whatever starts anew; vLLM's wire alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from eval.config import ConfigError
from tests.integration.rl.test_vllm_servers import PROMPT, RULES, answered
from tests.integration.rl.vllm_wire import WireServer, wire
from tests.support.waiting import until
from training.rl.asynchronous.vllm_policy import TokenAnswer
from training.rl.asynchronous.vllm_servers import ServerSampler
from training.rl.vllm_config import SamplerConfig
from training.rl.weights.published import PublishedWeights

pytestmark = pytest.mark.ml


@pytest.fixture
def servers() -> Iterator[list[WireServer]]:
    with ExitStack() as stack:
        found = [stack.enter_context(wire(answered)) for _ in range(2)]
        for each in found:
            each.develops = True
        yield found


@pytest.fixture
def weights(tmp_path: Path) -> PublishedWeights:
    """Version v has one tensor of v's."""
    (tmp_path / "w").mkdir()
    model = torch.nn.Linear(1, 1, bias=False)
    found = PublishedWeights(model, tmp_path / "w", 9)
    for version in range(3):
        torch.nn.init.constant_(model.weight, version)
        found.publish(version)
    return found


def sampler_of(weights: PublishedWeights, servers: list[WireServer]) -> ServerSampler:
    urls = [each.url for each in servers]
    chosen = SamplerConfig(mode="server", servers=urls, folder=str(weights.folder), timeout=20.0)
    return ServerSampler(chosen, weights.folder, RULES, 8)


def ask(sampler: ServerSampler) -> TokenAnswer:
    return asyncio.run(sampler.sample(PROMPT))


def test_an_answer_is_of_the_newest_weights(servers: list[WireServer], weights: PublishedWeights) -> None:
    server = servers[0]
    sampler = sampler_of(weights, [server])
    found = []
    for version in (0, 1, 1):
        sampler.follow(version, str(weights.file(version)))
        found.append(ask(sampler).version)
    assert found == [0, 1, 1]
    chat = ("chat", "model")
    assert server.events == [("weights", "0"), chat, ("weights", "1"), chat, chat]
    assert not list(weights.folder.glob(".whole*"))
    sampler.close()


def test_weights_change_when_no_answer_runs(servers: list[WireServer], weights: PublishedWeights) -> None:
    server = servers[0]
    sampler = sampler_of(weights, [server])
    sampler.follow(0, str(weights.file(0)))
    ask(sampler)
    server.hold.clear()
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(ask, sampler) for _ in range(3)]
        until(lambda: server.chats == 3)
        sampler.follow(1, str(weights.file(1)))
        later = [pool.submit(ask, sampler) for _ in range(3)]
        until(lambda: sum(sampler.servers[0].running.values()) == 6)
        assert ("weights", "1") not in server.events
        server.hold.set()
        assert [each.result().version for each in asked] == [0] * 3
        assert [each.result().version for each in later] == [1] * 3
    assert [each for each in server.events if each[0] == "weights"] == [("weights", "0"), ("weights", "1")]


@pytest.mark.parametrize("when", ["between answers", "during an answer"])
def test_an_answer_by_the_weights_of_the_start_is_asked_again(
    servers: list[WireServer], weights: PublishedWeights, when: str
) -> None:
    server = servers[0]
    sampler = sampler_of(weights, [server])
    sampler.follow(2, str(weights.file(2)))
    ask(sampler)
    server.events.clear()
    if when == "during an answer":
        server.hold.clear()
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask, sampler)
            until(lambda: server.chats == 1)
            server.label = "default"
            server.hold.set()
            assert asked.result().version == 2
    else:
        server.label = "default"
        assert ask(sampler).version == 2
    assert server.events == [("chat", "model"), ("weights", "2"), ("chat", "model")]


def test_while_one_server_is_gone_the_other_one_answers(servers: list[WireServer], weights: PublishedWeights) -> None:
    sampler = sampler_of(weights, servers)
    sampler.follow(0, str(weights.file(0)))
    servers[0].down = True
    assert [ask(sampler).version for _ in range(3)] == [0, 0, 0]
    assert servers[1].events == [("weights", "0"), *[("chat", "model")] * 3]


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"develops": False}, "started with VLLM_SERVER_DEV_MODE=1"),
        ({"cached": 1}, "is for this training alone"),
        ({"model": "other"}, "serves other, not model"),
    ],
)
def test_a_server_that_cannot_take_them_is_one_clear_error(
    servers: list[WireServer], weights: PublishedWeights, odd: dict[str, Any], said: str
) -> None:
    for name, value in odd.items():
        setattr(servers[0], name, value)
    sampler = sampler_of(weights, servers[:1])
    sampler.follow(0, str(weights.file(0)))
    with pytest.raises(ConfigError, match=said):
        ask(sampler)
