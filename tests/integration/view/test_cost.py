"""`launcher cost`, called as a user calls it, on a store whose bill was worked out by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from launcher.cli import main
from launcher.spec.model import Limits, Output, Resources
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from tests.support.fakerun import FakeAttempt, eval_files, fake_job, write_run

Capture = pytest.CaptureFixture[str]
EVENING = 1_780_009_200.0  # 2026-05-28 23:00 UTC
PROFILE = "prices: {H100: 2.40 USD, cpu: 0.10 EUR}\n"
H100 = Resources(gpus=2, gpu="H100")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_STORE", file_store.url)
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    Path("slipway.yaml").write_text(PROFILE)


def scripted(store: Store, name: str, spans: Sequence[tuple[float, float]], **job: object) -> str:
    """A run with attempts at (start, seconds), claimed then by the store's clock, too."""
    attempts = [FakeAttempt(started=start, ended=start + seconds) for start, seconds in spans]
    run = write_run(store, fake_job(name, **job), attempts)
    folder = Path(store.url.removeprefix("file://"))
    for number, (start, _) in enumerate(spans, 1):
        os.utime(folder / RunKeys(run).attempt(number).claim("main-0"), (start, start))
    return run


def bill(store: Store) -> dict[str, str]:
    """Three runs. `train`, team a: 2 GPUs x 2.40 = 4.80 USD an hour, 1,800 s + 900 s (23:00 to 23:30, 23:50 to 00:05):
    2.40 + 1.20 = 3.60 USD. `eval`, team b, the same price, 600 s: .80 USD. `small`, no label: 2 cores x .10 = .20 EUR
    an hour, 1,800 s: .10 EUR."""
    labels = {"team": "a"}
    spans = [(EVENING, 1800.0), (EVENING + 3000, 900.0)]
    return {
        "train": scripted(store, "train", spans, resources=H100, labels=labels),
        "eval": scripted(store, "eval", [(EVENING + 7200, 600.0)], resources=H100, labels={"team": "b"}),
        "small": scripted(store, "small", [(EVENING, 1800.0)]),
    }


