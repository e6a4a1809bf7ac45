"""A user with a clone and a machine that has kind: types commands where the engine's published ports are."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher.cluster.files import ClusterFiles
from tests.support.cluster.programs import STATE
from tests.support.documented import ROOT
from tests.support.kind.engine import KindEngine

RELEASES = STATE / "releases"


@dataclass
class KindUser:
    """
    home        the user's home folder; commands are typed in the clone
    node_image  what `--node-image` is given here; kind's own is on Docker Hub
    seconds     how long each step took, in order
    """

    engine: KindEngine
    home: Path
    node_image: str
    sourced: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def files(self) -> ClusterFiles:
        return ClusterFiles.of("slipway", {"HOME": str(self.home)})

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join((str(Path(sys.executable).parent), self.engine.environment["PATH"]))
        states = {f"XDG_{name}_HOME": "" for name in ("CONFIG", "STATE", "CACHE")}
        return {"HOME": str(self.home), "PATH": path, "NO_COLOR": "1", **states}

    def type(self, line: str, *, code: int = 0, step: str = "", timeout: float = 1500) -> str:
        """What a command prints; its exit code must be `code`. What was sourced before holds for it."""
        if line.startswith("source "):
            self.sourced.append(line)
        began = time.monotonic()
        own = [f"{name}=" for name in os.environ if name.startswith(("SLIPWAY_", "AWS_", "KUBE"))]
        unset = ["env", *(word for name in own for word in ("-u", name[:-1]))]
        script = " && ".join([*self.sourced, line])
        done = self.engine.call(
            [*unset, "bash", "-c", script], check=False, timeout=timeout, environment=self.environment, cwd=ROOT
        )
        if step:
            self.seconds[step] = time.monotonic() - began
        text = done.stdout + done.stderr
        print(f"$ {line}\n{text[-3000:]}")
        assert done.returncode == code, f"$ {line}\n{done.returncode}: {text}"
        return text

    def up(self, *options: str, step: str = "") -> str:
        """`launcher cluster up`, with what this machine without a registry needs."""
        own = ["--node-image", self.node_image, "--manifests", str(RELEASES)]
        return self.type(shlex.join(["launcher", "cluster", "up", *own, *options]), step=step)

    def read(self, *words: str) -> Any:
        """The value that `launcher WORDS -o json` prints."""
        return json.loads(self.type(shlex.join(["launcher", *words, "-o", "json"])))

    def read_status(self) -> dict[str, str]:
        """The state of each part, as `launcher cluster status` tells it."""
        command = "launcher cluster status -o json || [ $? -eq 3 ]"
        return {part["part"]: part["state"] for part in json.loads(self.type(command))}

    def source(self) -> None:
        """Sources the environment file of the cluster, once."""
        if not self.sourced:
            self.type(f"source {shlex.quote(str(self.files.environment))}")

    def kubectl(self, *words: str) -> str:
        return self.type(shlex.join([*self.files.kubectl, *words]))

    def objects(self, *words: str) -> list[dict[str, Any]]:
        """`kubectl get WORDS`."""
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", *words, "-o", "json"))["items"]
        return items
