"""The docker backend: the local one's queue, supervisor and slots, with containers in place of processes."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.backends.docker import container
from launcher.backends.local.backend import LocalBackend
from launcher.errors import BadInput, NotFound
from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob


class DockerBackend(LocalBackend):
    name = "docker"

    def check(self, group: Sequence[ResolvedJob]) -> None:
        """As on local; and there must be an engine, with every image that it can not pull. Raises Unreachable."""
        from launcher.images.engine import Engine

        super().check(group)
        engine = Engine()
        wrong = []
        for job in group:
            for role in job.roles:
                reference = container.image(job, role)
                try:
                    labels = engine.inspect(reference)["Config"].get("Labels") or {}
                except NotFound:
                    if "/" not in reference:
                        name = reference.partition(":")[0]
                        wrong.append(f"{run_id(job)}: no image {reference} here: `launcher images build {name}`")
                    continue
                if container.RUNTIME_LABEL not in labels:
                    wrong.append(f"{run_id(job)}: image {reference} has no Slipway runtime: {container.FIX}")
        if wrong:
            raise BadInput("\n".join(wrong))

    def execute(self, run: str, member: str, command: Sequence[str], *, tty: bool) -> list[str]:
        """The argv that runs a command in a member's container. Raises NotFound when it has none that runs."""
        from launcher.images.engine import Engine

        labels = {container.RUN: run, container.MEMBER: member}
        found = Engine().containers(labels, running=True)
        if not found:
            raise NotFound(f"{run}: {member} has no container that runs")
        return ["docker", "exec", *(["-it"] if tty else ["-i"]), found[0]["Id"], *command]
