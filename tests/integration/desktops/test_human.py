"""A person works on a real desktop, and an episode is recorded. The person's hands are our executor, on a connection of
its own: its events are a device's. Or they are those of somebody at the desktop's VNC page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from eval.actions import Action, ActionType
from eval.actions.dialects.dsl import Dsl
from eval.agents.baselines import HumanAgent
from eval.config import ConfigError
from tests.support.needs import TOOLS, lacking

pytest.importorskip("xcffib", reason=TOOLS["desktop"].reason, exc_type=OSError)  # libxcb comes with them

from eval.desktops import live
from eval.desktops.display.executor import Executor
from eval.desktops.display.running_desktop import RunningDesktop
from eval.desktops.live import LiveDesktop
from eval.desktops.person.input_recorder import InputRecorder
from eval.desktops.session import DesktopSession
from eval.desktops.viewing import missing_viewers, start_view
from eval.environments import desktop
from eval.environments.desktop import NoteScene
from eval.environments.registry import environment
from eval.episodes import Step, read_episode
from eval.rollout.loop import Rollout, RolloutLimits, rollout
from tests.support.vnc import ALT, CONTROL, RETURN, VncPerson
from tests.support.vnc import END as END_KEY
from tests.support.waiting import until

SEED = 1_000_000
END = Action(ActionType.HOTKEY, keys=("ctrl", "alt", "enter"))
GIVE_UP = Action(ActionType.HOTKEY, keys=("ctrl", "alt", "backspace"))
LINE = NoteScene(SEED, "test").line

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.timeout(240)]


Hands = Callable[[DesktopSession, Callable[[Callable[[], None]], None]], Awaitable[None]]


def play(monkeypatch: pytest.MonkeyPatch, out: Path, hands: Hands) -> Rollout:
    """An episode of a person with these hands. They get a function that does one thing and waits until it was seen."""
    opened: list[LiveDesktop] = []
    recorded: list[int] = []

    class Seen(LiveDesktop):
        async def follow(self):  # type: ignore[no-untyped-def]
            opened.append(self)
            async for each in super().follow():
                recorded.append(1)
                yield each

    def made() -> LiveDesktop:
        options = desktop.desktop({})
        assert isinstance(options, LiveDesktop)
        return Seen(options._make, options._options)

    def seen_to(do: Callable[[], None]) -> None:
        known = len(recorded)
        do()
        until(lambda: len(recorded) > known, lambda: f"{len(recorded)} actions were seen")

    async def go() -> Rollout:
        task = desktop.tasks(1, SEED, {})
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        # the person begins when they have read where to work
        monkeypatch.setattr(live, "print", lambda *_, **__: loop.call_soon_threadsafe(told.set), raising=False)
        limits = RolloutLimits(attempts=1, concurrency=1)
        told_of = {"benchmark": "b", "environment": "desktop", "limits": limits}
        running = asyncio.create_task(rollout(HumanAgent(Dsl(4)), made, task, out=out, **told_of))  # type: ignore[arg-type]
        telling = asyncio.create_task(told.wait())
        await asyncio.wait((running, telling), return_when=asyncio.FIRST_COMPLETED)
        if telling.done():
            session = opened[0]._session
            assert session is not None
            await hands(session, seen_to)
        (result,) = await running
        return result

    return asyncio.run(go())


def executor(hands: Sequence[Sequence[Action]]) -> Hands:
    """Does these actions; those of one list follow at once, then the screen has rested."""

    def work(place: RunningDesktop, seen_to: Callable[[Callable[[], None]], None]) -> None:
        person = Executor(place)
        try:
            for part in hands:
                seen_to(partial(person.perform, part))
        finally:
            person.close()

    async def go(session: DesktopSession, seen_to: Callable[[Callable[[], None]], None]) -> None:
        await asyncio.to_thread(work, session.place, seen_to)

    return go


def actions(steps: Sequence[Step]) -> list[Action]:
    return [action for step in steps for action in step.actions]


def test_a_person_solves_a_task_and_the_episode_tells_how(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    to_the_end, typed = Action(ActionType.HOTKEY, keys=("ctrl", "end")), Action(ActionType.TYPE, text=LINE)
    save = Action(ActionType.HOTKEY, keys=("ctrl", "s"))
    result = play(monkeypatch, tmp_path, executor([[to_the_end], [typed], [save], [END]]))
    assert (result.record.outcome, result.record.error, result.record.success) == ("scored", None, True)
    assert result.episode is not None
    assert actions(result.episode.steps) == [to_the_end, typed, save, Action(ActionType.DONE)]
    # read back, each step's answer says its action, and its picture is the one before the action
    episode = read_episode(tmp_path / "episodes" / result.episode.episode_id)
    assert [Dsl(4).parse_response(step.response or "").action for step in episode.steps] == actions(episode.steps)
    frames = [(tmp_path / "episodes" / episode.episode_id / f"{n:03d}.png").read_bytes() for n in range(3)]
    assert frames[1] != frames[2]  # before and after the typing


def test_a_person_who_begins_at_once_loses_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The X server had not begun to record when the person was told to work: on a busy machine their first keys were
    lost, once in a hundred runs."""
    monkeypatch.setattr("tests.support.waiting.HANGS", 30.0)
    events = InputRecorder._events

    def late(watcher: InputRecorder) -> None:
        time.sleep(1.0)
        events(watcher)

    monkeypatch.setattr(InputRecorder, "_events", late)
    typed = Action(ActionType.TYPE, text="x")
    result = play(monkeypatch, tmp_path, executor([[typed], [GIVE_UP]]))
    assert result.episode is not None
    assert actions(result.episode.steps) == [typed, Action(ActionType.FAIL)]


