"""Writes all generated pages and golden files again, and prints those that changed.

    python -m tools.golden            writes them: `make golden`
    python -m tools.golden --check    writes nothing; exit code 1 and a list where a file is out of date

Read the difference before you commit it: each line is a text that users see or an object that clusters get. Two golden
files are not included, because they must never change: the hashes in tests/unit/spec/test_hashing.py (they name
existing runs) and tests/unit/eval/golden_prompts.json (models were trained on these prompts).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

# page -> the module whose `page()` returns its text
PAGES: Final = {
    "docs/explanation/architecture.md": "tools.house",
    "docs/reference/actions.md": "tools.reference.actions",
    "docs/reference/cli.md": "tools.reference.cli",
    "docs/reference/extending.md": "tools.reference.extending",
    "docs/reference/job.md": "launcher.spec.reference",
    "docs/reference/metrics.md": "tools.reference.metrics",
    "docs/reference/json.md": "launcher.cli.json_page",
    "docs/reference/training-config.md": "training.reference",
    "docs/reference/validate.md": "tools.reference.validate",
}
# golden files -> the module whose `texts()` returns their texts by path
FILES: Final = {
    "tests/unit/spec/broken/*.txt": "tests.unit.spec.corpus",
    "tests/unit/kubernetes/golden/*/*": "tests.unit.kubernetes.update",
    "tests/unit/azureml/golden/*": "tests.unit.azureml.test_render",
    "tests/unit/lambda_labs/golden/*": "tests.unit.lambda_labs.test_render",
    "tests/unit/local/golden/*": "tests.unit.local.update",
    "tests/unit/kubernetes_validate/rules.yaml": "tests.unit.kubernetes_validate.update",
}


def texts(name: str) -> Mapping[Path, str]:
    """The files of one entry of PAGES or FILES, with the text that each must have."""
    if name in PAGES:
        return {ROOT / name: import_module(PAGES[name]).page()}
    generated: Mapping[Path, str] = import_module(FILES[name]).texts()
    return generated


def outdated(name: str) -> Iterator[tuple[Path, str | None]]:
    """(file, its new text) for every file that is out of date; None: the file must be deleted."""
    current = texts(name)
    for path, text in current.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            yield path, text
    for path in sorted(set(ROOT.glob(name)) - set(current)):
        yield path, None


def main(arguments: list[str]) -> int:
    check = arguments == ["--check"]
    if arguments and not check:
        print(f"unknown argument {' '.join(arguments)}; allowed: --check", file=sys.stderr)
        return 2
    count = 0
    for name in (*PAGES, *FILES):
        for path, text in outdated(name):
            count += 1
            print(f"{path.relative_to(ROOT)}{' is no longer generated' if text is None else ''}")
            if check:
                continue
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if check:
        print("out of date: run `make golden`" if count else "every generated file is up to date")
        return 1 if count else 0
    print(f"{count} files written; read the difference before you commit it" if count else "nothing changed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
