"""The part of docs/reference/formats.md about what a training by reinforcement tells of itself."""

from __future__ import annotations

from typing import Any, Final

ABOUT: Final = """\
## Records of reinforcement learning

```text
records/
  000001.jsonl   the first piece; its first line names the schema's version
  000002.jsonl   the next; a new one begins when a piece is full, with each checkpoint, and after each restart
```

A piece grows and is never changed otherwise. A last line without a line break was cut off by a crash, and is passed
over. Each line says in `record` what it is. Readers pass over lines and fields that they do not know; a schema with
a newer first number is refused. `launcher/results/training_records.py` reads the pieces, and leaves out what was
thrown away: after a line of status `resumed` the lines before it about steps after its `step`, which is -1 where the
training began anew, with its baseline.

A group and everything below it belong to exactly one `phase` and `step`: a step of the training (`train`), an
evaluation (`eval`) or the evaluation before the first step (`baseline`). The numbers `group`, `rollout` and `turn`
count from 0 within what holds them. Numbers that are none are null.
"""
PLACE: Final = {
    "phase": "what it belongs to",
    "step": "optimiser steps done, as the training counts them",
    "group": "the number of the task's group in the step",
    "rollout": "the number of the rollout in its group",
    "turn": "the number of the turn in its rollout",
}
MEANINGS: Final[dict[str, dict[str, str]]] = {
    "piece": {"schema_version": "of the fields below", "piece": "its number, as in the file's name"},
    "training": {
        "name": "of the training",
        "method": "the algorithm",
        "model": "that was trained",
        "config": "as it was given, without secrets",
        "time": "when it began",
    },
    "status": {
        "status": "what the training does from now on",
        "step": "optimiser steps done; with `resumed` those that count",
        "progress": "from 0 to 1",
        "reason": "why it stopped or failed",
        "time": "when",
    },
    "step": {"metrics": "name -> number", "time": "when it ended"},
    "group": {
        "task_id": "names the task",
        "seed": "the seed of its start state",
        "instruction": "the task in words",
        "environment": "where it is done",
        "dropped": "why nothing was learnt from the group; null: it was",
    },
    "rollout": {
        "outcome": "`void`: the desktop, or whoever judges, failed; it counts nowhere",
        "total": "the return; null where void",
        "success": "whether the task was solved; null where void",
        "turns": "answers of the model",
        "tokens": "sampled in all",
        "parts": "what `total` is the sum of, by name: score or success, turn_cost, length_cost",
        "errors": "kind of fault -> answers that had it: parse, tool_name, tool_arguments, runtime",
        "error": "why it is void",
        "episode": "the folder with its pictures, from the folder above `records`",
        "version": "of the weights that sampled it",
        "seconds": "that it took",
        "time": "when it ended",
    },
    "turn": {
        "response": "the answer",
        "thought": "its reasoning",
        "parse_error": "why it holds no action",
        "tokens": "sampled",
        "advantage": "with which it entered the loss",
        "entropy": "the policy's mean over its tokens, nats",
        "anchor": "the key of the state in which it began",
        "token_ids": "the sampled tokens",
        "logprobs": "their log probabilities when they were sampled",
        "texts": "the text of each of them alone",
        "entropies": "the policy's entropy at each of `token_ids`, nats; since 1.2.0",
        "masked": "why the turn is not in the loss, where that is not its group's `dropped`; null: it is",
    },
    "action": {
        "number": "of the action in its turn",
        "action": "the action, as in an [episode](#stepsjsonl)",
        "refused": "why the desktop did not do it",
    },
    "observation": {
        "screenshot": "the file of the frame, in the rollout's `episode`",
        "tree": "the file of the accessibility tree",
        "size": "of the screenshot, pixels",
    },
    "validation": {
        "by": "who judged: the environment, or the import path of a validator or judge",
        "score": "from 0 to 1; null where it failed",
        "success": "whether it counts as solved",
        "detail": "what it saw",
        "error": "why it failed; the rollout is void then",
    },
}
_AT: Final[dict[str, Any]] = {"phase": "train", "step": 1, "group": 0, "rollout": 0}
EXAMPLE: Final[tuple[dict[str, Any], ...]] = (
    {"record": "piece", "schema_version": "1.2.0", "piece": 1},
    {
        "record": "training",
        "name": "rl-login",
        "method": "grpo",
        "model": "tiny",
        "config": {"group_size": 2},
        "time": 1790000000.0,
    },
    {"record": "status", "status": "started", "step": 0, "time": 1790000000.5},
    {
        "record": "group",
        "phase": "train",
        "step": 1,
        "group": 0,
        "task_id": "login-7",
        "seed": 7,
        "instruction": 'Log in as "ann".',
        "environment": "login",
    },
    {"record": "observation", **_AT, "turn": 0, "screenshot": "000.png", "size": [96, 96]},
    {
        "record": "turn",
        **_AT,
        "turn": 0,
        "response": "Action: DONE()",
        "tokens": 2,
        "advantage": -0.7,
        "token_ids": [41, 2],
        "logprobs": [-0.3, 0.0],
        "texts": ["Action: DONE()", "<end>"],
    },
    {"record": "action", **_AT, "turn": 0, "number": 0, "action": {"type": "done"}},
    {"record": "validation", **_AT, "by": "environment", "score": 0.0, "success": False, "detail": {"screen": "form"}},
    {
        "record": "rollout",
        **_AT,
        "outcome": "scored",
        "total": 0.0,
        "success": False,
        "turns": 1,
        "tokens": 2,
        "episode": "episodes/login-7-0",
        "parts": {"score": 0.0},
        "time": 1790000003.0,
    },
    {"record": "step", "phase": "train", "step": 1, "metrics": {"reward": 0.5}, "time": 1790000004.0},
)
