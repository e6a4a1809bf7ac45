"""images/vllm-serve/serve.py: when it is ready, how it ends. A stand-in answers for vLLM here, which takes a minute to
start; nightly the real one serves, for CPUs, from .venv-vllm, and in the image (test_build.py)."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from eval.desktops.viewing import listening
from launcher.runtime.process import procs
from tests.images.serving import SERVE, adapter, entry, reserved, serving, value
from tests.support import old_driver
from tests.support.engine import ROOT
from tests.support.needs import marked
from tests.support.s3 import free_port
from tests.support.waiting import HANGS

PYTHON = Path(os.environ.get("SLIPWAY_VLLM_PYTHON") or ROOT / ".venv-vllm" / "bin" / "python")


def test_ready_means_that_a_request_was_answered(tmp_path: Path) -> None:
    with serving(tmp_path, {}, "loading") as server:
        server.wait("/health", 200)
        server.wait("/metrics", 200)  # vLLM listens and says that it is well
        server.reads("not yet an answer")
        assert server.get("/ready")[0] == 503
        server.says_no_more("loading")
        server.wait("/ready", 200)


def test_an_answer_that_is_none_is_asked_for_again(tmp_path: Path) -> None:
    with serving(tmp_path, {}, "garbled") as server:
        server.reads("not yet an answer")
        server.says_no_more("garbled")
        server.wait("/ready", 200)


def test_it_is_not_ready_when_an_adapter_does_not_answer(tmp_path: Path) -> None:
    with serving(tmp_path, {"adapters": {"mine": adapter(tmp_path / "adapter", 8)}}) as server:
        server.reads("no such model")
        assert server.get("/ready")[0] == 503


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with serving(tmp_path, {"start": 1}, "loading") as server:
        server.reads("no answer within 1 s")
        assert server.process.wait(HANGS) == 1


@pytest.mark.parametrize("given", ["environment", "arguments"])
def test_a_server_with_a_key_becomes_ready(tmp_path: Path, given: str) -> None:
    key = "made-up-key"
    config: dict[str, object] = {"arguments": ["--api-key", key, "another"]} if given == "arguments" else {}
    environ = {"VLLM_API_KEY": key} if given == "environment" else {}
    with serving(tmp_path, config, environ=environ, key=key) as server:
        server.reads("[serve] ready: model")


def test_a_key_that_is_refused_ends_the_role_at_once(tmp_path: Path) -> None:
    """No later try can have another answer: 30 minutes of waiting would cost a GPU's price."""
    with serving(tmp_path, {}, environ={"VLLM_API_KEY": "one"}, key="another") as server:
        server.reads("the server refuses its own key (401)")
        assert server.process.wait(HANGS) == 1


@pytest.mark.parametrize("words", [["loading"], ["hanging"]])
def test_a_server_that_never_answers_and_ignores_sigterm_is_killed(tmp_path: Path, words: list[str]) -> None:
    with serving(tmp_path, {"start": 1, "kill": 0.2}, *words, stubborn=True) as server:
        server.reads("no answer within 1 s")
        assert server.process.wait(HANGS) == 1


