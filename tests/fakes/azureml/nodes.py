"""The nodes of a job: each a process group of this machine that runs the job's command with bash."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakes.power_off import power_off


class Nodes:
    """All nodes of one start of a job. `program`: stands in for the image's `python`."""

    def __init__(self, folder: Path, properties: Mapping[str, Any], program: Path, environ: Mapping[str, str]) -> None:
        count = properties["resources"].get("instanceCount", 1)
        self.processes = []
        for rank in range(count):
            node = folder / f"node-{rank}"
            (node / "bin").mkdir(parents=True)
            (node / "bin" / "python").symlink_to(program)
            ranks = {"NODE_RANK": str(rank), "RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1"}
            environment = {
                **environ,
                **(ranks if properties.get("distribution") else {}),
                **properties["environmentVariables"],
                "PATH": f"{node / 'bin'}:{os.environ['PATH']}",
            }
            with (node / "std_log.txt").open("wb") as log:
                self.processes.append(
                    subprocess.Popen(
                        ["bash", "-c", properties["command"]],
                        cwd=node,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )

    def outcome(self) -> int | None:
        """0 when every node has ended well, the first other code when one has not; None while all run."""
        codes = [process.poll() for process in self.processes]
        if bad := next((code for code in codes if code), None):
            return bad
        return 0 if all(code == 0 for code in codes) else None

    def signal(self, number: int) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    def kill(self) -> None:
        for process in self.processes:
            power_off(process)
