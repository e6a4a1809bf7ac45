"""The pages of trainings: their time line, the groups of a step, two rollouts beside each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import RowMapping
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from launcher.decoding import decode
from launcher.monitor.server.blind_mode import blind
from launcher.monitor.server.pages.formats import chosen_page, row_id
from launcher.monitor.server.queries.runs import Queries
from launcher.monitor.server.queries.trainings import KINDS, SHOWN, Moment, TrainingQueries

UNLIKELY: Final = (-0.1, -0.5, -1.0, -2.0, -4.0)  # nats; below each the colour is stronger
UNSURE: Final = (0.1, 0.5, 1.0, 2.0, 4.0)  # nats; above each the colour is stronger


class ShownToken(NamedTuple):
    text: str
    logprob: float | None
    shade: int
    entropy: float | None
    unsure: int


class _Token(msgspec.Struct, array_like=True, frozen=True):
    """As the database has it; a row from before entropies were told has none."""

    text: str
    logprob: float | None
    entropy: float | None = None


class LinePoint(NamedTuple):
    x: float
    y: float | None
    moment: Moment


@dataclass
class TrainingPages:
    """`page` renders a template, `found` gives the run of a request or raises 404."""

    queries: Queries
    page: Callable[..., HTMLResponse]
    found: Callable[[Request], RowMapping]

    def __post_init__(self) -> None:
        self.of = TrainingQueries(self.queries)

    def trainings(self, request: Request) -> Response:
        return self.page("trainings.html", runs=self.of.trained())

    def training(self, request: Request) -> Response:
        return self.page("training.html", **self._training(request))

    def training_part(self, request: Request) -> Response:
        return self.page("training_line.html", **self._training(request))

    def _training(self, request: Request) -> dict[str, Any]:
        run = self.found(request)
        training = self.of.training(run["id"])
        if training is None:
            raise HTTPException(404, "this run told of no training")
        moments = self.of.moments(run["id"])
        newest = list(reversed(moments))
        at = chosen_page(request, len(newest), SHOWN)
        statuses = self.of.statuses(training["id"])
        return {
            "run": run,
            "training": training,
            "statuses": statuses,
            "moments": newest[at * SHOWN : (at + 1) * SHOWN],
            "of": len(moments),
            "at": at,
            "pages": max(1, -(-len(newest) // SHOWN)),
            "line": _line(moments),
            "resumed": _resumed(moments, statuses),
            "names": _names(moments),
        }

    def step(self, request: Request) -> Response:
        return self.page("training_step.html", **self._step(request))

    def step_part(self, request: Request) -> Response:
        return self.page("training_groups.html", **self._step(request))

    def _step(self, request: Request) -> dict[str, Any]:
        run = self.found(request)
        kind, number = request.path_params["kind"], request.path_params["step"]
        if kind not in KINDS or not number.isascii() or not number.isdecimal() or len(number) > 18:
            raise HTTPException(404)
        # asked for once: a step that goes between two questions would be found by one of them alone
        moments = self.of.moments(run["id"])
        every = [(each.kind, each.step) for each in moments]
        if (kind, int(number)) not in every:
            raise HTTPException(404, "the training told of no such step")
        place = every.index((kind, int(number)))
        return {
            "run": run,
            "moment": moments[place],
            "groups": self.of.groups(run["id"], kind, int(number)),
            "before": every[place - 1] if place else None,
            "after": every[place + 1] if place + 1 < len(every) else None,
        }

    def group(self, request: Request) -> Response:
        """Two rollouts of a group side by side: the first that solved the task and the first that did not, unless the
        address names others."""
        members = self.of.members(row_id(request.path_params["group"]))
        if not members:
            raise HTTPException(404)
        by_id = {row["id"]: row for row in members}
        played = [row for row in members if row["turns"]]
        solved = next((row for row in played if row["success"]), None)
        other = next((row for row in played if row is not solved and not row["success"]), None)
        first = () if blind() else (solved, other)  # the order would tell
        default = [row for row in (*first, *played, *members) if row is not None]
        left = by_id.get(row_id(request.query_params.get("left") or "0"), default[0])
        rest = [row for row in default if row["id"] != left["id"]]
        right = by_id.get(row_id(request.query_params.get("right") or "0"), rest[0] if rest else None)
        parting = self.queries.parting(left["id"], right["id"]) if right is not None else None
        return self.page("group.html", members=members, left=left, right=right, parting=parting)


def tokens_of(turn: RowMapping) -> Sequence[ShownToken]:
    """The sampled tokens of a turn with their log probabilities and entropies; none where they were not told."""
    try:
        told = decode(turn["tokens"], list[_Token]) if turn["tokens"] else []
    except msgspec.MsgspecError:
        return ()
    return [
        ShownToken(each.text, each.logprob, _shade(each.logprob), each.entropy, _unsure(each.entropy)) for each in told
    ]


def _shade(logprob: float | None) -> int:
    return 0 if logprob is None else sum(logprob < limit for limit in UNLIKELY)


def _unsure(entropy: float | None) -> int:
    return 0 if entropy is None else sum(entropy > limit for limit in UNSURE)


def _line(moments: Sequence[Moment]) -> list[LinePoint]:
    """The share that was solved, on a field of 1000 x 200."""
    last = max((each.step for each in moments), default=0)
    return [
        LinePoint(
            round(10 + 980 * each.step / max(1, last), 2),
            round(190 - 180 * each.solved / each.scored, 2) if each.scored else None,
            each,
        )
        for each in moments
    ]


def _resumed(moments: Sequence[Moment], statuses: Sequence[RowMapping]) -> list[float]:
    last = max((each.step for each in moments), default=0)
    return [round(10 + 980 * max(0, row["step"]) / max(1, last), 2) for row in statuses if row["status"] == "resumed"]


SHOWN_FIGURES: Final = ("loss", "grad_norm", "learning_rate", "entropy")


def _names(moments: Sequence[Moment]) -> list[str]:
    """The figures that the table shows: the commonest names first."""
    there = {name for each in moments for name in each.figures}
    return [name for name in SHOWN_FIGURES if name in there]
