"""Slipway's desktops for Inspect: inspect eval examples/serve/inspect_desktops.py --model openai/gpt-5"""

from pathlib import Path

from inspect_ai import Task, task

from eval.inspect import desktop_task


@task
def desktops(config: str = str(Path(__file__).with_name("login.yaml")), out: str = "served") -> Task:
    """config: as for `python -m eval.serve`; out: gets the episodes, with their pictures."""
    return desktop_task(config, out)
