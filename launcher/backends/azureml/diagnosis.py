"""What `launcher doctor` says of the azureml backend."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from launcher.backends.azureml.names import NAME, PLACE
from launcher.backends.base import CheckResult
from launcher.errors import SlipwayError
from launcher.spec.profile import Profile
from launcher.trees import document


def diagnose(profile: Profile) -> Iterator[CheckResult]:
    """Whether this login sees the workspace of the profile. Where the profile names none, nothing is asked."""
    block = profile.blocks.get(NAME, {})
    if not all(block.get(name) for name in PLACE):
        yield CheckResult(NAME, "ok", f"not set up: slipway.yaml names no {', '.join(PLACE)}")
        return
    try:
        from launcher.backends.azureml.workspace import Workspace

        workspace = Workspace(block, patience=0.0)
        workspace.must_exist()
    except SlipwayError as error:
        yield CheckResult(NAME, "failed", str(error), document("docs/howto/azure.md"), error.exit_code)
        return
    yield CheckResult(NAME, "ok", f"this login sees the workspace {workspace.name}")
    for place, other in others(str(block["subscription"])):
        text = f"{place} is {other}; runs go to {block['subscription']}, and nothing else is asked or ended"
        yield CheckResult(NAME, "warning", text, f"az account set --subscription {block['subscription']}")


def others(subscription: str) -> Iterator[tuple[str, str]]:
    """(where it is set, its id) of each subscription that this machine's logins mean and the runs do not."""
    chosen = os.environ.get("AZURE_SUBSCRIPTION_ID", "")
    if chosen and chosen.lower() != subscription.lower():
        yield "AZURE_SUBSCRIPTION_ID", chosen
    path = Path(os.environ.get("AZURE_CONFIG_DIR") or Path.home() / ".azure") / "azureProfile.json"
    try:
        known = json.loads(path.read_text(encoding="utf-8-sig")).get("subscriptions", [])
    except (OSError, ValueError):
        return
    for each in known:
        if each.get("isDefault") and str(each.get("id", "")).lower() != subscription.lower():
            yield "the subscription of `az`", str(each.get("id", ""))
