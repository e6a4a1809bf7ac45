"""Writes a model folder's README.md, the model card: its sources, its training, its measured results.

Deterministic: the same training gives the same bytes; it has a date only with $SOURCE_DATE_EPOCH. Run and commit come
from $SLIPWAY_RUN and $GIT_COMMIT. Values that look like secrets are left out. Of absolute paths only the last part is
shown.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

CARD: Final = "README.md"
CHUNK: Final = 2**20  # bytes read at a time
DATA: Final = ("data", "episodes", "pairs", "held_out", "prompts")  # fields that name training data
CHECKED: Final = ("merge", "export")  # these only compare logits on data
PLACES: Final = frozenset((*DATA, "model", "adapter", "deepspeed", "folder", "path", "adapters"))
LIBRARIES: Final = ("torch", "transformers", "trl", "peft", "datasets", "accelerate")
SECRET_KEY: Final = re.compile(r"(secret|password|passwd|credential|api_?key|access_?key|auth|(^|_)token$)", re.I)
SECRET_VALUE: Final = re.compile(
    r"(hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|eyJ[\w-]+\.[\w-]+\.|"
    r"-----BEGIN|://[^/\s:@]+:[^/\s@]+@|[?&](sig|token|key|signature)=)",
    re.I,
)
LEFT_OUT: Final = "(left out)"


def write_card(
    folder: Path,
    config: msgspec.Struct | Mapping[str, Any],
    *,
    method: str,
    results: Path | None = None,
    licence: str | None = None,
) -> Path:
    """Writes the card of the model or adapter in `folder`; results: the folder with summary.json, if any."""
    text = card(folder, msgspec.to_builtins(config), method=method, results=results, licence=licence)
    path = folder / CARD
    temporary = path.with_name(f".{CARD}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    return path


def write_cards(out: Path, config: msgspec.Struct, method: str) -> None:
    """Writes the cards of a training's model/ and adapter/, where they exist."""
    for name in ("model", "adapter"):
        if (out / name).is_dir():
            write_card(out / name, config, method=method, results=out / "results")


def card(
    folder: Path, config: Mapping[str, Any], *, method: str, results: Path | None = None, licence: str | None = None
) -> str:
    """The card's text."""
    adapter = (folder / "adapter_config.json").is_file()
    base = str(config.get("model", "unknown"))
    front: dict[str, Any] = {
        "license": licence or "unknown",
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "image-text-to-text",
        "tags": ["computer-use", "slipway", method],
    }
    if base.startswith("hf://"):
        front["base_model"] = base.removeprefix("hf://").partition("@")[0]
    run = os.environ.get("SLIPWAY_RUN")
    lines = [
        "---",
        yaml.safe_dump(front, sort_keys=True, allow_unicode=True).strip(),
        "---",
        "",
        f"# {run or folder.resolve().name.removeprefix('.').removesuffix('.partial')}",
        "",
        f"{'A LoRA adapter' if adapter else 'A model'} made by `training.{method}` from {_base(base)}.",
        "",
        "## Provenance",
        "",
        "| what | value |",
        "|---|---|",
        *(f"| {name} | {_cell(value)} |" for name, value in _provenance(folder, config, method, run).items()),
    ]
    if rows := _metrics(results):
        lines += ["", "## Measured", "", *rows]
        if run:
            lines += ["", f"From `results/summary.json` of the run `{run}`; `launcher results {run}` shows it."]
    shown = json.dumps(clean(config), indent=1, ensure_ascii=False, sort_keys=True)
    lines += ["", "## Configuration", "", "```json", shown, "```", "", "## Licence", ""]
    lines.append(licence or "Unknown: none was given. The base model's and the data's terms apply.")
    return "\n".join(lines) + "\n"


def _base(name: str) -> str:
    return f"`{name}`" if name.startswith("hf://") else f"the model folder `{machine_free_path(name)}`"


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")


