"""The section `trl:` of every trainer: arguments of TRL (and transformers) that the configuration has no field for.

An argument that has a field is refused with the field's name, and one that would break a promise with the promise. The
others are checked against the trainer's class of arguments, by name and type, before a model is loaded.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from eval.config import ConfigError

# TRL's and transformers' names -> the fields that set them.
NAMED: Final[dict[str, str]] = {
    "activation_checkpointing": "activation_checkpointing",
    "adam_beta2": "adam_beta2",
    "beta": "beta",
    "bf16": "precision",
    "data_seed": "seed",
    "dataloader_num_workers": "workers",
    "deepspeed": "deepspeed",
    "epsilon": "epsilon",
    "epsilon_high": "epsilon_high",
    "fp16": "precision",
    "fsdp": "fsdp",
    "fsdp_config": "fsdp",
    "generation_batch_size": "steps_per_generation",
    "gradient_accumulation_steps": "accumulate",
    "gradient_checkpointing": "activation_checkpointing",
    "importance_sampling_level": "importance",
    "label_smoothing": "label_smoothing",
    "learning_rate": "learning_rate",
    "logging_steps": "log_every",
    "loss_type": "loss (GRPO), losses (DPO)",
    "loss_weights": "weights",
    "lr_scheduler_kwargs": "floor",
    "lr_scheduler_type": "schedule",
    "mask_truncated_completions": "mask_truncated",
    "max_completion_length": "max_completion",
    "max_grad_norm": "max_grad_norm",
    "max_steps": "steps",
    "min_p": "min_p",
    "num_generations": "num_generations",
    "num_iterations": "num_iterations",
    "num_train_epochs": "epochs",
    "optim": "optimizer",
    "padding_free": "padding_free",
    "per_device_train_batch_size": "batch_size",
    "repetition_penalty": "repetition_penalty",
    "report_to": "report_to",
    "reward_weights": "rewards",
    "run_name": "run_name",
    "save_steps": "save_every",
    "save_total_limit": "keep_checkpoints",
    "scale_rewards": "scale_rewards",
    "seed": "seed",
    "steps_per_generation": "steps_per_generation",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "use_vllm": "generation",
    "vllm_gpu_memory_utilization": "generation.memory",
    "vllm_max_model_length": "generation.context",
    "vllm_mode": "generation.mode",
    "vllm_tensor_parallel_size": "generation.parallel",
    "warmup_steps": "warmup_steps",
    "weight_decay": "weight_decay",
}
# What the trainers set themselves and the section may set otherwise.
CHOICES: Final = frozenset(
    (
        *("dataloader_pin_memory", "ddp_timeout"),
        *("vllm_importance_sampling_clip_max", "vllm_importance_sampling_mode"),
    )
)
_PROMISES: Final[dict[str, tuple[str, ...]]] = {
    "a checkpoint is whole, at a known step, and a training resumes from it bit for bit": (
        *("enable_jit_checkpoint", "ignore_data_skip", "load_best_model_at_end", "output_dir"),
        *("restore_callback_states_from_checkpoint", "resume_from_checkpoint", "save_on_each_node"),
        *("save_only_model", "save_strategy"),
    ),
    "the order of the samples depends on seed, epoch and, with group_by_length, their lengths alone": (
        *("accelerator_config", "dataloader_drop_last", "dataloader_in_order", "length_column_name"),
        *("shuffle_dataset", "train_sampling_strategy"),
    ),
    "a step's batch and its gradient are what the configuration says": (
        *("auto_find_batch_size", "average_tokens_across_devices"),
    ),
    "results go to $SLIPWAY_OUTPUTS; training.push_to_hub sends a model on": (
        *("hub_always_push", "hub_model_id", "hub_private_repo", "hub_revision", "hub_strategy", "hub_token"),
        *("log_completions_hub_repo", "push_to_hub", "trackio_bucket_id", "trackio_space_id"),
        "trackio_static_space_id",
    ),
    "the loop of evaluation is our own (`evaluation`); TRL's has nothing to evaluate on": (
        *("batch_eval_metrics", "bf16_full_eval", "do_eval", "do_predict", "do_train", "eval_accumulation_steps"),
        *("eval_delay", "eval_do_concat_batches", "eval_on_start", "eval_packing", "eval_steps", "eval_strategy"),
        *("eval_use_gather_object", "fp16_full_eval", "greater_is_better", "include_for_metrics", "label_names"),
        *("metric_for_best_model", "num_generations_eval", "per_device_eval_batch_size", "prediction_loss_only"),
    ),
    "our collators make the batches, images whole and answers labelled": (
        *("assistant_only_loss", "completion_only_loss", "dataset_kwargs", "dataset_num_proc", "dataset_text_field"),
        *("max_length", "packing", "packing_strategy", "remove_unused_columns", "truncation_mode"),
        *("precompute_ref_batch_size", "precompute_ref_log_probs"),
    ),
    "prompts are the same in training and evaluation": (
        *("chat_template_kwargs", "chat_template_path", "eos_token", "pad_token"),
    ),
    "the model is loaded by its own fields, and code in a model's folder is not run": (
        *("model_init_kwargs", "trust_remote_code"),
    ),
    "devices and processes are those of the launcher": ("ddp_backend", "local_rank", "parallelism_config", "use_cpu"),
    "a loss that is not finite ends the training, and logs have one line a step": (
        *("disable_tqdm", "logging_nan_inf_filter", "logging_strategy"),
    ),
    "nothing of a result depends on it: it is for printing, timing or prefetching": (
        *("dataloader_multiprocessing_context", "dataloader_persistent_workers", "dataloader_prefetch_factor"),
        *("debug", "include_num_input_tokens_seen", "log_completions", "log_level", "log_level_replica"),
        *("log_multimodal", "log_on_each_node", "log_unique_prompts", "logging_first_step"),
        *("num_completions_to_print", "skip_memory_metrics"),
    ),
    "activation_checkpointing is the field, and how it computes changes nothing": (
        *("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs"),
    ),
    "it changes nothing of a training: the model's own settings decide": ("cache_implementation", "use_cache"),
    "it is for models with experts, and no model of this family is trained with their loss here": (
        "router_aux_loss_coef",
    ),
    "it is for optimisers that `optimizer` does not offer": ("optim_args", "optim_target_modules"),
    "TRL 1.16 fails in its own computation of these weights; take losses and weights": ("use_weighting",),
    "TRL 1.16 looks for the embeddings where the Qwen-VL classes have none; take precision: float32": (
        "cast_lm_head_to_fp32",
    ),
    "Liger's kernels cannot be loaded for the Qwen-VL classes of transformers 5.23": (
        *("liger_kernel_config", "use_liger_kernel"),
    ),
    "tokens that stand for images are never sampled": ("generation_kwargs",),
    "an answer is one turn, with images, and who samples it is `generation`": (
        *("max_tool_calling_iterations", "transformers_continuous_batching_config"),
        *("use_transformers_continuous_batching", "use_transformers_paged", "vllm_group_port"),
        *("vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_server_timeout"),
    ),
}
# Arguments that training.rl never hands on, because rollouts and their returns are its own: what to use in their place.
_UNREAD_BY_RL: Final[dict[str, tuple[str, ...]]] = {
    "the reference is the model of the start; take kl": (
        *("beta", "ds3_gather_for_generation", "ref_model_mixup_alpha", "ref_model_sync_steps", "sync_ref_model"),
        "use_bias_correction_kl",
    ),
    "vLLM samples the rollouts with asynchronous.vllm": (
        *("use_vllm", "vllm_enable_sleep_mode", "vllm_gpu_memory_utilization", "vllm_max_model_length", "vllm_mode"),
        *("vllm_model_impl", "vllm_structured_outputs_regex", "vllm_tensor_parallel_size"),
    ),
    "what another version sampled is weighed with asynchronous.cap": (
        *("vllm_importance_sampling_cap", "vllm_importance_sampling_clip_max", "vllm_importance_sampling_clip_min"),
        *("vllm_importance_sampling_correction", "vllm_importance_sampling_mode"),
    ),
    "a pass is padded to its longest row; take a smaller batch_size": ("pad_to_multiple_of",),
    "a group has group_size rollouts": ("num_generations",),
    "a rollout has one return; take reward, turn_cost or length_buffer": (
        *("multi_objective_aggregation", "reward_weights"),
    ),
    "there is no loss vespo; take loss: dapo, grpo, cispo or sapo": (
        *("vespo_k_neg", "vespo_k_pos", "vespo_lambda_neg", "vespo_lambda_pos"),
    ),
}
_PADDED: Final = {"pad_to_multiple_of": "a batch is padded to its longest sample; take padding_free"}


def _unread(instead: Mapping[str, str]) -> dict[str, str]:
    return {name: f"nothing reads it here: {text}" for name, text in instead.items()}


# What each trainer refuses -> why, and what to use in its place; found by training with it
# (tests/data/trl_answers.json).
UNREAD_BY_SFT: Final[dict[str, str]] = _unread(_PADDED)
UNREAD_BY_DPO: Final[dict[str, str]] = _unread(
    {
        **_PADDED,
        "label_smoothing_factor": "a pair has no label of a token; take label_smoothing, the share of turned pairs",
    }
)
UNREAD_BY_GRPO: Final[dict[str, str]] = _unread({"label_smoothing_factor": "the loss has no labels; take entropy_coef"})
UNREAD_BY_REWARD: Final[dict[str, str]] = _unread(
    {"label_smoothing_factor": "a pair has no label of a token; take centring to keep rewards near 0"}
)
UNREAD_BY_RL: Final[dict[str, str]] = {
    **UNREAD_BY_GRPO,
    **_unread({name: instead for instead, names in _UNREAD_BY_RL.items() for name in names}),
    "disable_dropout": "not offered here: dropout is always off, so that the loss sees the policy that sampled",
    "neftune_noise_alpha": "not offered here: with noise the loss would not see the policy that sampled; take "
    "temperature",
}
REFUSED: Final[dict[str, str]] = {name: promise for promise, names in _PROMISES.items() for name in names}


def check_names(trl: Mapping[str, Any], fields: Iterable[str], unread: Mapping[str, str] | None = None) -> None:
    """Refuses what has a field, breaks a promise, or is read by nothing; imports nothing. Raises ConfigError.

    fields  the names of the trainer's own configuration, which decide whether `loss_type` and the like have a field
    unread  arguments that this trainer reads nowhere, or that break it -> why, and what to use in their place
    """
    have = set(fields)
    for name in trl:
        if unread and name in unread:
            raise ConfigError(f"trl.{name}: {unread[name]}")
        field = NAMED.get(name)
        if field is not None and any(word.strip(",()").partition(".")[0] in have for word in field.split()):
            raise ConfigError(f"trl.{name}: the field {field} sets it")
        if name in REFUSED:
            raise ConfigError(f"trl.{name}: not offered: {REFUSED[name]}")


def check_arguments(trl: Mapping[str, Any], kind: Any) -> None:
    """Checks names and types against a dataclass of arguments, say trl.GRPOConfig. Raises ConfigError."""
    known = {field.name for field in dataclasses.fields(kind) if field.init}
    hints = typing.get_type_hints(kind) if trl else {}
    for name, value in trl.items():
        if name not in known:
            raise ConfigError(f"trl.{name}: {kind.__name__} has no such argument{_near(name, known)}")
        try:
            msgspec.convert(value, hints[name])
        except msgspec.ValidationError as error:
            raise ConfigError(f"trl.{name}: {error}") from None
        except TypeError:
            continue  # a type that msgspec does not know, as a union of an enumeration and text: the class judges


def with_trl(arguments: Mapping[str, Any], trl: Mapping[str, Any], kind: Any) -> Any:
    """An instance of `kind`: our arguments and those of the section. Raises ConfigError if the class refuses them."""
    check_arguments(trl, kind)
    if taken := sorted(name for name in trl if name in arguments and name not in CHOICES):
        raise ConfigError(f"trl.{taken[0]}: fields of this configuration set it")
    try:
        return kind(**{**arguments, **trl})
    except (TypeError, ValueError) as error:
        if not trl:
            raise
        said = " ".join(str(error).split())[:300]
        raise ConfigError(f"trl: {kind.__name__} refuses {', '.join(sorted(trl))}: {said}") from None


def _near(name: str, known: Iterable[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; near is {near[0]}" if near else ""
