"""The curriculum: what is drawn less, what comes back, and that a resumed one goes on as if it had never stopped."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from eval.config import ConfigError
from training.rl.rollouts.curriculum import Curriculum, DynamicBatch, SuccessPool


def outcomes(draw: random.Random, rate: float, count: int = 8) -> list[bool | None]:
    return [None if draw.random() < 0.1 else draw.random() < rate for _ in range(count)]


def test_tasks_without_signal_are_drawn_less_and_again_now_and_then() -> None:
    """Weights 1, .05 and .05 of three tasks, one drawn at a time: shares of 1/1.1 and .05/1.1."""
    curriculum = Curriculum(["mixed", "solved", "failed"], seed=1)
    for _ in range(9):
        curriculum.note("mixed", [True, False])
        curriculum.note("solved", [True, True])
        curriculum.note("failed", [False, False])
    drawn = Counter(curriculum.draw(1)[0] for _ in range(4_000))
    for task, share in (("mixed", 1 / 1.1), ("solved", 0.05 / 1.1), ("failed", 0.05 / 1.1)):
        error = (share * (1 - share) / 4_000) ** 0.5
        assert abs(drawn[task] / 4_000 - share) < 4 * error, drawn


def test_weights_by_hand() -> None:
    """1, 1/2, 1/4, 1/8, 1/16, then the floor of .05; a mixed group makes it 1; voided rollouts say nothing."""
    curriculum = Curriculum(["a"])
    seen = []
    for _ in range(6):
        seen.append(curriculum.weight("a"))
        curriculum.note("a", [False, False, None])
    assert seen == [1, 0.5, 0.25, 0.125, 0.0625, 0.05]
    curriculum.note("a", [None, None])
    curriculum.note("a", [True, None])
    assert curriculum.weight("a") == 0.05
    curriculum.note("a", [True, False])
    assert curriculum.weight("a") == 1


def test_no_task_comes_twice_before_each_came_once() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        names = [f"t{number}" for number in range(draw.randint(1, 12))]
        curriculum = Curriculum(names, seed)
        for name in names:
            for _ in range(draw.randint(0, 5)):
                curriculum.note(name, outcomes(draw, draw.random()))
        count = draw.randint(0, 30)
        drawn = curriculum.draw(count)
        assert len(drawn) == count
        for start in range(0, count, len(names)):
            part = drawn[start : start + len(names)]
            assert len(set(part)) == len(part), seed


def test_a_resumed_curriculum_goes_on_exactly() -> None:
    """Stopped after any generation, its state through JSON: all further draws, numbers and replays are the same."""
    for seed in range(100):
        whole, pool = Curriculum("abcdef", seed), SuccessPool()
        chance = random.Random(seed)
        told = [[outcomes(chance, chance.random()) for _ in range(4)] for _ in range(12)]
        stop = chance.randrange(12)
        history, resumed_history = [], []
        again, again_pool = Curriculum("abcdef", seed), SuccessPool()
        for generation, groups in enumerate(told):
            history.append(step(whole, pool, generation, groups))
            if generation == stop:
                again.restore(json.loads(json.dumps(whole.state())))
                again_pool.stored = {task: list(found) for task, found in pool.stored.items()}
            elif generation > stop:
                resumed_history.append(step(again, again_pool, generation, groups))
        assert resumed_history == history[stop + 1 :], seed
        assert again.state() == whole.state() or stop == 11


def step(curriculum: Curriculum, pool: SuccessPool, generation: int, groups: list[list[bool | None]]) -> list[object]:
    seen: list[object] = []
    for task, group in zip(curriculum.draw(4), groups, strict=True):
        seen.append((task, curriculum.rollouts(task, 2, 16), curriculum.turns(task, 30)))
        seen.append(pool.replay(task, group, generation))
        curriculum.note(task, group, [generation + index for index in range(len(group))])
        for index, outcome in enumerate(group):
            if outcome:
                pool.add(task, f"{task}/{generation}/{index}", generation)
    return seen


def test_a_state_of_other_tasks_or_another_shape_is_refused() -> None:
    state = Curriculum("ab").state()
    with pytest.raises(ConfigError, match=r"of other tasks: b, c\Z"):
        Curriculum("ac").restore(state)
    with pytest.raises(ConfigError, match="curriculum's state: "):
        Curriculum("ab").restore({"draws": "1", "tasks": {}})
    with pytest.raises(ConfigError, match="there are no tasks"):
        Curriculum([])


def test_rollouts_by_difficulty_by_hand() -> None:
    """p = 1/2: 1 - 2 / 2^n is .875 for 4 and .9375 for 5. After 7 of 7 solved p = 8/9: (8/9)^20 = .095 and
    (8/9)^19 = .107, so 20. Of 14 half solved: p = 1/2 again."""
    curriculum = Curriculum("abc")
    assert curriculum.rollouts("a", 2, 32) == 5
    curriculum.note("b", [True] * 7)
    assert curriculum.success_rate("b") == pytest.approx(8 / 9)
    assert curriculum.rollouts("b", 2, 32) == 20
    assert curriculum.rollouts("b", 2, 8) == 8
    assert curriculum.rollouts("a", 6, 8) == 6
    curriculum.note("c", [True, False] * 7)
    assert curriculum.rollouts("c", 2, 32) == 5


def test_turns_follow_the_longest_success() -> None:
    curriculum = Curriculum("a")
    assert curriculum.turns("a", 20) == 20
    curriculum.note("a", [True, False, True, None], [4, 15, 6, 18])
    assert curriculum.turns("a", 20) == 9
    assert curriculum.turns("a", 8) == 8


def test_a_stored_success_takes_a_failure_s_place_only_where_all_failed() -> None:
    pool = SuccessPool(max_age=10, keep=2)
    assert pool.replay("a", [False, False], 5) is None
    for generation in range(4):
        pool.add("a", f"r{generation}", generation)
    assert pool.in_use() == {"r2", "r3"}
    found = pool.replay("a", [False, False, None], 13)
    assert found is not None
    assert (found[0], found[1].rollout) == (1, "r3")  # not the voided one's place
    assert pool.replay("a", [False, True], 5) is None
    assert pool.replay("a", [False, None], 5) is None
    assert pool.replay("b", [False, False], 5) is None
    assert pool.replay("a", [False, False], 14) is None  # r3 is 11 generations old
    assert pool.replay("a", [False, False], 1) is None  # nothing of the future after a resume from before


def test_a_dynamic_batch_ends_full_or_at_its_bound() -> None:
    for seed in range(1_000):
        draw = random.Random(seed)
        wanted = draw.randint(1, 8)
        batch: DynamicBatch[int] = DynamicBatch(wanted, wanted + draw.randint(0, 20))
        given = []
        while count := batch.missing():
            for _ in range(count):
                given.append(draw.random() < 0.3)
                batch.add(len(given) - 1, given[-1])
        assert batch.tried == len(given) <= batch.most
        assert len(batch.kept) == wanted or len(given) == batch.most
        assert batch.kept == [index for index, signal in enumerate(given) if signal]
        assert sorted(batch.kept + batch.dropped) == list(range(len(given)))
    with pytest.raises(ConfigError, match="dynamic sampling"):
        DynamicBatch(4, 3)


def test_what_came_too_much_is_dropped_and_counted() -> None:
    """Desktops run at once: more groups may end than were missing."""
    batch: DynamicBatch[str] = DynamicBatch(1, 3)
    for name in "abcd":
        batch.add(name, signal=True)
    assert (batch.kept, batch.dropped, batch.missing()) == (["a"], ["b", "c", "d"], 0)
