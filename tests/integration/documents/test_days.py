"""The pages of day 3, 4 and 5: each line as a reader types it. Scripted servers speak the wires of both models; the
SDKs, the desktops, the judge and the local queue are the real ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.documents.test_run import _clone, run
from tests.integration.eval.test_sdk_loops import message, tool_use
from tests.support.desktops import need_isolation
from tests.support.documented import ROOT, blocks
from tests.support.modelserver import Reply, completion, serving

DAYS = (3, 4, 5)
WORDS = 400


def lines(day: int) -> list[str]:
    shown = (each for block in blocks(ROOT / f"docs/tutorials/day-{day}.md") for each in block)
    return [each.line for each in shown if "types each line" in each.mark]


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    yield from _clone(tmp_path / "clone")


def claude(request: dict[str, Any]) -> Reply:
    """It writes the line that the task asks for; of other tasks it says that they are done."""
    said = str(request["messages"][0]["content"])
    asked = re.search(r'exactly "([^"]+)"', said)
    number = sum(each["role"] == "assistant" for each in request["messages"])
    if number or asked is None:
        return Reply(message(number, [{"type": "text", "text": "Done."}], "end_turn"))
    calls = [("key", "ctrl+End"), ("type", f"{asked[1]}\n"), ("key", "ctrl+s")]
    uses = [tool_use(f"toolu_{at}", name, {"text": text}) for at, (name, text) in enumerate(calls)]
    return Reply(message(0, uses, "tool_use"))


def answer(request: dict[str, Any], number: int) -> Reply:
    if str(request["model"]).startswith("claude"):
        return claude(request)
    return Reply(completion("Action: DONE()"))  # Qwen sees nothing to do


@pytest.mark.parametrize("day", DAYS)
def test_a_page_has_at_most_400_words(day: int) -> None:
    text = (ROOT / f"docs/tutorials/day-{day}.md").read_text()
    assert len(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).split()) <= WORDS


def typed(clone: Path, day: int, url: str) -> dict[str, str]:
    """Types the page; what each line printed."""
    for path in (clone / "examples/days").rglob("*.yaml"):
        text = path.read_text().replace("https://api.anthropic.com", url).replace("http://127.0.0.1:8000", url)
        path.write_text(text)
    (clone / "key.txt").write_text("a-key")
    shown = {}
    for line in lines(day):
        done = run(line, clone, timeout=900)
        assert done.returncode == 0, f"{line}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        shown[line] = done.stdout + done.stderr
    return shown


def of(shown: dict[str, str], start: str) -> str:
    (said,) = [text for line, text in shown.items() if line.startswith(start)]
    return said


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_day_3(clone: Path) -> None:
    need_isolation()
    with serving(answer) as server:
        shown = typed(clone, 3, server.url)
    assert {"claude-opus-4-5", "Qwen/Qwen3-VL-8B-Instruct"} == {each["model"] for each in server.requests}
    table = of(shown, "launcher results")
    assert "1/3" in table or "33.3" in table
    assert (clone / "day-3.html").stat().st_size > 10_000


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_day_4(clone: Path) -> None:
    need_isolation()
    with serving(answer) as server:
        shown = typed(clone, 4, server.url)
    assert "10 tasks in ten" in of(shown, "python -m eval.linux_desktop")
    assert "mousepad" in of(shown, "launcher compare")
    assert (clone / "day-4.html").stat().st_size > 10_000


@pytest.mark.ci
def test_day_5(clone: Path) -> None:
    (clone / "ten").mkdir()
    shown = typed(clone, 5, "http://127.0.0.1:9")
    for file in ("examples/days/day-5/sft.yaml", "sdpo-plan.yaml"):
        assert "fits: " in of(shown, f"python -m training.plan --config {file}")
    assert {path.name.rpartition("-")[0] for path in (clone / "plan").iterdir()} >= {"day5-after"}
