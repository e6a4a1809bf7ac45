"""`python -m tests.support.cluster [PART ...]`: keeps a cluster up until Ctrl-C, and says how to reach it.

Parts: dns, jobset, kueue, jobset-crds, kueue-crds, kwok or kwok=COUNT, nodes=COUNT, py, launcher (images).
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from tests.support.cluster import programs
from tests.support.cluster.cluster import Cluster, running
from tests.support.cluster.sandbox import NoCluster


def add(cluster: Cluster, part: str) -> None:
    name, _, number = part.partition("=")
    if name == "kwok":
        cluster.kwok(int(number or 20))
    elif name == "nodes":
        for index in range(1, int(number) + 1):
            cluster.node(index)
    elif name in ("py", "launcher"):
        print(f"image {name}: {getattr(cluster, name)()}")
    elif name.endswith("-crds"):
        cluster.crds(name.removesuffix("-crds"))
    elif name in ("dns", "jobset", "kueue"):
        getattr(cluster, name)()
    else:
        raise SystemExit(f"no part {part}: {(__doc__ or '').strip().splitlines()[-1]}")


def main() -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    try:
        with running() as cluster:
            for part in sys.argv[1:]:
                add(cluster, part)
            store = " ".join(f"{key}={value}" for key, value in cluster.s3.environment.items())
            print("started:", ", ".join(f"{name} {seconds:.1f} s" for name, seconds in cluster.timings.items()))
            print(f"export PATH={programs.BIN}:$PATH")
            print(f"export KUBECONFIG={cluster.kubeconfig}")
            print(f"export {store}  # S3: {cluster.s3.endpoint}")
            print(
                f"logs: {cluster.folder}/log; this machine as pods see it: {cluster.host}; Ctrl-C ends it", flush=True
            )
            ended.wait()
    except NoCluster as error:
        raise SystemExit(f"no cluster: {error}") from None


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
