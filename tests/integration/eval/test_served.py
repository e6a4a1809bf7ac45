"""The agent `openai-compatible` through the real `openai` SDK, against a server that speaks the real wire."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval import run
from eval.accessibility.tree import Tree, TreeNode
from eval.actions import Action, ActionType
from eval.actions.geometry import FAMILIES, Cells, smart_resize
from eval.agents.base import Agent, History
from eval.agents.config import AgentConfig, make_agent
from eval.agents.wire import Prices, http_client
from eval.config import ConfigError, convert
from eval.desktop import Observation, Task
from eval.environments.registry import environment
from eval.episodes import TokenUsage, iter_episodes, jsonl
from eval.prompts import PromptBuilder, PromptConfig
from eval.rollout.loop import Rollout, RolloutLimits, TaskRecord, rollout
from tests.support.modelserver import ModelServer, Reply, chunks, completion, serving

SEED = 1_000_000
LOGIN = environment("login")
SIZE = 96  # of the login's screen, pixels


def expert_actions(task: Task) -> list[Action]:
    """What the environment's expert does, found on a desktop of its own."""

    async def play() -> list[Action]:
        desktop = LOGIN.desktop({})
        seen = await desktop.reset(task, task.seed)
        actions: list[Action] = []
        while not actions or actions[-1].type is not ActionType.DONE:
            assert seen.expected is not None
            actions.append(seen.expected.action)
            seen = await desktop.step(actions[-1])
        return actions

    return asyncio.run(play())


def texts(builder: PromptBuilder, task: Task) -> list[str]:
    return [builder.dialect.format_response(action) for action in expert_actions(task)]


def play(
    server: ModelServer, builder: PromptBuilder, out: Path, tasks: Sequence[Task], attempts: int = 1, **options: Any
) -> list[Rollout]:
    section = {"kind": "openai-compatible", "model": "m", "base_url": f"{server.url}/v1", **options}
    config: Any = convert(section, AgentConfig, "agent")  # type: ignore[arg-type]
    agent = make_agent(config, builder)
    limits = RolloutLimits(attempts=attempts, backoff=0.0)
    told: dict[str, Any] = {"benchmark": "b", "environment": "login", "limits": limits}
    return asyncio.run(rollout(agent, lambda: LOGIN.desktop({}), tasks, out=out, **told))


def images(request: dict[str, Any]) -> list[Image.Image]:
    urls = [
        part["image_url"]["url"]
        for message in request["messages"]
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "image_url"
    ]
    return [Image.open(io.BytesIO(base64.b64decode(url.removeprefix("data:image/png;base64,")))) for url in urls]


