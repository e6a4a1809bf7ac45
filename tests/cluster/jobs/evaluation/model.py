"""A model server that always knows: it says in the agent's language what an expert would do."""

from __future__ import annotations

import os
import time
from typing import Any

from served import serve

from eval.actions import Action
from eval.prompts import PromptConfig

DIALECT = PromptConfig().builder().dialect


def answer(what: str, body: Any) -> Any:
    return {"text": DIALECT.format_response(Action.from_json(body["expected"]))}


if __name__ == "__main__":
    time.sleep(float(os.environ["BOOT"]))
    serve(int(os.environ["SLIPWAY_PORT_HTTP"]), answer)
