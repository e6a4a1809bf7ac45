"""Runs the example for Inspect with a model whose answers are given: `inspect_run.py CLIENTS CONFIG OUT WHO`.

CLIENTS is the folder of packages that has Inspect. WHO: `expert` answers as the environment's expert does, `nothing`
says done at once, others do not come to an answer. Prints as JSON what Inspect's own reader finds in the log.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from eval import config as configuration
from eval.actions import ActionType
from eval.actions.geometry import Cells
from eval.environments.registry import environment, tasks_of
from eval.serve.config import ServeConfig
from tests.support.documented import ROOT

Call = tuple[str, dict[str, Any]]


async def expert_calls(config: ServeConfig) -> dict[str, list[Call]]:
    """Instruction -> the calls of tools with which the expert does the task."""
    assert config.tasks is not None
    found = {}
    for task in tasks_of(config.environment, config.tasks.count, config.tasks.seed, config.options):
        desktop = environment(config.environment).desktop(config.options)
        seen = await desktop.reset(task, task.seed)
        calls: list[Call] = []
        while not calls or calls[-1][0] != "done":
            assert seen.expected is not None
            action = seen.expected.action
            fields = action.to_json()
            kind = str(fields.pop("type"))
            if action.point is not None:
                frame = Cells(*seen.image.size)
                fields |= dict(zip(("x", "y"), map(round, frame.from_norm(*action.point)), strict=True))
            calls.append(("key" if action.type in (ActionType.KEY, ActionType.HOTKEY) else kind, fields))
            seen = await desktop.step(action)
        await desktop.close()
        assert task.instruction not in found
        found[task.instruction] = calls
    return found


def main(clients: str, file: str, out: str, who: str) -> None:
    sys.path.append(clients)
    import inspect_ai
    from inspect_ai.log import read_eval_log
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    config = configuration.load(Path(file), ServeConfig)
    known = asyncio.run(expert_calls(config)) if who == "expert" else {}
    pictures: list[int] = []

    def answer(messages: list[Any], *_: Any) -> Any:
        parts = [part for message in messages if isinstance(message.content, list) for part in message.content]
        pictures.append(sum(part.type == "image" for part in parts))
        if who == "silent":
            output = ModelOutput.from_content("mockllm/model", "I look at it.")
        else:
            asked = sum(message.role == "assistant" for message in messages)
            name, arguments = known[messages[0].text.strip()][asked] if who == "expert" else ("done", {})
            output = ModelOutput.for_tool_call("mockllm/model", name, arguments)
        output.usage = ModelUsage()  # else Inspect counts tokens by a table that it downloads
        return output

    sys.path.insert(0, str(ROOT / "examples/serve"))
    from inspect_desktops import desktops  # type: ignore[import-not-found]

    (log,) = inspect_ai.eval(
        desktops(file, out),
        model=get_model("mockllm/model", custom_outputs=answer),
        display="none",
        log_dir=f"{out}-logs",
    )
    log = read_eval_log(log.location)
    told = {
        "status": log.status,
        "error": log.error.message if log.error else None,
        "mean": {metric: value.value for metric, value in log.results.scores[0].metrics.items()} if log.results else {},
        "samples": {
            sample.id: [
                sample.scores["success"].value if sample.scores else None,
                sample.scores["success"].metadata if sample.scores else None,
                sample.error.message if sample.error else None,
            ]
            for sample in log.samples or ()
        },
        "pictures": pictures,
    }
    print("told: " + json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
