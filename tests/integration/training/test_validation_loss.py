"""`evaluation: {metric: loss}`: the loss on held-out data, alone and by two processes (gloo), whole and sharded.

The reference is the saved model in transformers' own forward pass, one sample at a time without padding, and torch's
cross-entropy over the answer's tokens.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.config import ConfigError, load
from eval.environments.registry import TasksConfig
from tests.integration.training import preference
from tests.integration.training.test_precision import TRAIN
from tests.integration.training.test_precision import config as config_of
from tests.integration.training.test_two_processes import OPTIONS, PROMPT, TORCHRUN, run, write
from tests.support.made_once import made_once
from tests.unit.training.material import SIZES
from training.common.measuring.in_training import EvaluationConfig, check_sharded
from training.common.model.card import write_cards
from training.data import samples
from training.data.pairs.store import read_pairs
from training.make_episodes import MakeEpisodesConfig, make
from training.options import LoraConfig
from training.reward.model import RewardModel, with_response
from training.sft.train import SftConfig, train
from training.tiny import TinyConfig, build

pytestmark = [
    pytest.mark.ml,
    # TRL asks peft's model by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
NEAR = 1e-6  # of the figure; float32 has steps of 5e-7 at 6
HELD_OUT = 7  # of an odd number two processes get unequal parts


@pytest.fixture(scope="module")
def material() -> dict[str, Path]:
    """episodes, held_out, model"""
    root = made_once("validation-loss", fill)
    seen, held_out = (root / name / "episodes" for name in ("seen", "held"))
    return {"episodes": seen, "held_out": held_out, "model": root / "model"}


def fill(root: Path) -> None:
    for name, count, seed in (("seen", 16, 0), ("held", HELD_OUT, 500)):
        tasks = TasksConfig(count=count, seed=seed)
        make(MakeEpisodesConfig(environment="click", tasks=tasks, options=OPTIONS, prompt=PROMPT), root / name)
    build(TinyConfig(episodes=str(root / "seen" / "episodes"), prompt=PROMPT, **SIZES), root / "model")


def settings(folder: Path, material: dict[str, Path], evaluation: dict[str, Any], **changes: Any) -> Path:
    """A configuration's file in `folder`."""
    by_loss = EvaluationConfig(episodes=str(material["held_out"]), metric="loss", count=HELD_OUT, **evaluation)
    values = {"evaluation": by_loss, "predictions": 0, "save_every": 100, **changes}
    return write(folder, (material["episodes"], material["model"]), **values)


def reference(model: Path, held_out: Path) -> float:
    """The mean loss over the tokens of all held-out answers, in float64."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    network = AutoModelForImageTextToText.from_pretrained(model, dtype=torch.float32).eval()
    processor = AutoProcessor.from_pretrained(model)
    lost, tokens = 0.0, 0
    for sample in samples.load(held_out, PROMPT.builder()):
        images = samples.open_images(sample)
        chats = [sample.messages, sample.messages[:-1]]
        texts = [
            processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=asked)
            for chat, asked in zip(chats, (False, True), strict=True)
        ]
        whole, prompt = (processor(text=[text], images=[images], return_tensors="pt") for text in texts)
        start = prompt["input_ids"].shape[1]
        assert torch.equal(whole["input_ids"][:, :start], prompt["input_ids"])
        with torch.no_grad():
            logits = network(**whole).logits[0, start - 1 : -1].double()
        answer = whole["input_ids"][0, start:]
        lost += float(torch.nn.functional.cross_entropy(logits, answer, reduction="sum"))
        tokens += len(answer)
    return lost / tokens


def told(out: Path) -> dict[int, float]:
    """The held-out losses by step."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["value"] for line in lines if line["name"] == "eval/loss"}


