"""Scores an agent on held-out steps of recordings: `python -m eval.steps --config $SLIPWAY_CONFIG`.

At each step the agent sees the screenshot and, as history, what the person did before; its answer is compared with what
the person did then. Writes results/ under $SLIPWAY_OUTPUTS: responses.jsonl (one line per answer, as they come; a run
that was cut off continues from there), summary.json and tasks.jsonl (one line per step), which `launcher results`,
`compare` and `report` read. Run it before and after a training, on steps that the training does not see. With `arms` it
also tells whether a demonstration in the prompt helps: each arm's figures, and in arms.json how every two differ.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import msgspec

from eval import config as configuration
from eval.actions import Action, ActionError
from eval.actions.geometry import Box
from eval.agents.base import Agent, History
from eval.agents.config import CommonestConfig, CustomConfig, ServedConfig, TransformersConfig, make_deciding
from eval.config import Config, ConfigError
from eval.config import help as config_help
from eval.config.importing import load_object
from eval.config.progress import metric, progress
from eval.desktop import Expected, Observation, SetupFailed
from eval.episodes import jsonl
from eval.prompts import PromptBuilder, PromptConfig
from eval.prompts.demonstrations import Rule
from eval.records.task_record import RECORDS, Count, TaskRecord
from eval.rollout.single_screens import ANSWERS, Asked, ScreenQuestion, ask, open_answers, require_an_answer
from eval.scores import arms
from eval.scores.stats import Estimate, by_cluster
from eval.scores.summary import MetricRow, row, table
from eval.scores.summary_file import write_summary

# `eval` imports nothing of `training`, which knows packed datasets: it is found by name, as a user's own environment is
READER: Final = "training.data.held_out:open_steps"
VERSION: Final = "1"  # of the rules by which steps are scored


class StepsConfig(Config, frozen=True):
    """
    data           a folder of episode folders, or a packed dataset
    agent          who answers
    split          the split of a packed dataset; of a folder of episodes, which is one split, its name in the results
    prompt         the same section as the training's
    benchmark      name of the evaluation in the results
    count          how many steps, spread evenly over all; none: all
    arms           asks once with each of these rules in the place of prompt.demonstration's, such as [none, control,
                   wrong, right], and says how they differ, paired by recording (arms.json): in the first action, and in
                   `success`, where every answer of a recording was what the person did. Not with `count`
    on_bad_sample  fail ends the evaluation at the first step that cannot be asked; skip leaves it out and counts it
    batch_size     steps whose screenshots are open at once
    """

    data: str
    agent: TransformersConfig | ServedConfig | CommonestConfig | CustomConfig
    split: str = "test"
    prompt: PromptConfig = PromptConfig()
    benchmark: str = "steps"
    count: Count | None = None
    arms: tuple[Rule, ...] = ()
    on_bad_sample: Literal["fail", "skip"] = "fail"
    batch_size: Count = 8


class HeldOutStep(Protocol):
    """One step to ask about. `target` is the text that a training teaches; `expected` what the answer should do."""

    @property
    def episode_id(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def marks(self) -> Mapping[int, Box]: ...
    @property
    def target(self) -> str: ...
    @property
    def expected(self) -> Expected: ...
    @property
    def digest(self) -> str:
        """Of what was recorded: answers are only compared where it is the same."""
        ...

    def asked(self) -> tuple[Observation, History]:
        """The step as an agent sees it. Raises BadFrame."""
        ...


class StepAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One line of responses.jsonl. `action` is what the agent read in its response, as JSON; without one, `parse_error`
    says why. Without a response, `infra` says what kept the agent from being asked."""

    task_id: str
    response: str | None = None
    action: dict[str, Any] | None = None
    parse_error: str | None = None
    infra: str | None = None


def task_id(step: HeldOutStep) -> str:
    """The step's name in tasks.jsonl."""
    return f"{step.episode_id}/{step.index}"


