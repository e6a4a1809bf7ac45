"""`launcher status` over queued runs of one namespace of a real API server: seconds, and requests by what they ask.

Against etcd, kube-apiserver and versitygw alone, all on the same cores as the launcher. No controller runs, so every
run stays queued. JOBS says how many there are, RUNS how many of them are in the store and asked for (all).
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from launcher.backends.base import backend
from launcher.backends.kubernetes.api import Api
from launcher.backends.kubernetes.backend import KubernetesBackend, close_all
from launcher.backends.kubernetes.objects import files
from launcher.spec.hashing import run_id
from launcher.spec.profile import load_profile
from launcher.store import open_store
from launcher.userdata.cache import Cache
from launcher.verbs.ask_backend import backends
from launcher.verbs.status import read_lines
from launcher.verbs.submit import submit
from tests.bench.submit_kubernetes import JOBS, _namespace, jobs, servers
from tests.support.jobs import group

RUNS = int(os.environ.get("RUNS", JOBS))


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts the requests to API servers: method, kind, and whether one object was asked for or a list."""
    requests: Counter[str] = Counter()
    send, stream = Api.request, Api.stream

    def request(self: Api, method: str, path: str, **options: Any) -> Any:
        requests[f"{method} {_form(path)}{_page(options.get('query'))}"] += 1
        return send(self, method, path, **options)

    def watch(self: Api, path: str, **options: Any) -> Any:
        requests[f"watch {_form(path)}"] += 1
        return stream(self, path, **options)

    with mock.patch.object(Api, "request", request), mock.patch.object(Api, "stream", watch):
        yield requests


def _form(path: str) -> str:
    """A path without namespace and name."""
    return re.sub(r"(/namespaces/)[^/]+(/[^/]+)(/[^/]+)?", lambda at: f"{at[2]}{'/NAME' if at[3] else ''}", path)


def _page(query: Mapping[str, str] | None) -> str:
    return " page" if query and "limit" in query else ""


def main() -> int:
    with servers() as (control, bucket):
        os.environ.update(bucket.environment)
        os.environ["KUBECONFIG"] = str(control.box.folder / "admin.kubeconfig")
        url = bucket.url()
        store = open_store(url)
        queued = jobs(url, _namespace("queued"))
        clock = time.perf_counter()
        target = KubernetesBackend({"namespace": "queued"})
        others = files(target.render(queued[RUNS:]), "queued", target._read)
        target.creator.create_all(others.values())
        submit(group(*queued[:RUNS]), store, backend("kubernetes", {"namespace": "queued"}))
        print(f"submitted in {time.perf_counter() - clock:.0f} s", file=sys.stderr)
        close_all()
        runs = [run_id(each) for each in queued[:RUNS]]
        profile = load_profile(control.box.folder, None, os.environ, store=url)
        rows = []
        for name in ("first reading", "again, in a process of its own"):
            cache = Cache(Path(control.box.folder) / "status.sqlite")
            with counted() as requests:
                clock, cpu = time.perf_counter(), time.process_time()
                lines, problems = read_lines(store, runs, cache=cache, backend_of=backends(profile))
                seconds, busy = time.perf_counter() - clock, time.process_time() - cpu
            close_all()
            assert [line.state for line in lines] == ["queued"] * len(runs), Counter(line.state for line in lines)
            assert not problems
            rows.append((name, seconds, busy, requests))
    what = f"status of {RUNS:,} of {JOBS:,} queued runs, load {os.getloadavg()[0]:.0f}"
    print(f"| {what} | seconds | CPU | requests to the API |")
    print("|---|---:|---:|---:|")
    for name, seconds, busy, requests in rows:
        print(f"| {name} | {seconds:.1f} | {busy:.1f} | {sum(requests.values())} |")
    for name, _, _, requests in rows:
        print(f"\n{name}: {', '.join(f'{count} {what}' for what, count in sorted(requests.items()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
