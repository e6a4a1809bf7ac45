"""Scores an agent on ScreenSpot, v2 or Pro: `python -m eval.screenspot --config $SLIPWAY_CONFIG`.

Each question is one screenshot and one instruction. The answer's point is right when it lies in the box, whatever the
action is. Writes results/ under $SLIPWAY_OUTPUTS: responses.jsonl (one line per answer, as they come; a run that was
cut off continues from there), summary.json and tasks.jsonl (one line per question; scored from the answers alone).
"""

from __future__ import annotations

import asyncio
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from eval import config as configuration
from eval.actions.dialects.base import scored_as_published
from eval.actions.geometry import PIXELS, Cells
from eval.agents.base import Agent, History, decide
from eval.agents.config import CustomConfig, ServedConfig, TransformersConfig, make_deciding
from eval.benchmarks.errors import BenchError
from eval.benchmarks.screenspot.data import PLATFORMS, TYPES, Edition, Language, Questions, SpotTarget, load
from eval.config import Config, ConfigError
from eval.config import help as config_help
from eval.config.progress import metric, progress
from eval.desktop import Observation, SetupFailed, Task
from eval.episodes import jsonl
from eval.prompts import PromptBuilder, PromptConfig
from eval.records.task_record import Count, TaskRecord
from eval.rollout.single_screens import ScreenQuestion, ask, open_answers, require_an_answer
from eval.scores.stats import Estimate, by_cluster, rate
from eval.scores.summary import MetricRow, row, table
from eval.scores.summary_file import write_summary

BENCHMARK: Final = "screenspot"


class SpotConfig(Config, frozen=True):
    """
    bench       folder with the annotations as they are published (docs/reference/formats.md)
    edition     v1, v2 or pro; none: the one that the folder holds
    images      folder of the screenshots; none: where the edition has it
    language    of the instructions; cn has only pro
    agent       who answers
    prompt      the same section as the training's; dialect place or place-1000 for models that only say places
    split       split of the benchmark in the results
    batch_size  questions whose screenshots are open at once
    """

    bench: str
    agent: TransformersConfig | ServedConfig | CustomConfig
    prompt: PromptConfig = PromptConfig()
    edition: Edition | None = None
    images: str | None = None
    language: Language = "en"
    split: str = "test"
    batch_size: Count = 8


class SpotAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One line of responses.jsonl. Without a response, `infra` says what kept the agent from being asked.

    size   (width, height) of the screenshot in pixels
    frame  (width, height) in which the response's coordinates are; None: fractions of the screen
    """

    task_id: str
    size: tuple[int, int] | None = None
    response: str | None = None
    infra: str | None = None
    frame: tuple[int, int] | None = None


def _screen(questions: Questions, target: SpotTarget) -> ScreenQuestion[str]:
    def show() -> tuple[Observation, History]:
        image = questions.open(target)
        return Observation(image, image.size), History(Task(target.task_id, target.instruction))

    return ScreenQuestion(target.task_id, show)


async def answer_all(agent: Agent, questions: Questions, path: Path, batch_size: int) -> dict[str, SpotAnswer]:
    """Asks the agent every question that has no answer in `path` yet, and appends the answers there."""
    answers = {answer.task_id: answer for answer in jsonl.read(path, SpotAnswer) if answer.infra is None}
    jsonl.write(path, answers.values())
    todo = [_screen(questions, target) for target in questions.targets if target.task_id not in answers]
    total = len(questions.targets)
    async for batch in ask(agent, todo, batch_size):
        new = [
            SpotAnswer(
                task_id=asked.key,
                size=None if asked.observation is None else asked.observation.image.size,
                response=None if asked.decision is None else asked.decision.response,
                infra=asked.infra,
                frame=None if asked.decision is None else asked.decision.frame,
            )
            for asked in batch
        ]
        jsonl.append(path, new)
        answers |= {answer.task_id: answer for answer in new}
        progress(len(answers), total, f"evaluate {agent.name}", f"{len(answers)} of {total} questions answered")
        print(f"{agent.name}: {len(answers)} of {total} questions", flush=True)
    return answers


def judge(target: SpotTarget, answer: SpotAnswer, builder: PromptBuilder) -> Judged:
    """Whether the place of the answer's first action that has one lies in the box."""
    if answer.response is None or answer.size is None:
        return Judged(target, infra=answer.infra or "no answer")
    if answer.frame is not None:
        builder = builder.in_frame(Cells(*answer.frame))
    builder = replace(builder, dialect=scored_as_published(builder.dialect))
    decision = decide(builder.read_turn, answer.response)
    point = next((action.point for action in decision.actions if action.point is not None), None)
    if point is None:
        kinds = ", ".join(action.type for action in decision.actions)
        return Judged(target, unparsed=decision.parse_error or decision.refused or f"no place in: {kinds}")
    return Judged(target, target.hit(point, answer.size))


def evaluate(config: SpotConfig, out: Path) -> list[MetricRow]:
    """Asks, scores, writes; gives the rows of summary.json. Raises ConfigError."""
    if config.prompt.marked:
        raise ConfigError("prompt.marks: the benchmark has no marks; its answers are points")
    images = None if config.images is None else Path(config.images)
    try:
        questions = load(Path(config.bench), config.edition, images, config.language)
    except BenchError as error:
        raise ConfigError(str(error)) from None
    builder = config.prompt.builder()
    agent = make_deciding(config.agent, builder)
    place = open_answers(out, config.agent, config.prompt)
    answers = asyncio.run(answer_all(agent, questions, place, config.batch_size))
    judged = [judge(target, answers[target.task_id], builder) for target in questions.targets]
    records = [_record(each, config, questions) for each in judged]
    jsonl.write(out / "tasks.jsonl", records)
    require_an_answer(records)
    rows = [
        row(
            name,
            estimate,
            benchmark=BENCHMARK,
            version=questions.edition,
            split=config.split,
            infra=sum(each.infra is not None for each in judged),
            seed=0,
            agent=config.agent.name,
        )
        for name, estimate in estimates(judged, questions.edition)
    ]
    write_summary(out / "summary.json", rows)
    for line in rows:
        if line.value is not None:
            metric(len(answers), f"{line.version}/{line.metric}", line.value)
    return rows


