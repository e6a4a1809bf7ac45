"""Ends machines: asks until each was seen gone. Lambda's answer to a request says little (`global/unknown` comes also
where it took effect), so only a later look counts."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

from launcher.backends.lambda_labs.api import EffectUnknown, LambdaApi, LambdaRefused
from launcher.errors import Unreachable
from launcher.wait_hint import LongWait

PATIENCE: Final = 300  # looks; about as many seconds
ASK_AGAIN: Final = 15  # looks between two requests


def end(api: LambdaApi, ids: Collection[str], interval: float) -> None:
    """Returns when none of the machines is living any more. Raises Unreachable."""
    left, wait = set(ids), LongWait()
    trouble = ""
    for look in range(PATIENCE):
        left = {each for each in left if (seen := api.instance(each)) is not None and seen.living}
        if not left:
            return
        if look >= ASK_AGAIN:
            wait.tell(f"waits until Lambda has ended {', '.join(sorted(left))}")
        if look % ASK_AGAIN == 0:
            for each in sorted(left):  # one by one: one unknown id would refuse them all
                try:
                    api.terminate([each])
                except (EffectUnknown, LambdaRefused) as error:
                    trouble = f": {error}"
        else:
            time.sleep(interval)
    raise Unreachable(f"machine {min(left)} still lives, and is billed, after {PATIENCE} looks{trouble}")
