"""Scores an agent offline on AgentNetBench: `python -m eval.agentnetbench --config $SLIPWAY_CONFIG`.

At each step the agent sees the screenshot and, as history, what the human did before; its answer is compared with the
ground truth. Writes results/ under $SLIPWAY_OUTPUTS: responses.jsonl (one line per answer, as they come; a run that was
cut off continues from there), summary.json and tasks.jsonl (one line per step and revision of the scoring rules; scored
from the answers alone).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from eval import config as configuration
from eval.actions import Action, ParseError, Unrepresentable
from eval.actions.dialects.base import Dialect, scored_as_published
from eval.actions.dialects.pyautogui import actions
from eval.actions.geometry import PIXELS, Cells
from eval.agents.base import Agent, History
from eval.agents.config import CommonestConfig, CustomConfig, ServedConfig, TransformersConfig, make_deciding
from eval.benchmarks.agentnetbench.data import BenchStep, Trajectory, load
from eval.benchmarks.agentnetbench.score import GROUPS, VERSIONS, StepScore, Version, predicted_acts, step_score
from eval.benchmarks.errors import BenchError
from eval.config import Config, ConfigError
from eval.config import help as config_help
from eval.config.progress import metric, progress
from eval.desktop import Observation, SetupFailed, Task
from eval.episodes import jsonl
from eval.prompts import PastStep, PromptConfig
from eval.records.task_record import Count, TaskRecord
from eval.rollout.single_screens import ScreenQuestion, ask, open_answers, require_an_answer
from eval.scores.stats import rate
from eval.scores.summary import MetricRow, row, table
from eval.scores.summary_file import write_summary

BENCHMARK: Final = "agentnetbench"


class BenchConfig(Config, frozen=True):
    """
    bench       folder with the trajectories (*.json) and images/
    agent       who answers
    prompt      the same section as the training's
    split       split of the benchmark in the results
    versions    revisions of the scoring rules; tasks.jsonl has a line per step and revision
    batch_size  steps whose screenshots are open at once
    """

    bench: str
    agent: TransformersConfig | ServedConfig | CommonestConfig | CustomConfig
    prompt: PromptConfig = PromptConfig()
    versions: tuple[Version, ...] = VERSIONS
    split: str = "test"
    batch_size: Count = 8


class BenchAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One line of responses.jsonl. Without a response, `infra` says what kept the agent from being asked.

    frame  (width, height) in which the response's coordinates are; None: fractions of the screen
    """

    task_id: str
    step: int
    response: str | None = None
    infra: str | None = None
    frame: tuple[int, int] | None = None


def past_steps(trajectory: Trajectory, index: int, images: int) -> list[PastStep]:
    """What the human did before step `index`; code that no Action can hold is skipped. The last steps have frames."""
    past: list[PastStep] = []
    for number, step in enumerate(trajectory.steps[:index]):
        try:
            done: list[Action] = actions(step.code)
        except (ParseError, Unrepresentable):
            continue
        image = step.open() if number >= index - (images - 1) else None
        past += [PastStep(action, image, step.thought if i == 0 else None) for i, action in enumerate(done)]
    return past


def _screen(trajectory: Trajectory, index: int, images: int) -> ScreenQuestion[tuple[str, int]]:
    step = trajectory.steps[index]

    def show() -> tuple[Observation, History]:
        image = step.open()
        past = past_steps(trajectory, index, images)
        return Observation(image, image.size), History(Task(trajectory.task_id, trajectory.goal), past)

    return ScreenQuestion((trajectory.task_id, step.number), show)


async def answer_all(
    agent: Agent, trajectories: Sequence[Trajectory], path: Path, *, images: int, batch_size: int
) -> dict[tuple[str, int], BenchAnswer]:
    """Asks the agent at every step that has no answer in `path` yet, and appends the answers there."""
    answers = {(a.task_id, a.step): a for a in jsonl.read(path, BenchAnswer) if a.infra is None}
    jsonl.write(path, answers.values())
    total = sum(len(trajectory.steps) for trajectory in trajectories)
    todo = [
        _screen(trajectory, index, images)
        for trajectory in trajectories
        for index, step in enumerate(trajectory.steps)
        if (trajectory.task_id, step.number) not in answers
    ]
    async for batch in ask(agent, todo, batch_size):
        new = [
            BenchAnswer(
                task_id=asked.key[0],
                step=asked.key[1],
                response=None if asked.decision is None else asked.decision.response,
                infra=asked.infra,
                frame=None if asked.decision is None else asked.decision.frame,
            )
            for asked in batch
        ]
        jsonl.append(path, new)
        answers |= {(answer.task_id, answer.step): answer for answer in new}
        progress(len(answers), total, f"evaluate {agent.name}", f"{len(answers)} of {total} steps answered")
        print(f"{agent.name}: {len(answers)} of {total} steps", flush=True)
    return answers


