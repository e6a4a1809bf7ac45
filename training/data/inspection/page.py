"""The card as one HTML page with embedded images and style, without requests and scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from eval.actions import Action, Unrepresentable
from eval.actions.dialects.dsl import Dsl
from training.data.inspection.contents import (
    ACROSS,
    CLUSTERS,
    DOWN,
    Card,
    Stats,
    bins,
    duplicate_lines,
    findings,
    name_of,
    quantiles,
    share,
)
from training.data.inspection.overlap import MEANING, StepPosition
from training.data.inspection.thumbnails import thumbnail

PICTURES: Final = 6  # images shown per cluster
CLIP: Final = 160  # characters of a text

STYLE: Final = """
:root { color-scheme: light dark; --page: #fbfbfa; --card: #fff; --ink: #1c1e21; --soft: #62676e; --rule: #e4e5e7;
  --accent: #2563c9; --fill: #2563c9; --good: #19734a; --good-bg: #e3f3ea; --bad: #b3352a; --bad-bg: #fbe7e4;
  --mid: #eceef1; }
@media (prefers-color-scheme: dark) { :root { --page: #131517; --card: #1b1e21; --ink: #e6e8ea; --soft: #a2a8b0;
  --rule: #2d3135; --accent: #7aa7f5; --fill: #5f8fe0; --good: #6fcf9c; --good-bg: #17352a; --bad: #f08d80;
  --bad-bg: #3d201d; --mid: #292d31; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.55 system-ui, "Segoe UI", Roboto,
  "Helvetica Neue", "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 1060px; margin: 0 auto; padding: 40px 24px 72px; }
h1 { font-size: 26px; line-height: 1.25; letter-spacing: -.015em; margin: 0 0 18px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 46px 0 6px; }
h3 { font-size: 14px; font-weight: 600; margin: 0 0 8px; }
p { margin: 0 0 10px; }
.kicker { color: var(--soft); font-size: 12px; letter-spacing: .09em; text-transform: uppercase; margin-bottom: 8px; }
.note { color: var(--soft); font-size: 13px; max-width: 76ch; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(118px, 1fr)); gap: 14px 20px; margin: 0; }
.figures dt { color: var(--soft); font-size: 12.5px; } .figures dd { margin: 0; font-size: 24px; font-weight: 650; }
.figures div { display: flex; flex-direction: column-reverse; justify-content: flex-end; }
ul.findings { list-style: none; margin: 22px 0 0; padding: 0; }
ul.findings li { padding: 9px 14px; border-radius: 8px; margin-top: 8px; background: var(--good-bg);
  color: var(--good); }
ul.findings li.bad { background: var(--bad-bg); color: var(--bad); }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 16px 18px; min-width: 0; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)); gap: 16px; }
.half { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 16px; }
.stack > * + * { margin-top: 16px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 500; color: var(--soft); font-size: 12.5px; white-space: nowrap; }
th, td { padding: 6px 14px 6px 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
tr:last-child td { border-bottom: 0; } th:last-child, td:last-child { padding-right: 0; }
td.n, th.n { text-align: right; white-space: nowrap; } td.bar { width: 40%; min-width: 90px; vertical-align: middle; }
td.bar i { display: block; height: 9px; border-radius: 3px; background: var(--fill); min-width: 2px; }
svg { display: block; width: 100%; height: auto; } svg text { font: 11px system-ui, "DejaVu Sans", sans-serif;
  fill: var(--soft); } svg .mid { text-anchor: middle; } svg .end { text-anchor: end; }
svg.heat { max-height: 250px; } 
svg .f { fill: var(--fill); }
svg .frame { fill: var(--mid); stroke: var(--rule); } svg .axis { stroke: var(--rule); }
figure { margin: 0; } figure img { display: block; width: 100%; height: auto; border: 1px solid var(--rule);
  border-radius: 6px; background: var(--mid); }
figcaption { font-size: 13px; color: var(--soft); margin-top: 8px; overflow-wrap: anywhere; }
figcaption code { color: var(--ink); display: block; }
code { font: 12.5px/1.5 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
.row { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(46%, 150px), 1fr)); gap: 12px; }
@media (max-width: 520px) { main { padding: 26px 16px 48px; } h2 { margin-top: 36px; } .card { padding: 14px; }
  .figures { grid-template-columns: repeat(2, minmax(0, 1fr)); } .figures dd { font-size: 21px; } }
