"""From the rollouts of a generation to the advantage of each turn, with the weights of the loss's mean."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from training.rl.advantages import (
    RolloutFacts,
    Scale,
    TaskGroup,
    TurnFacts,
    TurnValues,
    dr_grpo_weights,
    gigpo,
    grpo,
    m_grpo_weights,
    per_turn,
    sampled_tokens,
    uncertain_turns,
)
from training.rl.anchors import anchor_keys
from training.rl.config import RlConfig
from training.rl.rollouts import RolloutGeneration, RolloutGroup
from training.rl.rows import LossRow

Place = tuple[int, int, int]  # group, rollout, turn, as indices in a generation


def turns_of(made: RolloutGeneration) -> Iterator[LossRow]:
    """Every turn of the valid rollouts, without an advantage yet."""
    for group, each in enumerate(made.groups):
        for rollout, played in enumerate(each.rollouts):
            for number, turn in enumerate(played.turns):
                where = f"task {each.task.task_id}, rollout {played.number}, turn {number}"
                yield LossRow(turn, (group, rollout, number), where)


def credit(made: RolloutGeneration, entropies: Mapping[Place, float], config: RlConfig) -> dict[Place, float]:
    """The advantage of each turn that is trained on, times its weight in the loss's mean.

    entropies  nats, of the turns that can be trained on: one that is missing was left out, and has neither a token in
               the divisor nor an advantage
    """
    groups = [_facts(number, group, entropies) for number, group in enumerate(made.groups)]
    values = [_advantages(group, config) for group in groups]
    weights = _weights(made, groups, config)
    chosen = {}
    for number, group in enumerate(groups):
        kept = [[True] * len(rollout.turns) for rollout in group.rollouts]
        if config.entropy_share < 1.0:
            kept = uncertain_turns(group, config.entropy_share)
        for rollout, facts in enumerate(group.rollouts):
            for turn in range(len(facts.turns)):
                if kept[rollout][turn] and (number, rollout, turn) in entropies:
                    chosen[number, rollout, turn] = values[number][rollout][turn] * weights[number][rollout][turn]
    if config.average == "tokens":
        return chosen
    # these weights are for a mean over all tokens, and the loss divides by those that are trained on
    learnt = sum(groups[group].rollouts[rollout].turns[turn].tokens for group, rollout, turn in chosen)
    share = learnt / max(1, sampled_tokens(groups))
    return {place: value * share for place, value in chosen.items()}


def why_masked(
    made: RolloutGeneration,
    sampled: Sequence[LossRow],
    uncertain: Collection[Place],
    learnt: Collection[Place],
    replayed: Collection[tuple[int, int]],
) -> dict[Place, str]:
    """Why turns of a generation are not in the loss.

    sampled    what the loss can see
    uncertain  of these, what `credit` chose
    learnt     of these, what is in the loss
    replayed   rollouts in whose place an earlier success stands
    """
    seen = {row.at for row in sampled}
    found: dict[Place, str] = {}
    for row in turns_of(made):
        if row.at[:2] in replayed:
            found[row.at] = "a success of before stands in the rollout's place"
        elif row.at not in seen:
            found[row.at] = "its pictures do not fit its tokens"
        elif row.at not in uncertain:
            found[row.at] = "not among the turns with the most entropy (entropy_share)"
        elif row.at not in learnt:
            found[row.at] = "the teacher has nothing to tell of it"
    return found


def _facts(number: int, group: RolloutGroup, entropies: Mapping[Place, float]) -> TaskGroup:
    states = [state for played in group.rollouts for state in played.states]
    keys = iter(anchor_keys(states))
    rollouts = []
    for rollout, played in enumerate(group.rollouts):
        turns = []
        for turn, sampled in enumerate(played.turns):
            entropy = entropies.get((number, rollout, turn))
            tokens = 0 if entropy is None else len(sampled.ids)
            turns.append(TurnFacts(tokens, next(keys) if played.states else None, entropy=entropy or 0.0))
        rollouts.append(RolloutFacts(played.reward, tuple(turns)))
    return TaskGroup(tuple(rollouts))


def _advantages(group: TaskGroup, config: RlConfig) -> TurnValues:
    scale: Scale = "std" if config.scale_rewards == "group" else "none"
    if config.advantage == "per_turn":
        return per_turn(group, config.gamma, scale)
    if config.advantage == "gigpo":
        return gigpo(group, config.gamma, config.step_weight, scale)
    return grpo(group, scale)


def _weights(made: RolloutGeneration, groups: list[TaskGroup], config: RlConfig) -> list[TurnValues]:
    if config.average == "rollouts":
        return m_grpo_weights(groups)
    if config.average == "constant":
        longest = max(config.limits.steps_of(group.task) for group in made.groups) * config.max_completion
        return dr_grpo_weights(groups, longest)
    return [group.each(lambda _, rollout: [1.0] * len(rollout.turns)) for group in groups]
