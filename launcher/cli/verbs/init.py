"""`launcher init`: writes a commented starter job that runs without changes, or copies an example. Keeps the release
whose images the jobs get, too."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from launcher.cli.arguments import add_output
from launcher.cli.printing.output import emit, emit_one
from launcher.errors import BadInput, Conflict
from launcher.trees import PACKED, document, trees

SUMMARY = "write a commented starter job, or copy an example"
EXAMPLE = "launcher init job.yaml && launcher submit job.yaml --follow\n  launcher init --example list"
EXAMPLES = "examples"
PIN = """\
# The release whose images jobs get by name. Those of a later one make each run a new one, which is computed again:
# raise it when you want that.
catalogue: {release}
"""

STARTER = """\
# A job: what runs, on what, for how long. It runs as it is:   launcher submit {file} --follow
# What would be sent: `launcher render {file}`. Every field: {fields}, or `launcher schema FIELD`.
# yaml-language-server: $schema=job.schema.json      (launcher schema > job.schema.json)
name: {name}

# Where it runs. Every backend but `local` needs an image with its digest: registry/name@sha256:...
backend: local
# image: unsloth-sft

# A list, no shell. The command finds its files through $SLIPWAY_CONFIG, $SLIPWAY_INPUTS, $SLIPWAY_OUTPUTS.
command:
  - bash
  - -euc
  - |
    cat "$SLIPWAY_CONFIG"
    echo '{{"greeting": "hello"}}' > "$SLIPWAY_OUTPUTS/results/greeting.json"

# Any mapping; the command gets it as a file.
config:
  greeting: hello

# Fetched before the command starts, verified: a path, hf:// s3:// gs:// az:// https://, or another job's output.
# inputs:
#   model: hf://Qwen/Qwen3-VL-2B-Instruct@<revision>
#   data: ./data
#   base: {{job: pretrain, output: checkpoints, step: latest}}

# Folders of $SLIPWAY_OUTPUTS that are kept.
outputs:
  results: {{sync: live}}          # uploaded as files are written
  # model: {{}}                    # uploaded at the end
  # checkpoints: {{kind: checkpoints, match: checkpoint-*, keep: 3}}

# What each rank needs.
resources: {{cpus: 1, memory: 1Gi}}
# resources: {{gpus: 1, gpu: H100, cpus: 8, memory: 64Gi, shm: 16Gi}}

limits:
  deadline: 10m                   # running time over all attempts; required on a backend that bills
  retries: 0                      # of a command that failed; lost machines do not count
  # budget: 40 USD                # needs prices in slipway.yaml

# env: {{LOG_LEVEL: info}}
# secrets: [HF_TOKEN]             # names only; `launcher secrets set HF_TOKEN`
# labels: {{team: agents}}
# code: .                         # overlays this folder over the image's code

# One run for each combination.
# matrix: {{config.greeting: [hello, goodbye]}}
"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", nargs="?", metavar="FILE", help="what to write (default: job.yaml)")
    parser.add_argument("--name", help="the job's name (default: the file's)")
    parser.add_argument(
        "--example", metavar="NAME", help=f"copy this example to {EXAMPLES}/NAME instead; `list` prints their names"
    )
    add_output(parser, ("table", "json"))


def run(args: argparse.Namespace) -> int:
    if args.example is not None:
        if args.path is not None or args.name is not None:
            raise BadInput("--example copies a folder as it is; it takes no FILE and no --name")
        return _list(args.output) if args.example == "list" else _copy(args.example, args.output)
    given = args.path or "job.yaml"
    path = Path(given)
    name = args.name or re.sub(r"[^a-z0-9]+", "-", path.stem.lower())[:27].strip("-") or "job"
    if not re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,25}[a-z0-9])?", name) or name == "group":
        raise BadInput(f"--name: `{name}` is not a name; allowed: a-z, 0-9 and - within, at most 27 characters")
    text = STARTER.format(name=name, file=shlex.quote(given), fields=document("docs/reference/job.md"))
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise Conflict(f"{path} already exists; nothing was written") from None
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    pinned = _pin()
    if args.output == "json":
        emit_one({"file": str(path)}, "json")
    else:
        print(*pinned, f"{path} written. Next: launcher submit {shlex.quote(given)} --follow", sep="\n")
    return 0


def _pin() -> list[str]:
    """Writes the release of the images into the folder's slipway.yaml, where there is none; what to tell about it."""
    from launcher.spec.images.catalogue import own_release
    from launcher.spec.profile import FILE, project_file

    if not (release := own_release()):
        return []
    if (there := project_file(Path.cwd())) is not None:
        kept = re.search(r"^catalogue:", there.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        return [] if kept else [f"{there} keeps no release of the images: `catalogue: {release}` does"]
    try:
        Path(FILE).write_text(PIN.format(release=release), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{FILE}: {error.strerror}") from None
    return [f"{FILE} written: `catalogue: {release}`, the release whose images jobs get"]


def _examples() -> dict[str, Path]:
    """Name -> folder. Raises BadInput where this Slipway has none, as in an image."""
    folder = trees() / EXAMPLES
    if not folder.is_dir():
        raise BadInput("--example: this Slipway was installed without its examples; allowed: the wheel, or a clone")
    return {path.name: path for path in sorted(folder.iterdir()) if path.is_dir() and path.name != "__pycache__"}


def _files(folder: Path) -> Iterator[Path]:
    """The files of an example relative to its folder; in a clone not what runs of it wrote."""
    if PACKED in folder.parents:
        names = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
        yield from (path.relative_to(folder) for path in names)
    else:
        from launcher.spec.code.listing import listing

        yield from map(Path, sorted(listing(folder).names))


def _list(output: str) -> int:
    table = (trees() / EXAMPLES / "README.md").read_text(encoding="utf-8")
    purposes = dict(re.findall(r"^\| \[([a-z-]+)\]\([a-z-]+\) \| (.+) \|$", table, re.MULTILINE))
    emit([{"example": name, "what it does": purposes.get(name, "")} for name in _examples()], output)
    return 0


def _copy(name: str, output: str) -> int:
    known = _examples()
    if name not in known:
        from launcher.spec.values.problems import near

        raise BadInput(f"--example: `{name}` is unknown{near(name, known)}; allowed: list, {', '.join(known)}")
    target = Path(EXAMPLES) / name
    if target.exists():
        raise Conflict(f"{target} already exists; nothing was written")
    copied = []
    try:
        for file in _files(known[name]):
            (target / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(known[name] / file, target / file)
            copied.append(str(target / file))
    except OSError as error:
        raise BadInput(f"{error.filename}: {error.strerror}") from None
    pinned = _pin()
    if output == "json":
        emit_one({"files": copied}, "json")
    else:
        print(*copied, *pinned, sep="\n")
        if any((target / file).is_file() for file in ("job.yaml", "jobs.yaml")):
            print(f"Next: launcher submit {target} --backend local --follow")
        else:
            print("Next: the first lines of each file say how it is run")
    return 0
