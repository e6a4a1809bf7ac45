"""Generates on a plain vLLM server, on any device: sends chat completions, gets token ids and log probabilities; sends
the LoRA's weights as a folder.

The server (`SERVER` has the options that matter):

    VLLM_ALLOW_RUNTIME_LORA_UPDATING=True python -m vllm.entrypoints.openai.api_server --model DIR \\
        --served-model-name model --enable-lora --max-lora-rank 16 --max-loras 2 --enable-tower-connector-lora \\
        --logprobs-mode processed_logprobs

- Each update has a new name and a new folder. vLLM caches the vision tower's output of an image by the LoRA's name
  only, so reusing a name would reuse outputs of the old weights.
- Without --enable-tower-connector-lora vLLM silently drops the vision tower's part of a LoRA.
- logit_bias suppresses vision tokens.
"""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from PIL import Image

from eval.config import ConfigError
from eval.desktop import InfraError
from eval.prompts import Message

SERVER: Final = (
    *("--enable-lora", "--max-loras", "2", "--enable-tower-connector-lora"),
    *("--logprobs-mode", "processed_logprobs"),
)
PARALLEL: Final = 32  # requests at a time
UNKNOWN: Final = 404  # the status of a request for a LoRA that the server does not have
KEY: Final = "VLLM_API_KEY"  # a secret of the job, where the server wants one


class ServerGone(InfraError):
    """The generation server does not answer, or fails; the job is retried from its checkpoint."""


class ServerRefuses(ConfigError):
    """The server refuses a request. `code`: its status, 4xx."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class SampledCompletion:
    """One sampled answer: its token ids (with the end token), their log probabilities, the prompt's ids, and the name
    of the model or LoRA that sampled it."""

    prompt_ids: list[int]
    ids: list[int]
    logprobs: list[float]
    model: str | None = None


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters. `suppressed`: token ids that must never be sampled; `ends`: those that end an answer; empty:
    the ones that the server takes from the model's files."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    suppressed: Sequence[int] = ()
    ends: Sequence[int] = ()

    def body(self) -> dict[str, Any]:
        """All sampling fields of a request: the server takes missing ones from the model's generation_config.json."""
        return {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "logit_bias": {str(token): -100 for token in self.suppressed},
            **({"stop_token_ids": list(self.ends), "ignore_eos": True} if self.ends else {}),
        }


