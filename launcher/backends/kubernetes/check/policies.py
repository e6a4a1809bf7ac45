"""House policies: what `validate` refuses although a cluster takes it. Each has a name, by which it is switched off.

What `validate` refuses without naming a policy, an API server refuses too (tests/cluster/test_verdicts.py).
"""

from __future__ import annotations

from typing import Final

DIGESTS: Final = "digests"
POD_SECURITY: Final = "pod-security"
FIXED_NAMES: Final = "fixed-names"
NO_EFFECT: Final = "no-effect"
NEVER_STARTS: Final = "never-starts"
APPLY: Final = "server-side-apply"
QUEUES: Final = "queues"
REPEATED: Final = "repeated"

ALL: Final = {
    DIGESTS: "an image is named by its digest, because a tag may be another image tomorrow",
    POD_SECURITY: "pods fit the Pod Security level of their namespace; a cluster takes a Job whose pods do not, and "
    "refuses these pods",
    FIXED_NAMES: "an object has a name of its own (no generateName), because applying it again would run it again",
    NO_EFFECT: "no field that a cluster drops or that changes nothing",
    NEVER_STARTS: "no object that a cluster takes although its pods can never run",
    APPLY: "each entry of a list once: server-side apply, which GitOps tools use, refuses an object that repeats one",
    QUEUES: "an object in a queue of Kueue asks for cpu, and leaves `suspend` to Kueue",
    REPEATED: "each object once in a file",
}


def named(what: str, policy: str) -> str:
    """A message about a policy, with its name."""
    return f"{what} (house policy {policy})" if policy else what
