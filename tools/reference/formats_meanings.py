"""What the fields mean that docs/reference/formats.md lists: one sentence for each."""

from __future__ import annotations

from typing import Final

ACTION_MEANING: Final = "an [action](actions.md#the-types-of-actions) with its `type` and the fields of that type"

EPISODE: Final = {
    "schema_version": "the version of this format: `1.1.0`; `1.0.0` is read, too",
    "episode_id": "names the episode; unique in its folder",
    "task_id": "names the task; every try at the task has the same",
    "instruction": "the task in words, as the agent got it",
    "screen": "width and height of the desktop, pixels",
    "goal": "the aim in words; importers write the instruction here",
    "seed": "the seed that the task's start state was made with",
    "success": "whether the task was solved; null where nobody judged",
    "score": "the judgement, from 0 to 1; null where nobody judged",
    "outcome": "`infra`: the environment failed; `not run`: the task cannot run there. Neither is a score of the agent",
    "error": "why the outcome is not `scored`",
    "steps": "the number of lines in steps.jsonl",
    "agent": "the name of the agent; `human` for a recording of a person",
    "environment": "the name of the environment",
    "source": "where the episode comes from: `synthetic`, `human`, `osworld`, ...",
    "started": "when it began: ISO 8601 in UTC",
    "duration_ms": "how long it took, milliseconds",
    "tags": "words to select episodes by",
    "metadata": "anything else that its maker knew; importers list the steps that they dropped",
}
STEP: Final = {
    "index": "0 for the first step; lines are in this order without a gap",
    "screenshot": "file name of the frame before the action",
    "action": f"{ACTION_MEANING}; null where the answer was no valid action",
    "response": "the agent's whole answer, as it came",
    "thought": "the agent's reasoning",
    "parse_error": "why the answer was no valid action",
    "reward": "what the environment gave for the step",
    "done": "the episode ended with this step",
    "time": "when the answer came, seconds since 1970; absent in made or converted episodes",
    "metrics": "numbers about this step, by name",
    "token_ids": "the sampled tokens, where the agent gives them",
    "logprobs": "their log probabilities, natural logarithm",
    "expected": "what an expert would do here: `{action, box}`; `box` is where a point counts as the same, or null",
    "further_actions": "a list: the actions of the same answer after `action`, done before the next frame; since 1.1.0",
    "marks": "numbered boxes that a prompt with marks draws on the frame; the frame's file has none of them",
    "refused": "what the desktop refused, and why; that action and those after it were not done; since 1.1.0",
    "calls": "the calls of tools in the answer: `{name, id, arguments, result, error}`; since 1.1.0",
    "usage": "tokens of the answer: `{input_tokens, output_tokens, cached_tokens}`; since 1.1.0",
    "cost": "what the answer cost, USD; since 1.1.0",
    "raw": "the answer as its server gave it; since 1.1.0",
    "tree": "file name of the accessibility tree before the action: the frame's number and `.tree.json`; packed data "
    "has none; since 1.1.0",
}
SHARD: Final = {
    "file": "name of the Parquet file",
    "split": "the split that it belongs to",
    "episodes": "rows",
    "steps": "steps of all its episodes",
    "actions": "steps that have an action, and so can be learned",
    "bytes": "size of the file, bytes",
    "sha256": "of the file, hexadecimal",
}
PACK: Final = {
    "file": "name of the file",
    "images": "how many images it holds",
    "bytes": "size of the file, bytes",
    "sha256": "of the file, hexadecimal",
}
COUNTS: Final = {"episodes": "in this split", "steps": "in this split", "actions": "steps that have an action"}
MANIFEST: Final = {
    "format": "`slipway-dataset`",
    "version": "the version of this format: 1",
    "splits": "the splits by name, with their counts",
    "shards": "the Parquet files, in the order in which they are read",
    "packs": "the tar files of the images",
    "index": "images.parquet",
    "made_from": "the configuration that packed the dataset",
    "skipped": "what was left out, by reason",
}
COLUMNS: Final = {
    "screen": "`{width, height}`, pixels",
    "tags": "as in episode.json",
    "metadata": "JSON text",
    "folder": "the folder that the episode was packed from",
    "final_image": "sha256 of the frame after the last action; null where there is none",
    "actions": "steps that have an action",
    "steps": "a list with the fields of a step",
    "extra": "JSON text: fields that this version of the schema has no column for",
}
STEP_COLUMNS: Final = {
    "image": "sha256 of the frame",
    "metrics": "a list of `{name, value}`",
    "marks": "a list of `{number, box}`",
    "extra": "JSON text: fields that this version of the schema has no column for",
}
IMAGE_COLUMNS: Final = (
    ("sha256", "binary", "of the image's bytes"),
    ("pack", "whole number", "which tar file: 0 for `images-00000.tar`"),
    ("offset", "whole number", "where its bytes begin in the tar file, bytes"),
    ("length", "whole number", "how many bytes"),
    ("width", "whole number", "pixels"),
    ("height", "whole number", "pixels"),
    ("dhash", "binary", "a perceptual hash; images that look alike have hashes that differ in few bits"),
)
PAIR: Final = {
    "prompt": "the chat messages up to the assistant's turn; each image is a part `{type: image}`",
    "chosen": "the better answer",
    "rejected": "the worse answer",
    "images": "file names, in the order of their places in the prompt",
    "task_id": "names the task",
    "source": "how the pair was made",
    "screen": "width and height of the desktop, pixels",
    "split_key": "pairs that share a task or an image have the same key, as those of one prompt and better answer on "
    "images that look alike: a split by key leaks nothing",
    "split": "the split that the pair belongs to",
    "step": "at which step of the task; 0 is the first",
    "expected": "`{action, box}` of the right answer where it is known; for measuring, no prompt shows it",
    "marks": "the numbered boxes on the current screen, where the answers name marks",
    "note": "what more is known of the pair",
}
ROW: Final = {
    "benchmark": "the name of the benchmark or environment",
    "version": "its version; results of different versions are not comparable",
    "split": "the split that was measured",
    "metric": "the name of the metric",
    "value": "its value; null where nothing could be measured",
    "ci_low": "lower end of the 95 % interval",
    "ci_high": "upper end of the 95 % interval",
    "n": "how many tasks, steps or answers the value is over",
    "infra_failures": "tasks that never got a score because the environment failed",
    "seeds": "the seeds that the tasks were drawn with",
    "agent": "the name of the agent",
    "clusters": "episodes or trajectories behind an interval by cluster; null where the observations are independent",
    "steps": "of a training: the optimiser steps after which the weights were those that were measured; else null",
}
RECORD: Final = {
    "benchmark": "the name of the benchmark or environment",
    "agent": "the name of the agent",
    "task_id": "names the task; `launcher compare` pairs runs by it and the seed",
    "seed": "the seed of the task's start state",
    "score": "from 0 to 1; null where the outcome is not `scored`",
    "success": "whether the task was solved; null where the outcome is not `scored`",
    "outcome": "`infra`: the environment failed; `not run`: the task cannot run there. Neither is a score of the agent",
    "error": "why the outcome is not `scored`, or why an answer was no action",
    "steps": "answers of the agent",
    "parse_failures": "answers that were no action",
    "refused": "answers of which something could not be done",
    "state_solved": "whether the final state was the solved one, whatever the answers were; null: it was not judged",
    "judged": "steps for which the environment's expert is known",
    "correct": "of those, steps where the agent did the same",
    "pointed": "steps where the expert points at a box",
    "in_box": "of those, steps where the agent's point lay in the box",
    "by_type": "type of the expected action: `[steps, correct steps]`",
    "duration_ms": "milliseconds",
    "attempts": "how often the episode was started; more than 1 after failures of the environment",
    "metrics": "figures of this task by name, for paired comparisons",
    "episode": "the folder of the episode below `episodes/`; null where it was not kept",
    "version": "version of the rules that gave the score; results of different versions are not compared",
    "cluster": "results of one cluster are not independent, as the steps of a trajectory; null: a cluster of its own",
    "rules": "what else defines the score, by name; results by different rules are not compared",
    "programs": "programs that the task is about; a report groups by them",
    "difficulty": "of the task, such as easy; a report groups by it",
    "feasible": "whether the task can be done; null: not known",
    "failure": "why the episode failed: its class `kind`, the `rule` in words, and `why`, what fitted the rule; "
    "null: solved, or not judged",
    "trial": "which repetition of the task it is, from 0",
    "content": "the beginning of the sha256 over what defines the task; of a newer task set, only tasks "
    "with another content are run again",
    "cut": "whether the limit of steps ended the episode, which a higher limit runs again; null: not known",
    "identity": "all that can change the task's start, answer or verdict, by name ([its parts]"
    "(../explanation/identity.md)): tasks are only compared where it is the same; empty: the judge is unknown",
    "earlier": "what of `rules` was other when the episode ran, where its score stands by the present ones",
}
ANSWER: Final = {
    "task_id": "names the trajectory",
    "step": "its `step_num`",
    "response": "the agent's answer; null where it could not be asked",
    "infra": "why it could not be asked",
    "frame": "width and height in pixels in which the coordinates of the answer are; null for fractions of the screen",
}
SPOT_ANSWER: Final = {
    "task_id": "the question: platform and number in its file, of Pro the item's `id`",
    "size": "width and height of the screenshot in pixels",
    "response": "the agent's answer; null where it could not be asked",
    "infra": "why it could not be asked",
    "frame": "width and height in pixels in which the coordinates of the answer are; null for fractions of the screen",
}
TRAJECTORY: Final = (
    ("task_id", "text", "names the trajectory; unique in the folder"),
    ("high_level_task_description", "text", "the task in words; without it, `user_task_description` is read"),
    ("steps", "list", "the scored steps"),
    ("steps[].step_num", "whole number", "the number of the step; numbers may have gaps"),
    ("steps[].image", "text", "file name of the screenshot below `images/`"),
    ("steps[].action", "text", "what the human did, in PyAutoGUI; later steps see it as history"),
    ("steps[].inner_monologue.thought", "text", "the human's reasoning; may be absent"),
    ("steps[].ground_truth_actions", "list of acts", "the right answer: one act or several in order"),
    ("steps[].alternative_options", "list of lists of acts", "other right answers; the best match counts"),
)
ACTS: Final = (
    ("`click`, `doubleClick`, `rightClick`, `middleClick`, `tripleClick`, `moveTo`, `dragTo`", "`position: {x, y}`"),
    ("`scroll`, `hscroll`", "`amount` (or `pixels`), positive is up or right; or only a `direction`"),
    ("`write`, `type`", "`text` (or `content`)"),
    ("`press`, `hotkey`", "`keys` (or `key`), a list of names"),
    ("`terminate`", "`status`: `success` or `failure`"),
)
