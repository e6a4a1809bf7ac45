"""What a development session runs in place of the job's command: it waits, and ends when nobody was in it for a while.

Its text is the command's: it runs with the Python of the job's image and imports nothing of the launcher.
`python -c TEXT IDLE`: seconds without anybody after which it ends. Whoever is in the session holds a shared lock on a
file of this process (enter.py), which the kernel takes back however they end, and has changed the file's time.
"""

import fcntl
import os
import signal
import sys
import time
from pathlib import Path

FIRST = 60.0  # seconds at least for whoever started it: to come in takes a while, too


def _held(lock: int) -> bool:
    """Whether somebody is in the session."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(lock, fcntl.LOCK_UN)
    return False


def main() -> None:
    idle, run = float(sys.argv[1]), os.environ["SLIPWAY_RUN"]
    path = f"/tmp/slipway-dev-{run}"
    # another process of ours may have left one; nobody else's file is followed or written
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    print(f"session open; it ends after {idle:g} s without anybody in it", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the file goes
    seen = begun = os.fstat(lock).st_mtime_ns
    last = time.monotonic()
    try:
        while True:
            touched = os.fstat(lock).st_mtime_ns
            # whoever came in since the last look counts from now, before anything is said about how long nobody was in
            if touched != seen or _held(lock):
                seen, last = touched, time.monotonic()
            if time.monotonic() - last >= (max(idle, FIRST) if seen == begun else idle):
                break
            time.sleep(min(2.0, idle / 4))
    finally:
        Path(path).unlink()
    print("nobody was in it; it ends", flush=True)


if __name__ == "__main__":
    main()
