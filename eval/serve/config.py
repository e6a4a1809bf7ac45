"""What is served: `ServeConfig`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from eval.config import Config, ConfigError
from eval.desktop import Desktop, Interface
from eval.environments.registry import EnvironmentName, TasksConfig, environment
from eval.prompts import PromptConfig
from eval.rollout.limits import RolloutLimits, Seconds


class ServeConfig(Config, frozen=True):
    """
    environment  where the tasks are done; `options` are its own
    tasks        the tasks that clients may ask for. Environments that can draw a task's template anew also give each of
                 them with any other seed. None: no tasks, but plain desktops, on which nothing is judged
    options      options of the environment itself
    open         programs that are open on a plain desktop, each with its arguments; each must open a window
    screen       width and height in pixels of a plain desktop
    prompt       as in eval.run; its dialect reads answers that clients send as the text of a model
    interface    what clients may use: gui, tools or both, as eval.run has it
    limits       steps, time limits and attempts of an episode; `concurrency` is how many are open at once
    client       the name of the agent in the results
    benchmark, version  of the results
    keep_episodes  so many episodes that failed, and so many that were solved, keep their folder with pictures: the
                 first that end. Without tasks so many in all. None: all
    shared       of `mcp` over HTTP: all clients share one episode, that of the first task, which begins with the first
                 call. GET /verdict ends it, as done does, and tells its score
    idle         seconds after which a client of `mcp` is gone that sends nothing over HTTP and holds no stream open
    """

    environment: EnvironmentName = "desktop"
    tasks: TasksConfig | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    open: list[str] = msgspec.field(default_factory=lambda: ["mousepad"])
    screen: tuple[int, int] = (1280, 720)
    prompt: PromptConfig = PromptConfig()
    interface: Interface = "gui"
    limits: RolloutLimits = RolloutLimits()
    client: str = "client"
    benchmark: str = "served"
    version: str = "1"
    keep_episodes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    shared: bool = False
    idle: Seconds = 300.0

    def check(self) -> None:
        """Raises ConfigError for plain desktops of an environment that has none."""
        if self.tasks is None and self.environment != "desktop":
            raise ConfigError(f"tasks: is missing; environment {self.environment} has no desktops without a task")
        if self.tasks is None and self.options:
            raise ConfigError("options: say nothing without tasks; a plain desktop has `open` and `screen`")
        if self.shared and self.tasks is None:
            raise ConfigError("shared: is for an episode of a task; tasks: is missing")

    def desktop(self) -> Desktop:
        """A new desktop, for one episode. Raises ConfigError."""
        if self.tasks is not None:
            return environment(self.environment).desktop(self.options)
        from eval.desktops.live import LiveDesktop
        from eval.desktops.session import DesktopOptions
        from eval.environments.desktop import OpenScene, check_here, check_screen

        check_here()
        check_screen(self.screen, "screen")
        scene = OpenScene(self.open)
        return LiveDesktop(lambda *_: scene, DesktopOptions(screen=self.screen))
