"""The verbs of programs that users of this one know: kubectl, docker, SkyPilot, dstack, az and git. Read only to answer
an unknown verb."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "submit": ("apply", "create", "launch", "start", "train", "up"),
    "status": ("describe", "get", "history", "inspect", "job", "jobs", "list", "ls", "ps", "runs", "show", "watch"),
    "cancel": ("abort", "delete", "destroy", "down", "end", "kill", "stop", "terminate"),
    "logs": ("attach", "follow", "log", "tail"),
    "gather": ("copy", "cp", "download", "fetch", "pull", "sync"),
    "exec": ("bash", "sh", "shell", "ssh"),
    "forward": ("port", "port-forward", "tunnel"),
    "retry": ("relaunch", "rerun", "restart", "resume"),
    "doctor": ("check", "config", "info", "login", "whoami"),
    "queues": ("queue",),
    "results": ("metrics", "result", "scores"),
    "monitor": ("dashboard", "ui", "web"),
    "images": ("build", "image"),
    "cost": ("bill", "price"),
    "gc": ("prune",),
    "--version": ("version",),
    "--help": ("usage",),
}
MEANS: Final = {word: verb for verb, words in _OF.items() for word in words}


def verb_meant(word: str, verbs: Collection[str]) -> str:
    """The one of our `verbs` that this word probably stands for, or ""."""
    known = word.lower()
    if known in verbs or known in MEANS:
        return MEANS.get(known, known)
    near = get_close_matches(known, [*verbs, *MEANS], n=1)
    return MEANS.get(near[0], near[0]) if near else ""
