"""The list of episodes: filters, a line for each, and in it the replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from launcher.report.collect import Report
from launcher.report.episodes import ShownEpisode
from launcher.report.html import Markup, badge, data, duration, tag
from launcher.report.replays import FINAL_SCREEN, Replay
from launcher.results.text import money

STAGE_HEIGHT: Final = 440  # pixels, the largest height of a screen
TINY: Final = 640  # pixels; a screen up to this width is enlarged without smoothing
UNKNOWN_SCREEN: Final = (1280, 720)  # of an episode that failed before its first screen
# attribute of an episode -> the filter's label
FILTERS: Final = {
    "agent": "agent",
    "program": "program",
    "difficulty": "difficulty",
    "outcome": "outcome",
    "failure": "why it failed",
}
KINDS: Final = {"solved": "good", "failed": "bad"}
OUTCOMES: Final = {"infra": "infrastructure failed"}
FIRST: Final = ("failed", "infra", "not run")  # what a reader looks at first
OPENED: Final = 20  # episodes of an open fold, at most


def episode_list(report: Report) -> Markup | None:
    episodes = report.episodes
    if not episodes:
        return None
    count = sum(episode.replay is not None for episode in episodes)
    words = f"{len(episodes)} episodes, {count} with their screens. The ring marks where the agent pointed."
    notes = [tag("p", words, class_="note")]
    if report.pictures:
        beside = f"The pictures are too large for one file: they are in the folder {report.pictures} beside this page."
        notes.append(tag("p", f"{beside} Keep both together.", class_="note"))
    return tag(
        "div",
        tag("h2", "Replays"),
        *notes,
        _filters(episodes),
        tag("div", *_by_outcome(episodes), class_="episodes"),
        data_episodes=True,
    )


def _by_outcome(episodes: Sequence[ShownEpisode]) -> list[Markup]:
    """The lines, folded by outcome where there are several: what failed comes first, and is open."""
    named = {episode.outcome for episode in episodes}
    order = [*(outcome for outcome in FIRST if outcome in named), *sorted(named.difference(FIRST))]
    if len(order) < 2:
        return [_line(episode) for episode in episodes]
    groups = []
    for outcome in order:
        mine = [episode for episode in episodes if episode.outcome == outcome]
        count = f"{len(mine)} episode{'' if len(mine) == 1 else 's'}"
        summary = tag("summary", badge(OUTCOMES.get(outcome, outcome), KINDS.get(outcome, "")), tag("b", count))
        lines = tag("div", *map(_line, mine), class_="episodes")
        opened = len(mine) <= OPENED and (outcome == order[0] or any(episode.opened for episode in mine))
        groups.append(tag("details", summary, lines, class_="outcome", open=opened))
    return groups


def _filters(episodes: Sequence[ShownEpisode]) -> Markup | None:
    """The fields, which the page's script shows; without one choice there is nothing to filter."""
    fields = []
    for name, label in FILTERS.items():
        values = sorted({getattr(episode, name) for episode in episodes} - {""})
        if len(values) + any(getattr(episode, name) == "" for episode in episodes) < 2:
            continue
        options = [tag("option", "all", value=""), *(tag("option", value, value=value) for value in values)]
        fields.append(tag("label", label, tag("select", *options, name=name)))
    if len(episodes) < 2:
        return None
    fields.append(tag("label", "words", tag("input", type="search", name="words")))
    fields.append(tag("output", f"{len(episodes)} shown", aria_live="polite"))
    return tag("div", *fields, role="search", class_="filters card", hidden=True, aria_label="filter the episodes")


def _line(episode: ShownEpisode) -> Markup:
    outcome = OUTCOMES.get(episode.outcome, episode.outcome)
    facts = [
        episode.agent,
        f"seed {episode.seed}" if episode.seed else "",
        episode.program,
        episode.difficulty,
        "" if episode.steps is None else f"{episode.steps} answers",
        "" if episode.seconds is None else duration(episode.seconds),
        money(episode.cost, "USD") or "",
        episode.failure if episode.outcome == "failed" else "",
        "" if episode.replay is not None else "no screens kept",
    ]
    summary = tag(
        "summary",
        badge(outcome, KINDS.get(episode.outcome, "")),
        tag("b", episode.task or "episode"),
        tag("span", " · ".join(filter(None, facts)), class_="note"),
    )
    why = None
    if episode.failure or episode.why:
        told = [tag("b", episode.failure), ": " if episode.failure and episode.why else "", episode.why]
        rule = tag("span", f" Rule: {episode.rule}", class_="faint") if episode.rule else None
        why = tag("p", *told, rule, class_="why")
    body = _replay(episode.replay, episode.opened) if episode.replay is not None else None
    if body is None and why is None:
        body = tag("p", "The evaluation kept no screens of this episode (keep_episodes).", class_="note")
    return tag(
        "details",
        summary,
        why,
        body,
        class_="episode card",
        open=episode.opened,
        **{f"data_{name}": getattr(episode, name) or None for name in FILTERS},
    )


def _replay(replay: Replay, opened: bool) -> Markup:
    head = replay.head
    steps = sum(step.text != FINAL_SCREEN for step in replay.steps)
    facts = [f"{steps} steps", f"score {head.score:.3g}" if head.score is not None else "not judged"]
    if replay.left_out:
        facts.append(f"{replay.left_out} frames left out")
    w, h = head.screen if min(head.screen) > 0 else UNKNOWN_SCREEN
    items = [
        tag(
            "li",
            tag("span", index + 1),
            tag("code", step.text),
            tag("div", step.thought, class_="thought") if step.thought else None,
            tag("div", step.error, class_="error") if step.error else None,
            tag("div", "The screen stays the same.", class_="thought") if step.same else None,
        )
        for index, step in enumerate(replay.steps)
    ]
    first = next((step.frame for step in replay.steps if step.frame is not None), None)
    payload = {
        "screen": [w, h],
        "start": 0,
        "frames": replay.frames,
        "steps": [{"frame": s.frame, "text": s.text, "x": s.x, "y": s.y, "x2": s.x2, "y2": s.y2} for s in replay.steps],
    }
    # the script gives a closed replay its first picture when it is opened
    source = replay.frames[first] if opened and first is not None else None
    picture = tag("img", src=source, alt="screen at step 1", width=w, height=h)
    after = tag("img", alt="", class_="after", hidden=True)
    overlay = tag("svg", viewBox=f"0 0 {w} {h}", preserveAspectRatio="none", aria_hidden="true")
    last = len(replay.steps) - 1
    controls = tag(
        "div",
        tag("button", "Back", type="button"),
        tag("input", type="range", min=0, max=last, value=0, aria_label="step"),
        tag("button", "Next", type="button"),
        tag("button", "What changed", type="button", aria_pressed="false"),
        tag("output", f"1 / {last + 1}"),
        class_="controls",
    )
    stage = tag("div", picture, after, overlay, class_="stage tiny" if w <= TINY else "stage")
    return tag(
        "figure",
        tag(
            "header",
            tag("b", head.instruction or head.goal),
            tag("p", " · ".join(filter(None, facts)), class_="note"),
        ),
        tag(
            "div",
            tag("div", stage, controls),
            tag("ol", *items, class_="steps", tabindex=0, aria_label="steps"),
            class_="body",
            style=f"--stage:{STAGE_HEIGHT * w / h:.0f}px",
        ),
        data(payload),
        class_="replay",
        data_replay=True,
    )
