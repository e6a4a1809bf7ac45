"""A table with pictures, as each of the trackers takes it: Weights & Biases, trackio, MLflow, TensorBoard.

A row is a mapping of a column's name to text, a number, a truth, None or a picture (PIL). Written for transformers'
callbacks, whose run is the one that gets the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

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
