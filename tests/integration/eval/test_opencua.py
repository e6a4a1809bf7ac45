"""Prompts and answers of OpenCUA models, as the public agent of OSWorld has them (mm_agents/opencua).

Its templates stand here as they are there: they are what a user gives in the configuration, and what is expected.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from eval.actions.geometry import Cells
from eval.agents.config import AgentConfig, make_agent
from eval.config import convert
from eval.environments.registry import environment
from eval.prompts import PromptConfig
from eval.rollout.loop import RolloutLimits, rollout
from tests.integration.eval.test_served import LOGIN, SEED, SIZE, expert_actions
from tests.support.modelserver import Reply, completion, serving
from tests.unit.eval.test_opencua import CONFIG, answer


def test_a_served_model_solves_the_login_in_pixels_of_the_resized_screenshot(tmp_path: Path) -> None:
    """The screen of 96 pixels becomes 84: 3 times 28."""
    builder = PromptConfig(**CONFIG, images=3).builder()
    (task,) = LOGIN.tasks(1, SEED, {})
    resized = builder.in_frame(Cells(84, 84))
    assert SIZE == 96
    said = [answer(n, resized.dialect.format(action)) for n, action in enumerate(expert_actions(task))]
    with serving(lambda request, number: Reply(completion(said[number]))) as server:
        section = {"kind": "openai-compatible", "model": "opencua", "base_url": f"{server.url}/v1", "retries": 0}
        config: Any = convert({**section, "frame": "smart-resized", "family": "opencua"}, AgentConfig, "agent")  # type: ignore[arg-type]
        agent = make_agent(config, builder)
        told: dict[str, Any] = {"benchmark": "b", "environment": "login", "limits": RolloutLimits(attempts=1)}
        (result,) = asyncio.run(rollout(agent, lambda: environment("login").desktop({}), [task], out=tmp_path, **told))
    assert (result.record.success, result.record.parse_failures) == (True, 0)
    roles = [message["role"] for message in server.requests[3]["messages"]]
    assert roles == ["system", "assistant", "user", "assistant", "user", "assistant", "user"]
    assert server.requests[3]["messages"][1]["content"] == "# Step 1:\n## Action:\nClick 0.\n"
