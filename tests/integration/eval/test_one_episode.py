"""docs/explanation/one-episode.md: the functions of an evaluation's episode, in the order of their first calls."""

from __future__ import annotations

import json
from pathlib import Path

from eval.run import main
from tests.support import first_calls
from tests.support.modelserver import Reply, completion, serving

PAGE = first_calls.ROOT / "docs/explanation/one-episode.md"
ANSWERS = ("Action: CLICK(x=0.5, y=0.25)", "Action: DONE()")


def test_the_page_names_the_functions_in_their_order(tmp_path: Path) -> None:
    with serving(lambda _, number: Reply(completion(ANSWERS[number]))) as server:
        config = {
            "benchmark": "login",
            "environment": "login",
            "agent": {"kind": "openai-compatible", "model": "m", "base_url": f"{server.url}/v1"},
            "tasks": {"count": 1, "seed": 1_000_000},
        }
        (tmp_path / "config.json").write_text(json.dumps(config))
        with first_calls.recorded() as calls:
            assert main(["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "out")]) == 0
    named = first_calls.listed(PAGE)
    assert len(named) > 12
    assert first_calls.in_order(calls, named) == named
