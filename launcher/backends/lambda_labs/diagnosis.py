"""What `launcher doctor` says of the lambda backend."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from launcher.backends.base import CheckResult
from launcher.backends.lambda_labs.names import NAME, RUN
from launcher.errors import SlipwayError
from launcher.spec.profile import Profile
from launcher.trees import document


def diagnose(profile: Profile) -> Iterator[CheckResult]:
    """Whether Lambda takes the API key. Without a key, and where the profile says nothing of Lambda, nothing is
    asked."""
    from launcher.backends.lambda_labs.api import KEYS, LambdaApi, LambdaRefused

    fix = f"set {KEYS[0]} to a key of cloud.lambda.ai/api-keys; {document('docs/howto/lambda.md')}"
    if not any(os.environ.get(name) for name in KEYS) and NAME not in profile.blocks:
        yield CheckResult(NAME, "ok", f"not set up: {KEYS[0]} is not set")
        return
    try:
        api = LambdaApi()
        machines = api.instances()
        try:
            next(api.audit_events(time.time() - 60), None)
            audit = ""
        except LambdaRefused as error:
            audit = str(error)
    except SlipwayError as error:
        yield CheckResult(NAME, "failed", str(error), fix, 4)
        return
    ours = sum(bool(each.tag(RUN)) for each in machines if each.living)
    living = sum(each.living for each in machines)
    yield CheckResult(NAME, "ok", f"{living} machines are billed, {ours} of them Slipway's")
    if audit:
        text = f"reap cannot read the account's audit events, and sees only machines that the list shows: {audit}"
        yield CheckResult(NAME, "warning", text, "use a key of an administrator of the account")