"""


def page(card: Card) -> str:
    name = card.look.paths[0].resolve().name
    parts = [
        f'<div class="kicker">Data card</div><h1>{escape(name)}</h1>',
        _figures(card),
        _findings(card),
        "<h2>What is in it</h2>",
        f'<div class="half">{_splits(card)}{_actions(card.stats)}</div>',
        '<div class="half" style="margin-top:16px">',
        _panel("Where the pointer goes", _heat(card.stats), _heat_note(card.stats)),
        _panel("Steps per episode", _histogram(card.stats.lengths), _spread(card.stats.lengths)),
        *(
            _panel(f"Length of {_named(field)}, characters", _histogram(values), _spread(values))
            for field, values in sorted(card.stats.texts.items())
        ),
        _panel("Screens", _bars({f"{w} x {h}": n for (w, h), n in card.stats.screens.items()}, "episodes")),
        _origin(card.stats),
        "</div>",
        "<h2>Steps from it</h2>",
        '<p class="note">Chosen by hash, a few of each type of action: red marks where the action goes.</p>',
        f'<div class="grid">{"".join(_examples(card))}</div>',
        "<h2>Duplicates</h2>",
        *(f'<p class="note">{escape(line)}</p>' for line in duplicate_lines(card)),
        f'<div class="stack">{"".join(_clusters(card))}</div>',
    ]
    if card.contradicted.examples:
        parts += ["<h2>Contradictory labels</h2>", '<p class="note">The same goal, frame and history, but:</p>']
        parts += ['<div class="stack">', *(_same(card, places) for places in card.contradicted.examples), "</div>"]
    if len(card.look.sides) > 1:
        parts += ["<h2>Shared between splits</h2>", _shared(card)]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="generator" content="Slipway">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(name)}: data card</title>\n<style>{STYLE}</style></head>\n<body><main>\n{body}\n"
        "</main></body></html>\n"
    )


def _figures(card: Card) -> str:
    stats = card.stats
    figures = {
        "episodes": f"{stats.episodes.total():,}",
        "steps to learn": f"{stats.actions.total():,}",
        "tasks": f"{len(stats.tasks):,}",
        "distinct images": f"{card.images:,}",
        "MB of images": f"{card.look.bytes / 1e6:,.1f}",
        "with a thought": share(stats.thoughts, stats.actions.total()),
    }
    cells = "".join(f"<div><dt>{label}</dt><dd>{value}</dd></div>" for label, value in figures.items())
    return f'<dl class="figures">{cells}</dl>'


def _findings(card: Card) -> str:
    items = "".join(f'<li class="{"bad" if bad else "good"}">{escape(text)}</li>' for bad, text in findings(card))
    return f'<ul class="findings">{items}</ul>' if items else ""


def _panel(title: str, content: str, note: str = "") -> str:
    below = f'<p class="note" style="margin:8px 0 0">{escape(note)}</p>' if note else ""
    return f'<section class="card"><h3>{escape(title)}</h3>{content}{below}</section>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are escaped; all but the first are numbers."""
    top = "".join(f'<th class="{"n" if i else ""}">{escape(cell)}</th>' for i, cell in enumerate(head))
    lines = "".join(
        "<tr>" + "".join(f'<td class="{"n" if i else ""}">{escape(c)}</td>' for i, c in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>'


def _splits(card: Card) -> str:
    stats = card.stats
    sides = card.look.sides
    rows = [[s, *(f"{c[s]:,}" for c in (stats.episodes, stats.steps, stats.actions))] for s in sides]
    return _panel("Splits" if len(sides) > 1 else "Size", _table(["", "episodes", "steps", "to learn"], rows))


def _bars(values: Mapping[str, int], unit: str = "", most: int = 12) -> str:
    whole, top = sum(values.values()), max(values.values(), default=1)
    ordered = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="n">{count:,}</td><td class="n">{share(count, whole)}</td>'
        f'<td class="bar"><i style="width:{100 * count / top:.1f}%"></i></td></tr>'
        for name, count in ordered[:most]
    )
    if len(ordered) > most:
        rest = sum(count for _, count in ordered[most:])
        rows += f'<tr><td>{len(ordered) - most:,} more</td><td class="n">{rest:,}</td>'
        rows += f'<td class="n">{share(rest, whole)}</td><td></td></tr>'
    head = f'<tr><th></th><th class="n">{escape(unit)}</th><th></th><th></th></tr>' if unit else ""
    return f'<div class="scroll"><table>{head}{rows}</table></div>'


def _actions(stats: Stats) -> str:
    return _panel("Actions", _bars(sum(stats.types.values(), Counter()), most=30))


def _origin(stats: Stats) -> str:
    panels = ""
    for title, values in (("Outcomes", stats.outcomes), ("Agents", stats.agents), ("Environments", stats.environments)):
        if set(values) != {"(none)"}:
            panels += _panel(title, _bars(values, "episodes", 6))
    return panels


def _named(text: str) -> str:
    return {"instruction": "instructions", "thought": "thoughts", "typed text": "typed texts"}.get(text, text)


def _spread(values: Mapping[int, int]) -> str:
    return ", ".join(f"{name} {value:,.4g}" for name, value in quantiles(values).items())


def _histogram(values: Mapping[int, int]) -> str:
    counts = bins(values)
    width, height, top = 420, 150, max(count for _, _, count in counts)
    step = (width - 2) / max(len(counts), 6)
    bars = "".join(
        f'<rect class="f" x="{1 + i * step + 1:.1f}" y="{height - h:.1f}" width="{max(step - 2, 1):.1f}" '
        f'height="{h:.1f}" rx="1.5"><title>{_range(a, b)}: {count:,}</title></rect>'
        for i, (a, b, count) in enumerate(counts)
        if count and (h := max(1.5, (height - 22) * count / top))
    )
    every = max(1, len(counts) // 7)
    labels = "".join(
        f'<text class="mid" x="{1 + (i + 0.5) * step:.1f}" y="{height + 15}">{_range(a, b) if step > 50 else a}</text>'
        for i, (a, b, _) in enumerate(counts)
        if i % every == 0
    )
    return (
        f'<svg viewBox="0 0 {width} {height + 20}" role="img"><text x="0" y="10">{top:,} at most</text>'
        f'<line class="axis" x1="0" y1="{height}" x2="{width}" y2="{height}"/>{bars}{labels}</svg>'
    )


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _heat(stats: Stats) -> str:
    """Cells of the screen, darker the more often an action points there; the square root keeps rare ones visible."""
    screen = max(stats.screens, key=lambda size: (stats.screens[size], size))
    width = 420.0
    height = width * min(max(screen[1] / screen[0], 0.3), 2.2)
    w, h = width / ACROSS, height / DOWN
    top = max(stats.clicks.values(), default=1)
    cells = "".join(
        f'<rect class="f" x="{x * w:.1f}" y="{y * h:.1f}" width="{w:.1f}" height="{h:.1f}" '
        f'opacity="{0.08 + 0.92 * (count / top) ** 0.5:.2f}"><title>{count:,}</title></rect>'
        for (x, y), count in sorted(stats.clicks.items())
    )
    frame = f'<rect class="frame" x="0.5" y="0.5" width="{width - 1:.1f}" height="{height - 1:.1f}" rx="4"/>'
    return f'<svg class="heat" viewBox="0 0 {width:.0f} {height:.0f}" role="img">{frame}{cells}</svg>'


def _heat_note(stats: Stats) -> str:
    points = stats.clicks.total()
    most = max(stats.clicks.values(), default=0)
    return f"{points:,} points of actions on the whole screen; the darkest cell has {most:,}"


def written(action: Action | None) -> str:
    """An action for people."""
    if action is None:
        return "(no valid action)"
    try:
        return Dsl(3, marks=action.element is not None).format(action)
    except Unrepresentable:
        return repr(action)


def _clipped(text: str) -> str:
    return text if len(text) <= CLIP else text[: CLIP - 1] + "…"


def _figure(card: Card, place: StepPosition, *, width: int = 480) -> str:
    seen = card.episodes[place.episode]
    step = seen.episode.steps[max(place.step, 0)]
    picture = thumbnail(card.look.open(seen.images[max(place.step, 0)]), step.action, width)
    goal = escape(_clipped(seen.episode.goal or seen.episode.instruction))
    thought = f"<br>{escape(_clipped(step.thought))}" if step.thought else ""
    return (
        f'<figure><img alt="" src="{picture}"><figcaption><code>{escape(_clipped(written(step.action)))}</code>'
        f"{goal}{thought}<br>{escape(name_of(card, place))}</figcaption></figure>"
    )


def _examples(card: Card) -> Iterable[str]:
    counts = sum(card.stats.types.values(), Counter())
    for kind, _ in counts.most_common(12):
        for _, number, index in card.stats.examples[kind]:
            yield f'<div class="card">{_figure(card, StepPosition(number, index))}</div>'


def _clusters(card: Card) -> Iterable[str]:
    for members in card.near[:CLUSTERS]:
        step = max(1, len(members) // PICTURES)
        pictures = "".join(
            f'<figure><img alt="" src="{thumbnail(card.look.open(card.look.sha(at)), None, 300)}"></figure>'
            for at in members[::step][:PICTURES]
        )
        yield _panel(f"{len(members):,} images that look alike", f'<div class="row">{pictures}</div>')


def _same(card: Card, places: Sequence[StepPosition]) -> str:
    figures = "".join(_figure(card, place) for place in places)
    return f'<div class="card"><div class="grid">{figures}</div></div>'


def _shared(card: Card) -> str:
    if not card.shared:
        return '<p class="note">Nothing: no frame of one split is in another.</p>'
    rows = [
        [
            f"{leak.level}: {MEANING[leak.level]}",
            f"{leak.first}, {leak.second}",
            f"{leak.things:,}",
            f"{leak.in_first:,} ({share(leak.in_first, leak.of_first)})",
            f"{leak.in_second:,} ({share(leak.in_second, leak.of_second)})",
        ]
        for leak in card.shared
    ]
    parts = [_table(["", "", "different", "of the first", "of the second"], rows)]
    for leak in card.leaking:
        for pair in leak.examples[:2]:
            parts.append(
                _panel(f"The same {leak.level}", f'<div class="grid">{"".join(_figure(card, p) for p in pair)}</div>')
            )
    return f'<div class="stack">{"".join(parts)}</div>'
