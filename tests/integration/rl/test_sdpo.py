"""SDPO in the trainer: who teaches, what the teacher is shown, what the loss is, and that an interruption changes
nothing."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval.config import ConfigError
from tests.integration.rl.conftest import rl_config
from tests.integration.rl.test_training import newest, same, written
from training.common.entry import read_state
from training.rl.config import RlConfig
from training.rl.learning.loss_rows import LossRow
from training.rl.learning.sdpo.stage import divergence_warning
from training.rl.learning.turn_records import turns_of
from training.rl.sections import SdpoConfig
from training.rl.train import make_trainer, train

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
TOP = 5
ALPHA = 0.25  # so that the two halves of the divergence cannot be taken for each other


def config(model: Path, **changes: Any) -> RlConfig:
    chosen: dict[str, Any] = {
        "environment": "tests.integration.rl.worlds:Easy",
        "sdpo": SdpoConfig(top=TOP, alpha=ALPHA, rate=0.25),
    }
    chosen["seed"] = 6  # whose first rollouts have a success
    return rl_config(model, **{**chosen, **changes})


@pytest.fixture(scope="module")
def made(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A trainer of which no step was taken, with its teacher and the rollouts of a generation in `last`."""
    trainer = make_trainer(config(start, reward="success"), tmp_path_factory.mktemp("sdpo"))
    trainer.sdpo.on_train_begin(trainer.args, trainer.state, trainer.control)
    trainer.rows = trainer.prepare(0)
    yield trainer
    trainer.recorder.writer.cut()


def weighed(rows: Sequence[LossRow], before: Sequence[Any], tokens: int) -> list[LossRow]:
    """Of a mean over so many tokens. `before`: the log probabilities at sampling."""
    return [
        replace(row, old=tuple(line.tolist()), coefficients=(1 / tokens,) * row.tokens)
        for row, line in zip(rows, before, strict=True)
    ]


def said(trainer: Any, row: LossRow, turn: Any) -> Any:
    """The logits of each sampled token by the model as it is, asked alone, without padding."""
    import torch

    alone = trainer.inputs([replace(row, turn=turn)])
    seen = {name: alone[name] for name in ("pixel_values", "image_grid_thw", "mm_token_type_ids")}
    ids = torch.tensor([[*turn.prompt_ids, *turn.ids]])
    with torch.no_grad():
        logits = trainer.model(input_ids=ids, attention_mask=torch.ones_like(ids), **seen).logits[0]
    return logits[len(turn.prompt_ids) - 1 : -1].double()


def by_hand(trainer: Any, row: LossRow, knowing: Any = None) -> list[float]:
    """The divergence of each sampled token, in plain numbers. `knowing`: the teacher's logits; None: the model's."""
    knowing = said(trainer, row, row.teacher_turn) if knowing is None else knowing
    out = []
    both = (said(trainer, row, row.turn).softmax(-1).tolist(), knowing.softmax(-1).tolist())
    for student, teacher in zip(*both, strict=True):
        best = sorted(range(len(student)), key=lambda token: -student[token])[:TOP]
        pairs = [(student[token], teacher[token]) for token in best]
        pairs.append((1 - sum(p for p, _ in pairs), 1 - sum(q for _, q in pairs)))
        total = 0.0
        for p, q in pairs:
            m = ALPHA * q + (1 - ALPHA) * p
            total += ALPHA * q * math.log(q / m) + (1 - ALPHA) * p * math.log(p / m)
        out.append(total)
    return out


def test_at_the_start_the_teacher_says_what_the_student_says(made: Any) -> None:
    import torch

    rows = turns_of(made.last)
    asked = [turn for group in made.last.groups for played in group.rollouts for turn in played.asked]
    assert [made.policy.prompt(each.observation, each.history) for each in asked] == [
        (row.turn.prompt_ids, row.turn.images) for row in rows
    ]
    some = rows[:5]
    with made.sdpo.teacher.teaching(), torch.no_grad():
        knowing = made.logits(some)
    with torch.no_grad():
        assert torch.equal(made.logits(some), knowing)
    own = [replace(row, teacher_turn=row.turn) for row in some]
    before, _ = made.log_probabilities(some)
    assert float(made.distillation(weighed(own, before, 10))[0].detach()) == pytest.approx(
        0.0, abs=1e-6
    )  # of sums of float32