class Client:
    """`model`: the base model's name on the server. `timeout`: seconds, for the start and for each answer. `field`: of
    the configuration, which begins the texts of errors."""

    def __init__(self, url: str, model: str, *, timeout: float = 240.0, field: str = "generation") -> None:
        self.field = field
        self.url = url.rstrip("/")
        self.model = model
        self.timeout = timeout
        self.adapter: str | None = None
        self.folders: list[Path] = []

    def wait(self) -> None:
        """Waits until the server is up. Raises ServerGone after `timeout`, ConfigError if it serves another model."""
        end = time.monotonic() + self.timeout
        while True:
            try:
                served = self.served()
                break
            except ServerGone:
                if time.monotonic() > end:
                    raise
                time.sleep(0.5)
        if self.model not in served:
            raise ConfigError(f"{self.field}: {self.url} serves {', '.join(served)}, not {self.model}")

    def served(self) -> list[str]:
        """What requests may name: the model and its adapters. Raises ServerGone, ConfigError."""
        return [entry["id"] for entry in self._call("/v1/models", None)["data"]]

    def load(self, name: str, folder: Path) -> None:
        """Loads the LoRA in `folder` under a name. Raises ServerGone, ServerRefuses."""
        self._call("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(folder.resolve())})

    def unload(self, name: str) -> None:
        """Raises ServerGone, ServerRefuses."""
        self._call("/v1/unload_lora_adapter", {"lora_name": name})

    def weights_label(self) -> str:
        """What the server was told last of its weights (`label_weights`); "default" since its start. Raises ServerGone,
        ServerRefuses."""
        return str(self._call("/weight_info", None)["weight_version"])

    def label_weights(self, label: str) -> None:
        """Raises ServerGone, ServerRefuses."""
        self._call("/update_weight_version", {"new_version": label})

    def load_weights(self, folder: Path) -> None:
        """Puts the safetensors in `folder` into the model in place, and throws away what the server keeps of the old
        weights. Raises ServerGone, ServerRefuses, ConfigError where it answers questions meanwhile."""
        kwargs = {"weights_path": str(folder.resolve())}
        self._call("/collective_rpc", {"method": "reload_weights", "kwargs": kwargs, "timeout": self.timeout})
        for path in ("/reset_mm_cache", "/reset_encoder_cache"):
            self._call(path, {})
        if not self._call("/reset_prefix_cache", {})["success"]:
            raise ConfigError(
                f"{self.field}: {self.url} keeps its cache of the old weights: somebody else asks it; a server that "
                "takes all weights of a training is for this training alone"
            )

    def update(self, folder: Path, name: str) -> None:
        """Loads the LoRA in `folder` under a new name for later requests; unloads the previous one and deletes its
        folder. Raises ServerGone, or ConfigError for a LoRA that the server refuses.
        """
        self.load(name, folder)
        if self.adapter is not None:
            self.unload(self.adapter)
        self.adapter = name
        self.folders.append(folder)
        while len(self.folders) > 1:
            shutil.rmtree(self.folders.pop(0), ignore_errors=True)

    def sample(
        self, prompts: Sequence[tuple[list[Message], Sequence[Image.Image]]], sampling: Sampling, seeds: Sequence[int]
    ) -> list[SampledCompletion]:
        """An answer per prompt and seed, in order; equal seeds and weights give equal answers.

        Raises ServerGone, ConfigError.
        """
        urls: dict[int, str] = {}
        for _, images in prompts:
            for image in images:
                urls.setdefault(id(image), data_url(image))
        bodies = [
            question(self.adapter or self.model, messages, [urls[id(image)] for image in images], sampling, seed)
            for (messages, images), seed in zip(prompts, seeds, strict=True)
        ]
        with ThreadPoolExecutor(PARALLEL) as pool:
            return list(pool.map(self.answer, bodies))

    def answer(self, body: dict[str, Any]) -> SampledCompletion:
        """The answer to one `question`. Raises ServerGone, ConfigError."""
        reply = self._call("/v1/chat/completions", body)
        try:
            (choice,) = reply["choices"]
            answer = SampledCompletion(
                [int(token) for token in reply["prompt_token_ids"]],
                [int(token) for token in choice["token_ids"]],
                [float(entry["logprob"]) for entry in choice["logprobs"]["content"]],
                reply.get("model"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{self.field}: {self.url} answers without token ids and logprobs ({error!r})") from None
        if not answer.ids or len(answer.ids) != len(answer.logprobs):
            raise ServerGone(f"{self.url}: {len(answer.logprobs)} log probabilities for {len(answer.ids)} tokens")
        return answer

    def _call(self, path: str, body: Mapping[str, Any] | None) -> Any:
        """Sends a JSON request. Raises ServerRefuses for status 4xx, ServerGone for any other failure."""
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY):
            headers["Authorization"] = f"Bearer {key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                text = response.read().decode()
        except urllib.error.HTTPError as error:
            said = " ".join(error.read().decode(errors="replace").split())[:300]
            if 400 <= error.code < 500 and error.code not in (408, 429):
                said = f"{self.field}: {self.url}{path} refuses ({error.code}): {said}"
                raise ServerRefuses(said, error.code) from None
            raise ServerGone(f"{self.url}{path}: {error.code}: {said}") from None
        except (OSError, TimeoutError) as error:
            raise ServerGone(f"{self.url}{path}: {error}") from None
        try:
            return json.loads(text)
        except ValueError:
            return text  # the LoRA endpoints answer with plain text


def question(
    model: str, messages: Sequence[Message], urls: Sequence[str], sampling: Sampling, seed: int
) -> dict[str, Any]:
    """The body of a chat completion whose tokens and log probabilities are kept."""
    return {
        "model": model,
        "messages": filled(messages, urls),
        **sampling.body(),
        "seed": seed,
        "logprobs": True,
        "return_token_ids": True,
        "skip_special_tokens": False,
    }


def data_url(image: Image.Image) -> str:
    """The image as a data: URL with a PNG."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def filled(messages: Sequence[Message], urls: Sequence[str]) -> list[Message]:
    """Converts messages from Hugging Face's form to OpenAI's: each image placeholder becomes its URL."""
    left = list(urls)
    made: list[Message] = []
    for turn in messages:
        parts = [
            {"type": "image_url", "image_url": {"url": left.pop(0)}} if part["type"] == "image" else part
            for part in turn["content"]
        ]
        made.append({**turn, "content": parts})
    if left:
        raise ValueError(f"{len(left)} images have no place")
    return made
