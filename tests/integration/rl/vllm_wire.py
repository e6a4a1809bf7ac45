"""A server that speaks the part of vLLM 0.32's wire that a sampler uses: models, LoRAs by name, chat completions, and
all weights in place.

Statuses and texts are those of vLLM's own entry points (serve/lora, openai/models/serving, serve/dev, rl/online).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from safetensors.torch import load_file

WEIGHTS: Final = (
    *("/weight_info", "/update_weight_version", "/collective_rpc"),
    *("/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache"),
)


@dataclass
class WireServer:
    """
    answer   the prompt's ids, the sampled ids and their log probabilities, for a request
    adapters name -> folder
    events   what was asked, in its order: (load | unload | chat, name), (weights, the first tensor's sum)
    develops whether it was started with VLLM_SERVER_DEV_MODE=1
    label    of its weights
    cached   answers that run at a reset of the prefix cache, which then fails
    down     503 to everything
    hold     a chat completion waits while it is clear
    """

    url: str
    answer: Callable[[dict[str, Any]], tuple[list[int], list[int], list[float]]]
    model: str = "model"
    adapters: dict[str, str] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    develops: bool = False
    label: str = "default"
    cached: int = 0
    chats: int = 0  # that run
    down: bool = False
    hold: threading.Event = field(default_factory=threading.Event)
    calls_it: str | None = None  # in an answer, in place of the name that was asked

    def reply(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if self.down:
            return 503, "the engine is dead"
        if path == "/v1/models":
            return 200, {"data": [{"id": name} for name in (self.model, *self.adapters)]}
        if path == "/v1/load_lora_adapter":
            name, place = body["lora_name"], body["lora_path"]
            self.events.append(("load", name))
            if name in self.adapters:
                return 400, {"error": {"message": f"The lora adapter '{name}' has already been loaded.", "code": 400}}
            if not (Path(place) / "adapter_config.json").exists():
                return 404, {"error": {"message": f"Loading lora {name} failed: No adapter found for {place}"}}
            self.adapters[name] = place
            return 200, f"Success: LoRA adapter '{name}' added successfully."
        if path == "/v1/unload_lora_adapter":
            self.events.append(("unload", body["lora_name"]))
            if self.adapters.pop(body["lora_name"], None) is None:
                return 404, {"error": {"message": "cannot be found"}}
            return 200, "Success"
        if path in WEIGHTS:
            return self.weights(path, body) if self.develops else (404, {"detail": "Not Found"})
        self.events.append(("chat", body["model"]))
        self.bodies.append(body)
        if body["model"] not in (self.model, *self.adapters):
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist.", "code": 404}}
        self.chats += 1
        self.hold.wait()
        self.chats -= 1
        prompt, ids, likely = self.answer(body)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "x"},
            "token_ids": ids,
            "logprobs": {"content": [{"token": "x", "logprob": each} for each in likely]},
            "finish_reason": "stop",
        }
        return 200, {"model": self.calls_it or body["model"], "choices": [choice], "prompt_token_ids": prompt}

    def weights(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/weight_info":
            return 200, {"weight_version": self.label}
        if path == "/update_weight_version":
            self.label = body["new_version"]
            return 200, {"success": True, "new_version": self.label}
        if path == "/reset_prefix_cache":
            return 200, {"success": not self.cached}
        if path == "/collective_rpc":
            assert body["method"] == "reload_weights"
            assert not self.chats, "weights change while an answer runs"
            (file,) = Path(body["kwargs"]["weights_path"]).glob("*.safetensors")
            self.events.append(("weights", f"{float(next(iter(load_file(file).values())).sum()):g}"))
            return 200, {"results": [None]}
        return 200, ""


@contextmanager
def wire(answer: Callable[[dict[str, Any]], tuple[list[int], list[int], list[float]]]) -> Iterator[WireServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.respond({})

        def do_POST(self) -> None:
            self.respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def respond(self, body: dict[str, Any]) -> None:
            server.headers.append({name.lower(): value for name, value in self.headers.items()})
            status, told = server.reply(self.path, body)
            data = told.encode() if isinstance(told, str) else json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        listener.daemon_threads = True
        server = WireServer(f"http://127.0.0.1:{listener.server_address[1]}", answer)
        server.hold.set()
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.hold.set()
            listener.shutdown()
            thread.join()
