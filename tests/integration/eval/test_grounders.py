"""Grounders through the real SDKs, against a server that speaks the real wire; and what becomes of their answers."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval import run
from eval.actions.geometry import Box
from eval.agents.wire import ServerFailed
from eval.config import ConfigError, convert
from eval.desktop import Observation
from eval.environments.registry import environment
from eval.episodes import read_episode
from eval.grounders.config import GrounderConfig, make_grounder
from tests.support.modelserver import ModelServer, Reply, completion, serving
from tests.unit.eval.test_grounders import KEY, SEED, SEEN, config, gemini

# Google's SDK inherits from a class of aiohttp, which warns of it
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")


Answer = Callable[[str], Any]


KINDS: Mapping[str, Answer] = {"openai-compatible": completion, "gemini": gemini}


def section(kind: str, server: ModelServer, **more: Any) -> dict[str, Any]:
    path = "/v1" if kind == "openai-compatible" else ""
    return {"kind": kind, "model": "m", "base_url": f"{server.url}{path}", "api_key": KEY, **more}


def ground(kind: str, server: ModelServer, **more: Any) -> dict[int, Box]:
    config: Any = convert(section(kind, server, **more), GrounderConfig, "grounder")  # type: ignore[arg-type]
    return dict(asyncio.run(make_grounder(config).ground(SEEN)))


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "secret-key")


def said(kind: str, *places: tuple[int, int, int, int]) -> str:
    """Boxes (left, top, right, bottom) as a model of this kind writes them."""
    if kind == "gemini":
        found = [{"box_2d": [top, left, bottom, right], "label": "x"} for left, top, right, bottom in places]
    else:
        found = [{"bbox_2d": list(place), "label": "x"} for place in places]
    return f"```json\n{json.dumps(found)}\n```"


@pytest.mark.parametrize("kind", KINDS)
def test_boxes_of_a_model_become_marks_in_their_order(kind: str) -> None:
    answer = said(kind, (500, 250, 750, 500), (0, 0, 1000, 100))
    with serving(lambda request, number: Reply(KINDS[kind](answer))) as server:
        assert ground(kind, server) == {1: (0.5, 0.25, 0.25, 0.25), 2: (0.0, 0.0, 1.0, 0.1)}
    (request,), (headers,) = server.requests, server.headers
    if kind == "gemini":
        parts = request["contents"][0]["parts"]
        picture, text = parts[0]["inlineData"]["data"], parts[1]["text"]
        assert "image/png" in parts[0]["inlineData"].values()
        assert headers["x-goog-api-key"] == "secret-key"
        picture = base64.urlsafe_b64decode(picture)
    else:
        parts = request["messages"][0]["content"]
        picture, text = base64.b64decode(parts[0]["image_url"]["url"].partition(",")[2]), parts[1]["text"]
        assert headers["authorization"] == "Bearer secret-key"
    assert Image.open(io.BytesIO(picture)).size == (400, 200)
    assert ("box_2d" if kind == "gemini" else "bbox_2d") in text


def test_pixels_are_those_of_the_resized_picture() -> None:
    """A picture of 400 x 200 is 392 x 196 to Qwen2.5-VL: multiples of 28."""
    with serving(lambda request, number: Reply(completion(said("pixels", (0, 0, 196, 49))))) as server:
        assert ground("openai-compatible", server, places="pixels") == {1: (0.0, 0.0, 0.5, 0.25)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_busy_server_is_asked_again(kind: str) -> None:
    def answer(request: dict[str, Any], number: int) -> Reply:
        if number == 0:
            return Reply({"error": {"code": 429, "message": "slow down"}}, status=429, headers={"Retry-After": "0"})
        return Reply(KINDS[kind](said(kind, (0, 0, 10, 10))))

    with serving(answer) as server:
        assert len(ground(kind, server, retries=1)) == 1
    assert len(server.requests) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "reply",
    [
        Reply({"error": {"code": 500, "message": "broken", "status": "INTERNAL"}}, status=500),
        Reply({"error": {"code": 503, "message": "overloaded"}}, status=503),
        Reply("not json at all"),
        Reply({"candidates": [], "choices": [], "object": "x"}, cut=10),
        Reply(hold=True),
    ],
    ids=["500", "503", "not json", "cut", "silent"],
)
def test_a_server_that_fails_is_infrastructure(kind: str, reply: Reply) -> None:
    with serving(lambda request, number: reply) as server, pytest.raises(ServerFailed):
        ground(kind, server, retries=0, timeout=1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_model_is_the_configurations_matter(kind: str, status: int) -> None:
    body = {"error": {"code": status, "message": "no secret-key"}}
    with serving(lambda request, number: Reply(body, status=status)) as server, pytest.raises(ConfigError) as told:
        ground(kind, server, retries=0)
    assert "grounder" in str(told.value)


def test_geminis_refusal_of_a_key_has_the_status_400() -> None:
    body = {"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}
    with serving(lambda request, number: Reply(body, status=400)) as server, pytest.raises(ConfigError, match="key"):
        ground("gemini", server, retries=0)


@pytest.mark.parametrize(
    "answer",
    [
        {"promptFeedback": {"blockReason": "SAFETY"}},
        {"candidates": [{"finishReason": "SAFETY", "index": 0}]},
        gemini(""),
        gemini("I see a login page."),
    ],
    ids=["blocked", "stopped", "empty", "prose"],
)
def test_an_answer_without_boxes_leaves_the_screen_unmarked(answer: dict[str, Any]) -> None:
    with serving(lambda request, number: Reply(answer)) as server:
        assert ground("gemini", server, retries=0) == {}


def test_an_evaluation_runs_on_the_marks_of_a_grounder(tmp_path: Path) -> None:
    """The server's boxes are a grid over the whole screen, so the expert finds one for each of its clicks; they are
    small enough that the middle of the right one lies in the field."""

    async def look() -> Observation:
        world = environment("login")
        (task,) = world.tasks(1, SEED, {})
        return await world.desktop({}).reset(task, SEED)

    real = list(asyncio.run(look()).marks.values())
    places = [tuple(round(1000 * edge) for edge in (x, y, x + w, y + h)) for x, y, w, h in real]
    answer = said("openai-compatible", *places)  # type: ignore[arg-type]
    with serving(lambda request, number: Reply(completion(answer))) as server:
        arguments = ["--config", config(tmp_path, section("openai-compatible", server)), "--out", str(tmp_path / "o")]
        assert run.main(arguments) == 0
    (record,) = map(json.loads, (tmp_path / "o/tasks.jsonl").read_text().splitlines())
    assert record["success"]
    assert len(server.requests) >= record["steps"]
    episode = read_episode(tmp_path / "o" / record["episode"])
    assert all(len(step.marks) == len(places) for step in episode.steps)
