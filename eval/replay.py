"""An episode as one self-contained HTML page, each click drawn: `python -m eval.replay EPISODE OUT.html`."""

from __future__ import annotations

import argparse
import base64
import hashlib
import html
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from eval.actions import Action
from eval.episodes import Episode, EpisodeError, Step, frame_name, read_episode

# colours and sizes as the report has them (launcher/report/page.css)
STYLE: Final = """
:root { color-scheme: light dark; --page: #fbfbfa; --card: #fff; --ink: #1c1e21; --soft: #565b62;
  --rule: #e4e5e7; --accent: #2563c9;
  --good: #19734a; --bad: #b3352a; }
@media (prefers-color-scheme: dark) { :root { --page: #131517; --card: #1b1e21; --ink: #e6e8ea; --soft: #a2a8b0;
  --rule: #2d3135;
  --accent: #7aa7f5; --good: #6fcf9c; --bad: #f08d80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); overflow-wrap: anywhere;
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
main { max-width: 1060px; margin: 0 auto; padding: 32px 24px 72px; }
h1 { font-size: 22px; line-height: 1.3; margin: 0 0 6px; font-weight: 650; }
p { margin: 0 0 10px; color: var(--soft); }
nav { position: sticky; top: 0; z-index: 1; display: flex; gap: 10px; align-items: center; padding: 10px 0;
  background: var(--page); }
nav button { font: inherit; font-size: 14px; color: var(--ink); background: var(--card);
  border: 1px solid var(--rule); border-radius: 7px;
  padding: 5px 13px; cursor: pointer; }
nav span { color: var(--soft); font-size: 13px; }
figure { margin: 0 0 20px; padding: 14px; background: var(--card); border: 1px solid var(--rule);
  border-radius: 10px; scroll-margin-top: 60px; }
figure:focus { outline: 2px solid var(--accent); outline-offset: 2px; }
.screen { position: relative; display: inline-block; max-width: 100%; border: 1px solid var(--rule);
  border-radius: 6px; overflow: hidden; }
.screen img { display: block; width: 100%; height: auto; }
.screen svg { position: absolute; inset: 0; width: 100%; height: 100%; }
figcaption { margin-top: 8px; }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .88em; }
.time { color: var(--soft); font-size: 13px; } .good { color: var(--good); } .bad { color: var(--bad); }
@media print { nav { display: none; } figure { break-inside: avoid; } }
"""
SCRIPT: Final = """
const steps = [...document.querySelectorAll("figure")], place = document.querySelector("nav span");
let at = 0;
function show(index) {
  at = Math.max(0, Math.min(steps.length - 1, index));
  steps[at].focus({preventScroll: true});
  steps[at].scrollIntoView();
  place.textContent = `${at + 1} / ${steps.length}`;
}
const ways = {ArrowLeft: () => at - 1, ArrowRight: () => at + 1, Home: () => 0, End: () => steps.length - 1};
document.addEventListener("keydown", event => {
  if (!ways[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  show(ways[event.key]());
});
document.querySelectorAll("nav button").forEach((button, k) => {
  button.addEventListener("click", () => show(k ? at + 1 : at - 1));
});
steps.forEach((step, k) => step.addEventListener("click", () => {
  at = k;
  place.textContent = `${k + 1} / ${steps.length}`;
}));
"""


def marks(step: Step) -> str:
    """SVG over the frame, in per cent of it: a ring where an action points, a line along a drag."""
    shapes = "".join(map(_drawn, step.actions))
    return f"<svg>{shapes}</svg>" if shapes else ""


def _drawn(action: Action) -> str:
    if action.point is None:
        return ""
    x, y = (100 * value for value in action.point)
    shapes = f'<circle cx="{x:.3f}%" cy="{y:.3f}%" r="9" fill="none" stroke="#e00" stroke-width="3"/>'
    if action.end is not None:
        x2, y2 = (100 * value for value in action.end)
        line = f'x1="{x:.3f}%" y1="{y:.3f}%" x2="{x2:.3f}%" y2="{y2:.3f}%"'
        shapes += f'<line {line} stroke="#e00" stroke-width="3"/>'
    return shapes


def figure(folder: Path, name: str, overlay: str, caption: str) -> str:
    data = base64.b64encode((folder / name).read_bytes()).decode()
    image = f'<img alt="" src="data:image/png;base64,{data}">'
    return (
        f'<figure tabindex="-1"><div class="screen">{image}{overlay}</div><figcaption>{caption}</figcaption></figure>'
    )


def _caption(step: Step, began: float | None) -> str:
    said = html.escape(step.response or "; ".join(map(repr, step.actions)))
    wrong = [why for why in (step.parse_error, step.refused) if why]
    error = f' <span class="bad">{html.escape("; ".join(wrong))}</span>' if wrong else ""
    passed = f"{step.time - began:.1f} s" if step.time is not None and began is not None else ""
    cost = f"{step.cost:.4f} USD" if step.cost else ""
    told = ", ".join(filter(None, (passed, cost)))
    return f"{step.index + 1}. <code>{said}</code>{error}" + (f' <span class="time">{told}</span>' if told else "")


def page(folder: Path, episode: Episode) -> str:
    """The whole page; nothing in it is loaded from elsewhere."""
    if episode.outcome != "scored":
        verdict = f"{'infrastructure failure' if episode.outcome == 'infra' else 'not run'}: {episode.error}"
    elif episode.success is None:
        verdict = "not judged"
    else:
        verdict = f"{'solved' if episode.success else 'not solved'}, score {episode.score}"
    began = next((step.time for step in episode.steps if step.time is not None), None)
    figures = [figure(folder, step.screenshot, marks(step), _caption(step, began)) for step in episode.steps]
    last = frame_name(len(episode.steps))
    if (folder / last).is_file():
        figures.append(figure(folder, last, "", "The end."))
    title = html.escape(episode.instruction)
    colour = "" if episode.success is None else "good" if episode.success else "bad"
    seconds = f", {episode.duration_ms / 1000:.1f} s" if episode.duration_ms else ""
    about = html.escape(f"{episode.task_id}, seed {episode.seed}, agent {episode.agent or '-'}{seconds}: ")
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    keys = "<nav><button>Back</button><button>Next</button><span>the keys left and right do the same</span></nav>"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="generator" content="Slipway">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style>"
        f'<main><h1>{title}</h1><p>{about}<span class="{colour}">{html.escape(verdict)}</span></p>'
        f"{keys if len(figures) > 1 else ''}{''.join(figures)}</main><script>{SCRIPT}</script></html>\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m eval.replay", description="An episode as one HTML page.")
    parser.add_argument("episode", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args(argv)
    try:
        text = page(arguments.episode, read_episode(arguments.episode))
    except (EpisodeError, OSError) as error:
        print(f"replay: {error}", file=sys.stderr)
        return 2
    arguments.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
