"""A trainer over two nodes: two network namespaces, joined by a cable of their own, with a torchrun in each.

Neither sees the loopback of the other, so nothing of the training may listen or look there. The worker that plays the
rollouts is on the first node.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.integration.rl.conftest import rl_config
from tests.integration.rl.test_asynchronous import agree
from tests.integration.rl.test_ranks import (
    BESIDE,
    alone,
    assert_same_training,
    children,
    environment,
    left,
    there,
    told,
)
from tests.integration.rl.test_training import newest, same, written
from tests.integration.rl.worlds import LEDGER
from tests.support.needs import need_root
from tests.support.waiting import until
from training.rl.config import RlConfig

pytestmark = [pytest.mark.ml, pytest.mark.nightly]
ADDRESSES = "10.213.7.1", "10.213.7.2"
PORT = 29577  # each namespace has all ports to itself


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


@pytest.fixture
def nodes() -> Iterator[list[str]]:
    """The names of two network namespaces that reach each other, and nothing else."""
    need_root()
    names = [f"slipway-{os.getpid()}-{number}" for number in range(2)]
    with ExitStack() as stack:
        for name in names:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
        ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
            for link in ("cable", "lo"):
                ip("-n", name, "link", "set", link, "up")
        yield names


@contextmanager
def training(
    nodes: Sequence[str], config: RlConfig, out: Path, ledger: Path, resume: Path | None = None
) -> Iterator[list[subprocess.Popen[str]]]:
    """A torchrun on each node; whatever is left of them ends with the block."""
    out.mkdir(exist_ok=True)
    more = [] if resume is None else ["--resume", str(resume)]
    file = written(config, out)
    started = []
    try:
        for rank, node in enumerate(nodes):
            at = ["--nnodes", "2", "--nproc-per-node", "1", "--node-rank", str(rank)]
            meet = ["--master-addr", ADDRESSES[0], "--master-port", str(PORT)]
            trained = ["-m", "training.rl", "--config", str(file), "--out", str(out), *more]
            started.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", node, sys.executable, "-m", "torch.distributed.run", *at, *meet, *trained],
                    env=environment(out, {LEDGER: str(ledger), "GLOO_SOCKET_IFNAME": "cable"}),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()
        until(lambda: not left(out))


def succeeded(started: Sequence[subprocess.Popen[str]]) -> None:
    said = [process.communicate(timeout=600)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(text[-3000:] for text in said)


def test_two_nodes_in_shards_train_and_go_on_after_one_was_killed(
    start: Path, tmp_path: Path, nodes: list[str]
) -> None:
    """SIGKILL of the second node's process, then of the first's: both nodes end, the worker too, and nobody waits for
    the network to say so. What comes after counts every rollout once."""
    ledger, out = tmp_path / "ledger", tmp_path / "out"
    ledger.touch()
    config = rl_config(start, **BESIDE, environment="tests.integration.rl.worlds:Ledgered", fsdp=True)
    for attempt, killed in enumerate((1, 0), 1):
        with training(nodes, config, out, ledger, newest(out)) as started:
            until(partial(there, out / "checkpoints" / f"checkpoint-{attempt}"))
            (process,) = children(started[killed].pid)
            os.kill(process, signal.SIGKILL)
            assert all(each.wait(120) != 0 for each in started)
            until(lambda: not left(out))
    with training(nodes, config, out, ledger, newest(out)) as started:
        succeeded(started)
    assert (out / ".done").exists()
    agree(out, ledger, 4)
    gate = json.loads((out / "results" / "gate.json").read_text())
    assert gate["outside"] == 0
    assert not same(out / "model", start)
    one = alone(rl_config(start, **{**BESIDE, "fsdp": False}), tmp_path / "one")
    # one generation's rollouts are those of the start; the next ones depend on when the worker got its weights
    assert_same_training(out, one, steps=1)
    assert len(told(out, "loss")) == len(told(one, "loss"))
