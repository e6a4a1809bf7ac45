"""What the environments share whose tasks are made of templates and run on desktops of this machine alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from eval.benchmarks.linux_desktop.environment import HOME, MEMORY, PROCESSES
from eval.config import Config
from eval.desktop import Task
from eval.desktops.isolation import check_shown
from eval.desktops.session import DesktopOptions
from eval.environments.desktop import check_here, check_screen, video_folder
from eval.environments.splits import Split

if TYPE_CHECKING:
    from eval.desktops.live import LiveDesktop, TaskScene


class LocalDesktopOptions(Config, frozen=True):
    """
    split   whose words and numbers tasks are drawn from, as in linux-desktop
    screen  width and height in pixels
    shown   files and folders of this machine that the desktop's programs see, read-only, beside /usr and /etc
    tree    reads the accessibility tree at each step: for prompts that show it, for the expert, and for the episode
    video   a folder that gets a video of each episode; none: no video
    """

    split: Split = "test"
    screen: tuple[int, int] = (1280, 720)
    shown: Sequence[str] = ()
    tree: bool = True
    video: str | None = None

    def check(self) -> None:
        """Raises ConfigError."""
        check_screen(self.screen, "options.screen")
        check_shown(self.shown, "options.shown", None)

    def desktop(self, scene: Callable[[Task, int], TaskScene]) -> LiveDesktop:
        """A desktop with the scenes of tasks. Raises ConfigError where none can run."""
        check_here()
        from eval.desktops.live import LiveDesktop

        session = DesktopOptions(
            screen=self.screen, shown=tuple(self.shown), memory=MEMORY, home_size=HOME, processes=PROCESSES
        )
        return LiveDesktop(scene, session, tree=self.tree, video=video_folder(self.video))