def test_adapters_are_loaded_at_run_time_only_when_asked(tmp_path: Path) -> None:
    fixed, asked = tmp_path / "fixed", tmp_path / "asked"
    with serving(fixed, {"adapters": {"mine": adapter(tmp_path / "a", 8)}}, names=["model", "mine"]) as server:
        argv, environ = server.started()
        assert "--enable-lora" in argv
        assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" not in environ
    with serving(asked, {"runtime_lora": True, "lora_rank": 12}) as server:
        argv, environ = server.started()
        assert environ["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
        assert value(argv, "--max-lora-rank") == "16"  # vLLM takes some ranks only: 16 is the next


def test_several_adapters_share_one_server(tmp_path: Path) -> None:
    """Each must have answered before it is ready; the rank is the largest of theirs."""
    adapters = {name: adapter(tmp_path / name, rank) for name, rank in (("a", 8), ("b", 64), ("c", 16))}
    config: dict[str, object] = {"adapters": adapters, "max_loras": 2}
    with serving(tmp_path / "s", config, names=["model", "a", "b", "c"]) as server:
        argv, _ = server.started()
    assert value(argv, "--max-lora-rank") == "64"
    assert (value(argv, "--max-loras"), value(argv, "--max-cpu-loras")) == ("2", "3")
    begun = argv.index("--lora-modules") + 1
    assert argv[begun : begun + 3] == [f"{name}={path}" for name, path in adapters.items()]


def test_without_our_launcher(tmp_path: Path) -> None:
    """`docker run vllm-serve --model X ...`: vLLM's own options, names and port, and a role's health check."""
    with reserved() as http:
        options = ["--served-model-name", "mine", "also", "--max-model-len", "512", "--port", str(http)]
        environ = {"SLIPWAY_PORT_HTTP": "1"}
        with serving(tmp_path, {}, options=options, environ=environ, names=["mine", "also"]) as server:
            argv, _ = server.started()
            assert value(argv, "--port") == str(http)
            assert value(argv, "--max-model-len") == "512"
            assert argv[len(argv) - argv[::-1].index("--served-model-name") :][:2] == ["mine", "also"]
            check = [sys.executable, "-m", "entry", "--healthcheck"]
            healthy = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'images'}:{SERVE.parent}"}
            healthy["SLIPWAY_READY_FILE"] = str(tmp_path / "ready")
            assert subprocess.run(check, env=healthy, check=False).returncode == 0


def test_without_our_launcher_a_model_has_its_own_name(tmp_path: Path) -> None:
    model = str(tmp_path / "model")
    with serving(tmp_path, {}, options=["--max-num-seqs=4"], names=[model]) as server:
        argv, _ = server.started()
        assert value(argv, "--served-model-name") == model


def test_the_images_entrypoint_is_still_the_runtime() -> None:
    helped = entry("--help")
    assert helped.returncode == 0
    assert "The runtime of a Slipway job" in helped.stdout
    assert "docker run ... IMAGE --model" in helped.stdout
    assert entry("run").returncode == 78
    assert "takes no `what`" in entry("what").stderr


def test_an_old_driver_is_told_before_anything_else(tmp_path: Path) -> None:
    environ = old_driver.environment(tmp_path, str(ROOT / "images"), str(SERVE.parent))
    first, second = entry("--model", "a/b", "--uds", environ=environ).stderr.splitlines()
    assert first.startswith(f"[serve] the NVIDIA driver of this machine is {old_driver.RELEASE}; ")
    assert second.startswith("config: ")


@pytest.mark.parametrize("option", ["--uds", "--ssl-certfile=cert.pem"])
def test_what_the_health_check_could_not_reach_is_refused(tmp_path: Path, option: str) -> None:
    refused = entry("--model", "a/b", option)
    assert refused.returncode == 78
    assert refused.stderr.startswith(f"config: arguments: {option.partition('=')[0]} ")
    assert refused.stderr.count("\n") == 1


def test_sigterm_lets_a_running_request_end(tmp_path: Path) -> None:
    with serving(tmp_path, {"drain": 300}, "slow") as server:
        server.wait("/ready", 200)
        client = server.ask()
        server.process.send_signal(signal.SIGTERM)
        server.wait("/ready", 503)
        server.says_no_more("slow")
        assert client.communicate(timeout=HANGS)[0] == "200\n"
        assert server.process.wait(HANGS) == 0


def test_a_server_that_has_too_much_to_do_to_say_so_is_not_taken_for_idle(tmp_path: Path) -> None:
    with serving(tmp_path, {"drain": 300}, "slow") as server:
        server.wait("/ready", 200)
        client = server.ask()
        server.says("mute")
        server.process.send_signal(signal.SIGTERM)
        server.reads("draining: unknown")
        server.reads("draining: unknown")
        server.says_no_more("slow")
        assert client.communicate(timeout=HANGS)[0] == "200\n"
        server.says_no_more("mute")
        assert server.process.wait(HANGS) == 0


def test_requests_that_do_not_end_get_no_more_than_their_time(tmp_path: Path) -> None:
    with serving(tmp_path, {"drain": 1}, "slow") as server:
        server.wait("/ready", 200)
        client = server.ask()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(HANGS) == 0
        assert client.wait(HANGS) != 0
        assert client.stdout is not None
        client.stdout.close()


