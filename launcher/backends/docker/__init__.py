"""Runs in containers of a Docker engine: the supervisor, the queue and the slots are those of the local backend."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.backends.docker.backend import DockerBackend

__all__ = ["DockerBackend", "make"]


def make(options: Mapping[str, object]) -> DockerBackend:
    """`options`: those of the local backend, whose queue this one shares."""
    return DockerBackend(options)
