"""The card counts what is there, says it in less than 100 columns, and draws a page that asks for nothing."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.episodes import iter_episodes
from tests.unit.training.data.material import episode, png, write_folders, write_packed
from training.data.inspection.card import as_json, as_text, main, read_card
from training.data.inspection.contents import bins, quantiles
from training.data.inspection.page import page
from training.data.packed.pack import PackConfig, SplitConfig, pack

EVIL = '<script>alert("x")</script><img src=http://evil.example>'


class Page(HTMLParser):
    """What a browser would run or load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags = Counter[str]()
        self.sources: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in ("meta", "img", "br", "line", "rect"):
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "srcset", "action"):
                self.sources.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("line", "rect"):
            assert self.open.pop() == tag


def test_the_figures_are_those_of_the_episodes(folders: Path) -> None:
    found = as_json(read_card(folders))
    episodes = [one for _, one in iter_episodes(folders)]
    kinds = Counter(step.action.type.value for one in episodes for step in one.steps if step.action)
    (side,) = found["splits"].values()
    assert side == {"episodes": 12, "steps": kinds.total(), "actions": kinds.total()}
    assert list(found["action_types"].values()) == [dict(sorted(kinds.items()))]
    assert found["screens"] == {"96x96": 12}
    assert found["tasks"] == len({one.task_id for one in episodes})
    assert found["images"] == len({path.read_bytes() for path in folders.glob("*/*.png")})
    assert found["steps_per_episode"]["max"] == max(len(one.steps) for one in episodes)
    assert found["outcomes"] == {"solved": 12}


def test_packed_or_not_the_card_says_the_same(folders: Path, tmp_path: Path) -> None:
    pack(PackConfig(episodes=[str(folders)]), tmp_path / "out")
    one, other = as_json(read_card(folders)), as_json(read_card(tmp_path / "out"))
    for card in (one, other):
        for name in ("path", "splits", "action_types", "image_bytes"):
            del card[name]
    assert one == other


def test_the_text_is_less_than_100_columns(folders: Path, tmp_path: Path) -> None:
    pack(PackConfig(episodes=[str(folders)], split=SplitConfig(test=0.3, validation=0.3)), tmp_path / ("long" * 40))
    text = as_text(read_card(tmp_path / ("long" * 40)))
    assert max(len(line) for line in text.splitlines()) < 100
    assert "no episode and no step is in two splits" in text
    assert re.search(r"^  train +\d+ +\d+ +\d+$", text, re.MULTILINE)


@pytest.fixture
def troubled(tmp_path: Path) -> Path:
    """A dataset with a leak, a contradiction, a copy, broken folders, and texts that are no HTML."""
    from eval.actions import Action, ActionType

    first, frames = episode(0, goal=EVIL)
    first = msgspec.structs.replace(first, success=True, agent=EVIL, environment=EVIL)
    steps = list(first.steps)
    steps[0] = msgspec.structs.replace(
        steps[0], thought=EVIL, action=Action(ActionType.DRAG, x=0.1, y=0.2, x2=0.9, y2=0.8)
    )
    steps[1] = msgspec.structs.replace(steps[1], action=Action(ActionType.TYPE, text=EVIL))
    first = msgspec.structs.replace(first, steps=tuple(steps))
    steps[0] = msgspec.structs.replace(steps[0], action=Action(ActionType.SCROLL, direction="up", x=0.5, y=0.5))
    second = msgspec.structs.replace(first, episode_id=f"{EVIL} 2", steps=tuple(steps))
    third = msgspec.structs.replace(first, episode_id=f"{EVIL} 3")
    made = [(first, frames), (second, frames), (third, frames), episode(1, 9)]
    write_packed(tmp_path / "data", {"train": made[:2], "test": made[2:]})
    return tmp_path / "data"


def test_the_page_runs_nothing_and_loads_nothing(troubled: Path) -> None:
    text = page(read_card(troubled))
    found = Page(text)
    assert found.open == []
    assert not found.tags["script"]
    assert not found.tags["link"]
    assert found.sources
    assert all(source.startswith(("data:image/png;base64,", "data:image/jpeg;base64,")) for source in found.sources)
    assert "default-src 'none'" in text
    assert 'name="viewport"' in text
    assert "prefers-color-scheme: dark" in text


def test_the_page_names_what_is_wrong(troubled: Path) -> None:
    card = read_card(troubled)
    text = page(card)
    for sentence in ("test and train share 1 episode:", "3 steps contradict each other"):
        assert sentence in text
        assert sentence in as_text(card)
    assert "Contradictory labels" in text
    assert "The same episode" in text
    assert "DRAG(x=0.100, y=0.200, x2=0.900, y2=0.800)" in text
    assert as_json(card)["contradictory_steps"] == 3


def test_broken_folders_are_told(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "in", [episode(0), episode(1)])
    (root / "episode-1" / "000.png").write_bytes(b"no picture")
    card = read_card(root)
    assert "! 1 could not be read: image_broken" in as_text(card)
    assert as_json(card)["skipped"]["total"] == 1


def test_near_duplicates_are_counted(tmp_path: Path) -> None:
    frames = [png("same", (80, 80)), png("other", (80, 80)), png("third", (80, 80))]
    from io import BytesIO

    from PIL import Image

    image = Image.open(BytesIO(frames[0])).convert("RGB")
    image.putpixel((5, 5), (0, 0, 0))
    touched = BytesIO()
    image.save(touched, "PNG")
    write_packed(tmp_path / "out", {"train": [episode(0, 3, frames=[*frames, touched.getvalue()])]})
    found = as_json(read_card(tmp_path / "out"))["duplicates"]
    assert (found["near_images"], found["near_clusters"]) == (2, 1)


def test_the_verb_writes_its_files(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(folders), "--out", str(tmp_path / "out"), "--html", str(tmp_path / "page.html")]) == 0
    text = capsys.readouterr().out
    assert (tmp_path / "out" / "card.txt").read_text() == text
    assert (tmp_path / "out" / "card.html").read_text() == (tmp_path / "page.html").read_text()
    assert json.loads((tmp_path / "out" / "card.json").read_text())["images"] > 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"card.txt", "card.json", "card.html"}
    for path in (tmp_path / "nowhere", tmp_path):
        assert main([str(path)]) == 78
        assert capsys.readouterr().err.count("\n") == 1


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 10**6), st.integers(1, 50), min_size=1, max_size=30))
def test_bins_hold_everything_and_quantiles_are_values(values: dict[int, int]) -> None:
    found = bins(values)
    assert len(found) <= 24
    assert sum(count for _, _, count in found) == sum(values.values())
    assert all(b - a == found[0][1] - found[0][0] for a, b, _ in found)
    ordered = sorted(Counter(values).elements())
    known = quantiles(values)
    assert known["median"] == ordered[(len(ordered) + 1) // 2 - 1]
    assert (known["min"], known["max"]) == (ordered[0], ordered[-1])
