"""What each argument of TRL does in our trainers, found by training the tiny model with it and without it.

`python -m tests.integration.training.trl_answers METHOD [ARGUMENT ...]` writes METHOD's part of
tests/data/trl_answers.json, or these arguments' answers.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from tests.integration.training import preference
from tests.unit.training.test_trl_arguments import answered, kinds
from training.data.pairs.store import read_pairs
from training.options import LoraConfig
from training.rewards import SampledAnswer

TABLE = Path(__file__).parents[2] / "data" / "trl_answers.json"
HERE = "tests.integration.training.trl_answers"
# argument -> a value that should make a difference, and other arguments with which it can
TRIED: dict[str, tuple[Any, dict[str, Any]]] = {
    "adam_beta1": (0.5, {}),
    "adam_epsilon": (1.0, {}),
    "label_smoothing_factor": (0.3, {}),
    "neftune_noise_alpha": (50.0, {}),
    "loss_type": ("dft", {}),
    "pad_to_multiple_of": (64, {}),
    "delta": (1.01, {}),
    "disable_dropout": (None, {"#lora": LoraConfig(dropout=0.5)}),  # the tiny model has no other dropout
    "entropy_coef": (0.5, {}),
    # the model's entropy is below the target, so that the coefficient grows from step to step
    "entropy_coef_delta": (0.9, {"use_adaptive_entropy": True, "entropy_target": 9.0}),
    "entropy_coef_max": (0.001, {"use_adaptive_entropy": True, "entropy_target": 9.0, "entropy_coef_delta": 0.9}),
    # above the target it falls to the least, in the state that a checkpoint has for what follows
    "entropy_coef_min": (0.5, {"use_adaptive_entropy": True, "entropy_target": 0.1}),
    "entropy_target": (9.0, {"use_adaptive_entropy": True, "entropy_coef_delta": 0.9}),
    "use_adaptive_entropy": (True, {"entropy_target": 9.0, "entropy_coef_delta": 0.9}),
    "top_entropy_quantile": (0.2, {}),
    "off_policy_mask_threshold": (1e-9, {}),
    "sapo_temperature_neg": (9.0, {"#loss": "sapo"}),
    "sapo_temperature_pos": (9.0, {"#loss": "sapo"}),
    "vespo_k_neg": (0.1, {"#loss": "vespo"}),
    "vespo_k_pos": (0.1, {"#loss": "vespo"}),
    "vespo_lambda_neg": (9.0, {"#loss": "vespo"}),
    "vespo_lambda_pos": (9.0, {"#loss": "vespo"}),
    "min_p": (0.9, {}),
    "repetition_penalty": (5.0, {}),
    "multi_objective_aggregation": ("normalize_then_sum", {"#rewards": 2}),
    "sync_ref_model": (True, {"#beta": 0.5, "ref_model_sync_steps": 1}),
    "ref_model_mixup_alpha": (0.1, {"#beta": 0.5, "sync_ref_model": True, "ref_model_sync_steps": 1}),
    "ref_model_sync_steps": (1, {"#beta": 0.5, "sync_ref_model": True}),
    "use_bias_correction_kl": (None, {"#beta": 0.5}),
    "discopop_tau": (0.9, {"#losses": "discopop"}),
    "f_divergence_type": ("forward_kl", {}),
    "f_alpha_divergence_coef": (0.1, {"f_divergence_type": "alpha_divergence"}),
    "ld_alpha": (0.1, {}),
    "use_weighting": (True, {}),
}
# what no run here can show; `read_at` adds where it is read
ELSEWHERE: dict[str, str] = {
    name: why
    for why, names in {
        "needs CUDA": ("activation_offloading", "dataloader_pin_memory", "tf32", "torch_empty_cache_steps"),
        "needs CUDA; without it only its seeds count, which are ours": ("full_determinism",),
        "needs a compiler": ("torch_compile", "torch_compile_backend", "torch_compile_mode"),
        "needs several processes": (
            *("ddp_broadcast_buffers", "ddp_bucket_cap_mb", "ddp_find_unused_parameters", "ddp_static_graph"),
            *("ddp_timeout", "ds3_gather_for_generation"),
        ),
        "needs a tracker of report_to": ("project",),
        "needs CUDA, for vLLM": (
            *("vllm_enable_sleep_mode", "vllm_importance_sampling_cap", "vllm_importance_sampling_clip_max"),
            *("vllm_importance_sampling_clip_min", "vllm_importance_sampling_correction"),
            *("vllm_importance_sampling_mode", "vllm_model_impl", "vllm_structured_outputs_regex"),
        ),
    }.items()
    for name in names
}


def variety(attempts: list[SampledAnswer]) -> list[float]:
    """A reward of each answer's own."""
    return [int(hashlib.sha256(attempt.text.encode()).hexdigest()[:4], 16) / 65535 for attempt in attempts]


def shortness(attempts: list[SampledAnswer]) -> list[float]:
    return [1 / (1 + len(attempt.text)) for attempt in attempts]


