"""training.rl on an environment behind a foreign server of MCP: it learns, and what is the server's failure is no
reward."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from eval.environments import login
from eval.environments.registry import TasksConfig
from launcher.results import training_records as reading
from launcher.results.training_records import read_folder
from tests.integration.rl.conftest import rl_config
from tests.integration.rl.test_training import same, written
from tests.integration.serve.test_foreign_mcp import by_http, command
from tests.support.needs import need
from training.rl.train import main

pytestmark = [
    pytest.mark.ml,
    pytest.mark.ci,
    pytest.mark.timeout(900),
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]


VOID: Final = "4 of 4 rollouts are void, more than max_void 0.25:"


@pytest.fixture(autouse=True)
def _screens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the server shows: forms, which the policy knows a little."""
    (folder := tmp_path / "screens").mkdir()
    monkeypatch.setenv("SCREENS", str(folder))

    async def draw() -> None:
        for task in login.tasks(2, 0, {"split": "train"}):
            seen = await login.LoginDesktop(login.LoginOptions(split="train")).reset(task, task.seed)
            seen.image.save(folder / f"{task.seed}.png")
            (folder / f"{task.seed}.txt").write_text(task.instruction)

    asyncio.run(draw())


@contextmanager
def reached(how: str, kind: str) -> Iterator[str]:
    """A server of this kind, by a command or by HTTP."""
    if how == "http":
        with by_http(kind) as url:
            yield url
    else:
        yield command(kind)


def trained(model: Path, folder: Path, mcp: str, options: dict[str, Any], group_size: int = 2) -> int:
    """The exit status of a training of two steps."""
    need("clients")
    passed = {} if mcp.startswith("http") else {"environ": ["SCREENS"]}
    chosen = rl_config(
        model,
        environment="mcp",
        options={"mcp": mcp, "start": "begin", "timeout": 60.0, **passed, **options},
        tasks=TasksConfig(count=2, seed=0),
        tasks_per_generation=2,
        group_size=group_size,
        steps=2,
        kept_groups=2,
    )
    return main(["--config", str(written(chosen, folder)), "--out", str(folder / "out")])


@pytest.mark.parametrize("how", ["stdio", "http"])
def test_a_model_learns_from_a_foreign_servers_scores(how: str, start: Path, tmp_path: Path) -> None:
    with reached(how, "sides") as mcp:
        assert trained(start, tmp_path, mcp, {}, group_size := 4 if how == "http" else 2) == 0
    out = tmp_path / "out"
    assert (out / ".done").exists()
    found = list(read_folder(out / "results"))
    rollouts = [line for line in found if isinstance(line, reading.RlRollout)]
    assert len(rollouts) == 2 * 2 * group_size  # steps, groups
    assert {line.total for line in rollouts} <= {0.0, 1 / 3, 2 / 3, 1.0}
    if how == "http":  # with enough rollouts that some differ
        assert len({line.total for line in rollouts}) > 1
        assert not same(out / "model", start)
    rows = {row["metric"]: row for row in json.loads((out / "results/summary.json").read_text())}
    assert (rows["reward"]["n"], rows["reward"]["infra_failures"]) == (2 * group_size, 0)


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        ("sides-dying", {"instruction": "Click."}, f"{VOID} 4 x DesktopGone: options.mcp: "),
        ("sides-dying", {}, "it ended with status 3"),
        ("gone", {"instruction": "Click."}, f"{VOID} 4 x DesktopGone: options.mcp: "),
        ("gone", {}, "options.mcp: http://127.0.0.1:9/mcp: ClientConnectorError"),
    ],
)
def test_what_the_server_fails_at_is_no_reward_and_a_retry_may_help(
    kind: str, options: dict[str, Any], told: str, start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mcp = "http://127.0.0.1:9/mcp" if kind == "gone" else command(kind)
    assert trained(start, tmp_path, mcp, options) == 1
    said = capsys.readouterr().err
    assert told in said
    assert "Traceback" not in said
    assert not (tmp_path / "out/model").exists()


def test_what_no_retry_mends_is_told_as_such(start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trained(start, tmp_path, command("sides"), {"start": "none"}) == 78
    assert "options.start: 'none'; the server has begin, click" in capsys.readouterr().err
