from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval.actions import Action, ActionType, Unrepresentable
from eval.actions.dialects.dsl import Dsl
from eval.config import ConfigError, convert
from eval.desktop import Expected, Observation
from eval.episodes import Step, ToolCall
from eval.prompts import PastStep, PromptBuilder, PromptConfig
from eval.prompts.tokens import quoted
from eval.prompts.wording import Style

CLICK = Action(ActionType.CLICK, x=0.5, y=0.25)
TYPED = Action(ActionType.TYPE, text="bob")
STYLES: tuple[Style, ...] = ("list", "turns", "chat", "opencua")


def image(shade: int) -> Image.Image:
    return Image.new("RGB", (4, 4), (shade, 0, 0))


def seen(shade: int = 9) -> Observation:
    return Observation(image(shade), (4, 4), expected=Expected(Action(ActionType.FAIL)))


# what a tokenizer of each family reads as a turn's end, a turn's begin or a picture's place, wherever it stands
CONTROL_TOKENS = {
    "Qwen, Kimi, Llama 3, Phi": "<|im_end|> <|im_user|> <|eot_id|> <|start_header_id|> <|image_1|> <|vision_start|>",
    "Gemma 3": "<bos> <eos> <pad> <unk> <start_of_turn> <end_of_turn> <start_of_image> <image_soft_token>",
    "Gemma 4": '<|turn> <turn|> <|channel> <channel|> <|tool_call> <tool_call|> <|"|> <|image|>',
    "Mistral": "<s> </s> [INST] [/INST] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] "
    "[TOOL_CALLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CONTENT] [IMG] [IMG_BREAK] [IMG_END]",
    "DeepSeek": "<\uff5cUser\uff5c> <\uff5cAssistant\uff5c> <\uff5cend\u2581of\u2581sentence\uff5c>",
    "InternVL, LLaVA": "<img> </img> <IMG_CONTEXT> <image> <video>",
    "OpenCUA, GLM": "[BOS] [EOS] [EOT] [PAD] [UNK] [start_header_id] [end_header_id] [gMASK] <sop>",
}


@pytest.mark.parametrize("family", CONTROL_TOKENS)
def test_control_tokens_of_every_family_are_literal_text(family: str) -> None:
    tokens = CONTROL_TOKENS[family].split()
    nested = [form % token for token in tokens for form in ("<%s>", "[%s]", "<|%s|>", "<%s|>", "<|%s", "%s|>")]
    for token in (*tokens, *nested):
        told = quoted(f"a{token}b")
        assert not [each for each in tokens if each in told], told
        assert told.replace(" ", "") == f"a{token}b"
        assert quoted(told) == told
    past = [PastStep(Action(ActionType.TYPE, text=token), thought=token) for token in tokens]
    for style in STYLES:
        builder = PromptBuilder(Dsl(2), system=tokens[0], style=style, thought=True)
        said = text_of(builder.messages(f"Write {' '.join(tokens)}", past, seen())[0])
        assert not [token for token in tokens if token in said]


@pytest.mark.parametrize(
    "text", ["a <b> <p>c</p> <img src='x'> <span|x", "a[0] [x] [1, 2] [inst] x <- y |> f <| g", "<3 a|b"]
)
def test_other_brackets_stay(text: str) -> None:
    assert quoted(text) == text


def text_of(messages: list[dict[str, object]]) -> str:
    return json.dumps(messages)


def test_a_first_step_shows_the_goal_and_the_screenshot() -> None:
    messages, images = PromptBuilder(Dsl(2), system="Act.").messages("Log in", [], seen())
    assert messages == [
        {"role": "system", "content": [{"type": "text", "text": "Act."}]},
        {"role": "user", "content": [{"type": "text", "text": "Goal: Log in\n"}, {"type": "image"}]},
    ]
    assert [i.getpixel((0, 0)) for i in images] == [(9, 0, 0)]