async def answer_all(
    agent: Agent, steps: Sequence[HeldOutStep], path: Path, *, batch_size: int
) -> dict[str, StepAnswer]:
    """Asks the agent at every step that has no answer in `path` yet, and appends the answers there."""
    answers = {answer.task_id: answer for answer in jsonl.read(path, StepAnswer) if answer.infra is None}
    jsonl.write(path, answers.values())
    todo = [
        ScreenQuestion(task_id(step), step.asked)
        for step in (steps[number] for number in range(len(steps)))
        if task_id(step) not in answers
    ]
    async for batch in ask(agent, todo, batch_size):
        new = [_answer(asked) for asked in batch]
        jsonl.append(path, new)
        answers |= {answer.task_id: answer for answer in new}
        progress(len(answers), len(steps), f"evaluate {agent.name}", f"{len(answers)} of {len(steps)} steps answered")
        print(f"{agent.name}: {len(answers)} of {len(steps)} steps", flush=True)
    return answers


def _answer(asked: Asked[str]) -> StepAnswer:
    if asked.decision is None:
        return StepAnswer(task_id=asked.key, infra=asked.infra)
    decision = asked.decision.single()
    return StepAnswer(
        task_id=asked.key,
        response=decision.response,
        action=None if decision.action is None else decision.action.to_json(),
        parse_error=decision.parse_error or decision.refused,
    )


def record(config: StepsConfig, step: HeldOutStep, answer: StepAnswer) -> TaskRecord:
    """The line of tasks.jsonl: the score is what the answer is worth (`eval.desktop.Expected.credit`), 1 is solved."""
    known: dict[str, Any] = {
        "benchmark": config.benchmark,
        "agent": config.agent.name,
        "task_id": task_id(step),
        "seed": 0,
        "steps": 1,
        "version": VERSION,
        "cluster": step.episode_id,
        "rules": {"step": step.digest},
    }
    if answer.response is None:
        return TaskRecord(score=None, success=None, outcome="infra", error=answer.infra, **known)
    try:
        action = None if answer.action is None else Action(**answer.action)
    except (ActionError, TypeError) as error:
        raise ConfigError(f"{ANSWERS}: {answer.task_id}: {error}; delete the file to ask again") from None
    expected = step.expected
    score = expected.credit(action)
    boxed = expected.box is not None
    return TaskRecord(
        score=score,
        success=score == 1.0,
        outcome="scored",
        error=answer.parse_error,
        parse_failures=int(action is None),
        judged=1,
        correct=int(score == 1.0),
        pointed=int(boxed),
        in_box=int(boxed and expected.hit(action)),
        by_type={expected.action.type.value: [1, int(score == 1.0)]},
        metrics={"exact": float(answer.response == step.target), "matches": score},
        **known,
    )


def rows(config: StepsConfig, records: Sequence[TaskRecord]) -> list[MetricRow]:
    """The rows of summary.json; intervals are by episode, whose steps are alike.

    matches         what the answers are worth; a step that could not be asked is worth 0. Also by the expected type
    exact           answers with the target's text
    click_in_box    of the steps with a box, answers whose point lies in it
    with_box        the share of steps that have a box; at the others the distance decides
    parse_failures  answers that were not actions
    """
    values: dict[str, list[tuple[str, float]]] = {"matches": [], "exact": []}
    for line in records:
        cluster = line.cluster or line.task_id
        named = {"matches": line.score or 0.0, "exact": line.metrics.get("exact", 0.0)}
        named["with_box"] = float(line.pointed)
        if line.pointed:
            named["click_in_box"] = float(line.in_box)
        if line.outcome == "scored":
            named["parse_failures"] = float(line.parse_failures)
        named |= {f"matches/{kind}": line.score or 0.0 for kind in line.by_type}
        for name, value in named.items():
            values.setdefault(name, []).append((cluster, value))
    first = ["matches", "exact", "click_in_box", "with_box", "parse_failures"]
    values = {name: values[name] for name in values if values[name]}
    names = [name for name in first if name in values] + sorted(name for name in values if name not in first)
    estimates = {name: by_cluster(values[name]) for name in names}
    share = sum(value for _, value in values["with_box"]) / len(records)
    estimates["with_box"] = Estimate(share, share, share, len(records))  # a count: nothing was sampled
    infra = sum(line.outcome == "infra" for line in records)
    told: dict[str, Any] = {"benchmark": config.benchmark, "version": VERSION, "split": config.split, "infra": infra}
    return [row(name, estimates[name], **told, seed=0, agent=config.agent.name) for name in names]


