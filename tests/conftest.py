"""Fixtures that every test may ask for."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

import hypothesis
import pytest

from launcher.store.base import Store
from launcher.store.one_body import VARIABLE, VIOLATIONS
from launcher.store.opening import open_store
from tests.support import needs
from tests.support.mounts import unmount_left_behind
from tests.tiers import CI_ONLY

pytest_plugins = ["tests.support.cases", "tests.support.s3", "tests.support.azurite", "tests.support.cluster.fixtures"]

# No example has a deadline: on a busy machine each of them takes as long as it takes
hypothesis.settings.register_profile(
    "busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("busy")

# As in an activated environment: `python` and `launcher` are those of this one
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])

# A shell that starts us in the background ignores SIGINT for us and for every process below: a test that interrupts a
# verb, as a person at a terminal does, would wait for ever.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _guarded(replace: Callable[..., NoReturn]) -> Callable[..., NoReturn]:
    """As `replace`, but not for the process that runs the tests: another program in its place ends with a status of its
    own, 0 perhaps, and the tests that were to come never run. A process that a test forked may do it."""
    ours = os.getpid()

    def guarded(*arguments: Any, **options: Any) -> NoReturn:
        if os.getpid() == ours:
            pytest.fail(f"{replace.__name__}{arguments[:2]}: it would replace the process that runs the tests")
        replace(*arguments, **options)

    return guarded


for _name in ("execv", "execve"):  # the others of os call these
    setattr(os, _name, _guarded(getattr(os, _name)))


# The first test that needs an image builds it, and the others wait for it: minutes on a quiet machine, most of an hour
# on a busy one. Only what hangs is to be ended.
WITH_AN_ENGINE: Final = 7200.0


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(needs)
    if not hasattr(config, "workerinput"):
        unmount_left_behind()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collecting makes a million objects, which stay. Without this the garbage collector would look at them again and
    again: a fifth of the time of collecting, and half the time of a short training, whose trainer calls it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(CI_ONLY):
            item.add_marker(pytest.mark.ci)
        marker = item.get_closest_marker("timeout")
        limit = float(marker.args[0]) if marker is not None else 0.0
        if "engine" in getattr(item, "fixturenames", ()) and limit < WITH_AN_ENGINE:
            item.add_marker(pytest.mark.timeout(WITH_AN_ENGINE), append=False)


@pytest.fixture
def file_store(tmp_path: Path) -> Store:
    """An empty store in a folder."""
    return open_store((tmp_path / "store").as_uri())


@pytest.fixture(autouse=True)
def one_body(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Beats apart, no key is put with two bodies: in every test, in all its processes that open a store by its URL.
    `two_bodies` marks tests that damage or replace objects themselves."""
    if request.node.get_closest_marker("two_bodies"):
        yield
        return
    folder = tmp_path_factory.mktemp("one-body")
    monkeypatch.setenv(VARIABLE, str(folder))
    yield
    found = folder / VIOLATIONS
    keys = found.read_text().splitlines() if found.exists() else []
    shutil.rmtree(folder, ignore_errors=True)
    assert not keys, f"put with two different bodies: {', '.join(keys)}"
