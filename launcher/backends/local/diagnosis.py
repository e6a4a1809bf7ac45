"""What `launcher doctor` says of the local backend."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from launcher.backends.base import CheckResult
from launcher.errors import SlipwayError
from launcher.spec.profile import Profile


def diagnose(profile: Profile) -> Iterator[CheckResult]:
    """Checks the supervisor and its folder, then what this machine has for runs."""
    yield from _supervisor(profile)
    yield _resources(profile)


def _supervisor(profile: Profile) -> Iterator[CheckResult]:
    """Checks the supervisor's folder, and that a supervisor runs while runs are queued."""
    from launcher.backends.local import daemon
    from launcher.backends.local.state import StateDir

    state = StateDir(profile.local_state)
    nearest = next(folder for folder in (state.path, *state.path.parents) if folder.exists())
    if not os.access(nearest, os.W_OK | os.X_OK) or not nearest.is_dir():
        detail = f"{state.path} cannot be written"
        yield CheckResult("local", "failed", detail, "set `local: {state: FOLDER}` in slipway.yaml", 1)
        return
    queued = len(state.queued())
    alive = daemon.living_supervisor(state)
    waiting = f"{queued} run{'' if queued == 1 else 's'} in the queue"
    if alive is not None:
        yield CheckResult("local", "ok", f"supervisor {alive.pid} runs, {waiting}")
    elif queued:
        yield CheckResult("local", "warning", f"no supervisor, and {waiting}", "launcher local start")
    else:
        yield CheckResult("local", "ok", "no supervisor, nothing queued; the next submit starts one")
    if state.secrets.exists() and state.secrets.stat().st_mode & 0o077:
        yield CheckResult(
            "secrets", "failed", f"{state.secrets} can be read by others", f"chmod 600 {state.secrets}", 1
        )


def _resources(profile: Profile) -> CheckResult:
    from launcher.backends.local.slots import capacity

    try:
        room = capacity(profile.backend_options("local"))
    except SlipwayError as error:
        return CheckResult("resources", "failed", str(error), "correct `local:` in slipway.yaml", 2)
    gpus = f"{len(room.gpus)} GPU{'' if len(room.gpus) == 1 else 's'}" if room.gpus else "no GPU"
    detail = f"{room.cpus:g} CPUs, {room.memory / 2**30:.1f} GiB of memory, {gpus} for local runs"
    if room.gpus or not Path("/proc/driver/nvidia/version").exists():
        return CheckResult("resources", "ok", detail)
    return CheckResult(
        "resources", "warning", detail, "there is an NVIDIA driver: check nvidia-smi, or set `local: {gpus: N}`"
    )
