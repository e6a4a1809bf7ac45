"""Which structure of `documents` each verb prints with `-o json`, and why some print none. Not imported by any verb."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from launcher.cli.printing.documents import (
    Cancelled,
    Checked,
    Compared,
    Diff,
    File,
    Followed,
    Gathered,
    Gone,
    Group,
    Image,
    ImageFinding,
    JobCosts,
    Linted,
    Local,
    LogLine,
    Metric,
    Moved,
    Overlay,
    Paid,
    Part,
    Queue,
    Reaped,
    Run,
    RunCosts,
    Secret,
    StoredCosts,
    Submitted,
    SummedCosts,
    Used,
    Validated,
    Verified,
    Vulnerability,
    Watched,
)


class Printed(NamedTuple):
    """What a verb prints: one `type`, or, with `lines`, one on each line."""

    type: Any
    lines: bool = False


# a verb, or a verb with its action
DOCUMENTS: Final[dict[str, Printed]] = {
    "init": Printed(File),
    "validate": Printed(Validated),
    "lint": Printed(list[Linted]),
    "push": Printed(list[Overlay]),
    "submit": Printed(list[Submitted]),
    "submit --follow": Printed(Followed | Watched, lines=True),
    "run": Printed(list[Submitted]),
    "status": Printed(list[Run]),
    "status --paid": Printed(list[Paid]),
    "status --watch": Printed(Watched, lines=True),
    "groups": Printed(list[Group]),
    "top": Printed(list[Used]),
    "queues": Printed(list[Queue]),
    "wait": Printed(list[Run]),
    "logs": Printed(LogLine, lines=True),
    "cancel": Printed(list[Cancelled]),
    "move": Printed(list[Moved]),
    "reap": Printed(list[Reaped]),
    "retry": Printed(list[Submitted]),
    "retry --follow": Printed(Followed | Watched, lines=True),
    "rm": Printed(list[Gone]),
    "gc": Printed(list[Gone]),
    "gather": Printed(list[Gathered]),
    "cost": Printed(list[RunCosts]),
    "cost --by": Printed(list[SummedCosts]),
    "cost --storage": Printed(list[StoredCosts]),
    "cost --job": Printed(list[JobCosts]),
    "results": Printed(list[Metric]),
    "compare": Printed(list[Compared]),
    "diff": Printed(Diff),
    "report": Printed(File),
    "doctor": Printed(list[Checked]),
    "secrets list": Printed(list[Secret]),
    "images list": Printed(list[Image]),
    "images scan": Printed(list[Vulnerability]),
    "images check": Printed(list[ImageFinding]),
    "images verify": Printed(Verified),
    "cluster status": Printed(list[Part]),
    "local status": Printed(list[Local]),
}
WITHOUT: Final[dict[str, str]] = {
    "schema": "it prints the JSON Schema itself; with a field, a text for people",
    "render": "it prints the manifests themselves, and `-o` is where they are written",
    "dev": "the output is another program's; `status -l slipway-dev` lists sessions",
    "exec": "the output is another program's",
    "forward": "it prints nothing; it keeps a connection open",
    "completion": "it prints a shell's script",
    "secrets set": "it prints only where the value is kept",
    "secrets rm": "it prints nothing",
    "images build": "its output is the progress of a build; `images list` shows the result",
    "images push": "its output is the progress of a push; `images list` shows the result",
    "images prune": "its output is the progress of a removal",
    "cluster up": "its output is progress and advice; `cluster status` shows the result",
    "cluster down": "it prints progress only",
    "local start": "it prints nothing",
    "local stop": "it prints nothing",
    "local install": "it writes a systemd unit; `--print` prints that",
    "local uninstall": "it prints nothing",
    "local logs": "it prints the supervisor's log unchanged",
}
