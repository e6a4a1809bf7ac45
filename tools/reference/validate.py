"""docs/reference/validate.md: what `launcher validate` checks, and how often an API server says the same."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import Final

from launcher.backends.kubernetes import schemas
from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.rules import has_rules
from tests.unit.kubernetes_validate.verdicts import manifests, ours, verdicts

HEAD: Final = """\
# What validate checks

<!-- written by tools/reference/validate.py: `make golden` -->

`launcher validate` asks no cluster. It checks three things, and its last lines say which of them it did:

1. **Schemas**: fields, types and values of every stable kind of Kubernetes, and of the operators below.
2. **Rules** of the server that are in no schema, for the kinds that the launcher renders or `k8s/` ships:
   {ruled}.
   Of another kind of Kubernetes the schema is checked, and the rules of the parts that these kinds have too.
3. **House policies**: what this project asks for and a cluster does not. The message names the policy.
   `--without POLICY` switches one off, `--without all` all of them.

An object of a kind that has no schema here (an ExternalSecret, for example) is passed over, with a line that says so.
A kind that Kubernetes itself does not have is an error. Admission webhooks, quotas, permissions and other objects are
never looked at: `kubectl apply --dry-run=server` asks your cluster about them.

## House policies

| policy | what it asks for |
|---|---|
"""
AFTER_VERSIONS: Final = """\
What is rendered and what `k8s/` ships is valid for every version in this table (a test for each). On a cluster that is
newer or older than all of them, submit says so and lets the cluster's dry run decide. From 1.35 on a kubelet refuses a
machine with cgroup v1 unless `failCgroupV1: false` is set. The sources, with checksums:
[schemas/README.md](../../launcher/backends/kubernetes/schemas/README.md).
"""
AGAINST: Final = """\
{count} manifests, good and bad (tests/unit/kubernetes_validate/manifests: written from the documentation of the API,
with single changes, and what the launcher renders, changed at random), were sent to a real API server, Kubernetes
1.34.4, by a dry run (tests/cluster/test_verdicts.py), and given to `validate --without all`. **Says less**: the server
refuses what validate takes. That is allowed, and it is why a dry run is worth its second; each such manifest is named,
with the server's words, in tests/unit/kubernetes_validate/manifests/less.yaml. **Refuses more** must be 0.

The same manifests were sent to Kubernetes 1.33.13 and given to `validate --kubernetes-version 1.33 --without all`: it
refuses none that this server takes. What 1.33 removes (claims of devices, resources of a whole pod) and what it keeps
without a look at it (a StatefulSet's pods and claims, the apiVersion of what is scaled) breaks the house policies
`no-effect` and `never-starts` there. What the two servers say differently is in `verdicts-1.33.yaml` and
`less-1.33.yaml`, in the same folder.

The table is of 1.34:
"""


def page() -> str:
    text = HEAD.format(ruled=_ruled())
    text += "".join(f"| `{name}` | {meaning} |\n" for name, meaning in policies.ALL.items())
    text += _versions()
    text += _table()
    return text


def _ruled() -> str:
    return "\n   ".join(textwrap.wrap(", ".join(sorted(_ruled_kinds())), 116))


def _ruled_kinds() -> set[str]:
    return {name.rpartition("/")[2] for name, definition in schemas.load().kinds.items() if has_rules(definition)}


def _versions() -> str:
    operators: dict[str, list[str]] = {}
    for name in schemas.CUSTOM:
        project, _, version = name.rpartition("-")
        operators.setdefault(project, []).append(version)
    rows = [
        (
            "Kubernetes",
            ", ".join(schemas.VERSIONS),
            "1.34; nightly 1.33 and 1.37",
            "`--kubernetes-version`; submit takes the cluster's own",
        ),
        ("JobSet", ", ".join(operators["jobset"]), "0.10.1; nightly 0.12.0", "v1alpha2; the newest counts"),
        ("Kueue", ", ".join(operators["kueue"]), "0.14.0; nightly 0.19.1", "v1beta1 and v1beta2; the newest counts"),
    ]
    lines = ["", "## Versions", "", "| | schemas of | runs in the tests | |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    lines += ["", *AFTER_VERSIONS.splitlines(), "", ""]
    return "\n".join(lines)


def _table() -> str:
    known = verdicts()
    counts: dict[str, Counter[str]] = {}
    for manifest in manifests():
        served, answer = known[manifest.key], ours(manifest.value)
        if answer == "passes over":
            verdict = "passed over"
        elif (answer == "takes") == (served == "takes"):
            verdict = "agree"
        else:
            verdict = "says less" if answer == "takes" else "refuses more"
        counts.setdefault(manifest.kind, Counter())[verdict] += 1
    ruled = _ruled_kinds()
    columns = ("agree", "says less", "refuses more", "passed over")
    total = Counter({column: sum(row[column] for row in counts.values()) for column in columns})
    lines = [
        "## Against a real API server",
        "",
        *AGAINST.format(count=f"{sum(total.values()):,}").splitlines(),
        "",
        f"| kind | checked by | manifests | {' | '.join(columns)} |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, row in sorted(counts.items(), key=lambda entry: (entry[0].rpartition("/")[2], entry[0])):
        by = "-" if row["passed over"] else "schema, rules" if kind.rpartition("/")[2] in ruled else "schema"
        figures = " | ".join(str(row[column]) for column in columns)
        lines.append(f"| {kind} | {by} | {sum(row.values())} | {figures} |")
    figures = " | ".join(f"**{total[column]}**" for column in columns)
    lines.append(f"| **all** | | **{sum(total.values()):,}** | {figures} |")
    return "\n".join(lines) + "\n"
