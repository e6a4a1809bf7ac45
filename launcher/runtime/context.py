"""What every part of the runtime needs once its attempt is known."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from launcher.runtime.folders import Folders
from launcher.runtime.settings import MemberAddress
from launcher.spec.model import ResolvedJob
from launcher.store.base import Store
from launcher.store.layout import AttemptKeys, RunKeys


class MemberContext(msgspec.Struct, frozen=True):
    """`say` writes a line into the rank's log."""

    store: Store
    job: ResolvedJob
    address: MemberAddress
    folders: Folders
    attempt: int
    say: Callable[[str], None]

    @property
    def member(self) -> str:
        return self.address.member

    @property
    def leader(self) -> bool:
        return self.address.role == self.job.leading and self.address.rank == 0

    @property
    def leading(self) -> tuple[str, ...]:
        """The ranks of the leading role, the leader first."""
        role = self.job.leading
        return tuple(f"{role}-{rank}" for rank in range(self.job.roles[role].replicas))

    @property
    def run_keys(self) -> RunKeys:
        return RunKeys(self.address.run)

    @property
    def keys(self) -> AttemptKeys:
        return self.run_keys.attempt(self.attempt)
