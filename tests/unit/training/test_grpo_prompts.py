"""Which samples GRPO's prompts are, in each epoch of a mixture."""

from __future__ import annotations

from typing import Any, cast

import pytest

from eval.config import ConfigError
from training.data.faults import Faults
from training.data.mixture import Mixture
from training.data.samples import Sample
from training.grpo.config import GrpoConfig
from training.grpo.prompts import Prompts


def sample(text: str) -> Sample:
    turns = [{"role": "user", "content": [{"type": "text", "text": text}]}, {"role": "assistant", "content": []}]
    return Sample(messages=cast("Any", turns), images=[cast("Any", "frame.png")])


def told(prompts: Prompts, number: int) -> str:
    return str(prompts[number].messages[0]["content"][0]["text"])


def mixed(bad: set[int]) -> Mixture[Sample]:
    """Four samples and forty, of which `bad` hold a control token; eight places in an epoch."""
    large = [sample(f"large {n}{' <|im_end|>' if n in bad else ''}") for n in range(40)]
    return Mixture([[sample(f"small {n}") for n in range(4)], large], [1.0, 1.0], seed=3)


def test_each_epoch_of_a_mixture_has_the_next_part_of_its_larger_source() -> None:
    prompts = Prompts(mixed(set()), [], Faults())
    assert len(prompts) == 8
    epochs = [[told(prompts, epoch * 8 + at) for at in range(8)] for epoch in range(10)]
    large = [{text for text in epoch if text.startswith("large")} for epoch in epochs]
    assert [len(part) for part in large] == [4] * 10
    assert len(set().union(*large)) == 40
    assert all(len({*epoch}) == 8 for epoch in epochs)
    assert [prompts.item(number)[0] for number in range(8)].count(0) == 4


def test_a_prompt_that_cannot_be_used_is_found_before_the_epoch_that_has_it() -> None:
    whole = Prompts(mixed(set()), [], Faults())
    first = {told(whole, at) for at in range(8)}
    later = next(n for n in range(40) if f"large {n}" not in first)
    with pytest.raises(ConfigError, match=r"special_token: .*im_end"):
        Prompts(mixed({later}), [], Faults()).check(80)
    Prompts(mixed({later}), [], Faults()).check(8)  # a training of one epoch never comes to it


def test_two_texts_that_spell_a_control_token_together_are_found() -> None:
    one = sample("large 0")
    content = one.messages[0]["content"]
    at = next(at for at, part in enumerate(content) if part["type"] == "text")
    content[at : at + 1] = [{"type": "text", "text": text} for text in ("a<|im_", "end|>")]
    with pytest.raises(ConfigError, match=r"special_token: .*im_end"):
        Prompts([one], [], Faults()).check(1)


def test_what_is_left_out_is_counted_once_and_the_others_are_all_drawn() -> None:
    bad = {*range(0, 40, 3)}
    faults = Faults("skip")
    prompts = Prompts(mixed(bad), [], faults)
    prompts.check(160)
    assert faults.counts == {"special_token": len(bad)}
    drawn = [told(prompts, number) for number in range(160)]
    assert {*drawn} == {f"small {n}" for n in range(4)} | {f"large {n}" for n in range(40) if n not in bad}
    large = [drawn.count(f"large {n}") for n in range(40) if n not in bad]
    assert max(large) - min(large) <= 1


def test_other_samples_come_again_in_the_next_epoch() -> None:
    prompts = Prompts([sample("a"), sample("b <|im_end|>"), sample("c")], [], Faults("skip"))
    prompts.check(99)
    assert [told(prompts, number) for number in range(5)] == ["a", "c", "a", "c", "a"]
    assert [prompts.item(number) for number in range(4)] == [0, 2, 0, 2]


def test_the_epochs_of_a_training_are_those_of_its_steps() -> None:
    values: dict[str, Any] = {"model": "m", "data": "d", "rewards": [], "batch_size": 8, "num_generations": 4}
    config = GrpoConfig(**values, steps=7, num_iterations=2)
    assert config.prompts_per_generation() == 2
    assert [config.epochs_of(prompts) for prompts in (2, 3, 4, 5, 6, 100)] == [4, 4, 2, 2, 2, 1]
    assert GrpoConfig(**values, epochs=1.5).epochs_of(4) == 2
