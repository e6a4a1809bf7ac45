"""Chat templates of published models, as TRL 1.16 carries them: with which of them a chat's prompts continue each
other, so that `rows: trajectory` joins the turns of a rollout."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image

from eval.actions import Action, ActionType
from eval.desktop import Observation
from eval.prompts import PastStep, PromptBuilder, PromptConfig

pytestmark = pytest.mark.ml
CLICK = Action(ActionType.CLICK, x=0.5, y=0.25)
SCREEN = Image.new("RGB", (8, 8))
CONTINUING = ("qwen2_5_vl", "qwen3_vl", "gemma3", "gemma4_v5")
# these leave an empty thought of the prompt out of earlier answers, or write an answer's border in another way
OTHERS = ("qwen3_5_nothink", "qwen3_5_think", "qwen3_8", "smolvlm", "llava_next")


def continues(name: str, builder: PromptBuilder) -> bool:
    """Whether each of four prompts begins with the one before and its answer, as text."""
    from transformers.utils.chat_template_utils import render_jinja_template

    spec = find_spec("trl")
    assert spec is not None
    assert spec.origin is not None
    template = (Path(spec.origin).parent / "chat_templates" / f"{name}.jinja").read_text(encoding="utf-8")
    past: list[PastStep] = []
    told = ""
    for number in range(4):
        messages, _ = builder.messages("Log in.", past, Observation(SCREEN, SCREEN.size))
        texts, _ = render_jinja_template(conversations=[messages], chat_template=template, add_generation_prompt=True)
        if not texts[0].startswith(told):
            return False
        answer = builder.dialect.format_response(CLICK, f"Step {number}." if number % 2 else None)
        past.append(PastStep(CLICK, SCREEN, response=answer))
        told = texts[0] + answer
    return True


@pytest.mark.parametrize("system", ["", "Act.", None])
@pytest.mark.parametrize("name", [*CONTINUING, *OTHERS])
def test_prompts_continue_with_the_templates_that_the_documentation_names(name: str, system: str | None) -> None:
    builder = PromptConfig(system=system, history_style="chat").builder()
    assert continues(name, builder) == (name in CONTINUING)


def test_no_other_style_continues_with_any_of_them() -> None:
    for style in ("list", "turns"):
        builder = PromptConfig(history_style=style).builder()  # type: ignore[arg-type]
        assert not any(continues(name, builder) for name in CONTINUING)
