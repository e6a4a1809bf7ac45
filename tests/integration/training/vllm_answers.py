"""Run by a Python that has vLLM: MODEL CHATS -> one answer a line (JSON texts), greedily. CHATS is a file of
[{"messages": ..., "images": [PATH]}]."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any


def with_images(messages: list[dict[str, Any]], images: list[str]) -> list[dict[str, Any]]:
    left = iter(images)
    found = []
    for message in messages:
        parts = []
        for part in message["content"]:
            if part["type"] == "image":
                data = base64.b64encode(Path(next(left)).read_bytes()).decode()
                parts.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}})
            else:
                parts.append(part)
        found.append({"role": message["role"], "content": parts})
    return found


def main(model: str, chats: str) -> None:
    from vllm import LLM, SamplingParams

    engine = LLM(model=model, enforce_eager=True, dtype="float32", max_model_len=1024, max_num_seqs=4)
    asked = [with_images(chat["messages"], chat["images"]) for chat in json.loads(Path(chats).read_text())]
    for answer in engine.chat(asked, SamplingParams(temperature=0, max_tokens=12)):
        print("answer " + json.dumps(list(answer.outputs[0].token_ids)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
