"""The block of a backend in a job, over the one in slipway.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launcher.spec.backends import traits


def merged(backend: str, general: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The profile's options (`general`) with the job's over them. Of options that exclude each other (Traits.choices)
    the job's one takes the place of the profile's."""
    choices = traits(backend).choices
    others = {option: belonging for option, belonging in choices.items() if option not in own}
    if len(others) < len(choices):
        dropped = {*others, *(name for belonging in others.values() for name in belonging)}
        general = {name: value for name, value in general.items() if name not in dropped}
    return {**general, **own}


def without_defaults(backend: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A backend's block without options at their defaults, so that a written default changes no hash."""
    defaults = traits(backend).defaults
    return {key: value for key, value in options.items() if key not in defaults or value != defaults[key]}


def of_machine(backend: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a backend's block that means something on this machine only."""
    own = traits(backend).machine
    return {key: value for key, value in options.items() if key in own}


def portable(backend: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a backend's block that job.json holds."""
    own = traits(backend).machine
    return {key: value for key, value in options.items() if key not in own}