def test_the_logits_are_those_that_the_tokens_were_drawn_by(made: Any) -> None:
    rows = turns_of(made.last)[:5]
    found = made.logits(rows).detach().log_softmax(-1)
    for row, line in zip(rows, found, strict=True):
        likely = [float(line[at, token]) for at, token in enumerate(row.turn.ids)]
        assert likely == pytest.approx(row.turn.logprobs, abs=1e-4)


def test_the_teacher_is_shown_a_sibling_s_success_or_the_failure(made: Any) -> None:
    """In words and in pictures."""
    decode = made.processing_class.tokenizer.decode
    kinds = set()
    for row in made.rows:
        group = made.last.groups[row.at[0]].rollouts
        solved = [played for played in group if played.episode.success and played is not group[row.at[1]]]
        told = decode(row.teacher_turn.prompt_ids)
        assert told.endswith(decode(row.turn.prompt_ids)[-60:])
        assert len(row.teacher_turn.images) > len(row.turn.images)
        assert row.teacher_turn.ids == row.turn.ids
        assert ("The task was not done." in told) == (not solved)
        kinds.add(bool(solved))
        shown = solved[0] if solved else group[row.at[1]]
        order = [*group[row.at[1] + 1 :], *group[: row.at[1]]]
        if solved:
            shown = next(played for played in order if played.episode.success)
        actions = [step.action for step in shown.episode.steps if step.action is not None]
        if actions:
            assert row.teacher_turn.images[0].tobytes() == shown.asked[0].observation.image.tobytes()
            assert made.policy.builder.written(actions[0]) in told
    assert kinds == {True, False}


def test_the_loss_is_the_divergence_by_hand_and_goes_to_the_student_alone(made: Any) -> None:
    rows = sorted(made.rows, key=lambda row: row.at)[:4]
    before, _ = made.log_probabilities(rows)
    made.model.zero_grad()
    loss, (divergence, entropy, tokens) = made.distillation(weighed(rows, before, 50))
    expected = sum(sum(by_hand(made, row)) for row in rows) / 50
    assert expected > 1e-4
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-3)
    assert divergence / 50 == pytest.approx(expected, rel=1e-3)
    likely = [said(made, row, row.turn).log_softmax(-1) for row in rows]
    assert entropy == pytest.approx(sum(float(-(line.exp() * line).sum()) for line in likely), rel=1e-4)
    assert tokens == sum(len(row.turn.ids) for row in rows)
    loss.backward()
    gradient = max(float(weight.grad.abs().max()) for weight in made.model.parameters() if weight.grad is not None)
    assert gradient > 1e-6
    made.model.zero_grad()


def test_a_trust_region_lies_between_the_model_of_the_start_and_the_student(start: Path, tmp_path: Path) -> None:
    import torch

    region = SdpoConfig(top=TOP, alpha=ALPHA, rate=0.0, mix=0.25)
    trainer = make_trainer(config(start, sdpo=region), tmp_path)
    trainer.sdpo.on_train_begin(trainer.args, trainer.state, trainer.control)
    rows = trainer.prepare(0)[:3]
    trainer.recorder.writer.cut()
    first = [said(trainer, row, row.teacher_turn) for row in rows]
    with torch.no_grad():
        for weight in trainer.model.parameters():
            weight.mul_(1.1)
    now = [said(trainer, row, row.teacher_turn) for row in rows]
    sampled = trainer.log_probabilities(rows)[0]  # so that no token has another weight than 1
    expected = sum(
        sum(by_hand(trainer, row, 0.75 * one + 0.25 * other)) for row, one, other in zip(rows, first, now, strict=True)
    )
    other = sum(sum(by_hand(trainer, row, one)) for row, one in zip(rows, first, strict=True))
    assert expected != pytest.approx(other, rel=0.01)
    assert float(trainer.distillation(weighed(rows, sampled, 1))[0].detach()) == pytest.approx(expected, rel=1e-3)


