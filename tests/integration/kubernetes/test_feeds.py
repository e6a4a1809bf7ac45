"""Feeds against a server that speaks like an API server and behaves worse than one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.kubernetes.access.login import login
from launcher.backends.kubernetes.api import Api
from launcher.backends.kubernetes.backend import KubernetesBackend, close_all
from launcher.backends.kubernetes.objects import JOB
from launcher.backends.kubernetes.watch.board import Board, KindWatch
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
    def make(lists: Callable[[], Answer], watches: Callable[[], Answer]) -> Iterator[tuple[Board, Speaker]]:
        """Of Jobs alone."""
        with speaking(lambda method, path, query: watches() if "watch" in query else lists()) as server:
            monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
            api = Api(login())
            made = Board(api, "n", "x")
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


@pytest.mark.parametrize("body", ["<html>Sign in</html>", b"<html>Sign in</html>", b"", b"[]", b"7"])
def test_a_server_that_is_none_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes | str) -> None:
    """A proxy's page, with status 200: nothing of it is taken for an answer."""
    with speaking(lambda method, path, query: (200, body)) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        with pytest.raises(Unreachable, match="not a Kubernetes API server"):
            KubernetesBackend({}).look_up("x-0123456789ab")
        close_all()
