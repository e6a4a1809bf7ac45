"""GRPO as a job runs it: sampled ids and images stay as they were, it goes on bit for bit, it stops with a reason.

The model is random: its answers are no actions, and the rewards are what can be said of any text.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import yaml

from eval.config import ConfigError
from eval.desktop import DesktopGone
from tests.support.made_once import made_once
from tests.unit.training.material import PROMPT, SIZES, episodes
from training import rewards as reward_functions
from training.data.faults import Faults
from training.data.source import SourceConfig, open_source
from training.grpo.config import GrpoConfig, Limit, WatchConfig
from training.grpo.prompts import Prompts
from training.grpo.train import main, make_trainer, train
from training.options import LoraConfig
from training.rewards import RewardSpec, SampledAnswer
from training.tiny import TinyConfig, build

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
STEPS, PERIOD = 10, 2
HERE = __name__


def variety(attempts: Sequence[SampledAnswer]) -> list[float | None]:
    """How many different characters an answer has."""
    if os.environ.get("TEST_STOP_AT") and _calls() == int(os.environ["TEST_STOP_AT"]):
        os.kill(os.getpid(), signal.SIGTERM)
    return [len(set(attempt.text)) / 20 for attempt in attempts]


def _calls() -> int:
    COUNT.made += 1
    return int(COUNT.made)


COUNT = SimpleNamespace(made=0)


def flat_later(attempts: Sequence[SampledAnswer]) -> list[float | None]:
    """Of four generations each answer has a reward of its own, of later ones all have the same."""
    varied = _calls() <= 4
    return [float(number) if varied else 0.0 for number, _ in enumerate(attempts)]


def judged(attempts: Sequence[SampledAnswer]) -> list[float | None]:
    """No judgement of every fourth answer."""
    return [None if number % 4 == 1 else float(number) for number, _ in enumerate(attempts)]


def gone(attempts: Sequence[SampledAnswer]) -> list[float | None]:
    raise DesktopGone("the judge does not answer")


def broken(attempts: Sequence[SampledAnswer]) -> list[float | None]:
    return [math.nan] * len(attempts)


@pytest.fixture(scope="module")
def material() -> tuple[Path, Path]:
    """(episodes, model): prompts of different lengths, with one image or two."""
    root = made_once("grpo", fill)
    return root / "episodes", root / "model"


def fill(root: Path) -> None:
    made = episodes(root, 7)
    model = root / "model"
    build(TinyConfig(episodes=str(made), prompt=PROMPT, max_pixels=64 * 64, **SIZES), model)
    settings = json.loads((model / "tokenizer_config.json").read_text())
    settings["padding_side"] = "right"  # as the real ones have it
    (model / "tokenizer_config.json").write_text(json.dumps(settings))


def config(material: tuple[Path, Path], **changes: Any) -> GrpoConfig:
    values: dict[str, Any] = {
        "data": str(material[0]),
        "model": str(material[1]),
        "prompt": PROMPT,
        "rewards": [RewardSpec(name=f"{HERE}:variety")],
        "steps": STEPS,
        "batch_size": 8,
        "num_generations": 4,
        "num_iterations": PERIOD,
        "max_completion": 6,
        "learning_rate": 3e-3,
        "log_every": 1,
        "save_every": PERIOD,
        "keep_checkpoints": 9,
        "predictions": 2,
    }
    return GrpoConfig(**{**values, **changes})


def trainer(chosen: GrpoConfig, out: Path) -> Any:
    chosen.check()
    rewards = reward_functions.load(chosen.rewards)
    faults = Faults()
    found = open_source(chosen.data, chosen.prompt.builder(), faults)
    return make_trainer(chosen, rewards, Prompts(found, rewards, faults), out)


def rows(made: Any, numbers: Sequence[int]) -> list[dict[str, Any]]:
    return list(made.train_dataset.__getitems__(list(numbers)))


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(folder / "model.safetensors"))


def same(a: Path, b: Path) -> bool:
    import torch

    first, second = weights(a), weights(b)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def summary_of(out: Path) -> str:
    return (out / "results" / "summary.json").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def straight(material: tuple[Path, Path]) -> Path:
    """The outputs of a training that nothing disturbed: five generations of two prompts."""
    return made_once("grpo-straight", undisturbed, material)


def undisturbed(out: Path, material: tuple[Path, Path]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPWAY_METRICS", str(out / "metrics.jsonl"))
        assert train(config(material), out, None)


def test_it_trains_and_tells_so(straight: Path, material: tuple[Path, Path]) -> None:
    assert (straight / ".done").exists()
    assert not same(straight / "model", material[1])
    lines = [json.loads(line) for line in (straight / "metrics.jsonl").read_text().splitlines()]
    steps: dict[str, list[int]] = {}
    for line in lines:
        assert math.isfinite(line["value"])
        steps.setdefault(line["name"], []).append(line["step"])
    generations = list(range(1, STEPS + 1, PERIOD))
    for name in ("reward", "reward/variety", "zero_variance", "length", "truncated", "dropped"):
        assert steps[f"train/{name}"] == generations
    assert steps["train/entropy"] == list(range(1, STEPS + 1))
    (row,) = json.loads((straight / "results" / "summary.json").read_text())
    assert (row["metric"], row["n"], row["infra_failures"]) == ("reward/variety", 2 * STEPS // PERIOD, 0)
    assert (row["agent"], row["steps"]) == ("sampled", list(range(0, STEPS, PERIOD)))  # not by model/'s weights
    assert len(list((straight / "results" / "samples").glob("*.png"))) == 2
    assert (straight / "results" / "plots" / "curves.png").stat().st_size > 10_000


@pytest.mark.nightly
def test_going_on_in_a_later_epoch_gives_the_same_bits(
    straight: Path, material: tuple[Path, Path], tmp_path: Path
) -> None:
    half = len(open_source(str(material[0]), PROMPT.builder())) // 2  # prompts per generation: two in an epoch
    few = config(material, batch_size=half * 2, num_generations=2, steps=8, predictions=0)
    assert train(few, tmp_path / "straight", None)
    resume = tmp_path / "straight" / "checkpoints" / "checkpoint-6"  # in the middle of the second epoch
    assert train(few, tmp_path / "resumed", str(resume))
    assert same(tmp_path / "straight" / "model", tmp_path / "resumed" / "model")
    assert summary_of(tmp_path / "resumed") == summary_of(tmp_path / "straight")


def test_a_mixture_goes_on_in_its_larger_source_and_resumes_so(
    material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two generations of two prompts are an epoch of a folder with two steps and another with more, half and half."""
    few = Path(shutil.copytree(material[0], tmp_path / "few"))
    for folder in sorted(few.iterdir())[1:]:
        shutil.rmtree(folder)
    (two,) = few.iterdir()
    taken = [SourceConfig(path=str(few)), SourceConfig(path=str(material[0]))]
    small, large = (len(open_source(source, PROMPT.builder())) for source in taken)
    assert large >= 3 * small
    given: dict[str, Any] = {
        "data": taken, "batch_size": 2 * small, "num_generations": 2, "num_iterations": 1, "steps": 6, "save_every": 3,
        "predictions": 0, "max_completion": 2,
    }  # fmt: skip
    asked: list[str] = []
    real = Prompts._open
    monkeypatch.setattr(Prompts, "_open", lambda self, at: asked.append(place(self, at)) or real(self, at))  # type: ignore[func-returns-value]
    assert train(config(material, **given), tmp_path / "whole", None)
    others = [name for name in asked if not name.startswith(two.name)]
    assert len(set(others)) > small  # more of the larger source than its share of one epoch
    assert train(
        config(material, **given), tmp_path / "rest", str(tmp_path / "whole" / "checkpoints" / "checkpoint-3")
    )  # in the middle of the second epoch
    assert same(tmp_path / "whole" / "model", tmp_path / "rest" / "model")
    assert summary_of(tmp_path / "rest") == summary_of(tmp_path / "whole")


