"""versitygw on this machine's address in the cluster's network: one URL for the test process and for pods, even those
of another cluster."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from tests.support.cluster.programs import build_s3
from tests.support.cluster.sandbox import Daemon, Sandbox
from tests.support.s3 import ENVIRONMENT, KEY, REGION, SECRET, S3Server

PORT = 7070


@dataclass
class ClusterS3(S3Server):
    """
    endpoint     http://ADDRESS:PORT, the same in pods and here
    daemon       can be killed, paused, resumed and started again: an outage
    environment  credentials for child processes and for Secrets
    """

    daemon: Daemon | None = field(default=None, repr=False)
    key: str = KEY
    secret: str = SECRET
    region: str = REGION

    @property
    def environment(self) -> dict[str, str]:
        return dict(ENVIRONMENT)

    def start(self) -> None:
        assert self.daemon is not None
        self.daemon.start()

    def stop(self) -> None:
        assert self.daemon is not None
        self.daemon.kill()


def make(box: Sandbox) -> ClusterS3:
    data = box.folder / "s3"
    data.mkdir()
    address = f"{box.host}:{PORT}"
    access = ["--access", KEY, "--secret", SECRET, "--region", REGION]

    def answers() -> bool:
        socket.create_connection((box.host, PORT), 1).close()
        return True

    command = [build_s3(), "--port", address, *access, "--quiet", "posix", data]
    daemon = box.daemon("s3", command, ready=answers, network=False)
    return ClusterS3(f"http://{address}", True, daemon.command, daemon.log, daemon=daemon)
