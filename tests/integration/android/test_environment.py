"""The environment `android` in the rollout: its judge, a phone that fails in the middle, and what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval.actions import Action, ActionType
from eval.actions.dialects.dsl import Dsl
from eval.agents.base import Decision
from eval.agents.baselines import ScriptedAgent
from eval.agents.computer import Computer
from eval.config import ConfigError
from eval.desktop import DesktopTimeout
from eval.environments import android
from eval.environments.android import ContactScene
from eval.records.task_record import TaskRecord
from eval.rollout.loop import RolloutLimits, rollout
from tests.support.android.adbd import Adbd
from tests.support.android.device import Device
from tests.support.android.screen import contact
from tests.support.android.serving import adb

SEED = 1_000_000
DONE = ActionType.DONE
SCENE = ContactScene(SEED, "test")
FORMATTED = f"({SCENE.number[:3]}) {SCENE.number[3:6]}-{SCENE.number[6:]}"
RIGHT = contact(SCENE.first, SCENE.last, SCENE.number)
OTHER = contact("Ada", "Lovelace", "1")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    android.ready_phones.cache_clear()
    yield
    android.ready_phones.cache_clear()


def played(adbd: Adbd, out: Path, attempts: int = 1, count: int = 1) -> list[TaskRecord]:
    options = {"devices": [adbd.serial]}
    results = asyncio.run(
        rollout(
            ScriptedAgent(Dsl(4)),
            lambda: android.desktop(options),
            android.tasks(count, SEED, options),
            out=out,
            benchmark="android",
            environment="android",
            limits=RolloutLimits(attempts=attempts, backoff=0.0),
        )
    )
    return [result.record for result in results]


def test_episodes_wait_for_the_one_phone_and_each_starts_clean(adbd: Adbd, tmp_path: Path) -> None:
    for _ in range(2):  # what the first round left is no help to the second
        records = played(adbd, tmp_path / f"{len(adbd.device.commands)}", count=3)
        assert [(each.outcome, each.success) for each in records] == [("scored", True)] * 3
    names = [each["display_name"] for each in adbd.device.screen.contacts]
    assert sorted(names) == sorted({ContactScene(SEED + number, "test").name for number in range(3)})


@pytest.mark.parametrize(("attempts", "outcome"), [(1, "infra"), (2, "scored")])
def test_a_phone_that_fails_in_the_middle_is_no_score(adbd: Adbd, tmp_path: Path, attempts: int, outcome: str) -> None:
    adbd.cut = ("input text", 0)
    (record,) = played(adbd, tmp_path, attempts)
    assert (record.outcome, record.success, record.attempts) == (outcome, outcome == "scored" or None, attempts)


def test_an_action_that_takes_too_long_is_told_while_the_phone_answers_and_infra_when_it_does_not(
    adbd: Adbd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eval.desktops.computer.ANSWERS_S", 4.0)
    options = {"devices": [adbd.serial]}

    async def go() -> None:
        desktop = android.desktop(options)
        (task,) = android.tasks(1, SEED, options)
        computer = Computer(desktop, task, await desktop.reset(task, SEED), max_steps=9, step_timeout=1.0)
        try:
            adbd.device.hold = "input tap"
            await computer.answer(Decision("", Action(ActionType.CLICK, x=0.5, y=0.5)))
            assert "took too long" in (computer.steps[-1].refused or "")
            adbd.device.hold = ";"  # every command
            with pytest.raises(DesktopTimeout):
                await computer.answer(Decision("", Action(ActionType.CLICK, x=0.5, y=0.5)))
        finally:
            adbd.device.hold = ""
            adbd.device.go.set()
            await desktop.close()

    asyncio.run(go())


def test_other_contacts_stay_as_they_are(adbd: Adbd, tmp_path: Path) -> None:
    other = contact("Ada", "Lovelace", "1")
    adbd.device.screen.contacts.append(other)
    played(adbd, tmp_path)
    assert adbd.device.screen.contacts[0] == other


@pytest.mark.parametrize(
    ("contacts", "end", "solved"),
    [
        ([OTHER, RIGHT], DONE, True),
        ([OTHER, {**RIGHT, "phone_v2": FORMATTED}], DONE, True),
        ([OTHER, {**RIGHT, "group_membership": "1"}], DONE, True),
        ([OTHER, RIGHT], ActionType.FAIL, False),
        ([OTHER, {**RIGHT, "phone_v2": SCENE.number[:-1]}], DONE, False),
        ([OTHER, {**RIGHT, "first": SCENE.name, "last": ""}], DONE, False),
        ([OTHER, {**RIGHT, "note": "of work"}], DONE, False),
        ([OTHER, RIGHT, RIGHT], DONE, False),
        ([OTHER, RIGHT, {**RIGHT, "phone_v2": "1"}], DONE, False),
        ([OTHER, RIGHT, contact("Ada", "Byron", "2")], DONE, False),
        ([RIGHT], DONE, False),
        ([{**OTHER, "phone_v2": "2"}, RIGHT], DONE, False),
        ([OTHER], DONE, False),
    ],
)
def test_the_phones_own_contacts_are_judged(
    adbd: Adbd, contacts: list[dict[str, str]], end: ActionType, solved: bool
) -> None:
    adbd.device.screen.contacts = [OTHER]

    async def work() -> None:
        desktop = android.desktop({"devices": [adbd.serial]})
        task = android.tasks(1, SEED, {})[0]
        try:
            await desktop.reset(task, SEED)
            await desktop.step(Action(end))
            adbd.device.screen.contacts = contacts
            assert (await desktop.score()).success is solved
        finally:
            await desktop.close()

    asyncio.run(work())


@pytest.mark.parametrize("tree", [True, False])
def test_a_screen_without_a_tree_has_no_marks_and_no_expert(adbd: Adbd, tree: bool) -> None:
    async def work() -> None:
        desktop = android.desktop({"devices": [adbd.serial], "tree": tree, "rotation": 90})
        try:
            seen = await desktop.reset(android.tasks(1, SEED, {})[0], SEED)
            assert (seen.screen, bool(seen.marks), seen.expected is not None) == ((640, 360), tree, tree)
        finally:
            await desktop.close()

    asyncio.run(work())


def test_no_device_and_no_client_are_one_line(server: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    adb("disconnect")
    with pytest.raises(ConfigError, match=r"`adb devices` lists no device that is ready$"):
        android.desktop({})
    with Adbd(Device(), trusted=False) as adbd:
        adb("connect", adbd.serial)
        with pytest.raises(ConfigError, match=rf"no device that is ready; {adbd.serial} is unauthorized"):
            android.desktop({})
        adb("disconnect", adbd.serial)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="environment: android: no adb: apt-get install adb"):
        android.desktop({})


@pytest.mark.parametrize(
    ("devices", "why"),
    [([], "the list is empty"), (["-P"], "no serial number"), (["a b"], "no serial number"), (["a", "a"], "twice")],
)
def test_devices_that_are_none_are_refused(devices: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        android.desktop({"devices": devices})
