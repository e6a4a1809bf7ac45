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
    CLOSE,
    alone,
    children,
    environment,
    left,
    there,
)
from tests.integration.rl.test_training import newest, same, written
from tests.integration.rl.worlds import LEDGER
from tests.support.needs import need_root
from tests.support.waiting import until
from training.rl.config import RlConfig

pytestmark = [pytest.mark.ml, pytest.mark.nightly, pytest.mark.timeout(5400)]
ADDRESSES = "10.213.7.1", "10.213.7.2"
STEPS = 6  # so that each of two kills finds one to come
PORT = 29577  # each namespace has all ports to itself
START, END = (
    1200,
    600,
)  # seconds on a busy machine, where either takes 30 s when it is quiet; gloo itself waits for 7200


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
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A torchrun on each node; whatever is left of them ends with the block."""
    out.mkdir(exist_ok=True)
    more = [] if resume is None else ["--resume", str(resume)]
    file = written(config, out)
    started: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        stack.callback(ended, started, out)
        for rank, node in enumerate(nodes):
            at = ["--nnodes", "2", "--nproc-per-node", "1", "--node-rank", str(rank)]
            meet = ["--master-addr", ADDRESSES[0], "--master-port", str(PORT)]
            trained = ["-m", "training.rl", "--config", str(file), "--out", str(out), *more]
            started.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", node, sys.executable, "-m", "torch.distributed.run", *at, *meet, *trained],
                    env=environment(out, {LEDGER: str(ledger), "GLOO_SOCKET_IFNAME": "cable"}),
                    stdout=subprocess.DEVNULL,
                    stderr=stack.enter_context((out / f"node-{rank}.log").open("w")),
                )
            )
        yield started


def ended(started: Sequence[subprocess.Popen[bytes]], out: Path) -> None:
    for process in started:
        process.terminate()  # torchrun ends its own
        process.wait(END)
    until(lambda: not left(out))


def figures(out: Path, name: str) -> dict[int, float]:
    """By step. A step that was killed between its figures and its checkpoint is trained, and told, again."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["value"] for line in lines if line["name"] == f"train/{name}"}


def test_two_nodes_in_shards_train_and_go_on_after_one_was_killed(
    start: Path, tmp_path: Path, nodes: list[str]
) -> None:
    """SIGKILL of the second node's process, then of the first's: both nodes end, the worker too, and nobody waits for
    the network to say so. What comes after counts every rollout once."""
    ledger, out = tmp_path / "ledger", tmp_path / "out"
    ledger.touch()
    config = rl_config(start, **BESIDE, environment="tests.integration.rl.worlds:Ledgered", fsdp=True, steps=STEPS)
    for killed in (1, 0):
        whole = newest(out)
        done = 0 if whole is None else int(whole.name.partition("-")[2])
        with training(nodes, config, out, ledger, whole) as started:
            until(partial(there, out / "checkpoints" / f"checkpoint-{done + 1}"), (out / "node-0.log").read_text, START)
            (process,) = children(started[killed].pid)
            os.kill(process, signal.SIGKILL)
            assert all(each.wait(END) != 0 for each in started)
            until(lambda: not left(out))
    with training(nodes, config, out, ledger, newest(out)) as started:
        assert [each.wait(START) for each in started] == [0, 0], (out / "node-0.log").read_text()[-3000:]
    assert (out / ".done").exists()
    agree(out, ledger, STEPS)
    gate = json.loads((out / "results" / "gate.json").read_text())
    assert gate["outside"] == 0
    assert not same(out / "model", start)
    one = alone(rl_config(start, **BESIDE, steps=STEPS), tmp_path / "one")
    # one generation's rollouts are those of the start; the next ones depend on when the worker got its weights
    for name in ("loss", "grad_norm", "reward", "turns"):
        assert figures(out, name)[1] == pytest.approx(figures(one, name)[1], rel=CLOSE, abs=CLOSE), name
    assert sorted(figures(out, "loss")) == sorted(figures(one, "loss")) == list(range(1, STEPS + 1))
