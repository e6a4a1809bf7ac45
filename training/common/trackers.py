"""Sends the figures of evaluations, and tables, to the trackers in `report_to`: TRL and transformers send theirs alone.

Figures of an evaluation come during the training and after it, and transformers closes the trackers at the training's
end. So closing waits until `close`, which the trainer's command calls at its own end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from eval.config import progress
from training.common.tracker_tables import TABLES, Row

PREFIXES: Final = {"eval/": "", "samples/": "samples/"}  # metrics that are sent, and how they begin under eval/ there


class Trackers:
    """The trackers of one training, from `follow` on."""

    def __init__(self, trainer: Any) -> None:
        from transformers.integrations.integration_utils import get_reporting_integration_callbacks

        kinds = tuple(get_reporting_integration_callbacks(list(trainer.args.report_to)))
        self.trainer = trainer
        self.callbacks = [one for one in trainer.callback_handler.callbacks if isinstance(one, kinds)] if kinds else []
        self.ends: list[Callable[[], None]] = []
        for callback in self.callbacks:
            callback.on_train_end = self._later(callback.on_train_end)
        progress.listeners.append(self.send)

    def send(self, step: int, name: str, value: float) -> None:
        """A metric of our own, if it is an evaluation's."""
        for prefix, kept in PREFIXES.items():
            if not name.startswith(prefix):
                continue
            logs = {f"eval_{kept}{name.removeprefix(prefix)}": float(value)}
            for callback in self.callbacks:
                trainer = self.trainer
                callback.on_log(trainer.args, trainer.state, trainer.control, logs=dict(logs), model=trainer.model)

    def table(self, name: str, rows: Sequence[Row], step: int) -> None:
        """A table of at least one row. All rows have the same columns."""
        for callback in self.callbacks:
            TABLES[type(callback).__name__](callback, name, rows, step)

    def close(self) -> None:
        progress.listeners.remove(self.send)
        for end in self.ends:
            end()

    def _later(self, end: Callable[..., object]) -> Callable[..., None]:
        def wait(*given: Any, **named: Any) -> None:
            self.ends.append(lambda: (end(*given, **named), None)[1])

        return wait


_followed: list[Trackers] = []


def follow(trainer: Any) -> None:
    """From now on the trackers of this training get the figures; those of an earlier training are closed."""
    close()
    if trainer.args.report_to:
        _followed.append(Trackers(trainer))


def table(name: str, rows: Sequence[Row], step: int) -> None:
    """A table for the trackers of the training that is followed, if it has rows and there are any."""
    for each in _followed if rows else ():
        each.table(name, rows, step)


def close() -> None:
    """Ends the trackers' runs."""
    while _followed:
        _followed.pop().close()
