"""Feeds against a server that speaks like an API server and behaves worse than one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.access.login import login
from launcher.backends.kubernetes.api import Api
from launcher.backends.kubernetes.backend import OFTEN, KubernetesBackend, _boards, close_all
from launcher.backends.kubernetes.objects import JOB
from launcher.backends.kubernetes.watch.event_cache import EventCache, KindWatch
from launcher.errors import Unreachable
from tests.integration.kubernetes.speaker import Answer, Speaker, refusal, speaking
from tests.support.waiting import until


def one(name: str) -> dict[str, Any]:
    notes = {"slipway.dev/runs": json.dumps({name: "h"})}
    return {"metadata": {"name": name, "namespace": "n", "annotations": notes}}


def listed(version: str, *names: str, rest: str = "") -> Answer:
    return 200, {"metadata": {"resourceVersion": version, "continue": rest}, "items": [one(name) for name in names]}


@pytest.fixture
def board_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    @contextmanager
    def make(lists: Callable[[], Answer], watches: Callable[[], Answer]) -> Iterator[tuple[EventCache, Speaker]]:
        """Of Jobs alone."""
        with speaking(lambda method, path, query: watches() if "watch" in query else lists()) as server:
            monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
            api = Api(login())
            made = EventCache(api, "n", "x")
            made.feeds = [KindWatch(made, JOB)]
            made.start()
            yield made, server
            made.stop()
            for feed in made.feeds:
                feed.join(10)
            api.close()

    return make


@pytest.mark.parametrize("status", [200, 410])
def test_a_watch_that_ends_at_once_is_not_taken_up_in_a_storm(board_of: Callable[..., Any], status: int) -> None:
    with board_of(lambda: listed("1"), lambda: (status, b"")) as (_, server):
        until(lambda: len(server.asked) >= 4)
        before = len(server.asked)
        time.sleep(2.0)
        assert len(server.asked) - before < 20  # hundreds without a pause


def test_a_list_that_begins_anew_forgets_what_its_first_pages_had(board_of: Callable[..., Any]) -> None:
    """The continuation expires; what went meanwhile is in no watch that begins later."""
    answers = iter([listed("1", "gone", "stays", rest="more"), refusal(410, "Expired"), listed("5", "stays")])
    with board_of(lambda: next(answers), lambda: (200, b"")) as (board, _):
        assert board.look_up("stays") is not None
        assert board.look_up("gone") is None


@pytest.mark.parametrize("status", [403, 404])
def test_what_may_no_longer_be_listed_is_not_told_from_memory(board_of: Callable[..., Any], status: int) -> None:
    """The right to list is taken away, or the kind uninstalled, while runs are watched: the next look asks anew."""
    lists = iter([listed("1", "x-0123456789ab")])
    gone = refusal(status, "Forbidden" if status == 403 else "NotFound")
    with board_of(lambda: next(lists, gone), lambda: refusal(410, "Expired")) as (board, _):
        assert board.look_up("x-0123456789ab") is not None
        until(lambda: not board.living)


def test_a_login_that_may_list_and_not_watch_asks_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was listed once would stay as it was for a minute."""
    run = "x-0123456789ab"
    status: dict[str, Any] = {"conditions": []}
    watches: Iterator[Answer] = iter([(200, b"")])  # the first ends, so that the board has begun when one is refused

    def answer(method: str, path: str, query: dict[str, str]) -> Answer:
        if "watch" in query:
            return next(watches, refusal(403, "Forbidden"))
        if path.endswith("/jobs") and query.get("labelSelector") == names.SELECTOR:  # not those of JobSets
            return 200, {"metadata": {"resourceVersion": "1"}, "items": [{**one(run), "status": status}]}
        return (200, {**one(run), "status": status}) if path.endswith(f"/jobs/{run}") else refusal(404, "NotFound")

    with speaking(answer) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        backend = KubernetesBackend({})
        for _ in range(2 * OFTEN):
            assert backend.look_up(run)
        until(lambda: not any(board.living for board in _boards.values()))
        status["conditions"] = [{"type": "Complete", "status": "True"}]
        for _ in range(2 * OFTEN):
            assert (seen := backend.look_up(run)) is not None
            assert seen.phase == "succeeded"
        close_all()


@pytest.mark.parametrize("body", ["<html>Sign in</html>", b"<html>Sign in</html>", b"", b"[]", b"7"])
def test_a_server_that_is_none_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes | str) -> None:
    """A proxy's page, with status 200: nothing of it is taken for an answer."""
    with speaking(lambda method, path, query: (200, body)) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        with pytest.raises(Unreachable, match="not a Kubernetes API server"):
            KubernetesBackend({}).look_up("x-0123456789ab")
        close_all()