def alone(config: Path, resume: Path | None = None) -> Path:
    """The outputs of a training in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_METRICS", str(config.parent / "metrics.jsonl"))
        assert train(load(config, SftConfig), config.parent, None if resume is None else str(resume))
    return config.parent


def kept(out: Path) -> dict[str, Any]:
    """The first row of the summary."""
    rows = json.loads((out / "results" / "summary.json").read_text())
    return dict(rows[0])


def assert_the_best_is_kept(out: Path, material: dict[str, Path]) -> None:
    """Of evaluations whose best is not the last, model/ has the best one's weights, and the early stop came after."""
    losses = told(out)
    best = min(losses, key=lambda step: losses[step])
    assert 0 < best < max(losses), f"the rate is to make the loss rise again: {losses}"
    assert max(losses) == best + 1  # patience 1, an evaluation after each step
    assert reference(out / "model", material["held_out"]) == pytest.approx(losses[best], rel=NEAR)
    row = kept(out)
    assert (row["metric"], row["value"], row["ci_low"], row["n"]) == ("loss", losses[best], None, HELD_OUT)
    assert_each_number_has_its_weights(out, losses, kept=best, best=best)


EARLY: dict[str, Any] = {"every": 1, "patience": 1}
RISING: dict[str, Any] = {"steps": 40, "learning_rate": 0.3, "max_grad_norm": 0.0, "schedule": "constant"}


@pytest.fixture(scope="module")
def one(material: dict[str, Path]) -> Path:
    """A training alone that keeps its last weights."""
    return made_once("validation-loss-one", keep_last, material)


def keep_last(out: Path, material: dict[str, Path]) -> None:
    alone(settings(out, material, {"every": 3, "keep": "last", "at_start": True}, batch_size=4))


def test_alone_it_is_transformers_own_loss(material: dict[str, Path], one: Path) -> None:
    losses = told(one)
    assert sorted(losses) == [0, 3, 6]
    assert losses[0] == pytest.approx(reference(material["model"], material["held_out"]), rel=NEAR)
    assert losses[6] == pytest.approx(reference(one / "model", material["held_out"]), rel=NEAR)
    assert losses[6] < losses[0]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "fsdp", [pytest.param(False, id="data parallel", marks=pytest.mark.nightly), pytest.param(True, id="FSDP")]
)
def test_two_processes_have_the_figure_of_one(material: dict[str, Path], one: Path, tmp_path: Path, fsdp: bool) -> None:
    evaluation = {"every": 3, "keep": "last", "at_start": True}
    out = run(TORCHRUN, settings(tmp_path / "two", material, evaluation, fsdp=fsdp))
    losses = told(out)
    assert sorted(losses) == [0, 3, 6]
    assert losses[0] == pytest.approx(told(one)[0], rel=NEAR)
    assert losses[6] == pytest.approx(reference(out / "model", material["held_out"]), rel=NEAR)


def test_alone_the_lowest_loss_is_kept_and_ends_the_training(material: dict[str, Path], tmp_path: Path) -> None:
    out = alone(settings(tmp_path / "early", material, EARLY, batch_size=4, **RISING))
    assert_the_best_is_kept(out, material)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "lora",
    [
        pytest.param(None, id="all weights", marks=pytest.mark.nightly),
        pytest.param(LoraConfig(rank=4, alpha=8), id="LoRA"),
    ],
)
def test_sharded_the_lowest_loss_is_kept_and_ends_the_training(
    material: dict[str, Path], tmp_path: Path, lora: LoraConfig | None
) -> None:
    out = run(TORCHRUN, settings(tmp_path / "early", material, EARLY, fsdp=True, lora=lora, **RISING))
    assert_the_best_is_kept(out, material)


