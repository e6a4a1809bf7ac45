"""Objects that carry several runs, on a real cluster: what is done to one of them, and what the others notice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from launcher.reasons import Reason
from tests.cluster.jobs.several import Desk, condition

pytestmark = [pytest.mark.cluster("jobset", "dns"), pytest.mark.nightly, pytest.mark.timeout(900)]
RUNS = 4


EACH = """
seed = json.loads(pathlib.Path(E["SLIPWAY_CONFIG"]).read_text())["seed"]
print("seed", seed, "is up", flush=True)
if seed == 1: sys.exit("one has to fail")
while seed == 3 and not os.path.exists("/tmp/go"): time.sleep(0.2)
(out / "seed").write_text(str(seed))
"""


def test_each_run_of_an_array_has_its_own_log_state_and_end(desk: Desk) -> None:
    job = desk.job("seeds", EACH, matrix={"config.seed": list(range(RUNS))}, kubernetes={"array": True})
    runs = desk.submit(job)
    assert len(desk.cluster.get("jobs", namespace=desk.namespace)) == 1
    seeds = {run: seed for seed, run in enumerate(runs)}
    for run, seed in seeds.items():
        desk.wait_for_log(run, f"seed {seed} is up")
        log = desk.launcher("logs", run)
        assert [line for line in log.splitlines() if line.startswith("seed ")] == [f"seed {seed} is up"]
    outcomes = {run: desk.result(run) for run, seed in seeds.items() if seed != 3}
    assert [one.outcome for one in outcomes.values()] == ["succeeded", "failed", "succeeded"]
    # one that works, beside those that have ended: entered by itself
    last = runs[3]
    assert desk.status(last)["state"] == "running"
    assert {seed: desk.status(run)["state"] for run, seed in seeds.items() if seed != 3} == {
        0: "succeeded",
        1: "failed",
        2: "succeeded",
    }
    index = desk.launcher("exec", last, "--", "sh", "-c", "echo $JOB_COMPLETION_INDEX").strip()
    assert index == str(sorted(runs).index(last))
    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(desk.launcher, "logs", last, "--follow")  # from the pod of its index
        desk.let_go(last)
        assert desk.result(last).outcome == "succeeded"
        assert "seed 3 is up" in followed.result()


def reading(stage: str) -> dict[str, Any]:
    return {"text": {"job": stage, "output": "results"}}


def test_a_stage_that_is_cancelled_ends_with_those_that_wait_for_it_and_the_others_go_on(desk: Desk) -> None:
    made = "(out / 'text').write_text('x')"
    first, long, side, after = desk.submit(
        desk.job("first", made),
        desk.until_told("long", inputs=reading("first")),
        desk.until_told("side", inputs=reading("first"), env={"OTHER": "1"}),  # else it would be the same work
        desk.job("after", made, inputs=reading("long")),
    )
    for run in (long, side):
        desk.wait_for_log(run, "up")
    desk.launcher("cancel", long, "--reason", "enough")
    result = desk.result(long)
    assert (result.outcome, result.reason) == ("cancelled", Reason.CANCELLED)
    ended = desk.result(after)  # which then starts, finds nothing to read, and leaves
    assert (ended.outcome, ended.reason) == ("failed", Reason.UPSTREAM_FAILED)
    assert long in ended.message
    told = {run: desk.status(run) for run in (first, long, side, after)}
    assert [one["state"] for one in told.values()] == ["succeeded", "cancelled", "running", "failed"]
    assert condition(desk.set_of(side), "Failed") is None
    desk.let_go(side)
    result = desk.result(side)
    assert (result.outcome, result.attempt) == ("succeeded", 1)
    # the object is done, too: what went wrong stands in the store
    desk.until("the set's end", lambda: condition(desk.set_of(side), "Completed"), side)
    assert desk.set_of(side)["status"].get("restarts", 0) == 0