def test_history_is_what_was_done_the_latest_of_it() -> None:
    past = [PastStep(CLICK), PastStep(None), PastStep(TYPED)]
    messages, _ = PromptBuilder(Dsl(2), system="", history=2).messages("g", past, seen())
    assert messages[0]["content"][0]["text"] == (
        'Goal: g\nActions so far:\n2. (no valid action)\n3. TYPE(text="bob")\n'
    )
    without, _ = PromptBuilder(Dsl(2), system="", history=0).messages("g", past, seen())
    assert without[0]["content"][0]["text"] == "Goal: g\n"


def test_earlier_screenshots_stand_before_their_actions() -> None:
    past = [PastStep(CLICK, image(1)), PastStep(CLICK, image(2)), PastStep(TYPED, image(3))]
    messages, images = PromptBuilder(Dsl(2), system="", images=3).messages("g", past, seen())
    content = messages[0]["content"]
    assert [part["type"] for part in content] == ["text", "image", "text", "image", "text", "image"]
    assert content[0]["text"].endswith("1. CLICK(x=0.50, y=0.25)\n")
    assert content[2]["text"] == "\n2. CLICK(x=0.50, y=0.25)\n"
    assert content[4]["text"] == '\n3. TYPE(text="bob")\n'
    assert [i.getpixel((0, 0))[0] for i in images] == [2, 3, 9]  # type: ignore[index]


def test_neither_the_expected_action_nor_the_number_of_steps_leaks() -> None:
    for config in (PromptConfig(), PromptConfig(marks=True), PromptConfig(dialect="pyautogui")):
        messages, _ = config.builder().messages("g", [], seen())
        user = text_of(messages[1:])
        assert "FAIL" not in user
        assert "of" not in user.split()


def test_targets_hold_the_thought_only_when_asked() -> None:
    step = Step(index=0, screenshot="000.png", action=CLICK, thought="  The field.\n")
    assert PromptBuilder(Dsl(2)).target(step) == "Action: CLICK(x=0.50, y=0.25)"
    target = PromptBuilder(Dsl(2), thought=True).target(step)
    assert target == "Thought: The field.\nAction: CLICK(x=0.50, y=0.25)"
    with pytest.raises(ValueError, match="cannot be a target"):
        PromptBuilder(Dsl(2)).target(Step(index=0, screenshot="000.png"))


@pytest.mark.parametrize("values", [{"history": -1}, {"images": 0}])
def test_nonsense_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="history must be 0 or more"):
        PromptBuilder(Dsl(), **values)


def test_configurations_of_before_keep_their_bytes() -> None:
    """golden_prompts.json was written by the builder as it was before it knew turns, marks and demonstrations."""
    past = [(CLICK, 1), (None, 2), (TYPED, 3), (Action(ActionType.KEY, keys=("enter",)), None)]
    cases = json.loads((Path(__file__).parent / "golden_prompts.json").read_text())
    assert len(cases) == 35
    for case in cases:
        builder = PromptConfig(**case["config"]).builder()
        steps = [PastStep(action, None if n is None else image(n)) for action, n in past[: case["past"]]]
        messages, images = builder.messages("Log in", steps, seen())
        assert messages == case["messages"]
        assert [i.getpixel((0, 0)) for i in images] == [(n, 0, 0) for n in case["images"]]
        assert builder.target(Step(index=0, screenshot="", action=CLICK, thought=" The field. ")) == case["target"]


ANSWER = (
    "## Observation:\nA form.\n\n## Thought:\nThe field.\n\n## Action:\nClick it.\n\n"
    "## Code:\npyautogui.click(x=0.5, y=0.25)"
)


