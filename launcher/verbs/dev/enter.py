"""A command in a development session: with the environment and the folder that the job's command would have.

Its text is run by `launcher exec`'s way in: `python -c TEXT RUN COMMAND...`, with the Python of the job's image; it
imports nothing of the launcher. It waits until the session is open, that is, until the inputs are there.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def opened(run: str) -> tuple[int, int]:
    """The locked file of the session, and the process that watches it."""
    path = f"/tmp/slipway-dev-{run}"
    while True:
        try:
            lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            time.sleep(0.2)
            continue
        fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            pid = int(os.pread(lock, 32, 0))
            if Path(f"/proc/{pid}").exists() and os.path.samestat(os.fstat(lock), Path(path).stat()):
                os.utime(lock)  # somebody was here, however shortly
                return lock, pid
        except (ValueError, FileNotFoundError):
            pass
        os.close(lock)
        time.sleep(0.2)


def environment(pid: int, run: str) -> dict[str, str]:
    """The command's environment. Where the way in has given it already (the local backend), that one."""
    own = dict(os.environ)
    if own.get("SLIPWAY_RUN") == run and "SLIPWAY_INPUTS" in own:
        return own
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    theirs = dict(os.fsdecode(word).split("=", 1) for word in words if b"=" in word)
    return {**theirs, **{name: own[name] for name in ("TERM", "COLUMNS", "LINES") if name in own}}


def main() -> int:
    run, *command = sys.argv[1:]
    lock, pid = opened(run)
    environ = environment(pid, run)
    os.chdir(f"/proc/{pid}/cwd")
    # Ctrl-C is the command's: a handler is not inherited, so the command has the default
    signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.call(command, env=environ)
    except OSError as error:
        print(f"launcher dev: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    finally:
        os.close(lock)


if __name__ == "__main__":
    sys.exit(main())
