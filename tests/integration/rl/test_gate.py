"""The loss sees what the rollouts saw, and the training stops when it does not."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from PIL import Image

from eval.config import ConfigError
from tests.integration.rl.conftest import picture_gradients, rl_config
from tests.integration.rl.worlds import STEPS
from tests.unit.rl import oracle
from training.rl.learning import gate
from training.rl.learning.losses import LossSettings
from training.rl.learning.turn_records import TurnRecord, fitting, learnt, turns_of
from training.rl.train import main, make_trainer

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]


@pytest.fixture(scope="module")
def made(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trainer of which no step was taken."""
    return make_trainer(rl_config(start), tmp_path_factory.mktemp("gate"))


@pytest.fixture(scope="module")
def rows(made: Any) -> list[TurnRecord]:
    """The turns of eight rollouts on two tasks."""
    return list(turns_of(made.roll_out(0)))


def judged(made: Any, rows: list[TurnRecord], file: Path) -> dict[str, Any]:
    before, _ = made.log_probabilities(rows)
    gaps = [gate.gap(row.where, row.turn.logprobs, line.tolist()) for row, line in zip(rows, before, strict=True)]
    return gate.check(gaps, made.chosen.tolerance, 0, file)


def test_the_gate_holds_for_what_was_sampled(made: Any, rows: list[TurnRecord], tmp_path: Path) -> None:
    assert {len(row.turn.images) for row in rows} == {1, 2}
    assert len({len(row.turn.prompt_ids) for row in rows}) > 1  # so that there is padding
    ends = {made.processing_class.tokenizer.eos_token_id}
    assert all((row.turn.ids[-1] in ends) != row.turn.cut for row in rows)
    assert not all(row.turn.cut for row in rows)
    told = judged(made, rows, tmp_path / "gate.json")
    assert (told["turns"], told["outside"], told["tokens"]) == (len(rows), 0, sum(len(row.turn.ids) for row in rows))
    assert 0 < told["most"] < 1e-4


def swapped(rows: list[TurnRecord], made: Any) -> list[TurnRecord]:
    """The pictures of two turns of different tasks change places."""
    first = next(row for row in rows if row.at[0] == 0 and len(row.turn.images) == 1)
    other = next(row for row in rows if row.at[0] == 1 and len(row.turn.images) == 1)
    new = {
        first.at: replace(first, turn=replace(first.turn, images=other.turn.images)),
        other.at: replace(other, turn=replace(other.turn, images=first.turn.images)),
    }
    return [new.get(row.at, row) for row in rows]


