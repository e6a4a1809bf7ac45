"""The thread that uploads checkpoints and live outputs while the command runs."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Callable

from launcher.errors import SlipwayError
from launcher.runtime.beating import BeatState
from launcher.runtime.context import MemberContext
from launcher.runtime.uploads.checkpoints import Checkpoints
from launcher.runtime.uploads.outputs import Outputs
from launcher.store.paths import LeftOutFiles

Insist = Callable[[Callable[[], None]], None]


class Sync:
    """Ranks of the leading role upload checkpoints; the leader also uploads files. Other ranks upload nothing."""

    def __init__(self, context: MemberContext, on_complete: Callable[[int], None], state: BeatState) -> None:
        self.outputs = Outputs(context, state) if context.leader else None
        self._context = context
        taken: dict[int, str] = {}
        self._checkpoints = [
            Checkpoints(context, name, output, on_complete, taken)
            for name, output in context.job.outputs.items()
            if output.kind == "checkpoints" and context.member in context.leading
        ]
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._said = ""

    def start(self) -> None:
        if self.outputs or self._checkpoints:
            self._thread = threading.Thread(target=self._run, name="sync", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._context.address.tuning.poll):
            try:
                for checkpoints in self._checkpoints:
                    checkpoints.poll()
                if self.outputs:
                    self.outputs.poll()
                self._said = ""
            except (SlipwayError, OSError) as error:  # the next round continues from there
                self._say(f"not in the store yet: {error}")
            except Exception:  # the command goes on; the same error at the end ends the attempt
                with contextlib.suppress(Exception):  # there may be no memory left to report it
                    self._say(traceback.format_exc())

    def _say(self, text: str) -> None:
        if text != self._said:
            self._context.say(text)
        self._said = text

    def finish(
        self, *, clean: bool, succeeded: bool, resumed: bool, insist: Insist, waiting: Callable[[], bool]
    ) -> None:
        """Uploads the rest. Raises AttemptError for a missing output, after all other uploads; Unreachable."""
        self._over.set()
        if self._thread:
            self._thread.join()
        for checkpoints in self._checkpoints:
            checkpoints.finish(clean=clean, succeeded=succeeded, insist=insist, waiting=waiting)
        kinds = {name for name, output in self._context.job.outputs.items() if output.kind == "checkpoints"}
        if self.outputs:
            self.outputs.finish(succeeded=succeeded, insist=insist, elsewhere=tuple(kinds) if resumed else ())
        elif succeeded:
            self._tell_what_stays()

    def left(self) -> LeftOutFiles:
        """The files that were left out of outputs and checkpoints, because no store can hold them."""
        left = LeftOutFiles()
        if self.outputs:
            self.outputs.left(left)
        for checkpoints in self._checkpoints:
            left.add(checkpoints.left.listed, checkpoints.left.count)
        return left

    def _tell_what_stays(self) -> None:
        for name, output in self._context.job.outputs.items():
            root = self._context.folders.outputs / name
            if output.kind == "files" and root.is_dir() and any(root.iterdir()):
                self._context.say(f"output {name}: the files of this rank stay here; the leader's are the run's")
