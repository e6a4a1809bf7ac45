"""A Docker engine for kind: with a bridge and published ports, in a network namespace of its own, so that neither this
machine's Docker nor its firewall nor its ports are touched. It has no way to any network; images come from archives.

Everything is in .tools/kind: the engine's data stays there for the next time.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.cluster.programs import BIN, ROOT
from tests.support.cluster.sandbox import CGROUPS, wait_for, without_proxies
from tests.support.engine import NoEngine, answers, install, storage_driver
from tests.support.kind import runtime

STATE = Path(os.environ.get("SLIPWAY_KIND_DIR", ROOT / ".tools" / "kind"))
NAMESPACE = "slipway-kind"
CGROUP = "slipway-kind"


@dataclass
class KindEngine:
    """
    state    the folder of its data and logs
    process  dockerd
    """

    state: Path = STATE
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def run_folder(self) -> Path:
        """For sockets, whose paths must be short."""
        return Path("/run") / NAMESPACE

    @property
    def host(self) -> str:
        return f"unix://{self.run_folder}/docker.sock"

    @property
    def environment(self) -> dict[str, str]:
        """For programs that speak to it: those of `make kind-tools` are on the PATH, and nobody's proxy is used."""
        path = os.pathsep.join((str(BIN), os.environ["PATH"]))
        return {**without_proxies(), "DOCKER_HOST": self.host, "DOCKER_BUILDKIT": "0", "PATH": path}

    @property
    def within(self) -> list[str]:
        """The start of a command that sees the engine's published ports."""
        return ["nsenter", f"--net=/run/netns/{NAMESPACE}", "--"]

    def docker(self, *arguments: str, check: bool = True, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        return self.call(["docker", *arguments], check=check, timeout=timeout)

    def call(
        self,
        command: Sequence[str],
        *,
        check: bool = True,
        timeout: float = 600,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program in the engine's network. Raises RuntimeError with what it said."""
        done = subprocess.run(
            [*self.within, *command],
            capture_output=True,
            text=True,
            errors="replace",
            env={**self.environment, **(environment or {})},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode:
            said = f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
            raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{said}")
        return done

    def take(self, other: Mapping[str, str], tag: str) -> None:
        """Copies an image from another engine; `other` is the environment of its clients."""
        with subprocess.Popen(["docker", "save", tag], env=dict(other), stdout=subprocess.PIPE) as saved:
            subprocess.run(["docker", "load", "-q"], env=self.environment, stdin=saved.stdout, check=True, timeout=1800)
        if saved.returncode:
            raise RuntimeError(f"docker save {tag}: {saved.returncode}")

    def start(self) -> None:
        """dockerd, until it answers. Raises NoEngine."""
        self.clean()
        for folder in (self.run_folder, self.state / "data"):
            folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
        subprocess.run(["ip", "-n", NAMESPACE, "link", "set", "lo", "up"], check=True)
        command = ["dockerd", "--host", self.host, "--data-root", self.state / "data"]
        command += ["--exec-root", self.run_folder / "exec", "--pidfile", self.run_folder / "pid"]
        command += ["--storage-driver", storage_driver(self.state), "--shutdown-timeout", "10"]
        command += ["--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{CGROUP}"]
        if runtime.missing(Path("/proc/self/status").read_text()):
            command += ["--add-runtime", f"fewer={runtime.__file__}", "--default-runtime", "fewer"]
        log = self.state / "dockerd.log"
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [*self.within, *map(str, command)],  # `ip netns exec` would take the cgroups' mounts away
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                env=without_proxies(),
                start_new_session=True,
            )
        deadline = time.monotonic() + 120
        while not answers(self.host):
            if self.process.poll() is not None or time.monotonic() > deadline:
                last = log.read_text(errors="replace").strip().split("\n")[-1]
                self.stop()
                raise NoEngine(f"dockerd did not start: {last[:300]}")
            time.sleep(0.2)
        if left := self.docker("ps", "--all", "--quiet").stdout.split():  # of a test run that was killed
            self.docker("rm", "--force", "--volumes", *left)
        self.docker("volume", "prune", "--force")

    def stop(self) -> None:
        """Ends dockerd with its containers, and removes its network and cgroups."""
        if self.process is not None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(60)
        self.clean()
        self.process = None

    def clean(self) -> None:
        """Ends what a killed test run left, and removes network, cgroups and sockets."""
        with suppress(OSError, ValueError):
            pid = int((self.run_folder / "pid").read_text())
            if Path(f"/proc/{pid}/comm").read_text().strip() == "dockerd":
                os.kill(pid, signal.SIGTERM)
                with suppress(TimeoutError):
                    wait_for("dockerd's end", lambda: not Path(f"/proc/{pid}").exists())
        for attempt in range(20):  # a process that is killed leaves its cgroup a moment later
            left = [Path(file) for group in cgroups() for file in group.rglob("cgroup.procs")]
            for file in left:
                with suppress(OSError):
                    for number in file.read_text().split():
                        os.kill(int(number), signal.SIGKILL)
            for group in cgroups():
                for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
                    with suppress(OSError):
                        folder.rmdir()
                with suppress(OSError):
                    group.rmdir()
            if not cgroups():
                break
            time.sleep(0.1 * attempt)
        for mount in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            where = mount.split()[1]
            if Path(where).is_relative_to(self.run_folder) or Path(where).is_relative_to(self.state):
                subprocess.run(["umount", "--lazy", where], capture_output=True, check=False)
        if Path("/run/netns", NAMESPACE).exists():
            subprocess.run(["ip", "netns", "del", NAMESPACE], check=True)
        shutil.rmtree(self.run_folder, ignore_errors=True)


def cgroups() -> list[Path]:
    """The engine's cgroups, one in each hierarchy."""
    return [path for path in (*CGROUPS.glob(f"*/{CGROUP}"), CGROUPS / CGROUP) if path.is_dir()]


@contextmanager
def running(state: Path = STATE) -> Iterator[KindEngine]:
    """An engine for one test run at a time. Raises NoEngine."""
    if os.geteuid() != 0:
        raise NoEngine("only root can start one with a network of its own")
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        install()
        engine = KindEngine(state)
        engine.start()
        try:
            yield engine
        finally:
            engine.stop()
