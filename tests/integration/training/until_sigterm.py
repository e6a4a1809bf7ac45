"""A trainer that does not begin its second step before it got SIGTERM, however late that comes on a busy machine.

python -m tests.integration.training.until_sigterm MODULE [ARGUMENT ...]
"""

from __future__ import annotations

import runpy
import sys
import time
from typing import Any

from training.common.reporting import Reporting


def main() -> None:
    on_step_end = Reporting.on_step_end

    def waits(self: Reporting, *args: Any, **kwargs: Any) -> Any:
        control = on_step_end(self, *args, **kwargs)  # writes the progress by which a test sees the step
        while not self.stop.asked:
            time.sleep(0.01)
        return control

    Reporting.on_step_end = waits  # type: ignore[method-assign]
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