def records(capsys: Capture, *words: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["cost", *words, "-o", "json"]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_the_bill_of_runs(file_store: Store, capsys: Capture) -> None:
    runs = bill(file_store)
    found = {str(one["run"]): (one["cost"], one["currency"], one["billed_s"]) for one in records(capsys)}
    expected = {"train": (3.6, "USD", 2700.0), "eval": (0.8, "USD", 600.0), "small": (0.1, "EUR", 1800.0)}
    assert found == {runs[name]: amount for name, amount in expected.items()}
    again = {str(one["run"]): one["cost"] for one in records(capsys)}  # now from the cache
    assert again == {run: amount for run, (amount, _, _) in found.items()}


def test_sums_by_team_day_and_job(file_store: Store, capsys: Capture) -> None:
    """By day: train has 2.40 and 10 of its 15 minutes (.80) before midnight, and 5 minutes (.40) after it; eval begins
    at 01:00; small ended before midnight."""
    bill(file_store)

    def sums(what: str) -> list[tuple[object, ...]]:
        return [(one["key"], one["cost"], one["currency"], one["runs"]) for one in records(capsys, "--by", what)]

    assert sums("team") == [("-", 0.1, "EUR", 1), ("a", 3.6, "USD", 1), ("b", 0.8, "USD", 1)]
    assert sums("day") == [
        ("2026-05-28", 0.1, "EUR", 1),
        ("2026-05-28", 3.2, "USD", 1),
        ("2026-05-29", 1.2, "USD", 2),
    ]
    assert sums("job") == [("eval", 0.8, "USD", 1), ("small", 0.1, "EUR", 1), ("train", 3.6, "USD", 1)]
    assert sums("backend") == [("local", 0.1, "EUR", 1), ("local", 4.4, "USD", 2)]


def test_the_table_says_the_sum_and_who_has_no_price(file_store: Store, capsys: Capture) -> None:
    bill(file_store)
    scripted(file_store, "odd", [(EVENING, 60.0)], resources=Resources(gpus=1, gpu="L4"), labels={"team": "a"})
    assert main(["cost"]) == 0
    told = capsys.readouterr()
    assert told.out.rstrip().endswith("4 runs: 0.10 EUR and 4.40 USD")
    assert "1 without a known price and not counted: L4" in told.err
    assert main(["cost", "-l", "team=a", "--by", "team"]) == 0
    assert "3.60 USD" in capsys.readouterr().out


def test_a_label_that_no_run_has_is_said(file_store: Store, capsys: Capture) -> None:
    bill(file_store)
    assert main(["cost", "--by", "taem"]) == 0
    said = capsys.readouterr().err
    assert "no run here has a label `taem`; they have: team; allowed besides: day, backend, job" in said
    for what in ("team", "day", "backend", "job"):
        assert main(["cost", "--by", what]) == 0
        assert capsys.readouterr().err == ""


def test_a_free_job_costs_at_most_nothing(file_store: Store, capsys: Capture) -> None:
    """Without prices; it has a deadline, so `no limit` would be wrong twice."""
    bill(file_store)
    Path("slipway.yaml").write_text("")
    Path("job.yaml").write_text("name: free\ncommand: ['true']\nbackend: local\nlimits: {deadline: 5m}\n")
    assert main(["cost", "--job", "job.yaml"]) == 0
    heads, row = capsys.readouterr().out.splitlines()
    assert heads.split()[-2:] == ["AT", "MOST"]
    assert row.split()[-1] == "free"


def test_a_job_has_a_price_where_the_store_cannot_be_read(
    file_store: Store, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the first day there is no store, and no login to one."""
    bill(file_store)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(Path.cwd()))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    Path("slipway.yaml").write_text("")
    Path("job.yaml").write_text("name: free\ncommand: ['true']\nbackend: local\nlimits: {deadline: 5m}\n")
    nowhere = "s3://nothing-here?endpoint=http://127.0.0.1:1"
    assert main(["cost", "--job", "job.yaml", "--store", nowhere]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[1].split()[-1] == "free"
    assert "note: how long earlier runs took is not known: store s3://nothing-here" in told.err


def test_a_store_without_runs_is_said(file_store: Store, capsys: Capture) -> None:
    bill(file_store)
    assert main(["cost", "-l", "team=nobody"]) == 0
    assert "no runs with these names and labels" in capsys.readouterr().err


def test_what_a_job_would_cost(file_store: Store, capsys: Capture) -> None:
    """At most 3 h x 4.80 = 14.40 USD, or its budget. Its one earlier run took 2,700 s: 3.60 USD."""
    bill(file_store)
    job = "name: train\ncommand: ['true']\nbackend: local\nresources: {gpu: H100, gpus: 2}\nlimits: {deadline: 3h%s}\n"
    Path("job.yaml").write_text(job % "")
    Path("capped.yaml").write_text(job.replace("train", "capped") % ", budget: 9 USD")
    found = records(capsys, "--job", "job.yaml", "--job", "capped.yaml")
    assert [(one["hourly_high"], one["worst"], one["expected"], one["budget"]) for one in found] == [
        (4.8, 14.4, 3.6, None),
        (4.8, 9.0, None, 9.0),
    ]
    assert main(["cost", "--job", "job.yaml"]) == 0
    assert "14.40 USD" in capsys.readouterr().out


def test_submit_says_in_one_line_what_a_run_may_cost(file_store: Store, capsys: Capture) -> None:
    text = "name: train\ncommand: ['true']\nbackend: local\nresources: {cpus: 2}\nlimits: {deadline: 90m}\n"
    Path("job.yaml").write_text(text)
    assert main(["submit", "job.yaml", "--dry-run"]) == 0
    line = "cost: at most 0.30 EUR: 0.20 EUR per hour, 1.5 h of limits.deadline (prices: cpu in the profile)"
    assert line in capsys.readouterr().err
    Path("slipway.yaml").write_text("")
    assert main(["submit", "job.yaml", "--dry-run"]) == 0
    assert "cost" not in capsys.readouterr().err  # it is free


def test_what_the_store_keeps_costs_by_the_month(file_store: Store, capsys: Capture) -> None:
    """A quarter of a GiB at .02 USD a GiB: .005 USD a month."""
    run = scripted(file_store, "big", [(EVENING, 60.0)])
    key = Path(file_store.url.removeprefix("file://")) / RunKeys(run).attempt(1).output("model") / "weights"
    key.parent.mkdir(parents=True)
    with key.open("wb") as file:
        file.truncate(2**28)  # a hole: it takes no space
    (first, *_) = records(capsys, "--storage")
    assert (first["run"], first["monthly"]) == (run, None)
    Path("slipway.yaml").write_text("prices: {storage: 0.02 USD}\n")
    (first, *_) = records(capsys, "--storage")
    assert isinstance(first["bytes"], int)
    assert 2**28 <= first["bytes"] < 2**28 + 10_000
    assert (first["monthly"], first["currency"]) == (0.005, "USD")
    assert main(["cost", "--storage"]) == 0
    assert "0.0050 USD a month" in capsys.readouterr().out


LAMBDA = """name: sft
image: r/x@sha256:{digest}
command: [x]
backend: lambda
lambda: {{ssh_key: k, instance_types: [{kind}]}}
limits: {{deadline: 2h}}
matrix: {{+config.seed: [1, 2, 3]}}
config: {{}}
"""


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("gpu_1x_z9000", [], "job.yaml:5:39: lambda.instance_types[0]: no price of lambda's `gpu_1x_z9000` is known"),
        # 3 runs x 3.29 x 3.27 h: a machine may live so long for a deadline of 2 h
        ("gpu_1x_h100_pcie", ["--budget", "32.23 USD"], "these runs may cost 32.24 USD, which is more than 32.23 USD"),
        ("gpu_1x_h100_pcie", ["--budget", "20 EUR"], "the prices are in USD, the budget in EUR"),
        ("gpu_1x_h100_pcie", ["--budget", "20"], "`20` is not an amount; allowed: an amount and a currency: 40 USD"),
    ],
)
def test_submit_refuses_a_bill_that_nobody_knows_or_wants(
    kind: str, options: list[str], message: str, capsys: Capture
) -> None:
    Path("job.yaml").write_text(LAMBDA.format(digest="1" * 64, kind=kind))
    assert main(["submit", "job.yaml", *options]) == 2
    assert message in capsys.readouterr().err


def test_a_solved_task_has_a_price(file_store: Store, capsys: Capture) -> None:
    """2 GPUs x 2.40 USD for half an hour: 2.40 USD for 3 solved of 4 tasks: .80 USD each."""
    outputs = {"results": eval_files([True, True, False, True])}
    job = fake_job("eval", resources=H100, outputs={"results": Output()}, limits=Limits())
    write_run(file_store, job, [FakeAttempt(started=EVENING, ended=EVENING + 1800, outputs=outputs)])
    assert main(["results", "eval", "-o", "json"]) == 0
    rows = {row["metric"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["success"]["cost"], rows["success"]["cost_per_solved"]) == (2.4, pytest.approx(0.8))
    assert main(["results", "eval"]) == 0
    assert "0.8000 USD" in capsys.readouterr().out
    assert main(["report", "eval", "--file", "r.html"]) == 0
    page = Path("r.html").read_text()
    assert "cost per solved" in page
    assert "2.40 USD" in page
