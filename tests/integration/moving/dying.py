"""`move` or `reap` of a run in a process that is killed (kill -9) before or after its n-th request to the store, the
API server, the engine or Lambda: python -m tests.integration.moving.dying VERB RUN N. Without being killed it prints
how many such moments there were, then a line for each thing done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import wraps
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

from launcher.backends.base import Backend
from launcher.backends.kubernetes.api import Api
from launcher.backends.lambda_labs.api import LambdaApi
from launcher.backends.lambda_labs.backend import LambdaBackend
from launcher.protocol.read import read_run
from launcher.spec.model import ResolvedJob, at_turn
from launcher.spec.profile import load_profile
from launcher.store import open_store
from launcher.userdata.cache import Cache
from launcher.verbs.ask_backend import backends
from launcher.verbs.move import move
from launcher.verbs.reap import reap
from tests.integration.lambda_labs.conftest import TIMES
from tests.support.crashing import CrashingStore

_moments, _lock = count(), Lock()


def main(verb: str, run: str, at: int) -> list[str]:
    last = -1

    def moment() -> None:
        nonlocal last
        with _lock:
            last = next(_moments)
            if last == at:
                os.kill(os.getpid(), signal.SIGKILL)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            moment()
            answer = function(*given, **named)
            moment()
            return answer

        return call

    profile = load_profile(Path.cwd(), None, os.environ)
    for kind, name in ((Api, "_send"), (LambdaApi, "_once"), (CrashingStore, "_do")):
        setattr(kind, name, counted(getattr(kind, name)))
    subprocess.run = counted(subprocess.run)  # what asks a docker engine
    store = CrashingStore(open_store(profile.store))
    usual = backends(profile)
    # whoever comes after one that held the account's lease waits for it: for minutes, if it were not shortened
    options = {**profile.backend_options("lambda"), **TIMES, "lease": 12.0, "store": profile.store}
    clouds = LambdaBackend(options)
    clouds._stores[profile.store] = store

    def backend_of(job: ResolvedJob) -> Backend | None:
        return clouds if job.backend == "lambda" else usual(job)

    if verb == "move":
        done = [move(store, run, backend_of).state]
    else:
        job = read_run(open_store(profile.store), run).job
        assert job is not None
        first = backend_of(at_turn(job, 0))
        assert first is not None
        with tempfile.TemporaryDirectory() as folder:
            rows = reap(store, backend_of, {first.name: first, "lambda": clouds}, cache=Cache(Path(folder)))
        done = [f"{row.did}: {row.detail}" for row in rows if row.run == run]
    return [str(last + 1), *done]


if __name__ == "__main__":
    print("\n".join(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