def made(method: str, options: dict[str, Any], trl: dict[str, Any], out: Path) -> Any:
    """A trainer of `method`, ready to train. Options with `#` are of our configuration."""
    root = preference.material()
    values: dict[str, Any] = {
        "model": str(root / "model"), "steps": 3, "warmup_steps": 0, "learning_rate": 1e-3, "log_every": 2, "trl": trl,
        "save_every": 3, **options,
    }  # fmt: skip
    if method == "sft":
        from training.data.faults import Faults
        from training.sft import train as sft

        config = sft.SftConfig(**values, prompt=preference.PROMPT, episodes=str(root / "episodes"), batch_size=2)
        config.check()
        return sft.make_trainer(config, sft.open_data(config, config.prompt.builder(), Faults()), out)
    if method == "dpo":
        from training.dpo import train as dpo

        loss = values.pop("losses", None)
        given = {} if loss is None else {"losses": [loss]}
        config = dpo.DpoConfig(**values, **given, pairs=str(root / "pairs"), prompt=preference.PROMPT, batch_size=2)
        config.check()
        return dpo.make_trainer(config, read_pairs(root / "pairs", "train")[:6], out)
    if method == "reward":
        from training.reward import train as reward

        config = reward.RewardConfig(**values, pairs=str(root / "pairs"), batch_size=2)
        config.check()
        return reward.make_trainer(config, read_pairs(root / "pairs", "train")[:6], out)
    if method == "rl":
        from tests.integration.rl.conftest import rl_config
        from training.rl import train as rl

        given = {name: value for name, value in options.items() if name != "rewards"}
        drawn = "tests.integration.rl.lucky:Lucky"  # scores that even a model that knows nothing learns from
        given = {"steps": 2, "num_iterations": 2, "save_every": 2, **given}  # the second step's ratios are not 1
        config = rl_config(root / "model", environment=drawn, trl=trl, prompt=preference.PROMPT, **given)
        config.check()
        return rl.make_trainer(config, out)
    from training.data.faults import Faults
    from training.data.source import open_source
    from training.grpo import train as grpo
    from training.grpo.config import GrpoConfig
    from training.grpo.prompts import Prompts
    from training.rewards import RewardSpec, load

    names = ("variety", "shortness")[: values.pop("rewards", 1)]
    values |= {"steps": 4, "save_every": 4}  # whole generations
    config = GrpoConfig(
        **values,
        data=str(root / "episodes"),
        prompt=preference.PROMPT,
        num_generations=4,
        batch_size=8,
        num_iterations=2,
        max_completion=4,
        rewards=[RewardSpec(name=f"{HERE}:{name}") for name in names],
    )
    config.check()
    rewards = load(config.rewards)
    prompts = Prompts(open_source(config.data, config.prompt.builder(), Faults()), rewards, Faults())
    return grpo.make_trainer(config, rewards, prompts, out)


def shown(method: str, options: dict[str, Any], trl: dict[str, Any]) -> str:
    """A digest of what a training leaves: its weights, the names of its files, and the state of its entropy bonus,
    from which later steps go on."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = made(method, options, trl, Path(folder))
        trainer.train()
        digest = hashlib.sha256()
        for name, value in sorted(trainer.accelerator.unwrap_model(trainer.model).state_dict().items()):
            digest.update(name.encode() + value.cpu().numpy().tobytes())
        digest.update(repr(sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*"))).encode())
        for state in sorted(Path(folder).rglob("entropy_ctrl_state.json")):
            digest.update(str(json.loads(state.read_text(encoding="utf-8"))["entropy_coef"]).encode())
        shutil.rmtree(folder, ignore_errors=True)
    return digest.hexdigest()


def changed(kind: Any, name: str) -> tuple[Any, dict[str, Any]]:
    """A value to try, and what has to go with it."""
    value, given = TRIED.get(name, (None, {}))
    default = next(field.default for field in dataclasses.fields(kind) if field.name == name)
    if value is None and isinstance(default, bool):
        value = not default
    elif value is None and isinstance(default, int | float):
        value = default * 2 + 1
    return value, given


def read_at(name: str, method: str) -> str:
    """The first line that reads an argument: of the method's trainer in TRL, else of transformers'."""
    look = re.compile(rf"(?:args|self)\.{name}\b")
    name_of = "grpo" if method == "rl" else method
    own = [f"{name_of}_trainer.py", f"{name_of}_config.py"]
    for package in ("trl", "transformers"):
        files = [path for path in importlib.metadata.files(package) or () if path.suffix == ".py"]
        first = [path for name in own for path in files if path.name == name]
        rest = sorted((path for path in files if "train" in path.name or "integration" in str(path)), key=str)
        for path in [*first, *(rest if package == "transformers" else [])]:
            for number, line in enumerate(path.locate().read_text(encoding="utf-8").splitlines(), 1):
                if look.search(line):
                    return f"{package} {importlib.metadata.version(package)}: {path}:{number}"
    return "no line reads it"


def answers(method: str, some: Collection[str] = (), tell: Callable[[str], object] = lambda _: None) -> dict[str, str]:
    """Argument -> its answer, or what is wrong with it; of `some`, or of all."""
    kind, found, plain = kinds()[method], {}, {}
    for name in sorted(field.name for field in dataclasses.fields(kind) if field.init):
        if some and name not in some:
            continue
        said = answered(method, name)
        if said == "taken" and name in ELSEWHERE:
            said = f"not run here: {ELSEWHERE[name]}; {read_at(name, method)}"
        elif said == "taken":
            value, given = changed(kind, name)
            options = {key[1:]: inner for key, inner in given.items() if key.startswith("#")}
            trl = {key: inner for key, inner in given.items() if not key.startswith("#")}
            try:
                if (key := repr(given)) not in plain:
                    plain[key] = shown(method, options, trl)
                said = "obeyed" if shown(method, options, {**trl, name: value}) != plain[key] else "NO DIFFERENCE"
            except Exception as error:
                said = f"FAILED {type(error).__name__}: {str(error)[:200]}"
        found[name] = said
        tell(f"{name}: {said}")
    return found


def main() -> None:
    method, *some = sys.argv[1:]
    found = answers(method, some, lambda line: print(line, flush=True))
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    table[method] = {**(table[method] if some else {}), **found}
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