def score_step(
    step: BenchStep, answer: BenchAnswer, dialect: Dialect, version: Version
) -> tuple[StepScore, str | None]:
    """The score, and why the answer did not parse. An answer that is missing scores 0 as well."""
    if answer.response is None:
        return step_score(step, None, version), None
    if answer.frame is not None:
        dialect = dialect.in_frame(Cells(*answer.frame))
    dialect = scored_as_published(dialect)
    try:
        return step_score(step, predicted_acts(answer.response, dialect), version), None
    except ParseError as error:
        return step_score(step, None, version), str(error)


def evaluate(config: BenchConfig, out: Path) -> list[MetricRow]:
    """Asks, scores, writes; gives the rows of summary.json. Raises ConfigError."""
    if not config.versions or len(set(config.versions)) < len(config.versions):
        raise ConfigError("versions must name each revision once")
    if config.prompt.marks:
        raise ConfigError("prompt.marks: the benchmark has no marks; its answers are points")
    try:
        trajectories = load(Path(config.bench))
    except BenchError as error:
        raise ConfigError(str(error)) from None
    builder = config.prompt.builder()
    agent = make_deciding(config.agent, builder)
    place = open_answers(out, config.agent, config.prompt)
    work = answer_all(agent, trajectories, place, images=builder.images, batch_size=config.batch_size)
    answers = asyncio.run(work)
    rows: list[MetricRow] = []
    records: list[TaskRecord] = []
    for version in config.versions:
        new, scored = score_all(config, trajectories, answers, version)
        rows += new
        records += scored
    jsonl.write(out / "tasks.jsonl", records)
    require_an_answer(records)
    write_summary(out / "summary.json", rows)
    for line in rows:
        if line.value is not None:
            metric(len(answers), f"{line.version}/{line.metric}", line.value)
    return rows


def score_all(
    config: BenchConfig,
    trajectories: Sequence[Trajectory],
    answers: dict[tuple[str, int], BenchAnswer],
    version: Version,
) -> tuple[list[MetricRow], list[TaskRecord]]:
    """The rows of one revision, and a record per step.

    average         over all steps of all trajectories (micro); intervals are by trajectory
    coordinate, content, function, and type/<name>: over the steps that ask for such an action
    parse_failures  of all answers
    """
    dialect = config.prompt.builder().dialect
    records: list[TaskRecord] = []
    # name -> trajectory -> scores of its steps
    scores: dict[str, dict[str, list[float]]] = {}
    failures: dict[str, list[float]] = {}
    for trajectory in trajectories:
        for step in trajectory.steps:
            answer = answers[trajectory.task_id, step.number]
            score, unparsed = score_step(step, answer, dialect, version)
            grouped: dict[str, list[float]] = {"average": [score.total]}
            for kind, value in score.types.items():
                grouped.setdefault(f"type/{kind}", []).append(value)
                if kind in GROUPS:
                    grouped.setdefault(GROUPS[kind], []).append(value)
            for name, values in grouped.items():
                scores.setdefault(name, {}).setdefault(trajectory.task_id, []).append(sum(values) / len(values))
            if answer.response is not None:
                failures.setdefault(trajectory.task_id, []).append(float(unparsed is not None))
            records.append(
                TaskRecord(
                    benchmark=BENCHMARK,
                    agent=config.agent.name,
                    task_id=f"{trajectory.task_id}/{step.number}",
                    seed=0,
                    score=None if answer.infra else score.total,
                    success=None if answer.infra else score.total == 1.0,
                    outcome="infra" if answer.infra else "scored",
                    error=answer.infra or unparsed,
                    steps=1,
                    parse_failures=int(unparsed is not None),
                    metrics={f"type/{kind}": value for kind, value in score.types.items()},
                    version=version,
                    cluster=trajectory.task_id,
                    rules={"trajectory": trajectory.digest, "pixels": PIXELS},
                )
            )
    infra = sum(record.outcome == "infra" for record in records)
    order = ["average", "coordinate", "content", "function"]
    names = [name for name in order if name in scores] + sorted(name for name in scores if name not in order)
    by_name = [(name, list(scores[name].values())) for name in names]
    rows = [
        row(
            name,
            rate([sum(values) for values in tasks], [float(len(values)) for values in tasks]),
            benchmark=BENCHMARK,
            version=version,
            split=config.split,
            infra=infra,
            seed=0,
            agent=config.agent.name,
        )
        for name, tasks in [*by_name, ("parse_failures", list(failures.values()))]
    ]
    return rows, records


def main(argv: Sequence[str] | None = None) -> int:
    parser = config_help.parser("eval.agentnetbench", "Score an agent offline.", BenchConfig)
    parser.add_argument("--out", help="where results go; default $SLIPWAY_OUTPUTS/results")
    arguments = parser.parse_args(argv)

    def run() -> int:
        config = configuration.load(Path(arguments.config), BenchConfig)
        with configuration.results_folder(arguments.out, "results") as out:
            rows = evaluate(config, out)
        for version in config.versions:
            print(f"\nAgentNetBench {version}")
            print(table([line for line in rows if line.version == version]))
        return 0

    return configuration.run(run, failures=(SetupFailed,))


if __name__ == "__main__":
    sys.exit(main())