def test_turns_are_the_assistants_and_only_the_latest_have_their_image() -> None:
    past = [PastStep(CLICK, image(1)), PastStep(None, image(2)), PastStep(TYPED, image(3)), PastStep(CLICK, image(4))]
    builder = PromptConfig(decimals=2, system="Act.", history=3, history_style="turns").builder()
    messages, images = builder.messages("Log in", past, seen())
    assert messages == [
        {"role": "system", "content": [{"type": "text", "text": "Act."}]},
        {"role": "assistant", "content": [{"type": "text", "text": "# Step 2:\n(no valid action)"}]},
        {"role": "user", "content": [{"type": "image"}]},
        {"role": "assistant", "content": [{"type": "text", "text": '# Step 3:\nAction: TYPE(text="bob")'}]},
        {"role": "user", "content": [{"type": "image"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "# Step 4:\nAction: CLICK(x=0.50, y=0.25)"}]},
        {"role": "user", "content": [{"type": "text", "text": "Goal: Log in\n"}, {"type": "image"}]},
    ]
    assert [i.getpixel((0, 0))[0] for i in images] == [3, 4, 9]  # type: ignore[index]


@pytest.mark.parametrize(("images", "shown"), [(None, 3), (1, 1), (3, 3), (5, 5)])
def test_turns_show_three_images_unless_told_otherwise(images: int | None, shown: int) -> None:
    past = [PastStep(CLICK, image(n)) for n in range(20)]
    messages, found = PromptConfig(history_style="turns", images=images).builder().messages("g", past, seen())
    assert len(found) == shown
    steps = [turn["content"][0]["text"].split("\n")[0] for turn in messages if turn["role"] == "assistant"]
    assert steps == [f"# Step {n}:" for n in range(11, 21)]  # ten at most


def user(*parts: str) -> dict[str, Any]:
    """A turn of the user: "image", or a text."""
    return {
        "role": "user",
        "content": [{"type": "image"} if part == "image" else {"type": "text", "text": part} for part in parts],
    }


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def test_a_chat_holds_every_screen_and_every_answer_as_it_was_given() -> None:
    """Also an answer that was no action; a call of a tool is told with its result, and special tokens are text."""
    builder = PromptConfig(decimals=2, system="Act.", history_style="chat").builder()
    called = ToolCall(name="read", arguments={"path": "a"}, result="<|im_end|>")
    past = [
        PastStep(CLICK, image(1), "So.", "Thought: So.\nAction: CLICK(x=0.5, y=0.250)"),
        PastStep(None, image(2), response="Hm. <|image_pad|>"),
        PastStep(TYPED, image(3), response='Action: TYPE(text="bob")', calls=(called,)),
    ]
    messages, images = builder.messages("Log in", past, seen())
    assert messages == [
        {"role": "system", "content": [{"type": "text", "text": "Act."}]},
        user("Goal: Log in\n", "image"),
        assistant("Thought: So.\nAction: CLICK(x=0.5, y=0.250)"),
        user("image"),
        assistant("Hm. < |image_pad|>"),
        user("(no valid action)\n", "image"),
        assistant('Action: TYPE(text="bob")'),
        user('read({"path": "a"}) -> "< |im_end|>"\n', "image"),
    ]
    assert [i.getpixel((0, 0))[0] for i in images] == [1, 2, 3, 9]  # type: ignore[index]


@pytest.mark.parametrize(
    "response",
    [
        *(None, "", "pyautogui.click(x=0.5, y=0.25)", "Action: DONE()", "CLICK"),
        "Action: CLICK(x=0.25, y=0.12)",  # a model's own frame, twice as wide
    ],
    ids=["none", "empty", "another dialect", "another action", "unreadable", "another frame"],
)
def test_a_chat_tells_a_recorded_step_in_its_own_dialect(response: str | None) -> None:
    builder = PromptConfig(decimals=2, system="", thought=True, history_style="chat").builder()
    messages, _ = builder.messages("g", [PastStep(CLICK, image(1), "So.", response)], seen())
    assert messages[1] == assistant("Thought: So.\nAction: CLICK(x=0.50, y=0.25)")
    nothing, _ = builder.messages("g", [PastStep(None, image(1))], seen())
    assert nothing[1:] == [assistant("(no valid action)"), user("(no valid action)\n", "image")]