def test_what_the_student_says_now_weighs_a_token_and_at_most_twice(made: Any) -> None:
    """Its log probability was 0.5 lower at sampling: e^0.5 = 1.6487; or 3 lower: e^3 is above 2."""
    rows = sorted(made.rows, key=lambda row: row.at)[:3]
    before, _ = made.log_probabilities(rows)
    once = float(made.distillation(weighed(rows, before, 50))[0].detach())
    half = float(made.distillation(weighed(rows, [line - 0.5 for line in before], 50))[0].detach())
    far = float(made.distillation(weighed(rows, [line - 3.0 for line in before], 50))[0].detach())
    assert (half / once, far / once) == pytest.approx((1.6487, 2.0), rel=1e-3)


def test_correct_rollouts_learn_from_their_advantage_and_the_others_from_the_teacher(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the first step every ratio is 1, so the part of the advantages is -(sum of tokens x advantage) / tokens. The
    figures of the documentation are those of the turns that the teacher taught."""
    monkeypatch.setenv("SLIPWAY_METRICS", str(tmp_path / "metrics.jsonl"))
    both = SdpoConfig(solved="grpo", top=TOP, alpha=ALPHA)
    trainer = make_trainer(config(start, reward="success", scale_rewards="none", sdpo=both), tmp_path)
    trainer.sdpo.on_train_begin(trainer.args, trainer.state, trainer.control)
    trainer.create_optimizer()
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer.training_step(trainer.model, {})
    trainer.recorder.writer.cut()
    rows, tokens, expected, apart = trainer.rows, 0, 0.0, 0.0
    assert {row.at for row in rows} == {row.at for row in turns_of(trainer.last)}
    for row in rows:
        group = trainer.last.groups[row.at[0]].rollouts
        rate = sum(bool(each.episode.success) for each in group) / len(group)
        solved = bool(group[row.at[1]].episode.success)
        assert (row.teacher_turn is None) == solved
        tokens += len(row.turn.ids)
        apart += 0.0 if solved else sum(by_hand(trainer, row))
        expected -= len(row.turn.ids) * (1 - rate) if solved else 0.0
    assert {row.teacher_turn is None for row in rows} == {True, False}
    assert float(loss) == pytest.approx((expected + apart) / tokens, rel=1e-3)
    told = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    figures = {each["name"]: each["value"] for each in told}
    taught = sum(len(row.turn.ids) for row in rows if row.teacher_turn is not None)
    assert figures["train/divergence"] == pytest.approx(apart / taught, rel=1e-3)
    assert figures["train/divergence"] > 0.1  # this model was never shown anything
    assert f"differs from it by {figures['train/divergence']:.2g} nats a token: it does not" in capsys.readouterr().out
    assert divergence_warning(0.1) == ""
    assert 0 < figures["train/entropy_taught"] < math.log(len(trainer.processing_class.tokenizer))


@pytest.mark.nightly
def test_the_teacher_follows_the_steps_and_a_killed_training_ends_with_the_same_bits(
    start: Path, tmp_path: Path
) -> None:
    """What each checkpoint holds of the teacher is .75 times the one before and .25 times the checkpoint's weights."""
    import torch
    from safetensors.torch import load_file

    straight, out = tmp_path / "straight", tmp_path / "out"
    assert train(config(start), straight, None)
    assert not same(straight / "model", start)
    teacher = load_file(start / "model.safetensors")
    for step in (1, 2, 3, 4):
        folder = straight / "checkpoints" / f"checkpoint-{step}"
        weights, kept = load_file(folder / "model.safetensors"), load_file(folder / "teacher.safetensors")
        teacher = {name: 0.75 * value + 0.25 * weights[name] for name, value in teacher.items() if name in weights}
        assert set(kept) <= set(teacher)
        for name, value in kept.items():
            torch.testing.assert_close(value, teacher[name], rtol=1e-5, atol=1e-7)
    file = written(config(start), tmp_path)
    command = [sys.executable, "-m", "tests.integration.rl.killed", "torn", "3", "--config", str(file)]
    ended = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    found = newest(out)
    assert found is not None
    assert read_state(str(found))["global_step"] == 2
    assert train(config(start), out, str(found))
    assert same(straight / "model", out / "model")
    (found / "teacher.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"teacher\.safetensors cannot be read"):
        train(config(start), tmp_path / "again", str(found))
