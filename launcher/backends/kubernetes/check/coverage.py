"""What a check of manifests covered, and what it did not: said beside its result, so that nobody takes it for more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from launcher.backends.kubernetes import schemas
from launcher.backends.kubernetes.check import policies, validate
from launcher.backends.kubernetes.check.files import read
from launcher.backends.kubernetes.check.rules.forms import mapping, string
from launcher.backends.kubernetes.check.rules.objects import RULES
from launcher.spec.values.problems import Problems, one_line, show

_ASK: Final = "`kubectl apply --dry-run=server` asks your cluster"


class Coverage(NamedTuple):
    """
    objects      how many were checked
    ruled        kinds that were checked by schema and by rules
    schema_only  kinds that were checked by their schema alone
    passed_over  a line for each object that was not checked: place, kind, reason
    policies     names of the house policies that were applied
    """

    objects: int
    ruled: list[str]
    schema_only: list[str]
    passed_over: list[str]
    policies: list[str]

    def sentence(self, version: str) -> str:
        """The result of a check that found nothing."""
        plural = "" if self.objects == 1 else "s"
        lines = [f"{self.objects} object{plural}: no errors"]
        if self.objects:
            by_schema = f"the schemas of Kubernetes {version} and of the operators listed in the documentation"
            rules = f", our rules for {', '.join(self.ruled)}" if self.ruled else ""
            house = f", the house policies {', '.join(self.policies)}" if self.policies else ", no house policy"
            lines.append(f"checked: {by_schema}{rules}{house}")
        missing = [f"the server's rules for {', '.join(self.schema_only)}"] if self.schema_only else []
        missing += [f"what was passed over ({len(self.passed_over)})"] if self.passed_over else []
        missing += ["admission webhooks, quotas, permissions, and whether the objects exist that these name"]
        lines.append(f"not checked: {'; '.join(missing)} ({_ASK})")
        return "\n".join(lines)


def coverage(documents: Mapping[str, str], version: str, policy: validate.CheckPolicy) -> Coverage:
    """File name -> YAML. What cannot be read is left out: the check reports it."""
    known = schemas.load(version)
    count = 0
    ruled: set[str] = set()
    schema_only: set[str] = set()
    passed_over = []
    for document in read(documents, Problems()):
        for _, route, value in validate.objects(document):
            kind = string(value, "kind")
            if reason := validate.passed_over(value, version):
                place = f"{document.file}:{document.place(route)[1]}"
                name = one_line(string(mapping(value, "metadata"), "name"), 80)
                shown = f"{kind} {show(name)}" if name else kind
                passed_over.append(f"{place}: {shown} of {show(value['apiVersion'])}: {reason}")
                continue
            count += 1
            group = string(value, "apiVersion").rpartition("/")[0]
            if f"{string(value, 'apiVersion')}/{kind}" in known.kinds:
                (ruled if (f"{group}/{kind}" if group else kind) in RULES else schema_only).add(kind)
    applied = [name for name in policies.ALL if name not in policy.without]
    level = policies.POD_SECURITY
    applied = [f"{name} ({policy.level})" if name == level else name for name in applied]
    return Coverage(count, sorted(ruled), sorted(schema_only), sorted(passed_over), applied)
