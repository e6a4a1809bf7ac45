"""What a training is made of, by content: its model's files (chat template and tokenizer too), adapter, data, rewards,
and where it learns on tasks, those with their judges, programs and desktops (eval.identity).

Each checkpoint holds the digests in identity.json, so that it does not go on with another model or other data. Nothing
is read twice: an input of the run has the digest that the runtime verified ($SLIPWAY_INPUT_DIGESTS), a file of the
hub's cache is named by its sha256, and a folder whose files have the sizes and times of then has the digests of then.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

import msgspec

from eval.config import ResumeError
from eval.environments.registry import tasks_of
from eval.identity import digest_of
from training.common.model.card import file_digest, sources
from training.data.chat import COMMITS
from training.data.faults import is_file_or_folder
from training.data.pairs.store import PAIRS

FILE: Final = "identity.json"  # in a checkpoint
MODEL_FILES: Final = frozenset((".safetensors", ".bin", ".json", ".jinja", ".txt", ".model"))
WEIGHTS: Final = ".safetensors"
# what every start of a training asks for: where one of the two has it, prompts or pictures are others. Of further files
# a hub's cache may have more or fewer
ASKED: Final = (
    *("chat_template.jinja", "chat_template.json", "tokenizer.json", "tokenizer_config.json"),
    *("preprocessor_config.json", "processor_config.json"),
)
SHA256: Final = 64  # hexadecimal digits; the hub names a large file by it, and a small one by git's
TASKS: Final = "tasks"
FURTHER: Final = (
    "rewards ",
    "prompt.demonstration",
    "deepspeed",
    "reward_model",
    "episodes.ratings",
)  # parts that older checkpoints do not have
ANYWAY: ContextVar[bool] = ContextVar("resume_anyway", default=False)  # --resume-anyway


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A model, an adapter, or a source of data.

    path    where it was
    state   of its files' names, sizes and times there: where it is the same, nothing is read again
    input   the digest of the run's input, if it is one; then its files are not read
    pinned  the job names that digest
    spec    of data: what the configuration says of it, without its place
    files   of a model: digest by name; of tasks: of the identity, by task
    digest  of data: over all its files
    """

    path: str
    state: str
    input: str | None = None
    pinned: bool = False
    spec: str = ""
    files: dict[str, str] = {}
    digest: str | None = None


Identity = dict[str, Part]
EVALUATED: Final = "evaluation.episodes"  # a part that moves no weight: what was measured on others counts no more


def identity(config: Any, known: Identity | None = None) -> Identity:
    """By part: model, adapter, each source of data, the tasks, and held-out episodes.

    known  of an earlier start, so that what lies where it lay is not read again
    """
    plain = msgspec.to_builtins(config)
    found = {}
    for name in ("model", "adapter"):
        if (place := _folder(plain.get(name))) is not None:
            found[name] = _part(place, "", (known or {}).get(name), model=True)
    held_out = plain.get("evaluation") or {}
    if held_out.get("episodes") and (folder := Path(held_out["episodes"])).exists():
        found[EVALUATED] = _part(folder, str(held_out["split"]), (known or {}).get(EVALUATED), model=False)
    specs = [(field, spec) for field in _fields(plain) for spec in _specs(plain[field])]
    for at, (field, place) in enumerate(sources(plain)):
        name = f"{field} {at}" if sum(other == field for other, _ in specs) > 1 else field
        spec = next((spec for other, spec in specs[at:] if other == field), None)
        if (commit := COMMITS.get(str(spec.get("path") if isinstance(spec, Mapping) else spec))) is not None:
            found[name] = Part(path=str(place), state=commit, spec=_without_place(spec), digest=commit)
        elif place.exists():  # else of a hub, or read by nobody
            found[name] = _part(place, _without_place(spec), (known or {}).get(name), model=False)
    for name, place in _further(plain):
        found[name] = _part(place, "", (known or {}).get(name), model=False)
    if isinstance(plain.get("environment"), str) and isinstance(plain.get(TASKS), Mapping):
        found[TASKS] = _tasks(plain["environment"], plain[TASKS], plain.get("options") or {})
    return found


