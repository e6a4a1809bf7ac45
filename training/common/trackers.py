"""Sends the figures of evaluations, and tables, to the trackers in `report_to`: TRL and transformers send theirs alone.

Figures of an evaluation come during the training and after it, and transformers closes the trackers at the training's
end. So closing waits until `close`, which the trainer's command calls at its own end.

A row of a table is a mapping of a column's name to text, a number, a truth, None or a picture (PIL). Each tracker takes
tables in its own way, over transformers' callbacks, whose run is the one that gets the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from eval.config import progress

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


Row = Mapping[str, Any]
STEP: Final = "train/global_step"  # by which transformers' callbacks order what they send


def to_wandb(callback: Any, name: str, rows: Sequence[Row], step: int) -> None:
    wandb = callback._wandb
    _columns_of_a_run(wandb, wandb.log, name, rows, step)


def _is_picture(value: object) -> bool:
    from PIL import Image  # only where a tracker is: the trainers' --help needs no extra

    return isinstance(value, Image.Image)


def to_trackio(callback: Any, name: str, rows: Sequence[Row], step: int) -> None:
    trackio = callback._trackio
    _columns_of_a_run(trackio, trackio.log, name, rows, step)


def _columns_of_a_run(module: Any, log: Callable[..., Any], name: str, rows: Sequence[Row], step: int) -> None:
    columns = list(rows[0])
    data = [[module.Image(each) if _is_picture(each) else each for each in row.values()] for row in rows]
    log({name: module.Table(columns=columns, data=data), STEP: step})


def to_mlflow(callback: Any, name: str, rows: Sequence[Row], step: int) -> None:
    """An artifact NAME/STEP.json, as MLflow's own tables are laid out; pictures are artifacts beside it, by their
    paths. MLflow's `log_table` needs pandas, which its client alone has not."""
    mlflow, data = callback._ml_flow, []
    for number, row in enumerate(rows):
        values = []
        for column, each in row.items():
            if _is_picture(each):
                path = f"{name}/{step}/{number}-{column.replace(' ', '-')}.png"
                mlflow.log_image(each, path)
                values.append(path)
            else:
                values.append(each)
        data.append(values)
    mlflow.log_dict({"columns": list(rows[0]), "data": data}, f"{name}/{step}.json")


def to_tensorboard(callback: Any, name: str, rows: Sequence[Row], step: int) -> None:
    """The texts as a table, and each picture for itself."""
    import numpy

    writer = callback.tb_writer
    texts = [column for column, each in rows[0].items() if not _is_picture(each)]
    lines = [f"| {' | '.join(texts)} |", "|---" * len(texts) + "|"]
    lines += [f"| {' | '.join(_cell(row.get(column)) for column in texts)} |" for row in rows]
    writer.add_text(name, "\n".join(lines), step)
    for number, row in enumerate(rows):
        for column, each in row.items():
            if _is_picture(each):
                pixels = numpy.asarray(each.convert("RGB"))
                writer.add_image(f"{name}/{number}/{column}", pixels, step, dataformats="HWC")


def _cell(value: Any) -> str:
    return str("" if value is None else value).replace("|", "\\|").replace("\n", " ")


TABLES: Final[Mapping[str, Callable[[Any, str, Sequence[Row], int], None]]] = {
    "WandbCallback": to_wandb,
    "TrackioCallback": to_trackio,
    "MLflowCallback": to_mlflow,
    "TensorBoardCallback": to_tensorboard,
}
