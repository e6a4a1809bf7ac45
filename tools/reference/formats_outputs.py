"""The part of docs/reference/formats.md about files that no other part reads: reports, drawn answers, model folders."""

from __future__ import annotations

from typing import Final

STEP_ANSWER: Final = {
    "task_id": "episode and step: `EPISODE/INDEX`, as in tasks.jsonl",
    "response": "the agent's answer; null where it could not be asked",
    "action": "the action that was read in the answer; null where it holds none",
    "parse_error": "why the answer holds no action",
    "infra": "why the agent could not be asked",
}
STEP_ANSWERS: Final = (
    {
        "task_id": "login-7/0",
        "response": "Action: CLICK(x=0.5, y=0.25)",
        "action": {"type": "click", "x": 0.5, "y": 0.25},
        "parse_error": None,
        "infra": None,
    },
)
SCREENSPOT: Final = """\
## ScreenSpot

The files as they are published; `edition` is found by their names.

| edition | annotations | screenshots below |
|---|---|---|
| `v1` (ScreenSpot) | `screenspot_{mobile,desktop,web}.json` | `screenspot_imgs/` or `images/` |
| `v2` | `screenspot_{mobile,desktop,web}_v2.json` | `screenspotv2_image/` or `images/` |
| `pro` | `annotations/*.json` | `images/` |

The annotations of v1 and v2 lie in the folder, in `annotations/` or in `metadata/`.
Each file is a list of items. `bbox` is left, top, width, height in pixels of the screenshot; of Pro left, top, right,
bottom in pixels of `img_size`. A point on an edge of the box is right. `data_type` and `ui_type` are `text` or `icon`.

An item of ScreenSpot and v2:
"""
SKIPPED: Final = "`{total, by_reason: {reason: count}, examples: {reason: [text]}}`"

# file, who writes it, what it holds
OUTPUTS: Final = (
    (
        "responses.jsonl",
        "`eval.steps`, `eval.agentnetbench`, `eval.screenspot`",
        "the answers as they came: [the steps](#answers-to-recorded-steps), [AgentNetBench](#responsesjsonl), "
        "[ScreenSpot](#resultsresponsesjsonl-of-screenspot)",
    ),
    (
        "samples/predictions.jsonl",
        "`training.sft`, `training.grpo`",
        "a line per drawn answer: `{picture, target, "
        "predicted}`; `picture` names the drawing beside it. During SFT also `samples/step-N/`",
    ),
    (
        "bad_samples.json",
        "every trainer, with `on_bad_sample: skip`",
        f"what was left out: {SKIPPED}; of SFT two of them, `while_opening` and `while_training`",
    ),
    (
        "bad_samples.jsonl",
        "`training.sft`",
        "the same as they come, a line each: `{index, where, reason, detail}`; `index` counts the samples from 0",
    ),
    (
        "margins.jsonl",
        "`training.reward`",
        "a line per held-out pair: `{task_id, step, margin}`; `margin` is the reward of "
        "the better answer less that of the worse",
    ),
    (
        "plots/reliability.png",
        "`training.reward`",
        "how often the better answer wins, over the probability that the model gives it",
    ),
    ("plots/curves.png", "`training.grpo`", "rewards, entropy, KL and cut answers over the steps"),
    (
        "collapse.json",
        "`training.grpo` and `training.rl`, when a policy collapses",
        "why, and `checkpoint_before`: the newest checkpoint whose weights did well in a generation, or null",
    ),
)
OTHERS: Final = (
    (
        "episodes/report.json",
        "`ingest`",
        "what was kept and dropped, by reason; also with `check: true`",
    ),
    (
        "card.txt, card.json, card.html",
        "`card` with `--out`",
        "the card of a data set: for terminals, for programs, for people",
    ),
    (
        "model/README.md, adapter/README.md",
        "every trainer, `merge`, `export`",
        "the model card: sources, training, measured results",
    ),
    (
        "PROGRAM/ID.json, task.schema.json",
        "`eval.linux_desktop` with `--write`",
        "a task set with OSWorld's keys, and the JSON schema of its files: "
        "[Keep a task set](../howto/benchmark.md#keep-a-task-set)",
    ),
    ("model/reward.json", "`training.reward`", "marks a reward model: `{format, max_pixels, base, pairs}`"),
    (
        "checkpoints/checkpoint-N/ema.safetensors",
        "every trainer, with `ema`",
        "the average of each trained weight, float32, by the weights' names",
    ),
    (
        "checkpoints/checkpoint-N/teacher.safetensors",
        "`training.rl`, with `sdpo`",
        "the teacher's weights, by the names of the model's",
    ),
    (
        "checkpoints/checkpoint-N/critic.pt",
        "`training.rl`, with `critic`",
        "PPO's critic: its weights by name, and the state of their optimiser, as torch writes them",
    ),
    (
        "episodes/GENERATION-GROUP-ROLLOUT/",
        "`training.rl`, with `successes`",
        "the newest rollouts that succeeded, [episodes](#episodes)",
    ),
    (
        "checkpoints/checkpoint-N/successes/index.json",
        "`training.rl`, with `replay`",
        "which successes each task has, with their tokens and log probabilities; their pictures lie beside it",
    ),
    (
        "checkpoints/checkpoint-N/identity.json",
        "every trainer",
        "by part (model, adapter, each source of data) the digests of its content: `{path, state, input, pinned, spec, "
        "files, digest}`; `state` is of its files' sizes and times, `input` what the runtime verified",
    ),
    (
        "checkpoints/checkpoint-N/weights.json",
        "`training.rl`",
        "the name of these weights, which the rollouts that they sampled carry: `{name}`",
    ),
    (
        "unfinished/GROUP-ROLLOUT/rollout.msgpack",
        "`training.rl`, in its results",
        "a finished rollout of a generation that is not complete; its pictures lie beside it",
    ),
    (
        "checkpoints/checkpoint-N/trainer_state.json",
        "every trainer",
        "the trainer's state, written last: a checkpoint without it is incomplete",
    ),
    (".done", "every trainer", "empty; the training is finished"),
)

RESULTS_FILES: Final = """\
### Answers to recorded steps

`eval.steps` appends the agent's answers to `results/responses.jsonl` as they come. A run that was cut off goes on from
there: steps with an answer are not asked again. `asked.json` beside it notes the agent and the prompt; a run with
another agent or prompt is refused in that folder, since it would score answers that are not its own.
"""
OTHER_FILES: Final = """\
## Files for people

Our own programs read these at most to go on after an interruption, or to see what kind of folder it is. In the output
`results`:
"""
ELSEWHERE: Final = "Elsewhere under the run's outputs, or in the folder that was named:\n"
