"""tasks.jsonl: one line for each task of an evaluation, which comparisons and summaries read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from eval.actions.action import WITHOUT_MOUSE
from eval.desktop import Task
from eval.desktops.tools import TOOLS
from eval.episodes import Episode, Step
from eval.records.failures import FailedEpisode, FailureClass, failure

RECORDS: Final = "tasks.jsonl"
EPISODES: Final = "episodes"
End = Literal["failed", "solved"]
ENDS: Final[tuple[End, ...]] = ("failed", "solved")
Count = Annotated[int, msgspec.Meta(ge=1)]


def episode_id(task: Task) -> str:
    """A folder name for the task: readable, and the same in every run."""
    safe = "".join(char if char.isalnum() or char in "-_." else "-" for char in task.task_id).lstrip(".")
    return f"{safe}-{task.seed}" + (f".{task.trial}" if task.trial else "")


class TaskRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One line of tasks.jsonl, one task: what paired comparisons and the summary need.

    outcome   scored; infra: the infrastructure failed; not run: the task cannot run on this machine, `error` says why.
              Only what is scored has a score; all others count as not solved
    parse_failures, refused  answers that were no action, and answers of which something could not be done
    by_type   expected action type -> [steps, correct steps], where the environment has an expert
    pointed   steps at which the expert would point at a box; in_box, those at which the agent's point lay in it
    attempts  how often the episode was started; more than 1 after infrastructure failures
    metrics   figures of this task alone, for paired comparisons
    version   of the rules that gave the score
    cluster   records of one cluster are not independent, as the steps of a trajectory; None: a cluster of its own
    rules     what else defines the score, by name: results are only compared where it is the same
    programs, difficulty, feasible  of the task, where the environment tells
    failure   why the episode failed, by the rules of eval.records.failures; None: solved, or not judged
    trial     which repetition of the task it is, from 0
    content   the beginning of the sha256 over what defines the task: instruction, options, own limit of steps
    identity  of the task (eval.identity): all that can change its start, answer or verdict, by name; results are only
              compared where it is the same. Empty: the judge is not known
    cut       whether the limit of steps ended the episode; None: not known
    state_solved  whether the final state was the solved one, whatever the answers before it were: `success` is false
              besides where the agent failed by its answers. None: the state was not judged
    earlier   what of the rules was other when the episode ran, where a later run by other rules let it stand: a lower
              limit of steps that did not end it, an earlier revision of the task set with the same task
    """

    benchmark: str
    agent: str
    task_id: str
    seed: int
    score: float | None
    success: bool | None
    outcome: Literal["scored", "infra", "not run"]
    error: str | None = None
    steps: int = 0
    parse_failures: int = 0
    refused: int = 0
    judged: int = 0
    correct: int = 0
    pointed: int = 0
    in_box: int = 0
    by_type: dict[str, list[int]] = {}
    duration_ms: int = 0
    attempts: int = 1
    metrics: dict[str, float] = {}
    episode: str | None = None
    version: str = ""
    cluster: str | None = None
    rules: dict[str, Any] = {}
    programs: tuple[str, ...] = ()
    difficulty: str = ""
    feasible: bool | None = None
    failure: FailureClass | None = None
    trial: int = 0
    content: str = ""
    cut: bool | None = None
    earlier: dict[str, Any] = {}
    state_solved: bool | None = None
    identity: dict[str, str] = {}


