"""What a reward hacker got, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eval.task_run import Rollout


def paid(results: Iterable[Rollout]) -> Iterator[str]:
    """A line for each task for which the checker gave a hacker anything, with the way that it took."""
    for result in results:
        if result.record.score:
            score = {} if result.episode is None else result.episode.metadata.get("score", {})
            way = score.get("hack", "done at once")
            yield f"a hacker gets {result.record.score:g} of 1 for {result.record.task_id}, without doing it: {way}"