def _further(plain: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """(part, place) of what else a training learns from: files of rewards, a judge, demonstrations, DeepSpeed's
    settings."""
    shown = ((plain.get("prompt") or {}).get("demonstration") or {}).get("folder")
    named = [(name, plain.get(name)) for name in ("deepspeed", "reward_model")]
    named.append(("prompt.demonstration", shown))
    if isinstance(judged := plain.get("episodes"), Mapping):
        named.append(("episodes.ratings", judged.get("ratings")))
    for number, reward in enumerate(plain.get("rewards") or ()):
        named += [(f"rewards {number} {name}", value) for name, value in (reward.get("args") or {}).items()]
    for name, value in named:
        if isinstance(value, str) and value and is_file_or_folder(place := Path(value)):
            yield name, place


def _tasks(environment: str, tasks: Mapping[str, Any], options: Mapping[str, Any]) -> Part:
    """Those that rewards come from; which ones is said elsewhere, this is what judges each of them."""
    drawn = tasks_of(environment, int(tasks["count"]), int(tasks["seed"]), options)
    files = {f"{task.task_id} {task.seed}": digest_of(dict(task.identity)) for task in drawn}
    return Part(path=environment, state="", files=files)


def _fields(plain: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for name, _ in sources(plain)))


def _specs(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _without_place(spec: Any) -> str:
    if not isinstance(spec, Mapping):
        return ""
    return json.dumps({name: value for name, value in spec.items() if name not in ("path", "ratings")}, sort_keys=True)


def _folder(value: Any) -> Path | None:
    """A model's folder, or where the hub's cache has it; None where it is not."""
    if not isinstance(value, str):
        return None
    if not value.startswith("hf://"):
        return Path(value) if Path(value).is_dir() else None
    from huggingface_hub import try_to_load_from_cache

    name, _, revision = value.removeprefix("hf://").partition("@")
    for file in ("config.json", "adapter_config.json"):
        if isinstance(held := try_to_load_from_cache(name, file, revision=revision or None), str):
            return Path(held).parent
    return None


def _part(place: Path, spec: str, known: Part | None, *, model: bool) -> Part:
    files = dict(_files(place, model))
    state = hashlib.sha256()
    for name, file in files.items():
        about = file.stat()
        state.update(f"{name}\0{about.st_size}\0{about.st_mtime_ns}\n".encode())
    path, now = str(place), state.hexdigest()
    digest, pinned = _verified(place)
    part = Part(path=path, state=now, input=digest, pinned=pinned, spec=spec)
    if known is not None and (known.path, known.state) == (path, now) and (known.files or known.digest):
        return msgspec.structs.replace(part, files=known.files, digest=known.digest)
    return part if digest is not None else read(part, model=model)


def read(part: Part, *, model: bool) -> Part:
    """The part with the digests of its files, which are read."""
    files = dict(_files(Path(part.path), model))
    with ThreadPoolExecutor(8) as pool:
        digests = dict(zip(files, pool.map(_sha256, files.values()), strict=True))
    if model:
        return msgspec.structs.replace(part, files=digests)
    whole = "".join(f"{name}\0{digest}\n" for name, digest in digests.items())
    return msgspec.structs.replace(part, digest=hashlib.sha256(whole.encode()).hexdigest())


def _files(place: Path, model: bool) -> Iterator[tuple[str, Path]]:
    """By name, in order. Of a packed dataset its dataset.json, which has the digests of the others."""
    if place.is_file():
        yield "", place
        if not model and place.suffix in (".json", ".jsonl"):
            yield from _pictures([place], place.parent)
    elif not model and (place / "dataset.json").is_file():
        yield "dataset.json", place / "dataset.json"
    elif model:
        yield from ((file.name, file) for file in sorted(place.iterdir()) if file.suffix in MODEL_FILES)
    else:
        for folder, folders, names in os.walk(place, followlinks=True):
            folders.sort()
            for name in sorted(names):
                file = Path(folder, name)
                yield file.relative_to(place).as_posix(), file
        if not (place / PAIRS).exists():  # whose pictures are in the folder
            held = _pictures(sorted(place.glob("*.jsonl")), place)
            yield from ((name, file) for name, file in held if not file.is_relative_to(place))


def _pictures(chats: list[Path], root: Path) -> Iterator[tuple[str, Path]]:
    """What chats show, by a name that is the same wherever the files lie: their rows tell only where it is."""
    from training.data.chat import named_pictures

    for number, file in enumerate(sorted({file for path in chats for file in named_pictures(path)})):
        inside = file.is_relative_to(root) and ".." not in file.parts
        yield file.relative_to(root).as_posix() if inside else f"{number} {file.name}", file


def _sha256(file: Path) -> str:
    held = file.resolve()
    if held.parent.name == "blobs" and len(held.name) == SHA256:
        return held.name
    return file_digest(file)


def _verified(place: Path) -> tuple[str | None, bool]:
    """(what the runtime verified of an input, whether the job names that digest)"""
    inputs, told = os.environ.get("SLIPWAY_INPUTS"), os.environ.get("SLIPWAY_INPUT_DIGESTS")
    if not inputs or not told or not place.is_relative_to(inputs):
        return None, False
    name, *rest = place.relative_to(inputs).parts or ("",)
    try:
        about = json.loads(told)[name]
        return "/".join([str(about["digest"]), *rest]), bool(about["pinned"])
    except (KeyError, TypeError, ValueError):
        return None, False


def difference(name: str, before: Part, now: Part) -> str | None:
    """What is not the same in a part, or None. Raises LookupError where the two cannot be compared."""
    if before.spec != now.spec:
        return f"{name}: the configuration says {now.spec or 'only its place'} of it, and said {before.spec or 'that'}"
    if before.input is not None and before.input == now.input:
        return None
    if name == TASKS:
        others = sum(before.files[each] != now.files[each] for each in before.files.keys() & now.files.keys())
        return f"{name}: the judge, programs or desktop of {others} of them" if others else None
    model = name in ("model", "adapter")
    if (before.files or before.digest) and not (now.files or now.digest):
        now = read(now, model=model)
    if model and before.files and now.files:
        both = before.files.keys() & now.files.keys()
        odd = {file for file in both if before.files[file] != now.files[file]}
        odd |= {file for file in before.files.keys() ^ now.files.keys() if file.endswith((WEIGHTS, *ASKED))}
        return f"{name}: {', '.join(sorted(odd))}" if odd else None
    if before.digest is not None and now.digest is not None:
        return f"{name}: its files" if before.digest != now.digest else None
    kinds = {None if each.input is None else each.input.partition(":")[0] for each in (before, now)}
    if None in kinds or len(kinds) > 1:
        raise LookupError(name)
    return f"{name}: the input has digest {now.input}, and had {before.input}"


def check(now: Identity, resume: str) -> list[str]:
    """Lines about a checkpoint whose training goes on all the same. Raises ResumeError for one of another training."""
    before = load(resume)
    if before is None:
        return [f"resume: {resume} is of before checkpoints had digests: model and data are not compared with it"]
    odd, lines, pinned = [], [], True
    for name in dict.fromkeys(name for name in (*before, *now) if name != EVALUATED):
        if name == TASKS and name not in before:
            lines.append(f"resume: {resume} does not say by which judge its tasks were scored (judge unknown)")
            continue
        if name not in before and name.startswith(FURTHER):
            continue  # a checkpoint of before these had digests; the configuration is compared elsewhere
        if name not in before or name not in now:
            odd.append(f"{name}: {'not there any more' if name in before else 'not there then'}")
            pinned = False
            continue
        try:
            told = difference(name, before[name], now[name])
        except LookupError:
            lines.append(f"resume: {name}: its digest in {resume} is of another kind, and is not compared")
            continue
        if told is not None:
            odd.append(told)
            pinned = pinned and now[name].pinned
    if not odd:
        return lines
    said = f"resume: {resume} was made with other content: {'; '.join(odd)}"
    again = os.environ.get("SLIPWAY_ATTEMPT", "1") not in ("", "0", "1")
    if ANYWAY.get():
        return [*lines, f"{said}; --resume-anyway"]
    if again and pinned:
        return [*lines, f"{said}; the job pins it by its digest, so the training goes on with it"]
    raise ResumeError(f"{said}; give the same, or --resume-anyway")


def measures_another(now: Identity, resume: str) -> bool:
    """Whether the held-out episodes are known to be others than a checkpoint's."""
    before = (load(resume) or {}).get(EVALUATED)
    if before is None or EVALUATED not in now:
        return False  # of before checkpoints had it, or another metric, which the evaluation's state tells
    try:
        return difference(EVALUATED, before, now[EVALUATED]) is not None
    except LookupError:
        return False


def load(checkpoint: str) -> Identity | None:
    """None where a checkpoint has none. Raises ResumeError."""
    file = Path(checkpoint) / FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=Identity)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ResumeError(f"resume: {file} cannot be read: {error}") from None


def save(found: Identity, checkpoint: Path) -> None:
    (checkpoint / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
