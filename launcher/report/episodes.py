"""The episodes of a report: every task of every agent, with a replay where the evaluation kept the episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from launcher.errors import NotFound
from launcher.report.agents import AgentResults, failure_kind, program_of
from launcher.report.pictures import ReportPictures
from launcher.report.replays import EpisodeHead, NoSteps, Replay, choose, folders_of, read_replay
from launcher.results.facts import Facts
from launcher.results.read import DamagedResults, DetailedResult, StoredOutput

MOST: Final = 2000  # episodes that the page lists; of these LISTED_REPLAYS with a replay, at most
LISTED_REPLAYS: Final = 500
TEXT_BYTES: Final = 3_000_000  # characters of actions and thoughts of all replays, at most; above it each is cut
SHORTEST: Final = 120  # characters that are left of each then, at least


@dataclass(frozen=True)
class ShownEpisode:
    """One line of the list. `outcome`: solved, failed, infra, not run, not judged. `failure`: its class, if any."""

    run: str
    agent: str
    task: str
    seed: str
    outcome: str
    program: str = ""
    difficulty: str = ""
    failure: str = ""
    rule: str = ""
    why: str = ""
    steps: int | None = None
    seconds: float | None = None
    cost: float | None = None
    replay: Replay | None = None
    opened: bool = False  # shown open


def list_episodes(
    outputs: Sequence[tuple[Facts, StoredOutput]],
    agents: Sequence[AgentResults],
    pictures: ReportPictures,
    problems: list[str],
) -> list[ShownEpisode]:
    """The episodes, those of the last evaluation first, and of these the failures."""
    told: dict[tuple[str, str], tuple[AgentResults, DetailedResult]] = {}
    for agent in agents:
        told |= {(agent.run, task.episode): (agent, task) for task in agent.tasks if task.episode is not None}

    def solved(facts: Facts, folder: str) -> bool:
        match = told.get((facts.name, folder))
        return match is None or bool(match[1].success)

    kept: list[tuple[Facts, StoredOutput, str, bool]] = []  # the folder of an episode, and whether it is shown open
    opened = False
    for facts, output in reversed(outputs):
        first = [] if opened else choose(output)
        opened = opened or bool(first)
        rest = [folder for folder in folders_of(output) if folder not in first]
        rest.sort(key=lambda folder, facts=facts: solved(facts, folder))  # type: ignore[misc]
        kept += [(facts, output, folder, folder in first) for folder in (*first, *rest)]
    if len(kept) > LISTED_REPLAYS:
        problems.append(f"{len(kept) - LISTED_REPLAYS} more episodes are in the store, without a replay here")
    kept = kept[:LISTED_REPLAYS]
    pictures.plan(size for _, output, folder, _ in kept for size in _sizes(output, folder))
    shown: list[ShownEpisode] = []
    seen: set[int] = set()
    for facts, output, folder, is_open in kept:
        try:
            replay = read_replay(output, folder, pictures)
        except NoSteps:
            continue
        except (DamagedResults, NotFound) as error:
            problems.append(str(error))
            continue
        match = told.get((facts.name, folder))
        if match is None:
            shown.append(replace(_of_head(facts.name, replay.head), replay=replay, opened=is_open))
            continue
        seen.add(id(match[1]))
        shown.append(replace(_of_task(*match), replay=replay, opened=is_open))
    count = len(shown) + sum(len(agent.tasks) for agent in agents) - len(seen)
    if count > MOST:
        problems.append(f"{count - MOST} more tasks are in the store, without a line in the list")
    rest_of = (_of_task(agent, task) for agent in reversed(agents) for task in agent.tasks if id(task) not in seen)
    return [*shown, *islice(rest_of, max(0, MOST - len(shown)))]


def _sizes(output: StoredOutput, folder: str) -> list[int]:
    """Of the pictures of an episode, each once."""
    entries = output.manifest.files
    names = [name for name in entries if name.startswith(f"{folder}/") and name.endswith(".png")]
    return list({entries[name].sha256: entries[name].size for name in names}.values())


def _of_task(agent: AgentResults, task: DetailedResult) -> ShownEpisode:
    unjudged = task.outcome if task.outcome in ("infra", "not run") else ""
    note = task.failure
    return ShownEpisode(
        run=agent.run,
        agent=agent.label,
        task=task.task_id,
        seed="" if task.seed is None else str(task.seed),
        outcome=unjudged or ("not judged" if task.success is None else "solved" if task.success else "failed"),
        program=program_of(task),
        difficulty=task.difficulty,
        failure=failure_kind(task),
        rule=note.rule if note is not None else "",
        why=note.why if note is not None else task.error or "",
        steps=task.steps,
        seconds=task.duration_ms / 1000 if task.duration_ms else None,
        cost=task.metrics.get("cost"),
    )


def _of_head(run: str, head: EpisodeHead) -> ShownEpisode:
    """An episode without a line in tasks.jsonl."""
    unjudged = "" if head.outcome == "scored" else "not run" if head.outcome == "not run" else "infra"
    return ShownEpisode(
        run=run,
        agent=head.agent or run,
        task=head.task_id,
        seed="" if head.seed is None else str(head.seed),
        outcome=unjudged or ("not judged" if head.success is None else "solved" if head.success else "failed"),
        why=head.error or "",
        seconds=head.duration_ms / 1000 if head.duration_ms else None,
    )


def cut_texts(episodes: Sequence[ShownEpisode], room: int = TEXT_BYTES) -> tuple[list[ShownEpisode], int]:
    """(the episodes with at most about `room` characters of text in their replays, the characters of a text that are
    left; 0 where nothing had to be cut)."""
    replays = [episode.replay for episode in episodes if episode.replay is not None]
    steps = sum(len(replay.steps) for replay in replays)
    if sum(len(step.text) + len(step.thought) for replay in replays for step in replay.steps) <= room:
        return list(episodes), 0
    most = max(SHORTEST, room // max(1, 2 * steps))

    def cut(text: str) -> str:
        return text if len(text) <= most else f"{text[: most - 1]}…"

    out = []
    for episode in episodes:
        replay = episode.replay
        if replay is not None:
            lines = tuple(
                replace(step, text=cut(step.text), thought=cut(step.thought), error=cut(step.error))
                for step in replay.steps
            )
            episode = replace(episode, replay=replace(replay, steps=lines))
        out.append(episode)
    return out, most
