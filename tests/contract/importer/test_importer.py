"""What every importer promises. A new one: a line in IMPORTERS, and a case in CASES that writes a recording of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from PIL import Image

from eval.actions import Action, ActionType
from eval.episodes import Episode, Step, frame_name, iter_episodes, write_episode
from tests.integration.agentnet.material import CODES, recorded, recording
from tests.unit.training.ingest.material import FRAME, capture, click, osworld, report, scene, snapshot
from training.data.__main__ import main
from training.data.faults import BadSample
from training.data.ingest.registry import IMPORTERS, CustomFormatConfig, IngestConfig
from training.data.ingest.tally import Tally

CLICK: Final = Action(ActionType.CLICK, x=0.25, y=0.25)


# An importer of one's own: a folder per recording, with pictures and a file with the instruction.


def own(config: CustomFormatConfig, tally: Tally, scratch: Path) -> Iterator[tuple[str, Episode, Sequence[Path]]]:
    for folder in sorted(Path(config.recording).iterdir()):
        frames = sorted(folder.glob("*.png"))
        if not (folder / "instruction.txt").is_file():
            tally.lose(folder.name, BadSample("no_instruction", "there is no instruction.txt"))
            continue
        text = (folder / "instruction.txt").read_text()
        steps = tuple(Step(index=index, screenshot=frame_name(index), action=CLICK) for index in range(len(frames)))
        name = config.environment or config.options.get("environment", "own")
        about: dict[str, Any] = {"episode_id": folder.name, "task_id": folder.name, "instruction": text, "goal": text}
        yield folder.name, Episode(**about, screen=FRAME, steps=steps, environment=name), frames


def write_own(root: Path, name: str) -> None:
    (root / name).mkdir(parents=True)
    scene(1).save(root / name / "0.png")
    (root / name / "instruction.txt").write_text("Do it")


def write_folder(root: Path, name: str) -> None:
    about: dict[str, Any] = {"episode_id": name, "task_id": name, "instruction": f"Do {name}", "goal": f"Do {name}"}
    steps = (Step(index=0, screenshot=frame_name(0), action=CLICK),)
    write_episode(root / name, Episode(**about, screen=FRAME, steps=steps, environment="own"), [scene(1)])


def write_osworld(root: Path, name: str) -> None:
    actions = ["pyautogui.click(10, 20)", "pyautogui.write('a')", "DONE"]
    osworld(root / "pyautogui" / "screenshot" / "gpt" / "chrome" / name, actions, instruction="Do it")


def write_agentnet(root: Path, name: str) -> None:
    lines = (root / "raw.jsonl").read_text().splitlines() if root.is_dir() else []
    recording(root, *lines, recorded(list(CODES), name))


def write_openadapt(root: Path, name: str) -> None:
    capture(root / name, click(0.5, 80, 50))


def spoil_line(root: Path) -> None:
    with (root / "raw.jsonl").open("a") as file:
        file.write("{not json\n")


def spoil(pattern: str) -> Callable[[Path], None]:
    """Damages the last file that matches."""
    return lambda root: sorted(root.rglob(pattern))[-1].write_bytes(b"damage")


@dataclass(frozen=True)
class Case:
    """write    adds a recording of this name to the folder; spoil damages one recording of two"""

    write: Callable[[Path, str], None]
    spoil: Callable[[Path], None]
    more: dict[str, Any] = field(default_factory=dict)


CASES: Final = {
    "agentnet": Case(write_agentnet, spoil_line),
    "custom": Case(write_own, lambda root: (root / "b" / "instruction.txt").unlink(), {"importer": f"{__name__}:own"}),
    "episodes": Case(write_folder, spoil("*.png")),
    "openadapt": Case(write_openadapt, spoil("recording.db")),
    "osworld": Case(write_osworld, spoil("traj.jsonl")),
}


@pytest.fixture(params=sorted(CASES))
def form(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def ingest(form: str, tmp_path: Path, **changes: Any) -> tuple[int, Path]:
    """(exit code, the folder of episodes) of the importer over tmp_path/in."""
    config = tmp_path / "config.json"
    given = {"format": form, "recording": str(tmp_path / "in"), **CASES[form].more, **changes}
    config.write_text(json.dumps(given))
    return main(["ingest", "--config", str(config), "--out", str(tmp_path / "out")]), tmp_path / "out"


def write(form: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        CASES[form].write(tmp_path / "in", name)


def test_every_format_has_an_importer_and_a_case() -> None:
    formats = {kind.__struct_config__.tag for kind in get_args(IngestConfig)}
    assert set(IMPORTERS) | {CustomFormatConfig} == set(get_args(IngestConfig))
    assert formats == set(CASES)


def test_recordings_become_whole_episodes(form: str, tmp_path: Path) -> None:
    write(form, tmp_path)
    code, out = ingest(form, tmp_path)
    assert code == 0
    episodes = list(iter_episodes(out))
    assert len(episodes) == 2
    assert report(out)["episodes"] == {"kept": 2, "dropped": {}}
    for folder, episode in episodes:
        assert episode.instruction
        assert episode.environment
        assert episode.steps
        assert any(step.action is not None for step in episode.steps)
        for step in episode.steps:
            with Image.open(folder / step.screenshot) as image:
                assert (image.format, image.size) == ("PNG", episode.screen)
            for point in () if step.action is None else (step.action.point, step.action.end):
                assert point is None or all(0 <= place <= 1 for place in point)


def test_running_again_gives_the_same_bytes(form: str, tmp_path: Path) -> None:
    write(form, tmp_path)
    _, out = ingest(form, tmp_path)
    before = snapshot(out)
    shutil.rmtree(out)
    ingest(form, tmp_path)
    assert snapshot(out) == before


def test_the_recording_is_left_as_it_is(form: str, tmp_path: Path) -> None:
    write(form, tmp_path)
    before = snapshot(tmp_path / "in")
    ingest(form, tmp_path)
    assert snapshot(tmp_path / "in") == before


def test_damage_is_one_line_and_exit_code_78(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(form, tmp_path)
    CASES[form].spoil(tmp_path / "in")
    code, _ = ingest(form, tmp_path)
    assert code == 78
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0
    assert "on_bad_sample: skip would leave it out and count it" in said


def test_damage_is_skipped_and_counted_where_that_is_asked_for(form: str, tmp_path: Path) -> None:
    write(form, tmp_path)
    CASES[form].spoil(tmp_path / "in")
    code, out = ingest(form, tmp_path, on_bad_sample="skip")
    assert code == 0
    assert list(iter_episodes(out))
    assert report(out)["faults"]["total"] == 1


def test_a_recording_that_is_not_there_is_exit_code_78(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ingest(form, tmp_path)[0] == 78
    assert "recording: there is no" in capsys.readouterr().err


# One's own importer that breaks the protocol.


def listed(config: Any, tally: Tally, scratch: Path) -> list[Any]:
    return []


def fails(config: Any, tally: Tally, scratch: Path) -> Iterator[Any]:
    raise KeyError("frames")
    yield


def bare(config: Any, tally: Tally, scratch: Path) -> Iterator[Any]:
    yield "a folder"


def frameless(config: Any, tally: Tally, scratch: Path) -> Iterator[Any]:
    for where, episode, _ in own(config, tally, scratch):
        yield where, episode, []


def elsewhere(config: Any, tally: Tally, scratch: Path) -> Iterator[Any]:
    for where, episode, _ in own(config, tally, scratch):
        yield where, episode, [scratch / "none.png"]


def short(config: Any) -> None: ...


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("listed", "gave a list; needed: an iterator"),
        ("fails", "KeyError: 'frames'"),
        ("bare", "gave 'a folder'; needed: (where, Episode, a list of Paths)"),
        ("frameless", "a: 0 frames for 1 steps; needed: one per step"),
        ("elsewhere", "a: there is no file"),
        ("short", "cannot be called with"),
        ("nothing", "has no nothing"),
        ("CASES", "is a dict; needed: a function"),
    ],
)
def test_ones_own_importer_that_breaks_the_protocol_is_one_line(
    name: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("custom", tmp_path)
    code, _ = ingest("custom", tmp_path, importer=f"{__name__}:{name}")
    assert code == 78
    said = capsys.readouterr().err.strip()
    assert says in said
    assert __name__ in said
    assert said.count("\n") == 0
