"""Gives an agent one instruction on a real desktop of this machine, for people to watch:
`python -m eval.tryout "Write a shopping list" --config FILE`.

Nothing judges what it does. The page to watch it in a browser is printed before it starts. The episode goes to
try-N under --out or $SLIPWAY_OUTPUTS/tryouts, N the next free number.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal

import msgspec

from eval import config as configuration
from eval.actions import ActionType
from eval.agents.config import AgentConfig, HumanConfig, ScriptedConfig, make_agent
from eval.config import Config, ConfigError
from eval.config import help as config_help
from eval.desktop import InfraError, Interface, Task
from eval.desktops.live import LiveDesktop
from eval.desktops.session import DesktopOptions, DesktopSession
from eval.desktops.viewing import missing_viewers, start_view
from eval.environments.desktop import OpenScene, check_here, check_screen
from eval.episodes import Episode
from eval.prompts import PromptConfig
from eval.rollout.loop import RolloutLimits, check_interface, try_task

FOLDER: Final = "tryouts"


class TryoutConfig(Config, frozen=True):
    """
    agent   who works; not `scripted`, as there is no expert for an instruction of one's own
    open    programs that are opened before the agent starts, each with its arguments; each must open a window
    interface  what the agent may use: gui, tools or both, as eval.run has it
    prompt  the same section as the training's
    limits  steps and time limits
    screen  width and height in pixels
    view    watch: the browser shows the desktop; control: mouse and keys of the person there count as well; none
    """

    agent: AgentConfig
    open: list[str] = msgspec.field(default_factory=lambda: ["mousepad"])
    interface: Interface = "gui"
    prompt: PromptConfig = PromptConfig()
    limits: RolloutLimits = RolloutLimits()
    screen: tuple[int, int] = (1280, 720)
    view: Literal["watch", "control", "none"] = "watch"


async def _show(session: DesktopSession, control: bool) -> None:
    """Starts the page to watch at, and prints where it is."""
    view = await start_view(session, control=control)
    can = "watch and act" if view.control else "watch"
    print(f"{can}: {view.url}\npassword: {view.password}", flush=True)


def tryout(config: TryoutConfig, instruction: str, out: Path) -> tuple[Path, Episode]:
    """Runs the agent once; gives the episode and its folder, which is a new one in `out`.

    Raises ConfigError, and InfraError when the desktop or the model's server failed.
    """
    if isinstance(config.agent, ScriptedConfig):
        raise ConfigError("agent: scripted follows the expert of a task; an instruction of your own has none")
    if not instruction.strip():
        raise ConfigError("the instruction is empty")
    check_here()
    check_screen(config.screen, "screen")
    if config.view != "none" and (missing := missing_viewers()):
        raise ConfigError(f"view: {config.view} needs {', '.join(missing)}: apt-get install it, or say view: none")
    if isinstance(config.agent, HumanConfig):
        config = msgspec.structs.replace(config, view="none")  # the person gets a page of their own
    then = None if config.view == "none" else partial(_show, control=config.view == "control")
    scene = OpenScene(config.open, then)
    agent = make_agent(config.agent, config.prompt.builder())
    check_interface(agent, config.interface)
    folder = _next(out)
    task = Task(folder.name, instruction)

    def desktop() -> LiveDesktop:
        return LiveDesktop(lambda *_: scene, DesktopOptions(screen=config.screen), tree=True)

    running = try_task(
        agent,
        desktop,
        task,
        folder=folder,
        environment="desktop",
        interface=config.interface,
        limits=config.limits,
    )
    return folder, asyncio.run(running)


def _next(out: Path) -> Path:
    """The first folder try-N in `out` that is not there yet, made. Raises ConfigError."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        number = 1 + max((int(path.name[4:]) for path in out.glob("try-*") if path.name[4:].isdecimal()), default=0)
        (folder := out / f"try-{number}").mkdir()
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror}") from None
    return folder


def how(episode: Episode) -> str:
    """How the agent ended, in words."""
    last = episode.steps[-1].actions[-1] if episode.steps and episode.steps[-1].actions else None
    if failure := episode.metadata.get("agent_failure"):
        return str(failure)
    if last is not None and last.type in (ActionType.DONE, ActionType.FAIL):
        word = "it says done" if last.type is ActionType.DONE else "it says that this cannot be done"
        return f"{word}: {last.text}" if last.text else word
    return "it was at its last step"


def main(argv: Sequence[str] | None = None) -> int:
    parser = config_help.parser("eval.tryout", "Give an agent one instruction on a real desktop.", TryoutConfig)
    parser.add_argument("instruction", help="what the agent is asked to do")
    parser.add_argument("--out", help=f"where the episode goes; default $SLIPWAY_OUTPUTS/{FOLDER}")
    arguments = parser.parse_args(argv)

    def run() -> int:
        config = configuration.load(Path(arguments.config), TryoutConfig)
        try:
            with configuration.results_folder(arguments.out, FOLDER) as out:
                folder, episode = tryout(config, arguments.instruction, out)
        except InfraError as error:
            print(f"tryout: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:  # a person has seen enough: the steps until then are recorded
            print("tryout: stopped", file=sys.stderr)
            return 130
        print(f"steps: {len(episode.steps)}; {how(episode)}\nepisode: {folder}")
        return 0

    return configuration.run(run)


if __name__ == "__main__":
    sys.exit(main())