@pytest.mark.parametrize("dialect", ["dsl", "qwen3-vl", "qwen2.5-vl", "ui-tars", "ui-tars-1.5", "pyautogui"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_served_model_solves_the_login_in_its_dialect(dialect: str, stream: bool, tmp_path: Path) -> None:
    resized = dialect in ("qwen2.5-vl", "ui-tars-1.5", "pyautogui")
    builder = PromptConfig(dialect=dialect).builder()
    speaking = builder
    options: dict[str, Any] = {"stream": stream, "prices": {"input": 2.0, "output": 8.0, "cached": 0.5}}
    if resized:
        family = {"pyautogui": "opencua", "ui-tars-1.5": "ui-tars"}.get(dialect, dialect)
        height, width = smart_resize(SIZE, SIZE, FAMILIES[family])
        speaking = builder.in_frame(Cells(width, height))
        options |= {"frame": "smart-resized", "family": family}
    (task,) = LOGIN.tasks(1, SEED, {})
    answers = texts(speaking, task)

    def answer(request: dict[str, Any], number: int) -> Reply:
        return Reply(events=chunks(answers[number])) if stream else Reply(completion(answers[number]))

    with serving(answer) as server:
        (result,) = play(server, builder, tmp_path, [task], **options)
    assert (result.record.success, result.record.error, result.record.steps) == (True, None, len(answers))
    assert result.episode is not None
    assert images(server.requests[0])[0].size == (SIZE, SIZE)
    first = result.episode.steps[0]
    assert first.response == answers[0]
    cached = 0 if stream else 400
    assert first.usage == TokenUsage(input_tokens=1000, output_tokens=20, cached_tokens=cached)
    # USD for a million tokens: 600 or 1000 fresh at 2, 400 or none cached at .5, 20 answered at 8
    assert first.cost == pytest.approx(0.00156 if not stream else 0.00216)
    assert result.record.metrics["input_tokens"] == 1000 * len(answers)
    assert first.raw is not None


@pytest.mark.parametrize("style", ["list", "turns"])
@pytest.mark.parametrize("budget", [1, 3])
def test_the_budget_of_images_is_kept_exactly(style: Any, budget: int, tmp_path: Path) -> None:
    builder = PromptConfig(history_style=style, images=budget).builder()
    (task,) = LOGIN.tasks(1, SEED, {})
    answers = texts(builder, task)
    with serving(lambda request, number: Reply(completion(answers[number]))) as server:
        (result,) = play(server, builder, tmp_path, [task])
    assert [len(images(request)) for request in server.requests] == [
        min(number + 1, budget) for number in range(len(answers))
    ]
    folder = tmp_path / "episodes" / f"login-{SEED}-{SEED}"
    for number, request in enumerate(server.requests):  # and they are the latest frames, the present one last
        sent = images(request)
        for back, image in enumerate(reversed(sent)):
            with Image.open(folder / f"{number - back:03d}.png") as kept:
                assert kept.convert("RGB").tobytes() == image.tobytes()
    assert result.record.success


@pytest.mark.parametrize(("observation", "kinds"), [("tree", ["text"]), ("both", ["text", "image_url"])])
def test_a_tree_reaches_the_server_as_text(observation: Any, kinds: list[str]) -> None:
    node = TreeNode(
        role="push button", name="Save", bounds=(40, 20, 40, 20), states=("showing", "visible", "sensitive")
    )
    frame = TreeNode(role="frame", name="F", bounds=(0, 0, 200, 100), states=("showing", "visible"), children=[node])
    tree = Tree(applications=[TreeNode(role="application", children=[frame])], screen=(200, 100))
    seen = Observation(Image.new("RGB", (200, 100)), (200, 100), tree=tree)
    builder = PromptConfig(observation=observation, dialect="qwen3-vl").builder()
    with serving(lambda request, number: Reply(completion("{}"))) as server:
        config: Any = convert(
            {"kind": "openai-compatible", "model": "m", "base_url": f"{server.url}/v1"},
            AgentConfig,  # type: ignore[arg-type]
            "agent",
        )
        agent = make_agent(config, builder)
        assert isinstance(agent, Agent)
        asyncio.run(agent.act([seen], [History(Task("t", "Save it"))]))
    content = server.requests[0]["messages"][-1]["content"]
    assert [part["type"] for part in content] == kinds
    assert content[0]["text"] == 'Goal: Save it\nScreen:\nframe "F"\n  push button "Save" at (300, 300)\n'


def test_a_tool_call_that_the_server_took_out_of_the_text_is_read_and_recorded(tmp_path: Path) -> None:
    builder = PromptConfig(dialect="qwen3-vl").builder()
    (task,) = LOGIN.tasks(1, SEED, {})
    answers = []
    for text in texts(builder, task):
        body = json.loads(text[text.index("<tool_call>") + 11 : text.index("</tool_call>")])
        function = {"name": body["name"], "arguments": json.dumps(body["arguments"])}
        answers.append(
            completion(None, "tool_calls", tool_calls=[{"id": "c", "type": "function", "function": function}])
        )
    with serving(lambda request, number: Reply(answers[number])) as server:
        (result,) = play(server, builder, tmp_path, [task])
    assert result.record.success
    assert result.episode is not None
    (call,) = result.episode.steps[0].calls
    assert (call.name, call.id, call.arguments["action"]) == ("computer_use", "c", "left_click")


def test_a_busy_server_is_asked_again_after_the_time_that_it_names(tmp_path: Path) -> None:
    builder = PromptConfig().builder()
    (task,) = LOGIN.tasks(1, SEED, {})
    answers = iter(texts(builder, task))
    busy = {"error": {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}}

    def answer(request: dict[str, Any], number: int) -> Reply:
        if number == 1:
            return Reply(busy, 429, {"Retry-After": "1"})
        if number == 2:
            return Reply({"error": {"message": "starting"}}, 503, {"Retry-After": "0.01"})
        return Reply(completion(next(answers)))

    with serving(answer) as server:
        (result,) = play(server, builder, tmp_path, [task])
    assert (result.record.success, result.record.attempts) == (True, 1)
    assert server.requests[1] == server.requests[2] == server.requests[3]
    assert result.episode is not None
    times = [step.time for step in result.episode.steps]
    assert times[0] is not None
    assert times[1] is not None
    assert times[1] - times[0] >= 0.9  # the server's second, less what the SDK takes off


WHOLE = "Action: CLICK(x=0.5000, y=0.5000)"
INFRA: dict[str, Callable[[], Reply]] = {
    "429": lambda: Reply({"error": {"message": "slow down"}}, 429, {"Retry-After": "0.01"}),
    "500": lambda: Reply({"error": {"message": "CUDA error"}}, 500),
    "no json": lambda: Reply("<html>Bad gateway</html>"),
    "no json of a proxy": lambda: Reply("<html>Bad gateway</html>", 502),
    "no choices": lambda: Reply({**completion("x"), "choices": []}),
    "choices null": lambda: Reply({**completion("x"), "choices": None}),
    "message null": lambda: Reply({**completion("x"), "choices": [{"index": 0, "message": None}]}),
    "a list": lambda: Reply([1, 2]),
    "cut body": lambda: Reply(completion(WHOLE), cut=30),
    "silence": lambda: Reply(hold=True),
    "bad request": lambda: Reply({"error": {"message": "unknown field extra"}}, 400),
}
STREAMS: dict[str, Callable[[], Reply]] = {
    "cut in the middle": lambda: Reply(events=chunks(WHOLE), cut=600),
    "ends in the middle": lambda: Reply(events=chunks(WHOLE, None)),
    "an error in the stream": lambda: Reply(events=[*chunks(WHOLE, None), json.dumps({"error": {"message": "gone"}})]),
    "no json": lambda: Reply(events=["{"]),
}


@pytest.mark.parametrize("fault", [*INFRA, *(f"stream: {name}" for name in STREAMS)])
@pytest.mark.parametrize("recovers", [True, False])
def test_a_failure_of_the_server_is_never_a_score(fault: str, recovers: bool, tmp_path: Path) -> None:
    """The fault comes at the second answer, once or for ever; an episode that begins again begins with its first."""
    builder = PromptConfig().builder()
    (task,) = LOGIN.tasks(1, SEED, {})
    answers = texts(builder, task)
    stream = fault.startswith("stream: ")
    broken = STREAMS[fault.removeprefix("stream: ")] if stream else INFRA[fault]
    said = iter([answers[0], None, *answers] if recovers else [answers[0]])

    def answer(request: dict[str, Any], number: int) -> Reply:
        if (text := next(said, None)) is None:
            return broken()
        return Reply(events=chunks(text)) if stream else Reply(completion(text))

    silent = 5.0 if recovers else 0.3  # the other answers must come within it on a busy machine
    options: dict[str, Any] = {"retries": 0, "timeout": silent if fault == "silence" else 30.0, "stream": stream}
    with serving(answer) as server:
        (result,) = play(server, builder, tmp_path, [task], attempts=2 if recovers else 1, **options)
    if recovers:
        assert (result.record.outcome, result.record.success, result.record.attempts) == ("scored", True, 2)
    else:
        assert (result.record.outcome, result.record.score) == ("infra", None)
        assert "ServerFailed" in (result.record.error or "")


FAILURES: dict[str, tuple[Reply, str]] = {
    "refusal": (Reply(completion(None, refusal="I cannot help with that.")), "refusal: I cannot help"),
    "filtered": (Reply(completion("", "content_filter")), "refusal: the server filtered"),
    "filtered prompt": (
        Reply({"error": {"message": "The response was filtered", "code": "content_filter"}}, 400),
        "refusal: ",
    ),
    "truncated": (Reply(completion("Thought: I will now", "length")), "truncated: "),
    "too long": (
        Reply({"error": {"message": "This model's maximum context length is 4096 tokens."}}, 400),
        "limit: the prompt is too long",
    ),
    "empty": (Reply(completion("")), ""),
    "null": (Reply(completion(None)), ""),
    "no text": (Reply(completion([{"type": "text", "text": "x"}])), ""),  # type: ignore[arg-type]
    "half of a pair": (Reply(completion("\ud800 \x00 CLICK(")), ""),
    "a megabyte": (Reply(completion("(" * 1_000_000)), ""),
    "a deep call": (
        Reply(
            completion(
                None,
                tool_calls=[{"id": "1", "type": "function", "function": {"name": "x", "arguments": "[" * 100_000}}],
            )
        ),
        "",
    ),
    "a broken call": (Reply(completion(None, tool_calls=[{"id": "1", "type": "function"}])), ""),
}


@pytest.mark.parametrize("name", FAILURES)
def test_an_answer_of_a_model_whatever_it_holds_is_a_score_and_ends_nothing(name: str, tmp_path: Path) -> None:
    reply, why = FAILURES[name]
    builder = PromptConfig(dialect="qwen3-vl").builder()
    with serving(lambda request, number: reply) as server:
        results = play(server, builder, tmp_path, LOGIN.tasks(2, SEED, {}), retries=0)
    for result in results:
        assert (result.record.outcome, result.record.score, result.record.parse_failures) == ("scored", 0.0, 1)
        assert result.episode is not None
        assert (result.episode.steps[0].parse_error or "").startswith(why)
    assert len(list(iter_episodes(tmp_path / "episodes"))) == 2


@pytest.mark.parametrize(("status", "said"), [(401, "does not accept the key"), (404, "knows no such model")])
def test_what_the_configuration_must_mend_ends_the_evaluation_with_one_error(
    status: int, said: str, tmp_path: Path
) -> None:
    with (
        serving(lambda request, number: Reply({"error": {"message": "no"}}, status)) as server,
        pytest.raises(ConfigError, match=f"agent model: the server {said}.*: no|{said}"),
    ):
        play(server, PromptConfig().builder(), tmp_path, LOGIN.tasks(1, SEED, {}))


def test_a_key_comes_from_the_environment_and_is_not_in_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THE_KEY", "secret-value")
    builder = PromptConfig().builder()
    (task,) = LOGIN.tasks(1, SEED, {})
    answers = texts(builder, task)
    with serving(lambda request, number: Reply(completion(answers[number]))) as server:
        agent = {"kind": "openai-compatible", "model": "m", "base_url": f"{server.url}/v1", "api_key": "THE_KEY"}
        told = {"benchmark": "b", "environment": "login", "tasks": {"count": 1, "seed": SEED}, "agent": agent}
        (tmp_path / "config.json").write_text(json.dumps(told))
        code = run.main(["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "results")])
    assert code == 0
    assert server.headers[0]["authorization"] == "Bearer secret-value"
    assert [record.score for record in jsonl.read(tmp_path / "results/tasks.jsonl", TaskRecord)] == [1.0]
    written = b"".join(path.read_bytes() for path in (tmp_path / "results").rglob("*") if path.is_file())
    assert b"secret-value" not in written
    assert "secret-value" not in capsys.readouterr().out
    monkeypatch.delenv("THE_KEY")
    assert run.main(["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "again")]) == 78
    assert "the environment variable THE_KEY is not set" in capsys.readouterr().err


@pytest.mark.parametrize("lenient", [True, False])
def test_a_configuration_decides_whether_answers_are_repaired_and_the_rules_say_so(
    lenient: bool, tmp_path: Path
) -> None:
    """Each answer is right, with words after the call."""
    builder = PromptConfig(dialect="qwen3-vl").builder()
    (task,) = LOGIN.tasks(1, SEED, {})
    answers = [f"{answer}\nThat is done." for answer in texts(builder, task)]
    with serving(lambda request, number: Reply(completion(answers[number]))) as server:
        agent = {"kind": "openai-compatible", "model": "m", "base_url": f"{server.url}/v1"}
        prompt = {"dialect": "qwen3-vl", **({"lenient": True} if lenient else {})}
        told = {"benchmark": "b", "environment": "login", "tasks": {"count": 1, "seed": SEED}}
        (tmp_path / "config.json").write_text(json.dumps({**told, "agent": agent, "prompt": prompt}))
        assert run.main(["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "results")]) == 0
    (record,) = jsonl.read(tmp_path / "results/tasks.jsonl", TaskRecord)
    assert (record.success, record.parse_failures) == ((True, 0) if lenient else (False, 1))
    assert record.rules["answers"].get("lenient", False) is lenient


def test_an_answer_waits_for_no_other_episode(tmp_path: Path) -> None:
    """The second episode's server stays silent until the first episode has ended."""
    builder = PromptConfig().builder()
    quick, slow = LOGIN.tasks(2, SEED, {})
    answers = {task.instruction: iter(texts(builder, task)) for task in (quick, slow)}
    held: list[int] = []

    def answer(request: dict[str, Any], number: int) -> Reply:
        told = json.dumps(request["messages"])
        name = next(name for name in answers if json.dumps(name)[1:-1] in told)
        if name == slow.instruction and not held:
            held.append(number)
            return Reply(hold=True)
        return Reply(completion(next(answers[name])))

    with serving(answer) as server:
        results = play(server, builder, tmp_path, [quick, slow], timeout=5.0, retries=1)
    assert [result.record.success for result in results] == [True, True]


def test_certificates_are_read_once_for_each_file_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import anthropic
    import certifi
    import httpx2
    import openai

    read: list[str | None] = []
    make = httpx2.create_ssl_context

    def noted() -> Any:
        read.append(os.environ.get("SSL_CERT_FILE"))
        return make()

    monkeypatch.setattr(httpx2, "create_ssl_context", noted)
    for name in ("first", "second", "first"):
        shutil.copy(certifi.where(), tmp_path / name)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / name))
        for sdk in (openai, anthropic):
            assert isinstance(http_client(sdk), httpx2.AsyncClient)
    assert read == [str(tmp_path / name) for name in ("first", "second")]


def test_cost_counts_cached_tokens_at_their_own_price() -> None:
    usage = TokenUsage(input_tokens=1_000_000, output_tokens=500_000, cached_tokens=250_000)
    assert Prices(input=4.0, output=10.0, cached=1.0).cost(usage) == pytest.approx(3.0 + 0.25 + 5.0)
    assert Prices(input=4.0, output=10.0).cost(usage) == pytest.approx(9.0)
