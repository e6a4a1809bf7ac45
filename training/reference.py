"""docs/reference/training-config.md from the configurations.

`python -m training.reference > docs/reference/training-config.md` writes the page.
"""

from __future__ import annotations

import sys
from typing import Final, get_args

from eval.agentnetbench import BenchConfig
from eval.config import Config
from eval.config.help import markdown
from eval.judge_errors.measuring import MeasureConfig
from eval.propose import ProposeConfig
from eval.run import RunConfig
from eval.screenspot import SpotConfig
from eval.serve.config import ServeConfig
from eval.steps import StepsConfig
from eval.tryout import TryoutConfig
from training.data.ingest.registry import IngestConfig
from training.data.packed.pack import PackConfig
from training.data.pairs.run import PairsConfig
from training.dpo.train import DpoConfig
from training.export import ExportConfig
from training.grpo.config import GrpoConfig
from training.make_episodes import MakeEpisodesConfig as MadeConfig
from training.merge import MergeConfig
from training.push_to_hub import PushConfig
from training.reward.raters import RatersConfig
from training.reward.train import RewardConfig
from training.rl.config import RlConfig
from training.sft.train import SftConfig
from training.tiny import TinyConfig
from training.trl_arguments import NAMED, REFUSED

ENTRIES: Final[dict[str, tuple[type[Config], ...]]] = {
    "training.data ingest": get_args(IngestConfig),
    "training.make_episodes": (MadeConfig,),
    "training.data pack": (PackConfig,),
    "training.data pairs": (PairsConfig,),
    "training.sft": (SftConfig,),
    "training.reward": (RewardConfig,),
    "training.dpo": (DpoConfig,),
    "training.grpo": (GrpoConfig,),
    "training.rl": (RlConfig,),
    "training.merge": (MergeConfig,),
    "training.export": (ExportConfig,),
    "training.push_to_hub": (PushConfig,),
    "training.compare_raters": (RatersConfig,),
    "training.tiny": (TinyConfig,),
    "eval.run": (RunConfig,),
    "eval.agentnetbench": (BenchConfig,),
    "eval.screenspot": (SpotConfig,),
    "eval.steps": (StepsConfig,),
    "eval.endstates": (RunConfig,),
    "eval.audit": (RunConfig,),
    "eval.verify": (RunConfig,),
    "eval.judge_errors": (MeasureConfig,),
    "eval.propose": (ProposeConfig,),
    "eval.tryout": (TryoutConfig,),
    "eval.serve": (ServeConfig,),
}
HEAD: Final = """\
# Configurations of training and evaluation

Every entry point takes `--config FILE`, JSON or YAML, strictly: an unknown field, a wrong type or a value that is not
allowed is one line and exit code 78. `--help` prints what stands here. Made by `python -m training.reference`; do not
edit.
"""

TRL: Final = """\
## The section trl of every trainer

`trl: {neftune_noise_alpha: 5}` gives an argument to the trainer's class that the configuration has no field for:
`trl.SFTConfig`, `trl.DPOConfig`, `trl.GRPOConfig`, and for `training.reward` `transformers.TrainingArguments`. Its name
and its type are checked before a model is loaded. It is part of what is computed: a training resumes only with the same
section.
"""


def page() -> str:
    lines = [HEAD]
    seen: set[type[Config]] = set()
    for command, kinds in ENTRIES.items():
        lines.append(f"## python -m {command}\n")
        for kind in kinds:
            lines += markdown(kind, seen)
    lines += trl_section()
    return "\n".join(lines).rstrip("\n") + "\n"


def trl_section() -> list[str]:
    """Which arguments the section `trl` refuses, and why."""
    by_promise: dict[str, list[str]] = {}
    for name, promise in REFUSED.items():
        by_promise.setdefault(promise, []).append(name)
    lines = [TRL, "| argument | the field that sets it |", "|---|---|"]
    lines += [f"| `{name}` | {field} |" for name, field in sorted(NAMED.items())]
    lines += ["", "| not offered | because |", "|---|---|"]
    lines += [f"| {', '.join(f'`{name}`' for name in sorted(names))} | {why} |" for why, names in by_promise.items()]
    lines += ["", "| trainer | what it refuses | because, and what to use |", "|---|---|---|"]
    for trainer, kind in (
        ("sft", SftConfig),
        ("dpo", DpoConfig),
        ("grpo", GrpoConfig),
        ("reward", RewardConfig),
        ("rl", RlConfig),
    ):
        unread: dict[str, list[str]] = {}
        for name, instead in kind.unread.items():
            unread.setdefault(instead, []).append(name)
        for why, names in unread.items():
            told = ", ".join(f"`{name}`" for name in sorted(names))
            lines.append(f"| `training.{trainer}` | {told} | {why} |")
    return [*lines, ""]


if __name__ == "__main__":
    sys.stdout.write(page())