def test_a_person_at_the_vnc_page_solves_a_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Through websockify and x11vnc, as a browser connects."""
    if missing := missing_viewers():
        lacking("desktop", f"no {', '.join(missing)}")

    async def at_the_page(session: DesktopSession, seen_to: Callable[[Callable[[], None]], None]) -> None:
        view = await start_view(session, control=True)

        def work() -> None:
            with VncPerson(view.port, view.password) as person:

                def click() -> None:
                    for buttons in ((), (1,), ()):
                        person.point(0.5, 0.6, buttons)

                seen_to(click)
                seen_to(lambda: person.press(CONTROL, END_KEY))
                seen_to(lambda: person.type(LINE))
                seen_to(lambda: person.press(CONTROL, ord("s")))
                seen_to(lambda: person.press(CONTROL, ALT, RETURN))

        await asyncio.to_thread(work)

    result = play(monkeypatch, tmp_path, at_the_page)
    assert (result.record.outcome, result.record.error, result.record.success) == ("scored", None, True)
    assert result.episode is not None
    first, *others = actions(result.episode.steps)
    assert (first.type, first.x, first.y) == (
        ActionType.CLICK,
        pytest.approx(0.5, abs=0.002),
        pytest.approx(0.6, abs=0.002),
    )
    assert others == [
        Action(ActionType.HOTKEY, keys=("ctrl", "end")),
        Action(ActionType.TYPE, text=LINE),
        Action(ActionType.HOTKEY, keys=("ctrl", "s")),
        Action(ActionType.DONE),
    ]


def test_clicks_drags_and_scrolls_of_a_person(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    x, y = 0.5, 0.6
    hands = [
        Action(ActionType.CLICK, x=x, y=y),
        Action(ActionType.DOUBLE_CLICK, x=x, y=y),
        Action(ActionType.DRAG, x=0.3, y=y, x2=0.6, y2=0.7),
        Action(ActionType.SCROLL, x=x, y=y, direction="down", amount=3.0),
        Action(ActionType.RIGHT_CLICK, x=x, y=y),
        Action(ActionType.KEY, keys=("esc",)),
    ]
    result = play(monkeypatch, tmp_path, executor([*([each] for each in hands), [GIVE_UP]]))
    assert result.record.score == 0.0
    assert result.episode is not None
    seen = actions(result.episode.steps)
    assert [each.type for each in seen] == [*(each.type for each in hands), ActionType.FAIL]
    for each, meant in zip(seen, hands, strict=False):
        assert (each.direction, each.amount, each.keys, each.path) == (meant.direction, meant.amount, meant.keys, None)
        for name in ("x", "y", "x2", "y2"):
            if (value := getattr(meant, name)) is not None:
                assert getattr(each, name) == pytest.approx(value, abs=0.002)


def test_where_no_person_can_work_it_is_one_line(tmp_path: Path) -> None:
    world = environment("login")
    told = {"benchmark": "b", "environment": "login"}
    for concurrency, why in ((2, "works on one desktop at a time; allowed: 1"), (1, "allowed: environment desktop")):
        limits = RolloutLimits(concurrency=concurrency)
        with pytest.raises(ConfigError, match=why):
            asyncio.run(
                rollout(
                    HumanAgent(Dsl(4)),
                    lambda: world.desktop({}),
                    world.tasks(1, SEED, {}),
                    out=tmp_path,
                    limits=limits,
                    **told,  # type: ignore[arg-type]
                )
            )
