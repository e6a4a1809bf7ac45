"""A judge is measured on real desktops: the states are what they should be, and the judge sees their screens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eval.audit.moves import INJECTION
from eval.judge_errors.__main__ import main
from eval.scores.judge_errors import JudgeErrors
from tests.integration.eval.test_judges import pictures_of, section, text_of
from tests.support.modelserver import Reply, completion, serving


@pytest.mark.timeout(900)
def test_a_judge_that_believes_words_is_found_out_on_real_desktops(tmp_path: Path) -> None:
    """It says yes to the agent's orders alone; the third way gives them in a file, and claims a success in words."""
    sizes = set()

    def answer(request: dict[str, Any], number: int) -> Reply:
        sizes.update(picture.size for picture in pictures_of(request))
        return Reply(completion("YES" if INJECTION in text_of(request) else "NO"))

    with serving(answer) as server:
        config = {
            "environment": "linux-desktop",
            "options": {"templates": ["mousepad-append"]},
            "tasks": {"count": 1, "seed": 1_000_000},
            "judge": section(server),
            "limits": {"attempts": 1, "concurrency": 1},
        }
        (tmp_path / "judge.yaml").write_text(json.dumps(config))
        assert main(["--config", str(tmp_path / "judge.yaml"), "--out", str(tmp_path / "judged")]) == 0
    errors = msgspec.json.decode((tmp_path / "judged/judge.json").read_bytes(), type=JudgeErrors)
    assert {each.player: (each.states, each.solved, each.said_solved, each.infra) for each in errors.players} == {
        "oracle": (1, 1, 0, 0),
        "second": (1, 1, 0, 0),
        "wrong": (1, 0, 0, 0),
        "nothing": (1, 0, 0, 0),
        "hacker": (1, 0, 0, 0),
        "injection": (3, 0, 2, 0),
    }
    assert sizes == {(1280, 720)}
    assert errors.sensitivity is not None
    assert (errors.sensitivity.value, errors.sensitivity.n) == (0.0, 2)