def test_the_server_does_not_outlive_a_killed_role(tmp_path: Path) -> None:
    with serving(tmp_path, {}) as server:
        server.wait("/ready", 200)
        role = server.process.pid
        (child,) = map(int, Path(f"/proc/{role}/task/{role}/children").read_text().split())
        gone = os.pidfd_open(child)  # is readable once the process has ended, whoever has its number by then
        try:
            server.process.kill()
            assert select.select([gone], [], [], HANGS)[0], "the server lives on"
        finally:
            os.close(gone)


def test_a_server_that_ends_by_itself_ends_the_role(tmp_path: Path) -> None:
    with serving(tmp_path, {}, ends=3) as server:
        assert server.process.wait(HANGS) == 3


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model": "/nowhere"}, "model: there is no folder /nowhere"),
        ({"model": ".", "adapters": {"a": "/nowhere"}}, "adapters.a: there is no folder /nowhere"),
        ({"model": "/"}, "model: / has no config.json"),
        ({"model": "a/b", "modell": 1}, "modell"),
        ({"model": "a/b", "runtime_lora": True}, "runtime_lora: give lora_rank"),
        ({"model": "a/b", "lora_rank": 8}, "lora_rank: nothing uses it"),
        ({"model": "a/b", "lora_rank": 8, "adapters": {"a": "R32"}}, "lora_rank: 8 is less than the rank of a, 32"),
        ({"model": "a/b", "adapters": {"model": "R32"}}, "adapters.model: this is the model's own name"),
        ({"model": "a/b", "max_loras": 2}, "max_loras: nothing uses it"),
        (
            {"model": "a/b", "structured_outputs": {"compact": True, "backend": "outlines"}},
            "structured_outputs.compact",
        ),
    ],
)
def test_bad_configurations(tmp_path: Path, config: dict[str, object], said: str) -> None:
    file = tmp_path / "c.json"
    ranked = adapter(tmp_path / "R32", 32)
    file.write_text(json.dumps(config).replace("R32", ranked))
    command = [sys.executable, str(SERVE), "--config", str(file)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'images'}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert done.stderr.startswith("config: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


PARSE = """
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
for argv in json.load(sys.stdin):
    parsed = make_arg_parser(FlexibleArgumentParser()).parse_args(argv)
    validate_parsed_serve_args(parsed)
    engine = AsyncEngineArgs.from_cli_args(parsed)
    said = {
        "names": parsed.served_model_name,
        "loras": [f"{one.name}={one.path}" for one in parsed.lora_modules or []],
        "rank": parsed.max_lora_rank,
        "at_once": [parsed.max_loras, parsed.max_cpu_loras],
        "tower": parsed.enable_tower_connector_lora,
        "limits": parsed.limit_mm_per_prompt,
        "tools": [parsed.enable_auto_tool_choice, parsed.tool_call_parser],
        "reasoning": engine.reasoning_parser,
        "structured": [
            engine.structured_outputs_config.backend, engine.structured_outputs_config.disable_any_whitespace
        ],
        "metrics": [parsed.enable_per_request_metrics, parsed.kv_cache_metrics],
        "key": parsed.api_key,
        "port": parsed.port,
    }
    print(json.dumps(said))
"""
COMMANDS = """
import json, sys
from serve_config import ServeConfig, from_words
from eval.config.strict import convert
for config in json.load(sys.stdin):
    made = from_words(config)[0] if isinstance(config, list) else convert(config, ServeConfig, "config")
    made.check()
    print(json.dumps(made.command(8000)))
"""


@pytest.mark.nightly
@pytest.mark.timeout(600)
@marked("vllm", missing=not PYTHON.exists())
def test_vllms_own_parser_takes_every_option_as_it_is_meant(tmp_path: Path) -> None:
    adapters = {name: adapter(tmp_path / name, rank) for name, rank in (("a", 8), ("b", 20))}
    full: dict[str, object] = {"model": "a/b", "adapters": adapters, "max_loras": 1, "runtime_lora": True}
    full |= {"images": 4, "videos": 0, "audios": 1, "tool_call_parser": "hermes", "reasoning_parser": "qwen3"}
    full |= {"structured_outputs": {"backend": "guidance"}, "request_metrics": True, "kv_cache_metrics": True}
    full |= {"arguments": ["--api-key", "k"], "context": 512, "eager": True, "dtype": "float32"}
    words = ["--model", "a/b", "--served-model-name", "x", "y", "--port", "8100", "--tool-call-parser=hermes"]
    words += ["--enable-auto-tool-choice"]
    path = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'images'}:{SERVE.parent}"}

    def run(code: str, given: object) -> list[Any]:
        command = [str(PYTHON), "-c", code]
        done = subprocess.run(
            command, env=path, input=json.dumps(given), capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(("{", "["))]

    commands = run(COMMANDS, [full, {"model": "a/b"}, words])
    assert [command[1:3] for command in commands] == [["-m", "vllm.entrypoints.openai.api_server"]] * 3
    everything, plain, own = run(PARSE, [command[3:] for command in commands])
    assert everything == {
        "names": ["model"],
        "loras": [f"{name}={folder}" for name, folder in adapters.items()],
        "rank": 32,
        "at_once": [1, 2],
        "tower": True,
        "limits": {"image": 4, "video": 0, "audio": 1},
        "tools": [True, "hermes"],
        "reasoning": "qwen3",
        "structured": ["guidance", True],
        "metrics": [True, True],
        "key": ["k"],
        "port": 8000,
    }
    assert (plain["loras"], plain["tools"], plain["key"]) == ([], [False, None], None)
    assert (plain["metrics"], plain["structured"][1]) == ([False, False], False)
    assert (own["names"], own["port"], own["tools"]) == (["x", "y"], 8100, [True, "hermes"])


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.timeout(1200)
@marked("vllm", missing=not PYTHON.exists())
def test_vllm_serves_a_model_and_an_adapter_under_its_own_name(tmp_path: Path) -> None:
    """The image's own smoke: ready with a key, every name answers, and not the same; a schema, a tool, metrics, health
    check, SIGTERM to exit 0."""
    from training.tiny import TinyConfig, build

    build(TinyConfig(), tmp_path / "model")
    command = [sys.executable, str(Path(__file__).with_name("adapter.py")), str(tmp_path / "model")]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    subprocess.run([*command, str(tmp_path / "adapter")], env=environment, check=True)
    shutil.copytree(tmp_path / "adapter", tmp_path / "second")
    path = f"{ROOT}:{ROOT / 'images'}:{SERVE.parent}"
    environment |= {"PYTHONPATH": path, "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    environment["SLIPWAY_READY_FILE"] = str(tmp_path / "ready")
    command = [str(PYTHON), "-m", "smoke", *(str(tmp_path / name) for name in ("model", "adapter", "second"))]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert "the adapter mine answers under its name, and otherwise" in done.stdout
    assert "the adapter second answers under its name, and otherwise" in done.stdout
    assert "smoke: with a key; held to a schema: " in done.stdout
    assert "SIGTERM while a request is answered" in done.stdout
    assert done.stdout.endswith("smoke: passed\n")


def ready(port: int) -> bool:
    with suppress(OSError):
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=10).status == 200
    return False


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.timeout(1200)
@marked("vllm", missing=not PYTHON.exists())
def test_vllm_listens_on_the_ports_of_its_role_and_else_on_this_machine_alone(tmp_path: Path) -> None:
    from training.tiny import TinyConfig, build

    build(TinyConfig(), tmp_path / "model")
    small = {"model": str(tmp_path / "model"), "dtype": "float32", "context": 1024, "requests": 8, "eager": True}
    (tmp_path / "config.json").write_text(json.dumps(small))
    http, metrics = free_port(), free_port()
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'images'}:{SERVE.parent}", "HF_HUB_OFFLINE": "1"}
    environment |= {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "SLIPWAY_READY_FILE": str(tmp_path / "ready")}
    environment |= {"SLIPWAY_PORT_HTTP": str(http), "SLIPWAY_PORT_METRICS": str(metrics)}
    command = [str(PYTHON), "-m", "serve", "--config", str(tmp_path / "config.json")]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=log, stderr=log)
    try:
        while not ready(metrics):  # minutes on a busy machine
            assert server.poll() is None, (tmp_path / "log").read_text()[-3000:]
            time.sleep(0.5)
        found = listening([server.pid, *(each.pid for each in procs.descendants(server.pid))])
        assert {one for one in found if not one.startswith(("unix:", "127.0.0.1:", "[::1]:"))} == {
            f"0.0.0.0:{http}",
            f"0.0.0.0:{metrics}",
        }
    finally:
        server.terminate()
        server.wait()