def evaluate(config: StepsConfig, out: Path) -> list[MetricRow]:
    """Asks, scores, writes; gives the rows of summary.json. Raises ConfigError."""
    if not config.arms:
        records = _score(config, out)
        summary = rows(config, records)
    else:
        summary = _score_arms(config, out)
    write_summary(out / "summary.json", summary)
    for line in summary:
        if line.value is not None and line.agent == summary[0].agent:
            metric(summary[0].n, line.metric, line.value)
    return summary


def _score_arms(config: StepsConfig, out: Path) -> list[MetricRow]:
    """The first arm's results are in `out`, the others' beside it as baselines are. Raises ConfigError."""
    if config.count is not None:
        raise ConfigError("arms: whole recordings are compared; leave out count")
    summary: list[MetricRow] = []
    found: dict[str, dict[str, arms.Unit]] = {}
    every = [
        _arm(config, prompt, rule) for rule, prompt in zip(config.arms, config.prompt.arms(config.arms), strict=True)
    ]
    for arm in every:
        _open(arm)  # so that an arm without a demonstration is told before any other asks
    for rule, arm in zip(config.arms, every, strict=True):
        records = _score(arm, out if arm is every[0] else out / "baselines" / arm.agent.name)
        summary += rows(arm, records)
        found[rule] = arms.of_recordings(records)
    compared = arms.compare(found)
    arms.write(out / arms.ARMS, compared)
    print(arms.table(compared), flush=True)
    return summary


def _arm(config: StepsConfig, prompt: PromptConfig, rule: Rule) -> StepsConfig:
    agent = msgspec.structs.replace(config.agent, name=f"{config.agent.name}-{rule}")
    return msgspec.structs.replace(config, prompt=prompt, agent=agent, arms=())


def _open(config: StepsConfig) -> tuple[Sequence[HeldOutStep], PromptBuilder]:
    """The steps to ask about. Raises ConfigError, also where one lacks a demonstration that the prompt asks for."""
    builder = config.prompt.builder()
    reader: Callable[[str, str, PromptBuilder, str], tuple[Sequence[HeldOutStep], dict[str, Any]]] = load_object(
        READER, f"data: {READER}, which opens it"
    )
    steps, left_out = reader(config.data, config.split, builder, config.on_bad_sample)
    if left_out["total"]:
        print(f"left out: {left_out['by_reason']}", flush=True)
    if config.count is not None and config.count < len(steps):
        whole = steps
        steps = [whole[number * len(whole) // config.count] for number in range(config.count)]
    names = Counter(task_id(steps[number]) for number in range(len(steps)))
    if twice := [name for name, count in names.items() if count > 1]:
        raise ConfigError(f"data: {config.data} holds {len(twice)} steps twice, as {twice[0]}; give each episode an id")
    return steps, builder


def _score(config: StepsConfig, out: Path) -> list[TaskRecord]:
    steps, builder = _open(config)
    agent = make_deciding(config.agent, builder)
    out.mkdir(parents=True, exist_ok=True)
    place = open_answers(out, config.agent, config.prompt)
    answers = asyncio.run(answer_all(agent, steps, place, batch_size=config.batch_size))
    records = [record(config, steps[number], answers[task_id(steps[number])]) for number in range(len(steps))]
    jsonl.write(out / RECORDS, records)
    require_an_answer(records)
    return records


def main(argv: Sequence[str] | None = None) -> int:
    parser = config_help.parser("eval.steps", "Score an agent on held-out steps of recordings.", StepsConfig)
    parser.add_argument("--out", help="where results go; default $SLIPWAY_OUTPUTS/results")
    arguments = parser.parse_args(argv)

    def run() -> int:
        config = configuration.load(Path(arguments.config), StepsConfig)
        with configuration.results_folder(arguments.out, "results") as out:
            print(table(evaluate(config, out)))
        return 0

    return configuration.run(run, failures=(SetupFailed,))


if __name__ == "__main__":
    sys.exit(main())
