"""Notices that the GPUs of a rank do nothing: they cost the same as at work."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Final

import msgspec

from launcher.errors import SlipwayError
from launcher.protocol.records import GPU_IDLE, Event
from launcher.runtime.context import MemberContext

KIND: Final = "warning"
NOTHING: Final = 0.01  # a mean use below this, in [0, 1], is none: nvidia-smi counts whole per cent


class IdleGpus:
    """How long the GPUs of this rank have done nothing. `seconds`: 0.0 while they work, or where nobody can tell."""

    def __init__(self, context: MemberContext) -> None:
        self.seconds = 0.0
        self._context = context
        self._since: float | None = None
        self._warned = False
        self._count = 0

    def look(self, running: float, use: float | None) -> None:
        """`running`: seconds the command has run; `use`: the mean use of the GPUs, None where it is not known."""
        if use is None or use >= NOTHING:
            self._since, self.seconds, self._warned = None, 0.0, False
            return
        if self._since is None or running < self._since:  # the command was started again in place
            self._since = running
        self.seconds = running - self._since
        if self.seconds >= self._context.address.tuning.idle and not self._warned:
            self._warned = True
            self._warn()

    def told(self) -> dict[str, float]:
        """For the heartbeat."""
        return {GPU_IDLE: round(self.seconds, 1)} if self.seconds else {}

    def _warn(self) -> None:
        text = f"the GPUs have done nothing for {self.seconds:.0f} s, and cost the same as at work"
        limit = self._context.job.limits.gpu_idle
        end = f"the run ends when it is {limit:.0f} s" if limit is not None else "limits.gpu_idle would end the run"
        self._context.say(f"warning: {text}; {end}")
        # a thread of its own: the store may hang, and the command must be watched meanwhile
        threading.Thread(target=self._write, args=(text, self._count), name="idle", daemon=True).start()
        self._count += 1

    def _write(self, text: str, seq: int) -> None:
        context = self._context
        writer = f"{context.member}-gpus"
        event = Event(context.attempt, writer, seq, KIND, text, {GPU_IDLE: f"{self.seconds:.0f}"}, time.time())
        with suppress(SlipwayError):
            context.store.create(context.run_keys.event(context.attempt, writer, seq), msgspec.json.encode(event))
