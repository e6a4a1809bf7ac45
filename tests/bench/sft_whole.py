"""What training.sft takes besides its steps: CPU seconds and memory of the whole process for two steps, beside a plain
script with TRL on the same model and samples.

    EPISODES=300 OLD=<another checkout> python -m tests.bench.sft_whole

Ours opens and checks the samples, hashes model and data for its checkpoints, draws twelve predictions, and writes a
model card. The plain script has its rows in a file of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from eval.prompts import PromptConfig

EPISODES = int(os.environ.get("EPISODES", "300"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
PROMPT = PromptConfig(decimals=2, system="", history=0)
PLAIN = """
import json, sys
import torch, transformers
from datasets import Dataset, Image, List
from trl import SFTConfig, SFTTrainer

root = sys.argv[1]
model = transformers.AutoModelForImageTextToText.from_pretrained(f"{root}/model", dtype=torch.float32)
processor = transformers.AutoProcessor.from_pretrained(f"{root}/model")
data = Dataset.from_list(json.load(open(f"{root}/rows.json"))).cast_column("images", List(Image()))
args = SFTConfig(output_dir=f"{root}/plain", max_steps=2, per_device_train_batch_size=4, learning_rate=1e-3,
                 save_strategy="no", report_to=[], max_length=None, gradient_checkpointing=False, use_cpu=True)
trainer = SFTTrainer(model=model, args=args, train_dataset=data, processing_class=processor)
trainer.train()
trainer.save_model(f"{root}/plain/model")
"""


def material(root: Path) -> int:
    """Makes the model, its episodes and the plain script's rows; how many samples there are."""
    from eval.environments.registry import TasksConfig
    from training.data.samples import load
    from training.make_episodes import MakeEpisodesConfig, make
    from training.tiny import TinyConfig, build

    tasks = TasksConfig(count=EPISODES, seed=0)
    make(MakeEpisodesConfig(environment="login", tasks=tasks, options={"split": "train"}, prompt=PROMPT), root)
    build(TinyConfig(episodes=str(root / "episodes"), prompt=PROMPT), root / "model")
    found = load(root / "episodes", PROMPT.builder())
    rows = [{"images": [{"path": str(path)} for path in each.images], "messages": each.messages} for each in found]
    (root / "rows.json").write_text(json.dumps(rows))
    (root / "plain.py").write_text(PLAIN)
    settings = {"model": f"{root}/model", "episodes": f"{root}/episodes", "steps": 2, "batch_size": 4}
    settings |= {"prompt": {"decimals": 2, "system": "", "history": 0}, "learning_rate": 1e-3, "warmup_steps": 0}
    (root / "ours.json").write_text(json.dumps(settings))
    return len(rows)


def measured(words: list[str], checkout: Path) -> tuple[float, float]:
    """(CPU seconds, MB at its peak)"""
    environ = {**os.environ, "PYTHONPATH": str(checkout)}
    child = subprocess.Popen(
        [sys.executable, *words], env=environ, cwd=checkout, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, words
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def main() -> int:
    from tests.bench.checkouts import checkouts

    figures: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        root = Path(os.environ.get("ROOT", name))
        samples = material(root)
        for turn in range(ROUNDS):
            for code, checkout in checkouts().items():
                ours = ["-m", "training.sft", "--config", f"{root}/ours.json", "--out", f"{name}/{code}-{turn}"]
                figures.setdefault(code, []).append(measured(ours, checkout))
            figures.setdefault("plain TRL", []).append(measured([f"{root}/plain.py", str(root)], root))
    print(f"| two steps of SFT, {samples:,} samples | CPU s, each time | MB |\n|---|---:|---:|")
    for code, each in figures.items():
        print(f"| {code} | {', '.join(f'{cpu:.1f}' for cpu, _ in each)} | {max(peak for _, peak in each):.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