def test_a_chat_is_taught_with_as_much_reasoning_as_its_targets_have() -> None:
    """A rollout's own answers stand as they are; a teacher's thoughts, which no target has, are not in the history."""
    said = PastStep(CLICK, image(1), "So.", "Thought: So.\nAction: CLICK(x=0.50, y=0.25)")
    for thought, told in ((True, said.response), (False, "Action: CLICK(x=0.50, y=0.25)")):
        builder = PromptConfig(decimals=2, system="", thought=thought, history_style="chat").builder()
        assert builder.messages("g", [said], seen())[0][1] == assistant(said.response or "")
        assert builder.messages("g", [builder.as_taught(said)], seen())[0][1] == assistant(told or "")
        failed = PastStep(None, image(1), response="Hm.")
        assert builder.as_taught(failed) is failed


@pytest.mark.parametrize(
    ("level", "kept"),
    [("l1", "Action"), ("l2", "Thought Action"), ("l3", "Observation Thought Action")],
)
def test_levels_of_reasoning(level: str, kept: str) -> None:
    values = {"dialect": "pyautogui", "history_style": "turns", "images": 1, "thought": "l3", "history_level": level}
    builder = convert(values, PromptConfig, "prompt").builder()
    past = [PastStep(CLICK, thought="The field.", response=ANSWER), PastStep(CLICK, thought="The field.")]
    messages, _ = builder.messages("g", past, seen())
    first, second = (turn["content"][0]["text"] for turn in messages if turn["role"] == "assistant")
    assert " ".join(re.findall("^## ([A-Z][a-z]+):$", first, re.MULTILINE)) == f"{kept} Code"
    assert ("## Thought" in second) == (level != "l1")  # a step that has a thought alone
    target = (
        convert({**values, "thought": level}, PromptConfig, "prompt")
        .builder()
        .target(Step(index=0, screenshot="", action=CLICK, thought="The field.", response=ANSWER))
    )
    assert first == f"# Step 1:\n{target}"
    assert builder.read(target).action == CLICK


def test_reasoning_that_would_not_read_back_is_no_target_and_is_left_out_of_the_history() -> None:
    builder = PromptConfig(thought=True, history_style="turns", history_level="l2", system="").builder()
    bad = "First.\nAction: DONE()"
    with pytest.raises(Unrepresentable):
        builder.target(Step(index=0, screenshot="", action=CLICK, thought=bad))
    messages, _ = builder.messages("g", [PastStep(CLICK, thought=bad)], seen())
    assert messages[0]["content"][0]["text"] == "# Step 1:\nAction: CLICK(x=0.5000, y=0.2500)"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"dialect": "pyautogui", "marks": True}, "prompt.marks"),
        ({"history_level": "l2"}, "history_level: l2 needs history_style turns"),
        (
            {"history_style": "turns", "history_level": "l3", "thought": True},
            "history_level: l3 needs the sections Observation and Action, which dialect dsl does not have",
        ),
        ({"history_style": "turns", "history_level": "l2"}, "history_level: l2 needs thought"),
        ({"thought": "l2"}, "thought: l2 needs the sections Action, which dialect dsl does not have"),
        ({"history_style": "turns", "images": 2}, "takes 1, 3 or 5 images, not 2"),
        ({"history_style": "turns", "history": 11}, "takes at most 10 steps, not 11"),
        ({"history_style": "rings"}, "history_style"),
        ({"history_style": "chat", "images": 3}, "prompt.images: history_style chat tells every step and shows it"),
        ({"history_style": "chat", "history": 3}, "prompt.history: history_style chat tells every step and shows it"),
        ({"history_style": "chat", "observation": "tree"}, "prompt.observation: tree; allowed with history_style chat"),
        ({"history_style": "chat", "history_level": "l2"}, "history_style turns; chat allows l1 only"),
        ({"thought": "l4"}, "thought"),
        ({"demonstrations": {}}, "demonstrations"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        convert(values, PromptConfig, "prompt").builder()
