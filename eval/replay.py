"""An episode as one self-contained HTML page, each click drawn: `python -m eval.replay EPISODE OUT.html`."""

from __future__ import annotations

import argparse
import base64
import html
import sys
from collections.abc import Sequence
from pathlib import Path

from eval.actions import Action
from eval.episodes import Episode, EpisodeError, Step, frame_name, read_episode

STYLE = """
body{font:14px/1.4 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}
figure{margin:1.5rem 0}
.screen{position:relative;display:inline-block;border:1px solid #888}
.screen img{display:block;width:100%;min-width:20rem;image-rendering:auto}
.screen svg{position:absolute;inset:0;width:100%;height:100%}
figcaption{margin-top:.3rem}code{overflow-wrap:anywhere}.bad{color:#b00}
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
    return f'<figure><div class="screen">{image}{overlay}</div><figcaption>{caption}</figcaption></figure>'


def _caption(step: Step) -> str:
    said = html.escape(step.response or "; ".join(map(repr, step.actions)))
    wrong = [why for why in (step.parse_error, step.refused) if why]
    error = f' <span class="bad">{html.escape("; ".join(wrong))}</span>' if wrong else ""
    return f"{step.index + 1}. <code>{said}</code>{error}"


def page(folder: Path, episode: Episode) -> str:
    """The whole page; nothing in it is loaded from elsewhere."""
    if episode.outcome != "scored":
        verdict = f"{'infrastructure failure' if episode.outcome == 'infra' else 'not run'}: {episode.error}"
    elif episode.success is None:
        verdict = "not judged"
    else:
        verdict = f"{'solved' if episode.success else 'not solved'}, score {episode.score}"
    figures = [figure(folder, step.screenshot, marks(step), _caption(step)) for step in episode.steps]
    last = frame_name(len(episode.steps))
    if (folder / last).is_file():
        figures.append(figure(folder, last, "", "The end."))
    title = html.escape(episode.instruction)
    about = html.escape(f"{episode.task_id}, seed {episode.seed}, agent {episode.agent or '-'}: {verdict}")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="generator" content="Slipway">'
        f"<title>{title}</title><style>{STYLE}</style>"
        f"<h1>{title}</h1><p>{about}</p>{''.join(figures)}</html>\n"
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
