"""Runs as jobs of an Azure ML workspace (docs/explanation/azure.md): one command job for each role of a run.

names    names and properties of jobs
script   the command of a job
render   job -> command jobs as YAML; reads a rendered file back
rest     command job -> the body of the request that creates it
workspace  a workspace, asked through the SDK
resources  disks and addresses beside it, asked of the resource manager
overdue  which jobs must end although their run has no result
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.backends.base import Backend


def make(options: Mapping[str, object]) -> Backend:
    """`options`: the block, and for tests `folders` and `poll` (seconds)."""
    from launcher.backends.azureml.backend import AzureBackend

    return AzureBackend(options)