def _provenance(folder: Path, config: Mapping[str, Any], method: str, run: str | None) -> dict[str, str]:
    facts = {"run": run or "none named"}
    if commit := os.environ.get("GIT_COMMIT"):
        facts["commit"] = commit
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        facts["date"] = datetime.datetime.fromtimestamp(int(epoch), datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    base = Path(str(config.get("model", "")))
    if (base / "config.json").is_file():
        facts["base model's config.json"] = f"sha256:{file_digest(base / 'config.json')}"
        facts["base model's weights"] = weights_digest(base)
    adapter = config.get("adapter")
    if isinstance(adapter, str) and Path(adapter).is_dir():
        facts["adapter's weights"] = weights_digest(Path(adapter))
    for name, path in sources(config):
        data_digest = digest(path)
        told = f"{name} ({machine_free_path(str(path))})"
        facts[f"logits compared on {told}" if method in CHECKED else told] = data_digest or "not there any more"
    for file in sorted(folder.glob("*.safetensors")):
        facts[file.name] = f"sha256:{file_digest(file)}"
    facts["libraries"] = ", ".join(_versions())
    return facts


def _versions() -> list[str]:
    versions = []
    for name in LIBRARIES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def sources(config: Mapping[str, Any]) -> list[tuple[str, Path]]:
    """(field, folder) of all training data in a configuration; a mixture has several."""
    named: list[tuple[str, Path]] = []
    for name in DATA:
        value = config.get(name)
        for item in value if isinstance(value, list) else [value]:
            path = item.get("path") if isinstance(item, Mapping) else item
            if isinstance(path, str) and path:
                named.append((name, Path(path)))
    return named


def file_digest(path: Path) -> str:
    """sha256 of a file, read in pieces."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            hasher.update(block)
    return hasher.hexdigest()


def weights_digest(folder: Path) -> str:
    """`sha256:...` of the one safetensors file, or over the names and digests of several."""
    files = sorted(folder.glob("*.safetensors"))
    if len(files) == 1:
        return f"sha256:{file_digest(files[0])}"
    listed = "".join(f"{file.name}\0{file_digest(file)}\n" for file in files)
    return f"sha256:{hashlib.sha256(listed.encode()).hexdigest()}" if files else "no safetensors"


def digest(path: Path) -> str | None:
    """`sha256:...` of data. For a packed dataset: of its dataset.json, which holds the digests of all its files. For
    another folder: over the sorted names and contents of its files. None when the path does not exist."""
    if path.is_file():
        return f"sha256:{file_digest(path)}"
    if not path.is_dir():
        return None
    if (path / "dataset.json").is_file():
        return f"sha256:{file_digest(path / 'dataset.json')}"
    content = hashlib.sha256()
    for file in sorted(item for item in path.rglob("*") if item.is_file()):
        content.update(f"{file.relative_to(path).as_posix()}\0{file_digest(file)}\n".encode())
    return f"sha256:{content.hexdigest()}"


def machine_free_path(value: str) -> str:
    """The part of a path that is the same on every machine: relative to the inputs' folder, or its last part."""
    if "://" in value or not value.startswith("/"):
        return value
    inputs = os.environ.get("SLIPWAY_INPUTS")
    if inputs and Path(value).is_relative_to(inputs):
        return f"$SLIPWAY_INPUTS/{Path(value).relative_to(inputs).as_posix()}"
    return Path(value).name


def clean(value: Any, key: str = "") -> Any:
    """A configuration without secrets and without the machine's paths."""
    if isinstance(value, Mapping):
        return {name: clean(item, str(name)) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item, key) for item in value]
    if value is not None and SECRET_KEY.search(key):
        return LEFT_OUT
    if isinstance(value, str):
        if SECRET_VALUE.search(value):
            return LEFT_OUT
        return machine_free_path(value) if key in PLACES else value
    return value


def _metrics(results: Path | None) -> list[str]:
    """The rows of summary.json as a table; [] without one."""
    try:
        rows = json.loads((results / "summary.json").read_text(encoding="utf-8")) if results else []
    except (OSError, ValueError):
        return []
    if not rows:
        return []
    lines = ["| benchmark | split | metric | value | 95 % interval | n | weights |", "|---|---|---|---:|---|---:|---|"]
    for row in rows:
        value, low, high = (row.get(name) for name in ("value", "ci_low", "ci_high"))
        shown = "-" if value is None else f"{value:.4g}"
        interval = "-" if low is None or high is None else f"{low:.4g} to {high:.4g}"
        names = " | ".join(_cell(str(row.get(name, ""))) for name in ("benchmark", "split", "metric"))
        lines.append(f"| {names} | {shown} | {interval} | {row.get('n', '')} | {_weights(row)} |")
    return lines


def _weights(row: Mapping[str, Any]) -> str:
    """The weights that a row was measured on: these, or others of the training."""
    steps = row.get("steps") or []
    told = ", ".join(f"step {step}" for step in steps[:1]) + (f" to {steps[-1]}" if len(steps) > 1 else "")
    agent = str(row.get("agent", ""))
    return _cell(", ".join(filter(None, (agent, told))))
