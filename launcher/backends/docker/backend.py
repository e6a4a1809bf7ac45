"""The docker backend: the local one's queue, supervisor and slots, with containers in place of processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Final

from launcher.backends.docker import container
from launcher.backends.local.backend import LocalBackend
from launcher.backends.local.environment import mark
from launcher.errors import BadInput, NotFound
from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob

RELAY: Final = ("python", "-m", "launcher.runtime.relay")  # the PATH of an image with our runtime has its Python


class DockerBackend(LocalBackend):
    name = "docker"
    in_this_python = False

    def check(self, group: Sequence[ResolvedJob]) -> None:
        """The local backend's checks. Also: the engine answers, it has every image that it cannot pull, and containers
        can reach the stores. Raises Unreachable."""
        from launcher.images.engine import Engine

        super().check(group)
        wrong = [text for job in group if (text := _unreachable(job, os.environ))]
        engine = Engine()
        users: dict[str, list[str]] = {}
        for job in group:
            for role in job.roles:
                users.setdefault(container.image(job, role), []).append(run_id(job))
        for reference, runs in users.items():
            asks = f"{', '.join(dict.fromkeys(runs))}: "
            try:
                labels = engine.inspect(reference)["Config"].get("Labels") or {}
            except NotFound:
                if "/" not in reference:  # the supervisor pulls a reference with a slash
                    wrong.append(asks + container.unbuilt(reference))
                continue
            if container.RUNTIME_LABEL not in labels:
                wrong.append(f"{asks}image {reference} has no Slipway runtime: {container.FIX}")
        networks = {container.network(job) for job in group} - {*container.BUILT_IN, container.NETWORK}
        for name in sorted(networks):
            if not engine.has_network(name):
                wrong.append(f"docker.network: the engine has no network `{name}`: `docker network create {name}`")
        if wrong:
            raise BadInput("\n".join(dict.fromkeys(wrong)))

    def images(self, job: ResolvedJob) -> Mapping[str, str]:
        """Role -> the id of the image that a start now would run. Without roles whose image is named by digest, which
        never moves, and without images that must be pulled first. Raises Unreachable."""
        from launcher.images.engine import Engine

        engine, found = Engine(), {}
        for role, each in job.roles.items():
            if not each.image.digest:
                with contextlib.suppress(NotFound):
                    found[role] = str(engine.inspect(container.image(job, role))["Id"])
        return found

    def execute(self, run: str, member: str, command: Sequence[str], *, tty: bool) -> list[str]:
        """The argv that runs a command in a member's container. Raises NotFound when no container of the member
        runs."""
        from launcher.images.engine import Engine

        engine = Engine()
        labels = {container.MARK: mark(self.state.id, run, member)}  # another queue may have a run of that name
        containers = engine.containers(labels, running=True)
        if not containers:
            raise NotFound(f"{run}: {member} has no container that runs")
        # without --host the program would also follow `docker context use`, and might ask another engine
        return ["docker", "--host", engine.host, "exec", *(["-it"] if tty else ["-i"]), containers[0]["Id"], *command]

    def forward(self, run: str, member: str, ports: Sequence[tuple[int, int]]) -> list[str]:
        """The argv of a program that forwards ports of a member's container, also those of its loopback. Raises
        NotFound when no container of the member runs."""
        from launcher.backends import forwarding

        inside = self.execute(run, member, RELAY, tty=False)
        queued = self._entry(run)
        if queued is not None and container.network(queued.job) == "host":
            return super().forward(run, member, ports)
        return forwarding.argv(ports, inside)


def _unreachable(job: ResolvedJob, environ: Mapping[str, str]) -> str | None:
    """The error message for a store server on this machine's loopback: inside a container, loopback is the container's
    own."""
    if container.network(job) == "host" or job.store.startswith("file://"):
        return None
    url = job.store
    if url.startswith("s3://") and "endpoint=" not in url:
        url = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    if not container.loopback(url):
        return None
    return (
        f"the store's server is on this machine's loopback, which containers in the network "
        f"`{container.network(job)}` do not reach: `--set docker.network=host`, or an address that they reach"
    )
