"""An instance as a process group of this machine: it runs the user data it was launched with. Programs that a real
machine has (docker, nvidia-smi, shutdown, systemd-run) are replaced by small ones, first in its PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.fakes.power_off import power_off

# `docker run ... IMAGE ARGUMENTS` starts the program of $FAKE_PYTHON with the variables of --env-file: as the image's
# entry point, which is `python -m launcher.runtime` in ours, or as --entrypoint says. A value that begins with the
# target of a mount begins with its source instead, because nothing is mounted here
DOCKER: Final = """#!{python} -IS
import os, sys
words = sys.argv[1:]
if words[:1] != ["run"]:
    print({{"image": "amd64"}}.get(words[0] if words else "", ""))
    sys.exit(0)
flags = {{"--rm", "--read-only"}}
variables, mounts, entry, index = {{}}, [], ["-m", "launcher.runtime"], 1
while words[index].startswith("-"):
    name, separator, value = words[index].partition("=")
    if name not in flags and not separator:
        index += 1
        value = words[index]
    if name == "--env-file":
        for line in open(value):
            key, _, text = line.rstrip("\\n").partition("=")
            variables[key] = text
    if name == "--entrypoint":
        entry = {{"python": []}}[value]
    if name in ("-v", "--volume"):
        mounts.append(value.split(":")[:2])
    index += 1
for key, text in variables.items():
    for source, target in mounts:
        if text == target or text.startswith(target + "/"):
            variables[key] = source + text[len(target):]
program = os.environ["FAKE_PYTHON"]
keep = {{name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH", "SLIPWAY_TUNING") if name in os.environ}}
os.execve(program, [program, *entry, *words[index + 1:]], {{**keep, **variables}})
"""
SHUTDOWN: Final = """#!/bin/sh
# -P now: the system goes off at once; -P +N: at the wall clock's time of now and N minutes, as systemd-logind does it
echo "$2" > {folder}/power.new && mv {folder}/power.new {folder}/power
"""
# an hour and more is slept by the admin clock, which no wall clock moves: until somebody removes the file
# what the script waits between two tries takes a moment here
SLEEP: Final = """#!/bin/sh
case "$1" in 5|10|20|30|40|50|60|80) exec {sleep} 0.1 ;; esac
[ "$1" -ge 3600 ] 2>/dev/null || exec {sleep} "$@"
echo "$1" > {folder}/new.$$ && mv {folder}/new.$$ {folder}/asleep.$$
while [ -e {folder}/asleep.$$ ]; do {sleep} 0.05; done
"""
# `systemd-run -q --on-active=SECONDS COMMAND`: a timer of the system, no process of the script's
TIMER: Final = """#!/bin/sh
after=${{2#--on-active=}}; shift 2
(sleep "$after"; exec "$@") </dev/null >/dev/null 2>&1 &
"""
NVIDIA: Final = """#!/bin/sh
n=0; while [ $n -lt {gpus} ]; do echo "GPU $n: Stand-in (UUID: GPU-$n)"; n=$((n+1)); done
"""


class Machine:
    """The process group of one instance."""

    def __init__(self, folder: Path, user_data: str, gpus: int, environ: dict[str, str]) -> None:
        self.folder = folder
        self._asleep: dict[Path, float] = {}  # what sleeps for long -> when it wakes
        programs = folder / "bin"
        programs.mkdir(parents=True)
        texts = {
            "docker": DOCKER.format(python=sys.executable),
            "shutdown": SHUTDOWN.format(folder=folder),
            "systemd-run": TIMER.format(),
            "sleep": SLEEP.format(folder=folder, sleep=shutil.which("sleep")),
            "nvidia-smi": NVIDIA.format(gpus=gpus),
        }
        for name, text in texts.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        script = folder / "user-data"
        script.write_text(user_data)
        root = folder / "root"
        root.mkdir()
        with (folder / "console").open("wb") as console:
            self.process = subprocess.Popen(
                ["/bin/sh", str(script)],
                env={**environ, "PATH": f"{programs}:{os.environ['PATH']}", "SLIPWAY_MACHINE": str(root)},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                cwd=root,
            )

    def power(self) -> str:
        """What `shutdown` was told last: now, +N, or "" for nothing."""
        try:
            return (self.folder / "power").read_text().strip()
        except FileNotFoundError:
            return ""

    def wake(self, now: float) -> None:
        """Wakes what has slept long enough. `now`: by the admin clock."""
        for path in self.folder.glob("asleep.[0-9]*"):
            if now >= self._asleep.setdefault(path, now + float(path.read_text())):
                path.unlink()

    def ended(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        power_off(self.process)