def task_record(
    task: Task,
    episode: Episode,
    *,
    benchmark: str,
    version: str,
    took: int,
    attempt: int,
    kept: bool,
    rules: Mapping[str, Any],
    used: Mapping[str, float],
    max_steps: int,
    broke: str,
    content: str,
    cut: bool,
    state: bool | None = None,
) -> TaskRecord:
    """The record of a task whose episode has ended.

    took   milliseconds, all attempts together; `attempt` is how many there were
    kept   whether the episode has a folder
    used   figures of what the agent used, beside those of its answers
    broke  how the agent broke the desktop; "" where it did not
    cut    whether the limit of steps ended the episode
    state  whether the final state was the solved one, whatever the answers were; None: it was not judged
    """
    counts: Counter[str] = Counter()
    by_type: dict[str, list[int]] = {}
    for step in episode.steps:
        counts["failures"] += step.parse_error is not None
        counts["refused"] += step.refused is not None
        counts.update({name: int(value) for name, value in step.metrics.items()})
        for name in step.metrics:
            if name.startswith("expect_"):
                tally = by_type.setdefault(name.removeprefix("expect_"), [0, 0])
                tally[0] += 1
                tally[1] += int(step.metrics["correct"])
    judged, correct = sum(tally[0] for tally in by_type.values()), counts["correct"]
    pointed, in_box = sum("in_box" in step.metrics for step in episode.steps), counts["in_box"]
    metrics = {"steps": float(len(episode.steps)), "parse_failures": float(counts["failures"])}
    metrics |= _answers(episode.steps)
    metrics |= used
    metrics |= episode.metadata.get("score", {}).get("figures", {})
    if judged:
        metrics["step_accuracy"] = correct / judged
    if episode.steps and "correct" in episode.steps[0].metrics:
        metrics["first_action"] = float(episode.steps[0].metrics["correct"])
    if pointed:
        metrics["click_in_box"] = in_box / pointed
    return TaskRecord(
        benchmark=benchmark,
        agent=episode.agent,
        task_id=task.task_id,
        seed=task.seed,
        score=episode.score,
        success=episode.success,
        outcome=episode.outcome,
        error=episode.error,
        steps=len(episode.steps),
        parse_failures=counts["failures"],
        refused=counts["refused"],
        judged=judged,
        correct=correct,
        pointed=pointed,
        in_box=in_box,
        by_type=dict(sorted(by_type.items())),
        duration_ms=took,
        attempts=attempt,
        metrics=metrics,
        episode=f"{EPISODES}/{episode.episode_id}" if kept else None,
        version=version,
        cluster=task.cluster,
        rules=dict(rules),
        programs=task.programs,
        difficulty=task.difficulty,
        feasible=task.feasible,
        failure=failure(FailedEpisode(episode, task.feasible, max_steps, broke)),
        trial=task.trial,
        content=content,
        cut=cut if episode.outcome == "scored" else None,
        state_solved=state if episode.outcome == "scored" else None,
        identity=dict(task.identity),
    )


def did_not_run(record: TaskRecord, why: str) -> TaskRecord:
    """The record of a task that cannot run on this machine."""
    words = "The task cannot run on this machine. It counts as not solved."
    note = FailureClass("not run", words, why)
    return msgspec.structs.replace(record, outcome="not run", error=why, failure=note)


def tools_used(steps: Sequence[Step]) -> dict[str, float]:
    """How often mouse or keyboard, and how often tools were used: refused actions and calls that failed among them.

    gui_share  of both; it is missing where neither was used
    """
    gui = sum(action.type not in WITHOUT_MOUSE for step in steps for action in step.actions)
    tools = sum(call.name in TOOLS for step in steps for call in step.calls)
    figures = {"gui_actions": float(gui), "tool_calls": float(tools)}
    return {**figures, "gui_share": gui / (gui + tools)} if gui + tools else figures


def _answers(steps: Sequence[Step]) -> dict[str, float]:
    """What the answers of an episode held besides one action each, where they did."""
    figures = {
        "actions": float(sum(len(step.actions) for step in steps)) if any(s.further_actions for s in steps) else 0.0,
        "refused": float(sum(step.refused is not None for step in steps)),
        "input_tokens": float(sum(step.usage.input_tokens for step in steps if step.usage)),
        "output_tokens": float(sum(step.usage.output_tokens for step in steps if step.usage)),
        "cost": sum(step.cost for step in steps if step.cost),
    }
    if figures["cost"]:  # then an answer without a cost makes the sum too small
        figures["answers_without_cost"] = float(sum(step.cost is None for step in steps))
    return {name: value for name, value in figures.items() if value}


def end_of(record: TaskRecord) -> End:
    """What the infrastructure failed has failed, too."""
    return "solved" if record.outcome == "scored" and record.success else "failed"
