"""What the smoke programs of the training images have in common: a tiny model, four episodes, one step of a trainer.

Everything goes through the entry points that a job uses, as processes. No network, no GPU; a temporary folder only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path


def versions(*names: str) -> None:
    import torch

    found = ", ".join(f"{name} {version(name)}" for name in names)
    print(f"smoke: {found}, CUDA {torch.cuda.is_available()}", flush=True)


def step(name: str, module: str, config: dict[str, object], folder: Path, out: str) -> Path:
    """`python -m MODULE --config ... --out FOLDER/OUT`; gives FOLDER/OUT. Ends the smoke when that fails."""
    begun = time.monotonic()
    file = folder / f"{out}.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, "-m", module, "--config", str(file), "--out", str(folder / out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"smoke: {name}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    print(f"smoke: {name} {time.monotonic() - begun:.1f} s", flush=True)
    return folder / out


def served_agents() -> None:
    """Ends the smoke unless the agents of an evaluation that ask a served model can be made: their SDKs are there."""
    from eval.agents.config import ClaudeConfig, OpenAiConfig, ServedConfig, make_agent
    from eval.config import ConfigError
    from eval.prompts import PromptConfig

    os.environ["SMOKE_KEY"] = "none"  # nothing is asked
    try:
        for agent in (
            ServedConfig("m", "http://127.0.0.1:9/v1"),
            OpenAiConfig("m", api_key="SMOKE_KEY"),
            ClaudeConfig("m", api_key="SMOKE_KEY"),
        ):
            make_agent(agent, PromptConfig().builder())
    except ConfigError as error:
        raise SystemExit(f"smoke: {error}") from None
    print("smoke: agents openai-compatible, openai and claude can be made", flush=True)


def prepare(folder: Path) -> tuple[Path, Path]:
    """A tiny model and episodes for it; the agents of evaluations can be made beside."""
    served_agents()
    model = step("tiny model", "training.tiny", {}, folder, "model")
    task = {"environment": "click", "options": {"split": "train", "size": 64}, "tasks": {"count": 4, "seed": 0}}
    return model, step("episodes", "training.make_episodes", task, folder, "made") / "episodes"


def trained(out: Path) -> None:
    """Ends the smoke unless a trainer left its weights and the mark of a true end."""
    if not list((out / "model").glob("*.safetensors")) or not (out / ".done").exists():
        raise SystemExit(f"smoke: {out.name} left no trained model")
