"""Programs of training and eval where only the base dependencies are installed: `--help` works, and the work itself
ends in one line that names the extra."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from eval.config.strict import EXTRAS
from tests.integration.test_entry_points import run_names
from tests.support import installed
from tests.support.documented import ROOT
from tests.unit.test_project import PROJECT

NAMES = sorted(name for name in run_names() if re.match("training|eval", name))
# each program as far as it needs an extra, by files of the example folder or made below
WORK = {
    "training.sft": "--config sft.yaml --out out",
    "training.dpo": "--config dpo.yaml --out out",
    "training.grpo": "--config grpo.yaml --out out",
    "training.reward": "--config reward.yaml --out out",
    "training.rl": "--config rl.yaml --out out",
    "training.data ingest": "--config examples/agentnet/ingest.yaml --out out",
    "training.data pack": "--config examples/agentnet/pack.yaml --out out",
    "training.data card": "out",
    "training.data check": "out",
    "training.data pairs": "--config pairs.yaml --out out",
    "training.compare_raters": "--config raters.yaml --out out",
    "training.push_to_hub": "--config push.yaml --out out",
    "training.export": "--config export.yaml --out out",
    "training.make_episodes": "--config examples/own/episodes.yaml --out out",
    "training.merge": "--config merge.yaml --out out",
    "training.tiny": "--config tiny.yaml --out out",
    "eval.agentnetbench": "--config bench.yaml --out out",
    "eval.audit": "--config examples/own/evaluate.yaml --out out",
    "eval.desktops.server": "--open-port 0",
    "eval.endstates": "--config examples/own/evaluate.yaml",
    "eval.judge_errors": "--config judge.yaml --out out",
    "eval.linux_desktop": "--out out",
    "eval.propose": "--config propose.yaml --out out",
    "eval.run": "--config examples/own/evaluate.yaml --out out",
    "eval.screenspot": "--config bench.yaml --out out",
    "eval.serve": "mcp --config examples/serve/login.yaml --out out",
    "eval.steps": "--config bench.yaml --out out",
    "eval.verify": "out --config examples/own/evaluate.yaml --out out",
    "eval.tryout": "'Write a list' --config examples/desktop/tryout.yaml --out out",
}
# which need none
PLAIN = ("eval.export", "eval.osworld", "eval.replay", "eval.tasks", "training.plan", "training.reference")
HELPS = """
import contextlib, io, runpy, sys, warnings
warnings.simplefilter("ignore")
for name in sys.argv[1:]:
    sys.argv = [*name.split(), "--help"]
    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(told):
            runpy.run_module(name.split()[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        code = repr(error)
    print(f"{name}|{code}|{'usage:' in told.getvalue() or '# ' in told.getvalue()}")
"""


@pytest.fixture(scope="module")
def venv() -> Path:
    return installed.environment(extras=False)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("extras") / "work"
    folder.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "out").mkdir()
    return folder


def test_every_entry_point_is_here() -> None:
    assert {*PLAIN, *(name.partition(" ")[0] for name in WORK), "training.data"} >= set(NAMES)


@pytest.mark.timeout(1200)  # of 30 programs
def test_help_needs_no_extra(venv: Path, work: Path) -> None:
    names = [*NAMES, *(name for name in WORK if " " in name)]
    line = [str(venv / "bin" / "python"), "-c", HELPS, *names]
    done = subprocess.run(
        line, cwd=work, env=installed.environ(venv, work), capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [f"{name}|0|True" for name in names], done.stderr


@pytest.mark.parametrize("name", WORK)
def test_the_work_names_its_extra_in_one_line(name: str, venv: Path, work: Path) -> None:
    for config in re.findall(r"--config (\w+\.yaml)", WORK[name]):
        (work / config).write_text("{}")
    done = installed.run(f"python -m {name} {WORK[name]}", venv, work)
    assert done.returncode in (2, 78), done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert re.search(r"extra `(train|desktop)`|extra slipway-cua\[desktop\]", done.stderr), done.stderr


def test_a_plan_needs_no_extra(venv: Path, work: Path) -> None:
    config = "examples/configs/sft-qwen3vl-8b-lora-80gb.yaml"
    done = installed.run(f"python -m training.plan --config {config}", venv, work)
    assert done.returncode == 0, done.stderr
    assert "billion parameters" in done.stdout


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_extra_that_is_named_brings_the_module(extra: str) -> None:
    distributions = {"PIL": "pillow", "google": "google-genai"}
    # with transformers come its own
    besides = {"huggingface_hub", "safetensors", "tokenizers"}
    named = {re.split(r"[^\w-]", line)[0] for line in PROJECT["project"]["optional-dependencies"][extra]}
    for module in EXTRAS[extra]:
        assert module in besides or distributions.get(module, module) in named, shlex.quote(module)
