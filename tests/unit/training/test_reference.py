"""Every field of a configuration is explained, and every entry point explains its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.config.help import rows, sections
from training.data.__main__ import main as data
from training.reference import ENTRIES
from training.sft.train import main as sft

ROOT = Path(__file__).resolve().parents[3]


def test_every_field_is_explained() -> None:
    kinds = {section for entry in ENTRIES.values() for kind in entry for section in sections(kind)}
    unexplained = [f"{kind.__name__}.{row.name}" for kind in kinds for row in rows(kind) if not row.text.strip()]
    assert not unexplained


@pytest.mark.parametrize(
    ("main", "arguments", "says"),
    [
        (sft, ["--help"], "learning_rate: number > 0 and <= 1e+30, default 1e-05"),
        (data, ["ingest", "--help"], "OsworldConfig:"),
        (data, ["pack", "--help"], "PackConfig:"),
    ],
)
def test_help_explains_the_configuration(
    main: object, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)  # type: ignore[operator]
    assert ended.value.code == 0
    assert says in capsys.readouterr().out