def test_the_last_weights_have_their_own_number(
    material: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The loss rises, and model/ gets the last weights: its number is theirs, and the best step's is another's."""
    chosen = {**RISING, "steps": 3, "learning_rate": 3.0}
    out = alone(settings(tmp_path / "last", material, {"every": 1, "keep": "last", "at_start": True}, **chosen))
    losses = told(out)
    best = min((1, 2, 3), key=lambda step: losses[step])
    assert best < 3
    assert losses[3] > max(losses[best], losses[0])
    assert reference(out / "model", material["held_out"]) == pytest.approx(losses[3], rel=NEAR)
    assert_each_number_has_its_weights(out, losses, kept=3, best=best)
    write_cards(out, load(tmp_path / "last" / "config.yaml", SftConfig), "sft")
    card = (out / "model" / "README.md").read_text()
    assert f"| loss | {losses[3]:.4g} | - | {HELD_OUT} | trained, step 3 |" in card
    assert f"| loss | {losses[best]:.4g} | - | {HELD_OUT} | checkpoint-{best}, step {best} |" in card
    assert f"loss {losses[3]:.4g} at step 3, {losses[0]:.4g} at step 0" in capsys.readouterr().out


def assert_each_number_has_its_weights(out: Path, losses: dict[int, float], *, kept: int, best: int) -> None:
    """Of a training's losses by step, the summary gives the trained model that of the weights in model/."""
    rows = json.loads((out / "results" / "summary.json").read_text())
    found = {row["agent"]: (row["steps"], row["value"]) for row in rows if row["metric"] == "loss"}
    wanted = {"trained": ([kept], losses[kept])}
    if best != kept:
        wanted[f"checkpoint-{best}"] = ([best], losses[best])
    if 0 in losses:
        wanted["untrained"] = ([0], losses[0])
    assert found == wanted
    assert all(row["steps"] == [kept] for row in rows if row["agent"] in {"trained", "reward"})


def test_where_the_best_weights_are_gone_the_number_is_the_last_ones(
    material: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.common.measuring.callbacks import Watch

    monkeypatch.setattr(Watch, "best_weights", lambda *_: None)
    out = alone(settings(tmp_path / "gone", material, EARLY, batch_size=4, **RISING))
    losses = told(out)
    last = max(losses)
    assert reference(out / "model", material["held_out"]) == pytest.approx(losses[last], rel=NEAR)
    assert_each_number_has_its_weights(out, losses, kept=last, best=min(losses, key=lambda step: losses[step]))


def test_evaluating_changes_no_bit_of_the_training(material: dict[str, Path], one: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    config = write(
        tmp_path / "plain", (material["episodes"], material["model"]), batch_size=4, predictions=0, save_every=100
    )
    first, second = (load_file(out / "model" / "model.safetensors") for out in (one, alone(config)))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_what_needs_the_whole_model_is_refused_with_the_way_out(
    material: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    by_match = EvaluationConfig(episodes=str(material["held_out"]))
    config = write(tmp_path, (material["episodes"], material["model"]), evaluation=by_match)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(ConfigError, match=r"matches needs the whole model .* evaluation.metric: loss"):
        train(load(config, SftConfig), tmp_path / "out", None)


def test_deepspeed_is_refused(material: dict[str, Path]) -> None:
    by_loss = EvaluationConfig(episodes=str(material["held_out"]), metric="loss")
    check_sharded(by_loss, None, deepspeed=False)
    with pytest.raises(ConfigError, match=r"evaluation: not with deepspeed; fsdp takes evaluation.metric: loss"):
        check_sharded(by_loss, None, deepspeed=True)


def test_a_loss_has_no_minimum(material: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match=r"evaluation.minimum: a loss has none"):
        EvaluationConfig(episodes=str(material["held_out"]), metric="loss", minimum=0.5).check()


@pytest.fixture(scope="module")
def preferred() -> dict[str, Path]:
    """episodes, pairs, model"""
    return {name: preference.material() / name for name in ("episodes", "pairs", "model")}


BY_LOSS = EvaluationConfig(metric="loss", every=1, count=5, keep="last")
SHORT: dict[str, Any] = {"evaluation": BY_LOSS, "steps": 2, "schedule": "constant"}
RATES = {"dpo": 0.3, "reward": 1e-3}  # by which the first one's loss rises again, and the second one's falls


def measured(method: str, made: dict[str, Path], out: Path) -> float:
    """The held-out loss of the last step of a training alone."""
    out.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_METRICS", str(out / "metrics.jsonl"))
        assert TRAIN[method](config_of(method, made, learning_rate=RATES[method], **SHORT), out, None)
    losses = told(out)
    best = min(losses, key=lambda step: losses[step])
    assert_each_number_has_its_weights(out, losses, kept=2, best=best)
    assert best == (1 if method == "dpo" else 2)
    return losses[2]


def held_out_pairs(made: dict[str, Path]) -> list[Any]:
    """Five pairs, evenly spread, each with its images open."""
    from training.data.samples import open_image

    pairs = read_pairs(made["pairs"], "test")
    assert len(pairs) > 5
    chosen = [pairs[place * len(pairs) // 5] for place in range(5)]
    return [(pair, [open_image(path) for path in pairs.images(pair)]) for pair in chosen]


def test_a_reward_models_is_on_its_held_out_pairs(preferred: dict[str, Path], tmp_path: Path) -> None:
    value = measured("reward", preferred, tmp_path / "out")
    model = RewardModel.load(tmp_path / "out" / "model", batch_size=1)
    parts = []
    for pair, images in held_out_pairs(preferred):
        first, second = (
            model.score([with_response(pair.prompt, text)], [images])[0] for text in (pair.chosen, pair.rejected)
        )
        parts.append(math.log1p(math.exp(second - first)) + 0.01 * (first + second) ** 2)
    assert value == pytest.approx(sum(parts) / 5, rel=NEAR)


def test_the_figures_that_a_reward_models_summary_repeats_are_not_told_again(
    preferred: dict[str, Path], tmp_path: Path
) -> None:
    """The summary has the loss before the first step, too; in the metrics it belongs to step 0 only."""
    tmp_path.joinpath("out").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_METRICS", str(tmp_path / "out" / "metrics.jsonl"))
        chosen = {**SHORT, "evaluation": msgspec.structs.replace(BY_LOSS, at_start=True)}
        assert TRAIN["reward"](config_of("reward", preferred, **chosen), tmp_path / "out", None)
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["name"] == "eval/loss"] == [0, 1, 2]


def test_dpos_is_on_its_held_out_pairs(preferred: dict[str, Path], tmp_path: Path) -> None:
    """The sigmoid's part is a mean over pairs, and SFT's over the tokens of all chosen answers."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    value = measured("dpo", preferred, tmp_path / "out")
    folders = (tmp_path / "out" / "model", preferred["model"])
    policy, frozen = (AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32).eval() for path in folders)
    processor = AutoProcessor.from_pretrained(preferred["model"])

    def likelihood(network: Any, pair: Any, text: str, images: list[Any]) -> tuple[float, int]:
        """(log-probability of an answer, its tokens)"""
        chats = [with_response(pair.prompt, text), pair.prompt]
        texts = [
            processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=asked)
            for chat, asked in zip(chats, (False, True), strict=True)
        ]
        whole, prompt = (processor(text=[text], images=[images], return_tensors="pt") for text in texts)
        start = prompt["input_ids"].shape[1]
        with torch.no_grad():
            logits = network(**whole).logits[0, start - 1 : -1].double()
        answer = whole["input_ids"][0, start:]
        return -float(torch.nn.functional.cross_entropy(logits, answer, reduction="sum")), len(answer)

    sigmoid, lost, tokens = 0.0, 0.0, 0
    for pair, images in held_out_pairs(preferred):
        margins = []
        for text in (pair.chosen, pair.rejected):
            (now, count), (before, _) = (likelihood(network, pair, text, images) for network in (policy, frozen))
            margins.append(now - before)
            if text is pair.chosen:
                lost, tokens = lost - now, tokens + count
        sigmoid += math.log1p(math.exp(-0.1 * (margins[0] - margins[1]))) / 5
    assert value == pytest.approx(sigmoid + lost / tokens, rel=2 * NEAR)


def test_pairs_have_no_episodes_and_a_reward_model_no_answers(preferred: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="the loss is that of held-out pairs; leave environment and episodes out"):
        config_of("dpo", preferred, evaluation=EvaluationConfig(metric="loss", environment="click")).check()
    with pytest.raises(ConfigError, match=r"evaluation.metric: a reward model answers nothing; allowed: loss"):
        config_of("reward", preferred, evaluation=EvaluationConfig(environment="click")).check()