def _record(each: Judged, config: SpotConfig, questions: Questions) -> TaskRecord:
    return TaskRecord(
        benchmark=BENCHMARK,
        agent=config.agent.name,
        task_id=each.target.task_id,
        seed=0,
        score=None if each.infra else float(each.correct),
        success=None if each.infra else each.correct,
        outcome="infra" if each.infra else "scored",
        error=each.infra or each.unparsed,
        steps=1,
        parse_failures=int(each.unparsed is not None),
        metrics=dict.fromkeys(metrics_of(each.target, questions.edition)[1:], float(each.correct)),
        version=questions.edition,
        cluster=each.target.image,
        rules={"annotations": questions.digest, "language": config.language, "pixels": PIXELS},
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = config_help.parser("eval.screenspot", "Score where an agent clicks on single screenshots.", SpotConfig)
    parser.add_argument("--out", help="where results go; default $SLIPWAY_OUTPUTS/results")
    arguments = parser.parse_args(argv)

    def run() -> int:
        config = configuration.load(Path(arguments.config), SpotConfig)
        with configuration.results_folder(arguments.out, "results") as out:
            rows = evaluate(config, out)
        print(f"\nScreenSpot {rows[0].version}")
        print(table(rows))
        return 0

    return configuration.run(run, failures=(SetupFailed,))


Cut = Callable[[SpotTarget], str]
# the metrics beside `accuracy`
CUTS: Final[dict[Edition, tuple[Cut, ...]]] = {
    "v1": (
        lambda target: f"accuracy/{target.platform}/{target.kind}",
        lambda target: f"accuracy/{target.platform}",
        lambda target: f"accuracy/{target.kind}",
        lambda target: f"source/{target.source}",
    ),
    "pro": (
        lambda target: f"accuracy/{target.group}/{target.kind}",
        lambda target: f"accuracy/{target.group}",
        lambda target: f"accuracy/{target.kind}",
        lambda target: f"platform/{target.platform}",
        lambda target: f"source/{target.source}",
    ),
}
CUTS["v2"] = CUTS["v1"]


@dataclass(frozen=True)
class Judged:
    """A question with its answer. `unparsed`: why the answer had no point; `infra`: why there is no answer."""

    target: SpotTarget
    correct: bool = False
    unparsed: str | None = None
    infra: str | None = None


def metrics_of(target: SpotTarget, edition: Edition) -> list[str]:
    """The metrics that a question counts for."""
    return ["accuracy", *(cut(target) for cut in CUTS[edition])]


def estimates(judged: Sequence[Judged], edition: Edition) -> list[tuple[str, Estimate | None]]:
    """(metric, value with its interval), by screenshot: questions about one screenshot are not independent.

    accuracy                 of all questions; an answer without a point is wrong, and so is a question that the
                             infrastructure kept from being asked
    accuracy/PLATFORM/KIND   and the other parts (`CUTS`)
    macro                    of v1 and v2: the mean of the six accuracies of platform and kind, as the first paper's
                             column `Average` is; papers of v2 give the mean over questions, which is `accuracy`
    parse_failures           answers without a point, of all answers
    """
    by_metric: dict[str, list[tuple[str, float]]] = {"accuracy": []}
    for cut in CUTS[edition]:
        for name in sorted({cut(each.target) for each in judged}):
            by_metric.setdefault(name, [])
    for each in judged:
        for name in metrics_of(each.target, edition):
            by_metric[name].append((each.target.image, float(each.correct)))
    found: list[tuple[str, Estimate | None]] = [(name, by_cluster(values)) for name, values in by_metric.items()]
    if edition != "pro":
        found.insert(1, ("macro", macro(judged)))
    answered = [(each.target.image, float(each.unparsed is not None)) for each in judged if each.infra is None]
    return [*found, ("parse_failures", by_cluster(answered))]


def macro(judged: Sequence[Judged]) -> Estimate | None:
    """The mean of the accuracies of the cells (platform, kind); None where a cell is empty.

    It is a weighted mean over questions, each with the weight 1 / (cells x questions of its cell), so the interval by
    screenshot is that of every other rate; that the weights come from the sample makes it a little wider.
    """
    counts = Counter((each.target.platform, each.target.kind) for each in judged)
    cells = [(platform, kind) for platform in PLATFORMS for kind in TYPES]
    if not all(counts[cell] for cell in cells):
        return None
    shots: dict[str, tuple[list[float], list[float]]] = {}
    for each in judged:
        weight = 1 / (len(cells) * counts[each.target.platform, each.target.kind])
        parts, wholes = shots.setdefault(each.target.image, ([], []))
        parts.append(weight * each.correct)
        wholes.append(weight)
    found = rate([math.fsum(parts) for parts, _ in shots.values()], [math.fsum(wholes) for _, wholes in shots.values()])
    return None if found is None else replace(found, n=len(judged))


if __name__ == "__main__":
    sys.exit(main())
