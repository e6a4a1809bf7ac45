"""The environments, each ready for the tests of the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from eval.desktop import Desktop, Environment, Task
from eval.environments.android import ready_phones
from eval.environments.registry import ENVIRONMENTS, environment
from tests.support.android.serving import adb_server, phones
from tests.support.desktops import need_desktops
from tests.support.osworld_tasks import OS, written
from tests.support.serving import TOKEN, served

# with programs on this machine
REAL = ("desktop", "gtk-forms", "gtk-login", "linux-chain", "linux-desktop", "linux-safety", "osworld")
PROGRAMS = (*REAL, "android", "mcp", "openenv")  # these are in tests/integration/environment
FILES = (
    "gymnasium",
    "mcp",
    "openenv",
    "osworld",
    "sources",
)  # tasks of others: no splits of their own, nobody who solves them
# one program on the same desktops as gtk-forms, and tasks on those of linux-desktop; tests/integration/gtk_login and
# tests/integration/linux_desktop are their short forms
MARKS = dict.fromkeys(("gtk-login", "linux-chain", "linux-safety"), pytest.mark.nightly)
PHONES = 3  # as many as a test has open at once


def drawn(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that needs an environment which draws its tasks from seeds."""
    test.drawn = True  # type: ignore[attr-defined]
    return test


def with_worlds(metafunc: pytest.Metafunc, programs: bool) -> None:
    """A case for each environment: those that start programs, or the others."""
    if "world" not in metafunc.fixturenames:
        return
    names = [name for name in ENVIRONMENTS if (name in PROGRAMS) == programs]
    if hasattr(metafunc.function, "drawn"):
        names = [name for name in names if name not in FILES]
    cases = [pytest.param(name, marks=MARKS.get(name, ())) for name in names]
    metafunc.parametrize("world", cases, indirect=True, scope="module")


class Preset:
    """An environment that needs options, with them."""

    def __init__(self, inner: Environment, **options: Any) -> None:
        self.inner, self.options = inner, options

    def tasks(self, count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
        return self.inner.tasks(count, seed, {**self.options, **options})

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return self.inner.desktop({**self.options, **options})


class NeedsPrograms:
    """An environment whose tasks are drawn anywhere, and whose desktops need the programs."""

    def __init__(self, inner: Environment) -> None:
        self.inner, self.tasks = inner, inner.tasks

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        need_desktops()
        return self.inner.desktop(options)


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    with ExitStack() as stack:
        if request.param == "android":
            stack.enter_context(adb_server())
            stack.enter_context(phones(PHONES))
            stack.callback(ready_phones.cache_clear)
        found = environment(request.param)
        if request.param == "osworld":  # tasks that the environment judges itself
            folder = written(tmp_path_factory.mktemp("osworld"), [task for task in OS if task.infeasible])
            found = Preset(found, folder=str(folder), screen=(640, 480), tree=False)
        if request.param == "sources":
            found = Preset(found, sources=[{"source": "demo_eval", "environment": "login"}])
        if request.param == "gymnasium":
            told = {"instruction": "Reach the goal.", "highest": 1.0, "pictures": "told"}
            found = Preset(found, id="FrozenLake-v1", **told)
        if request.param == "openenv":
            config = {"environment": "login", "tasks": {"count": 5, "seed": 1_000_000}}
            server = stack.enter_context(served("openenv", tmp_path_factory.mktemp("openenv"), config))
            stack.enter_context(pytest.MonkeyPatch.context()).setenv("OPENENV_TOKEN", TOKEN)
            found = Preset(found, url=server.url, token="OPENENV_TOKEN")
        if request.param == "mcp":
            config = {"environment": "login", "tasks": {"count": 5, "seed": 1_000_000}}
            server = stack.enter_context(served("mcp", tmp_path_factory.mktemp("mcp"), config))
            stack.enter_context(pytest.MonkeyPatch.context()).setenv("MCP_TOKEN", TOKEN)
            found = Preset(found, mcp=f"{server.url}/mcp", token="MCP_TOKEN", start="start")
        yield NeedsPrograms(found) if request.param in REAL else found
