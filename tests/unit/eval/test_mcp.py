"""The environment `mcp` and the tools of agents before any server is started: what of a configuration is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from eval.agents.config import AgentConfig, make_agent, make_deciding
from eval.config import ConfigError, convert
from eval.desktops.mcp.client import CallAnswer, result_of
from eval.environments import mcp
from eval.prompts import PromptConfig
from eval.rollout.loop import check_interface
from eval.run import main

SERVED: Final[dict[str, Any]] = {"kind": "openai-compatible", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
WRONG: Final[list[tuple[dict[str, Any], str]]] = [
    ({}, "options: Object missing required field `mcp`"),
    ({"mcp": " "}, "options.mcp: is empty; allowed: a command or a URL"),
    ({"mcp": "server 'a"}, 'options.mcp: "server \'a": No closing quotation'),
    ({"mcp": "server", "token": "T"}, "options.token: is for a URL; a command gets variables by environ"),
    ({"mcp": "http://h/mcp", "environ": ["T"]}, "options.environ: is for a command; a URL takes a token"),
    ({"mcp": "http://me:word@h/mcp"}, "options.mcp: a URL with a name or password; allowed: one without, and `token`"),
    ({"mcp": "http://[h/mcp"}, "options.mcp: http://[h/mcp: Invalid IPv6 URL"),
    ({"mcp": "http://h/mcp", "token": "NOT_SET"}, "options.token: the environment variable NOT_SET is not set"),
    ({"mcp": "server", "environ": ["NOT_SET"]}, "options.environ: the environment variable NOT_SET is not set"),
    ({"mcp": "server", "timeout": 0}, "options: Expected `float` > 0.0 - at `$.timeout`"),
    ({"mcp": "server"}, "options.instruction: is missing, and there is no `start` whose answer tells it"),
]


@pytest.mark.parametrize(("options", "told"), WRONG)
def test_a_wrong_option_is_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as wrong:
        mcp.tasks(1, 0, options)
    assert str(wrong.value) == told


@pytest.mark.parametrize(
    ("options", "agent", "told"),
    [
        ("{mcp: ' '}", "{kind: random}", "4: options.mcp: is empty; allowed: a command or a URL"),
        (
            "\n  mcp: s\n  tokn: T",
            "{kind: random}",
            "6: options: Object contains unknown field `tokn`",
        ),
        ("\n  mcp: s\n  timeout: 0", "{kind: random}", "6: options: Expected `float` > 0.0 - at `$.timeout`"),
        (
            "{mcp: s}",
            "\n  kind: openai\n  tools:\n  - mcp: s\n  - mcp: 1",
            "9: Expected `str`, got `int` - at `$.agent",
        ),
        (
            "{mcp: s, start: a, colour: 1}",
            "{kind: random}",
            "4: options: Object contains unknown field `col",
        ),
    ],
)
def test_a_run_with_a_wrong_option_ends_with_one_line_that_says_where(
    options: str, agent: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(
        f"benchmark: b\nenvironment: mcp\ntasks: {{count: 1, seed: 0}}\noptions: {options}\nagent: {agent}\n"
    )
    assert main(["--config", str(config), "--out", str(tmp_path / "out")]) == 78
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"config: {config}:{told}")


def agent(**tools: Any) -> Any:
    config: Any = convert({**SERVED, "tools": [{"mcp": "server"}, tools]}, AgentConfig, "agent")  # type: ignore[arg-type]
    return make_agent(config, PromptConfig().builder())


def test_a_wrong_tool_of_an_agent_is_told_with_its_number() -> None:
    with pytest.raises(ConfigError, match=r"agent\.tools\[1\]\.token: the environment variable NOT_SET is not set"):
        agent(mcp="http://h/mcp", token="NOT_SET")


def test_tools_need_an_interface_that_offers_them() -> None:
    tooled = agent(mcp="other")
    with pytest.raises(ConfigError, match=r"interface: gui: agent .* has `tools`; allowed with them: both, tools"):
        check_interface(tooled, "gui")
    check_interface(tooled, "both")
    check_interface(tooled, "tools")


def test_single_steps_have_no_tools() -> None:
    config: Any = convert({**SERVED, "tools": [{"mcp": "server"}]}, AgentConfig, "agent")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="tools: single steps have no tools; leave them out"):
        make_deciding(config, PromptConfig().builder())


def test_what_is_neither_text_nor_picture_is_named() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "one"},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "image", "data": "iVBO", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": "AAAA"}},
        {},
    ]
    result = result_of(CallAnswer(blocks))
    assert result.text == "one\n[audio: not shown]\n[resource: file:///b]\n[None: not shown]"
    assert result.pictures == ("iVBO",)


def test_an_answer_with_structured_content_alone_is_told_in_words() -> None:
    assert result_of(CallAnswer([], {"score": 0.5})).text == '{"score": 0.5}'