def truncated(rows: list[TurnRecord], made: Any) -> list[TurnRecord]:
    """The lower half of one picture is lost, as of a file that was cut and read all the same."""
    row = rows[4]
    broken = row.turn.images[-1].copy()
    broken.paste((128, 128, 128), (0, broken.height // 2, broken.width, broken.height))
    return [*rows[:4], replace(row, turn=replace(row.turn, images=(*row.turn.images[:-1], broken))), *rows[5:]]


def other_template(rows: list[TurnRecord], made: Any) -> list[TurnRecord]:
    """Another chat template, which begins with a system prompt."""
    more = tuple(made.processing_class.tokenizer("<|im_start|>system\nYou help.<|im_end|>\n")["input_ids"])
    return [replace(row, turn=replace(row.turn, prompt_ids=(*more, *row.turn.prompt_ids))) for row in rows]


def tokenised_again(rows: list[TurnRecord], made: Any) -> list[TurnRecord]:
    """The answers' texts are tokenised anew, without the token that ended them."""
    tokenizer = made.processing_class.tokenizer
    out = []
    for row in rows:
        ids = tokenizer(tokenizer.decode(row.turn.ids, skip_special_tokens=True) + " ")["input_ids"]
        ids = (ids + [0] * len(row.turn.ids))[: len(row.turn.ids)]
        out.append(replace(row, turn=replace(row.turn, ids=tuple(ids))))
    return out


@pytest.mark.parametrize("wrong", [swapped, truncated, other_template, tokenised_again])
def test_what_the_loss_sees_wrongly_is_caught(
    made: Any, rows: list[TurnRecord], tmp_path: Path, wrong: Callable[[list[TurnRecord], Any], list[TurnRecord]]
) -> None:
    changed = wrong(rows, made)
    apart = {row.where for row, now in zip(rows, changed, strict=True) if row != now}
    with pytest.raises(ConfigError, match=r"gate: generation 0: the loss does not see what the rollouts saw"):
        judged(made, changed, tmp_path / "gate.json")
    told = json.loads((tmp_path / "gate.json").read_text())
    assert told["outside"] == len(apart) or wrong in (other_template, tokenised_again)
    assert {each["where"] for each in told["worst"]} <= apart


def test_another_temperature_than_the_losss_is_caught(made: Any, tmp_path: Path) -> None:
    usual, made.policy.temperature = made.policy.temperature, 0.7
    try:
        other = list(turns_of(made.roll_out(1)))
    finally:
        made.policy.temperature = usual
    with pytest.raises(ConfigError, match="gate: generation 0"):
        judged(made, other, tmp_path / "gate.json")


def test_what_is_no_number_is_outside(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="in 1 of 2 turns"):
        gate.check(
            [gate.gap("a", [-1.0], [float("nan")]), gate.gap("b", [-1.0], [-1.0])], 1.0, 0, tmp_path / "gate.json"
        )
    assert json.loads((tmp_path / "gate.json").read_text())["worst"][0]["mean"] is None
    with pytest.raises(ValueError, match="zip"):
        gate.gap("a", [-1.0, -1.0], [-1.0])


def test_every_picture_has_a_gradient(made: Any, rows: list[TurnRecord]) -> None:
    assert all(each > 0 for each in picture_gradients(made, rows[:6]))


def test_one_broken_picture_loses_one_turn_and_no_picture_of_the_others(
    made: Any, rows: list[TurnRecord], capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    file = io.BytesIO()
    rows[2].turn.images[0].save(file, "PNG")
    broken = Image.open(io.BytesIO(file.getvalue()[: len(file.getvalue()) // 2]))
    short = replace(rows[5].turn, prompt_ids=_without_one(rows[5].turn.prompt_ids, made.pictures.token))
    given = list(rows)
    given[2] = replace(rows[2], turn=replace(rows[2].turn, images=(broken, *rows[2].turn.images[1:])))
    given[5] = replace(rows[5], turn=short)
    records = fitting(given, made.pictures)
    kept = learnt(records)
    assert kept == [row for number, row in enumerate(rows) if number not in (2, 5)]
    assert len(records) == len(rows)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"generation 0: left out: {rows[2].where}: a picture cannot be read")
    assert second.startswith(f"generation 0: left out: {rows[5].where}: its prompt has")
    seen, whole = made.inputs(kept[:4]), made.inputs([rows[0], rows[1], rows[3], rows[4]])
    assert torch.equal(seen["pixel_values"], whole["pixel_values"])


def _without_one(ids: tuple[int, ...], token: int) -> tuple[int, ...]:
    at = ids.index(token)
    return ids[:at] + ids[at + 1 :]


BONUS, QUANTILE = 0.2, 0.5


def loop(trainer: Any, average: str) -> float:
    """The loss of the trainer's generation by the plain loop over tokens, from the logits of each turn by itself."""
    import torch

    groups: list[list[oracle.Rollout]] = [
        [oracle.Rollout(played.reward, []) for played in group.rollouts] for group in trainer.last.groups
    ]
    for record in turns_of(trainer.last):
        with torch.no_grad():
            lines = trainer.logits([record])[0].double()
        shares = lines.softmax(-1)
        entropies = (-(shares * shares.clamp(min=1e-300).log()).sum(-1)).tolist()
        tokens = [
            oracle.Token(logits, pick, float(share[pick].log()), sampled, entropy)
            for logits, pick, share, sampled, entropy in zip(
                lines.tolist(), record.turn.ids, shares, record.turn.logprobs, entropies, strict=True
            )
        ]
        groups[record.at[0]][record.at[1]].turns.append(oracle.Turn(tokens))
    rules = oracle.Rules(average=average, deviation=average != "constant", quantile=QUANTILE, bonus=BONUS)
    rules.longest = STEPS * trainer.chosen.max_completion
    return sum(oracle.generation(groups, rules).losses)


@pytest.mark.parametrize("average", ["tokens", "constant"])
def test_several_passes_have_the_loss_and_the_gradient_of_one(start: Path, tmp_path: Path, average: str) -> None:
    """That of the plain loop; with a bonus of entropy, and of the more uncertain tokens only. Each training plays the
    same rollouts. The last one has no padding between the rows of a pass."""
    import torch

    found = []
    for size, free in ((64, False), (5, False), (2, True)):
        more = {"entropy_coef": BONUS, "top_entropy_quantile": QUANTILE}
        scale = "none" if average == "constant" else "group"
        chosen = rl_config(start, batch_size=size, padding_free=free, trl=more, average=average, scale_rewards=scale)
        trainer = make_trainer(chosen, tmp_path / f"{size} {free}")
        trainer.create_optimizer()
        loss = trainer.training_step(trainer.model, {})
        trainer.recorder.writer.cut()
        gradient = [weight.grad.flatten() for weight in trainer.model.parameters() if weight.grad is not None]
        found.append((float(loss), torch.cat(gradient)))
        if size == 64:
            assert float(loss) == pytest.approx(loop(trainer, average), abs=1e-5)
    loss, whole = found[0]
    assert abs(loss) > 1e-2
    assert float(whole.abs().max()) > 1e-3
    for other, gradient in found[1:]:
        assert other == pytest.approx(loss, abs=1e-5)
        assert float((gradient - whole).abs().max() / whole.abs().max()) < 1e-4


@pytest.mark.parametrize("loss", ["dapo", "grpo", "cispo", "sapo"])
def test_every_loss_has_a_gradient_that_does_not_know_of_passes(
    made: Any, rows: list[TurnRecord], monkeypatch: pytest.MonkeyPatch, loss: Any
) -> None:
    """The largest difference over the largest gradient."""
    import torch

    before, _ = made.log_probabilities(rows)
    weighed = [
        replace(row, old=tuple(line.tolist()), coefficients=((1.0 if number % 3 else -0.5) / 100,) * row.tokens)
        for number, (row, line) in enumerate(zip(rows, before, strict=True))
    ]
    monkeypatch.setattr(made, "losses", LossSettings(kind=loss, high=5.0 if loss == "cispo" else 0.2))

    def gradient(size: int) -> Any:
        monkeypatch.setattr(made, "chosen", msgspec.structs.replace(made.chosen, batch_size=size))
        made.model.zero_grad()
        made.gradient(made.model, weighed, 0)
        return torch.cat([weight.grad.flatten() for weight in made.model.parameters() if weight.grad is not None])

    one, several = gradient(len(rows)), gradient(5)
    made.model.zero_grad()
    assert float(one.abs().max()) > 1e-3
    assert float((one - several).abs().max() / one.abs().max()) < 1e-5


def test_a_training_that_sees_other_pictures_stops_before_its_first_step(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from training.rl import trainer

    monkeypatch.setattr(trainer, "fitting", lambda records, pictures: swapped(records, None))
    file = tmp_path / "rl.yaml"
    given = msgspec.to_builtins(rl_config(start))
    file.write_text(yaml.safe_dump({name: value for name, value in given.items() if value is not None}))
    assert main(["--config", str(file), "--out", str(tmp_path / "out")]) == 78
    said = capsys.readouterr().err
    assert "gate: generation 0" in said
    assert re.search(r"in 2 of \d+ turns", said)
    assert "Traceback" not in said
    assert json.loads((tmp_path / "out" / "results" / "gate.json").read_text())["outside"] == 2
    assert not list((tmp_path / "out").glob("checkpoints/checkpoint-*"))
