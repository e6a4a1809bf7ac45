"""Describes a dataset: `python -m training.data card PATH [--html FILE] [--out DIR]`.

PATH is a packed dataset or a folder of episode folders. Prints text to the terminal; --html writes a self-contained
page with images; --out writes card.txt, card.json and card.html into a folder.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from eval import config as configuration
from training.data.inspection.contents import (
    Card,
    Stats,
    duplicate_lines,
    findings,
    name_of,
    quantiles,
    read_card,
    share,
)
from training.data.inspection.overlap import Shared

SHOWN: Final = 6  # maximal rows of a list
BAR: Final = 24  # characters


def as_text(card: Card) -> str:
    """The card as text, less than 100 columns wide."""
    stats = card.stats
    lines = [
        str(card.look.paths[0]),
        f"{stats.episodes.total():,} episodes, {stats.steps.total():,} steps, {stats.actions.total():,} to learn, "
        f"{len(stats.tasks):,} tasks, {len(stats.instructions):,} instructions",
        f"{card.images:,} distinct images, {card.look.bytes / 1e6:,.1f} MB",
    ]
    lines += [f"{'!' if bad else ' '} {text}" for bad, text in findings(card)]
    rows = [[side, *(f"{c[side]:,}" for c in (stats.episodes, stats.steps, stats.actions))] for side in card.look.sides]
    lines += _table("splits", ["", "episodes", "steps", "to learn"], rows)
    kinds = sum(stats.types.values(), Counter())
    lines += _bars("actions", kinds)
    lines += _bars("screens", {f"{w} x {h}": count for (w, h), count in stats.screens.items()}, "episodes")
    if set(card.look.sizes) != set(stats.screens):
        lines += _bars("images", {f"{w} x {h}": count for (w, h), count in card.look.sizes.items()})
    for title, values in (("outcomes", stats.outcomes), ("agents", stats.agents), ("environments", stats.environments)):
        if set(values) != {"(none)"}:
            lines += _bars(title, values, "episodes")
    lengths = {"steps per episode": stats.lengths, **{f"{k}, characters": v for k, v in sorted(stats.texts.items())}}
    rows = [[name, *(f"{value:,.4g}" for value in quantiles(values).values())] for name, values in lengths.items()]
    lines += _table("lengths", ["", "min", "median", "p95", "max", "mean"], rows)
    lines += ["", f"thoughts     {stats.thoughts:,} of {stats.actions.total():,} steps ({_thoughts(stats)})"]
    lines += ["", "duplicates"]
    lines += [f"  {text}" for text in duplicate_lines(card)]
    lines += [f"    {name_of(card, places[0])} = {name_of(card, places[1])}" for places in card.same_episodes.examples]
    lines += ["", "contradictory labels"]
    lines += [f"  {card.contradicted.surplus:,} steps in {card.contradicted.things:,} situations"]
    lines += [f"    {' / '.join(name_of(card, place) for place in places)}" for places in card.contradicted.examples]
    if len(card.look.sides) > 1:
        lines += ["", "shared between splits"]
        rows = [[f"{o.first}, {o.second}", o.level, f"{o.things:,}", _of(o, 0), _of(o, 1)] for o in card.shared]
        lines += _table("", ["", "", "different", "of the first", "of the second"], rows)[1:] if rows else ["  nothing"]
    return "\n".join(line.rstrip()[:99] for line in lines) + "\n"


def _of(shared: Shared, which: int) -> str:
    part, whole = (shared.in_first, shared.of_first) if which == 0 else (shared.in_second, shared.of_second)
    return f"{part:,} ({share(part, whole)})"


def _thoughts(stats: Stats) -> str:
    return share(stats.thoughts, stats.actions.total())


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = [row[i].ljust(widths[i]) if i == 0 else row[i].rjust(widths[i]) for i in range(len(row))]
        return "  " + "  ".join(cells)

    return ["", title, line(head), *(line(row) for row in rows)]


def _bars(title: str, values: Mapping[str, int], unit: str = "") -> list[str]:
    whole, most = sum(values.values()), max(values.values(), default=1)
    ordered = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    shown = ordered if title == "actions" else ordered[:SHOWN]
    width = max((len(name) for name, _ in shown), default=0)
    lines = ["", f"{title}{f' ({unit})' if unit else ''}"]
    for name, count in shown:
        bar = "#" * max(1, round(BAR * count / most))
        lines.append(f"  {name:<{width}}  {count:>11,}  {share(count, whole):>7}  {bar}")
    if len(ordered) > len(shown):
        rest = sum(count for _, count in ordered[len(shown) :])
        lines.append(f"  {f'{len(ordered) - len(shown):,} more':<{width}}  {rest:>11,}  {share(rest, whole):>7}")
    return lines


def as_json(card: Card) -> dict[str, Any]:
    """The figures, for programs: the model card reads them."""
    stats = card.stats
    return {
        "path": str(card.look.paths[0]),
        "splits": {
            side: {"episodes": stats.episodes[side], "steps": stats.steps[side], "actions": stats.actions[side]}
            for side in card.look.sides
        },
        "tasks": len(stats.tasks),
        "instructions": len(stats.instructions),
        "images": card.images,
        "image_bytes": card.look.bytes,
        "action_types": {side: dict(sorted(kinds.items())) for side, kinds in sorted(stats.types.items())},
        "screens": {f"{w}x{h}": count for (w, h), count in sorted(stats.screens.items())},
        "steps_per_episode": quantiles(stats.lengths),
        "text_lengths": {name: quantiles(values) for name, values in sorted(stats.texts.items())},
        "outcomes": dict(sorted(stats.outcomes.items())),
        "thoughts": stats.thoughts,
        "duplicates": {
            "episodes": card.same_episodes.surplus,
            "steps": card.same_steps.surplus,
            "near_images": sum(len(shared) for shared in card.near),
            "near_clusters": len(card.near),
        },
        "contradictory_steps": card.contradicted.surplus,
        "shared": [{k: v for k, v in asdict(shared).items() if k != "examples"} for shared in card.shared],
        "skipped": card.look.faults.report(),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m training.data card", description="What a dataset holds.")
    parser.add_argument("path", help="a packed dataset, or a folder of episode folders")
    parser.add_argument("--html", help="where the page with pictures goes")
    parser.add_argument("--out", help="a folder for card.txt, card.json and card.html")
    arguments = parser.parse_args(argv)

    def run() -> int:
        from training.data.inspection.page import page

        card = read_card(Path(arguments.path))
        text = as_text(card)
        print(text, end="")
        files: dict[Path, str] = {}
        if arguments.out:
            out = Path(arguments.out)
            out.mkdir(parents=True, exist_ok=True)
            files[out / "card.txt"] = text
            files[out / "card.json"] = json.dumps(as_json(card), indent=1) + "\n"
        pages = [Path(arguments.html)] if arguments.html else []
        pages += [Path(arguments.out) / "card.html"] if arguments.out else []
        if pages:
            html = page(card)
            files |= dict.fromkeys(pages, html)
        for path, content in files.items():
            temporary = path.with_name(f".{path.name}")
            temporary.write_text(content, encoding="utf-8")
            temporary.replace(path)
        return 0

    return configuration.run(run)


if __name__ == "__main__":
    sys.exit(main())
