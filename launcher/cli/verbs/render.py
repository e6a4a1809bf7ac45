"""`launcher render`: prints what submit would send. It changes nothing and asks no server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import safe_text
from launcher.backends.base import renderer
from launcher.cli.arguments import add_job, print_notes, resolved
from launcher.cli.printing.output import table

if TYPE_CHECKING:
    from launcher.spec.model import ResolvedJob
    from launcher.spec.profile import Profile
    from launcher.spec.resolve.group import Group

SUMMARY = "print exactly what submit would send; changes nothing"
EXAMPLE = (
    "launcher render examples/login --backend local --set limits.deadline=1h\n"
    "  printf 'name: now\\ncommand: [date]\\n' | launcher render -"
)


def add(parser: argparse.ArgumentParser) -> None:
    add_job(parser)
    parser.add_argument(
        "--to", metavar="DIR", help="write one file per object; the files of an unchanged run are not touched"
    )
    # until 0.2: `-o` means a format everywhere else
    parser.add_argument("-o", "--output", metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--explain", action="store_true", help="print where each value came from instead")


def run(args: argparse.Namespace) -> int:
    if args.output is not None:
        print("launcher render: -o DIR goes away in 0.2: write --to DIR", file=sys.stderr)
    to = args.to or args.output
    group, profile = resolved(args)
    if args.explain:
        print_notes("render", group)
        print(explained(group))
        return 0
    if to is not None:
        refuse_ttl(group)
        refuse_device_names([*args.paths, to], group)
    from launcher.spec.resolve.group import with_positions

    documents: dict[str, str] = {}
    owners: dict[str, list[str]] = {}
    for name in dict.fromkeys(job.backend for job in group.runs):
        jobs = [job for job in group.runs if job.backend == name]
        with with_positions(group):
            rendered = renderer(name, profile.backend_options(name))(jobs)
        documents.update(rendered.documents)
        for run, file in rendered.objects.items():
            owners.setdefault(file, []).append(run)
        for warning in rendered.warnings:
            print(safe_text.line(f"launcher render: {warning}"), file=sys.stderr)
    for line in newer_images(group, profile, Path(to) if to is not None else None, documents):
        print(safe_text.line(f"launcher render: {line}"), file=sys.stderr)
    if to is not None:
        write(Path(to), documents, owners)
    else:
        separator = "---\n" if len(documents) > 1 else ""
        sys.stdout.write("".join(separator + text for text in documents.values()))
    return 0


def newer_images(group: Group, profile: Profile, folder: Path | None, documents: Iterable[str]) -> Iterator[str]:
    """A line for each new run that only a newer image makes another one than a run of before: one in the folder, whose
    files GitOps applies, or the newest of its name that was submitted here."""
    if not profile.images:
        return
    from launcher.spec.hashing import run_id
    from launcher.spec.images.catalogue import only_images_differ
    from launcher.userdata.submits import newest

    there = list(_earlier([folder / name for name in documents])) if folder is not None else []
    for job in group.runs:
        before = newest(profile.store, group.names.get(run_id(job), job.name))
        same_name = [each for each in there if (each.name, each.variant) == (job.name, job.variant)]
        if line := only_images_differ(job, [*same_name, *([before] if before is not None else [])], profile.images):
            yield line


def _earlier(files: Iterable[Path]) -> Iterator[ResolvedJob]:
    """The jobs in the files beside new ones that are called the same but for the hash."""
    stems = {file.with_name(file.stem.rpartition("-")[0]) for file in files if not file.exists()}
    for other in sorted(file for stem in stems for file in stem.parent.glob(f"{stem.name}-{'[0-9a-f]' * 12}.yaml")):
        from launcher.backends.kubernetes.check.carried import jobs_of_file

        yield from jobs_of_file(other.read_text(encoding="utf-8", errors="replace"))


def refuse_ttl(group: Group) -> None:
    """Refuses a TTL for files: a GitOps controller would create an object again after its TTL deleted it, and a
    finished run would start once more."""
    from launcher.errors import BadInput

    for job in group.runs:
        if "ttl" in job.options:
            raise BadInput(
                f"--to: {job.name} has {job.backend}.ttl, which deletes the finished object, and a GitOps controller "
                "would create it again; only `launcher submit` can use it: leave it out here "
                f"(--set {job.backend}.ttl=null, or the profile)"
            )


def refuse_device_names(paths: Sequence[str], group: Group) -> None:
    """Refuses names of sources and of their code that would stop Flux, because files that are written are for Git."""
    from launcher.backends.kubernetes.check.files import device_refusal
    from launcher.errors import BadInput

    names = dict.fromkeys(paths)
    names |= dict.fromkeys(str(file) for path in paths if Path(path).is_dir() for file in sorted(Path(path).iterdir()))
    for overlay in group.code.values():
        names |= dict.fromkeys(f"{overlay.folder.name}/{file}" for file in overlay.files)
    problems = [f"{name}: {why}; allowed: another name" for name in names if (why := device_refusal(name))]
    if problems:
        raise BadInput("\n".join(problems))


def write(folder: Path, documents: Mapping[str, str], owners: Mapping[str, Collection[str]]) -> None:
    """Writes one file per object; `owners` are its runs. An existing file with the same runs stays unchanged: a newer
    launcher may write other text, which would change the objects of finished runs."""
    from launcher.errors import BadInput

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in documents.items():
            path = folder / name
            present = path.read_text(encoding="utf-8") if path.exists() else ""
            if present == text or (name in owners and all(run in present for run in owners[name])):
                print(f"{path}: unchanged", file=sys.stderr)
                continue
            part = path.with_name(f".{name}.part")
            part.write_text(text, encoding="utf-8")
            part.replace(path)
            print(f"{path}: written", file=sys.stderr)
    except OSError as error:
        raise BadInput(f"--to {folder}: {error.strerror}") from None


def explained(group: Group) -> str:
    from launcher.spec.hashing import canonical, run_id
    from launcher.spec.resolve.explain import flat

    parts = []
    for job in group.runs:
        run = run_id(job)
        values = flat(job, group.origins[run])
        rows: list[Mapping[str, Any]] = [
            {"field": field, "value": _short(canonical(values[field]).decode()), "from": origin}
            for field, origin in group.origins[run].items()
        ]
        parts.append(f"{group.names[run]} ({run})\n{table(rows)}")
    return "\n\n".join(parts)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