def place(prompts: Prompts, number: int) -> str:
    found = prompts[number]
    assert found.episode is not None
    assert found.step is not None
    return f"{found.episode.episode_id} {found.step.index}"


def test_sigterm_waits_for_the_next_generation_and_the_next_try_ends_with_the_same_bits(
    straight: Path, material: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    COUNT.made = 0
    monkeypatch.setenv("TEST_STOP_AT", "3")  # while the third generation, of steps 5 and 6, is scored
    assert not train(config(material, save_every=100), tmp_path, None)
    monkeypatch.delenv("TEST_STOP_AT")
    assert not (tmp_path / ".done").exists()
    assert not (tmp_path / "model").exists()
    (saved,) = (tmp_path / "checkpoints").glob("checkpoint-*")
    assert saved.name == "checkpoint-6"
    assert train(config(material, save_every=100), tmp_path, str(saved))
    assert (tmp_path / ".done").exists()
    assert same(straight / "model", tmp_path / "model")
    assert summary_of(tmp_path) == summary_of(straight)  # with the generations before the interruption


def test_a_checkpoint_of_another_configuration_is_refused(straight: Path, material: tuple[Path, Path]) -> None:
    with pytest.raises(ConfigError, match=r"temperature: 1.0 there, 0.5 here"):
        train(config(material, temperature=0.5), straight, str(straight / "checkpoints" / "checkpoint-2"))


def test_a_lora_trains_against_the_start_model_and_then_goes_on_as_an_adapter(
    material: tuple[Path, Path], tmp_path: Path
) -> None:
    """The second training starts from the first one's LoRA, measures its KL from there, and resumes with the same
    bits."""
    chosen = config(material, lora=LoraConfig(rank=4, alpha=8), beta=0.1, steps=4, predictions=0)
    assert train(chosen, tmp_path / "first", None)
    assert not same(material[1], tmp_path / "first" / "model")
    changes = {"adapter": str(tmp_path / "first" / "adapter"), "lora": None, "learning_rate": 1e-2}
    further = msgspec.structs.replace(chosen, **changes)
    assert train(further, tmp_path / "second", None)
    state = json.loads((tmp_path / "second" / "checkpoints" / "checkpoint-4" / "trainer_state.json").read_text())
    kl = [entry["kl"] for entry in state["log_history"] if "kl" in entry]
    assert kl[0] == pytest.approx(0, abs=1e-6)
    assert kl[-1] > 1e-6
    assert not same(tmp_path / "first" / "model", tmp_path / "second" / "model")
    assert train(further, tmp_path / "third", str(tmp_path / "second" / "checkpoints" / "checkpoint-2"))
    assert same(tmp_path / "second" / "model", tmp_path / "third" / "model")


# --- sampled ids and images


def test_the_loss_sees_what_the_rollout_saw(material: tuple[Path, Path], tmp_path: Path) -> None:
    """The log probabilities of the sampled ids: at the rollout, at the loss, and of each sample alone by the processor
    that evaluation uses. Nothing is tokenised again, and no image is another's."""
    import torch

    made = trainer(config(material, num_iterations=1), tmp_path)
    made.model.eval()  # no dropout anyway; TRL's `train` branch is taken by hand
    batch = rows(made, [0] * 4 + [3] * 4)  # one image and a short prompt; two images and a long one
    kept: dict[str, Any] = {}
    generate = made.model.generate

    def recording(*args: Any, **kwargs: Any) -> Any:
        out = generate(*args, **kwargs, return_dict_in_generate=True, output_logits=True)
        kept["logits"] = torch.stack(out.logits, dim=1)  # (answers, tokens, vocabulary)
        return out.sequences

    made.model.generate = recording
    made.model.train()
    inputs = made._generate_and_score_completions(batch)
    ids, mask = inputs["completion_ids"], inputs["completion_mask"].bool()
    rollout = kept["logits"].log_softmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    assert len({tuple(row) for row in ids.tolist()}) > 4  # they were sampled
    full = torch.cat([inputs["prompt_ids"], ids], dim=1)
    attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    images = {name: inputs[name] for name in ("pixel_values", "image_grid_thw", "num_images", "mm_token_type_ids")}
    loss_time, _, _ = made._get_per_token_logps_and_entropies(made.model, full, attention, ids.shape[1], **images)
    assert torch.allclose(loss_time[mask], rollout[mask], atol=1e-4)
    processor = made.processing_class
    for number, row in enumerate(batch):
        text = processor.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
        alone = dict(processor(text=[text], images=row["images"], return_tensors="pt"))
        length = alone["input_ids"].shape[1]
        assert alone["input_ids"][0].tolist() == inputs["prompt_ids"][number][-length:].tolist()
        answer = ids[number][mask[number]].unsqueeze(0)
        alone["input_ids"] = torch.cat([alone["input_ids"], answer], dim=1)
        for name, fill in (("attention_mask", 1), ("mm_token_type_ids", 0)):
            alone[name] = torch.cat([alone[name], torch.full_like(answer, fill)], dim=1)
        logits = made.model(**alone).logits[0, length - 1 : -1]
        found = logits.log_softmax(-1).gather(-1, answer[0].unsqueeze(-1)).squeeze(-1)
        assert torch.allclose(found, loss_time[number][mask[number]], atol=1e-4)


def test_the_loss_reaches_the_vision_tower(material: tuple[Path, Path], tmp_path: Path) -> None:
    made = trainer(config(material, num_iterations=1), tmp_path)
    made.model.train()
    inputs = made._prepare_inputs(rows(made, [0] * 4 + [5] * 4))
    made.current_gradient_accumulation_steps = 1
    made.compute_loss(made.model, inputs).backward()
    patches = made.model.model.visual.patch_embed.proj.weight.grad
    assert patches is not None
    assert float(patches.abs().max()) > 0


def test_vision_tokens_are_never_sampled(material: tuple[Path, Path], tmp_path: Path) -> None:
    import torch

    made = trainer(config(material, num_iterations=1), tmp_path)
    vocabulary = made.processing_class.tokenizer.get_vocab()
    wanted = [vocabulary["<|video_pad|>"], vocabulary["<|image_pad|>"]]

    def prefer(module: Any, inputs: Any, logits: Any) -> Any:
        return logits.index_add(-1, torch.tensor(wanted), torch.full((*logits.shape[:-1], 2), 90.0))

    hook = made.model.lm_head.register_forward_hook(prefer)
    batch = rows(made, [0] * 4 + [3] * 4)
    ids, images, fields = made._tokenize_prompts([row["prompt"] for row in _with_images(batch)])
    made.model.train()
    sampled, _ = made._generate_single_turn(ids, images, fields, 4)
    assert not {*wanted} & {token for row in sampled for token in row}
    made.generation_config.suppress_tokens = None
    sampled, _ = made._generate_single_turn(ids, images, fields, 4)
    assert {token for row in sampled for token in row} <= {*wanted}  # the hook does what it says
    with pytest.raises(ConfigError, match=r"<\|(video|image)_pad\|> was sampled"):
        made._generate([row["prompt"] for row in _with_images(batch)])
    hook.remove()


def _with_images(batch: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    from trl.data_utils import prepare_multimodal_messages

    return [{"prompt": prepare_multimodal_messages(row["prompt"], images=row["images"])} for row in batch]


def test_images_that_do_not_belong_to_their_text_end_the_training(material: tuple[Path, Path], tmp_path: Path) -> None:
    """One image token taken from a prompt and given to the next: the sum over the batch, which transformers compares,
    stays right."""
    made = trainer(config(material, num_iterations=1), tmp_path)
    ids, images, fields = made._tokenize_prompts([row["prompt"] for row in _with_images(rows(made, [0, 1, 3]))])
    made.check_images(ids, images, fields)
    token = made.model.config.image_token_id
    ids[0].remove(token)
    ids[1].insert(ids[1].index(token), token)
    with pytest.raises(ConfigError, match="prompt 0 of the batch has 15 image tokens and 1 images of 16"):
        made.check_images(ids, images, fields)


def test_a_text_that_holds_an_image_token_is_a_bad_prompt(material: tuple[Path, Path]) -> None:
    from dataclasses import replace

    found = list(open_source(str(material[0]), PROMPT.builder()))
    found[1] = replace(
        found[1], messages=[{"role": "user", "content": [{"type": "text", "text": "a <|image_pad|>"}]}, {}]
    )
    rewards = reward_functions.load([RewardSpec(name="format")])
    with pytest.raises(ConfigError, match=r"special_token.*<\|image_pad\|>"):
        Prompts(found, rewards, Faults())
    faults = Faults("skip")
    assert len(Prompts(found, rewards, faults)) == len(found) - 1
    assert faults.counts == {"special_token": 1}


# --- rewards inside the trainer


def test_an_answer_without_a_judgement_moves_nothing(material: tuple[Path, Path], tmp_path: Path) -> None:
    """Groups of four, the second of each left out: the other three's mean and deviation, advantage 0 for itself. The
    other reward, which was there, does not stand in for the sum, as it would in plain TRL."""
    import torch

    specs = [RewardSpec(name=f"{HERE}:judged"), RewardSpec(name="format", weight=2.0)]
    made = trainer(config(material, rewards=specs, num_iterations=1), tmp_path)
    made.model.train()
    inputs = made._generate_and_score_completions(rows(made, [0] * 4 + [3] * 4))
    advantages = inputs["advantages"].view(2, 4)
    assert advantages[:, 1].tolist() == [0, 0]
    left = torch.tensor([[0.0, 2.0, 3.0], [4.0, 6.0, 7.0]])
    expected = (left - left.mean(1, keepdim=True)) / (left.std(1, keepdim=True) + 1e-4)
    assert torch.allclose(advantages[:, [0, 2, 3]], expected, atol=1e-5)
    assert made._metrics["train"]["dropped"] == [2.0]
    assert made.tally.dropped == 2
    tokens = [attempt.tokens for _, attempt in made.tally.attempts]
    kept = [count for number, count in enumerate(tokens) if number % 4 != 1]
    assert inputs["num_items_in_batch"].item() == sum(kept) < sum(tokens)  # what DAPO's loss is divided by
    assert inputs["completion_mask"].sum(dim=1).view(2, 4)[:, 1].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("function", "code", "says"),
    [
        ("gone", 1, "not one of 8 answers could be judged: 8 x gone: DesktopGone: the judge does not answer"),
        ("broken", 78, "reward broken: gave nan for episode login-"),
    ],
)
def test_a_failure_of_all_rewards_has_the_exit_code_of_its_kind(
    function: str, code: int, says: str, material: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    chosen = config(material, rewards=[RewardSpec(name=f"{HERE}:{function}")])
    file.write_text(yaml.safe_dump(msgspec.to_builtins(chosen)))
    assert main(["--config", str(file), "--out", str(tmp_path / "out")]) == code
    printed = capsys.readouterr().err
    assert says in printed
    assert "Traceback" not in printed
    assert not (tmp_path / "out" / "model").exists()


def test_prompts_that_a_reward_can_not_judge_are_refused_or_counted(
    material: tuple[Path, Path], tmp_path: Path
) -> None:
    box = [RewardSpec(name="inside_box")]  # typing has none
    with pytest.raises(ConfigError, match="not_judgeable: reward inside_box needs an expected box"):
        train(config(material, rewards=box), tmp_path, None)
    faults = Faults("skip")
    found = open_source(str(material[0]), PROMPT.builder())
    left = Prompts(found, reward_functions.load(box), faults)
    assert 0 < len(left) < len(found)
    assert len(left) + faults.counts["not_judgeable"] == len(found)


def test_too_few_prompts_for_a_generation_are_refused(material: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a generation takes 64 prompts, and there are \d+; lower batch_size"):
        train(config(material, batch_size=256), tmp_path, None)


# --- collapse


def test_the_checkpoint_before_a_collapse_sampled_a_generation_that_was_well(
    material: tuple[Path, Path], tmp_path: Path
) -> None:
    """Generations 0 to 3 are well and 4 and 5 are not: checkpoint-4 sampled the first of these, checkpoint-3 none."""
    COUNT.made = 0
    watch = WatchConfig(zero_variance=Limit(above=0.9, steps=2))
    rewards = [RewardSpec(name=f"{HERE}:flat_later")]
    given = {"num_iterations": 1, "save_every": 1, "steps": 9, "predictions": 0}
    assert train(config(material, rewards=rewards, watch=watch, **given), tmp_path, None)
    told = json.loads((tmp_path / "results" / "collapse.json").read_text())
    assert (told["step"], told["checkpoint_before"]) == (6, "checkpoints/checkpoint-3")


def test_a_collapse_stops_it_as_done_with_a_reason(
    material: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = WatchConfig(zero_variance=Limit(above=0.9, steps=2), entropy=Limit(below=0.01))
    flat = [RewardSpec(name="format")]  # no answer is an action: every group has one reward
    chosen = config(material, rewards=flat, watch=watch, save_every=PERIOD, predictions=0)
    assert train(chosen, tmp_path, None)
    told = json.loads((tmp_path / "results" / "collapse.json").read_text())
    assert (told["measure"], told["step"], told["generations"]) == ("zero_variance", 3, 2)
    assert (told["value"], told["bound"], told["checkpoint_before"]) == (1.0, "above 0.9", None)
    assert "stopped at step 4: zero_variance was above 0.9 for 2 generations in a row" in capsys.readouterr().out
    assert (tmp_path / ".done").exists()
    assert (tmp_path / "model").is_dir()
    # cut off after that: the next try has only the end to do, and still says why
    for path in (tmp_path / ".done", tmp_path / "results" / "collapse.json"):
        path.unlink()
    assert train(chosen, tmp_path, str(tmp_path / "checkpoints" / "checkpoint-4"))
    assert json.loads((tmp_path / "results" / "collapse.json").read_text()) == told
