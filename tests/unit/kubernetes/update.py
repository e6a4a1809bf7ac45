"""Writes the goldens anew: python -m tests.unit.kubernetes.update. Look at the difference before committing it."""

from __future__ import annotations

import shutil
import sys

from tests.unit.kubernetes.support import EXAMPLES, GOLDEN, written


def main() -> None:
    shutil.rmtree(GOLDEN, ignore_errors=True)
    for path in EXAMPLES:
        folder = GOLDEN / path.stem
        folder.mkdir(parents=True)
        for name, text in written(path).documents.items():
            (folder / name).write_text(text, encoding="utf-8")
    sys.stdout.write(f"{len(EXAMPLES)} examples\n")


if __name__ == "__main__":
    main()
