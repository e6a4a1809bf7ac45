"""Slipway's desktops for verifiers, on a server of `python -m eval.serve openenv`; the pictures reach the model:

PYTHONPATH=examples/serve vf-eval verifiers_desktops --env.taskset.url http://127.0.0.1:8000 -m MODEL

The token of the server is in $SERVE_TOKEN, so that no trace holds it.
"""

import os

import verifiers.v1 as vf
from openenv import GenericEnvClient

__all__ = ["DesktopEnv", "DesktopTaskset"]


class DesktopData(vf.TaskData):
    url: str
    seed: int


class DesktopTask(vf.Task[DesktopData]):
    pass


class DesktopTasksetConfig(vf.TasksetConfig):
    url: str = "http://127.0.0.1:8000"
    seed: int = 1000000
    count: int = 8


class DesktopTaskset(vf.Taskset[DesktopTask, DesktopTasksetConfig]):
    def load(self):
        for seed in range(self.config.seed, self.config.seed + self.config.count):
            yield DesktopTask(
                DesktopData(name=str(seed), prompt=None, url=self.config.url, seed=seed), self.config.task
            )


class DesktopEnvConfig(vf.EnvConfig):
    # a chat without tools of its own, beside this process
    player: vf.AgentConfig = vf.AgentConfig(harness=vf.HarnessConfig(id="null"), runtime=vf.SubprocessConfig())


class DesktopEnv(vf.Env[DesktopEnvConfig]):
    """The player answers each picture with an action; the reward is the checker's score."""

    async def run(self, task, agents):
        url = task.data.url.replace("://", f"://any:{os.environ['SERVE_TOKEN']}@")
        async with GenericEnvClient(base_url=url) as desktop:
            result = await desktop.reset(seed=task.data.seed)
            text = f"{result.observation['answers']}\n\n{result.observation['instruction']}"
            async with agents.player.interaction(task) as interaction:
                while not result.done:
                    segment = await interaction.turn([shown(text, result.observation["screenshot"])])
                    if segment.terminated:
                        return
                    result = await desktop.step({"answer": segment.last_reply})
                    text = result.observation["told"] or "The screen now."
        interaction.trace.record_reward("score", result.reward)


def shown(text, screenshot):
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{screenshot}"}}
    return {"role": "user", "content": [{"type": "text", "text": text}, picture]}
