"""What a real API server says to the manifests of tests/unit/kubernetes_validate/manifests, by a dry run of each."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.backends.kubernetes import schemas
from launcher.backends.kubernetes.access.login import login
from launcher.backends.kubernetes.api import Api, ApiRefused
from tests.support.cluster.cluster import Cluster
from tests.unit.kubernetes_validate.verdicts import (
    ASKED,
    LESS,
    NAMESPACE,
    VERDICTS,
    kept,
    less,
    manifests,
    ours,
    verdicts,
)

pytestmark = pytest.mark.cluster("jobset-crds", "kueue-crds")
HEAD = "# What a real API server says to each manifest. Written by tests/cluster/test_verdicts.py (SLIPWAY_UPDATE=1).\n"
LESS_HEAD = """\
# Manifests that a server refuses and validate takes, with the server's words: validate says less here, and that is
# allowed. A line that goes is progress; a new one is a rule that was lost. Update: see test_verdicts.py.
"""


@pytest.fixture
def api(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    cluster.crds("jobset", "kueue")
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    connected = Api(login())
    yield connected
    connected.close()


class Judge:
    """Asks the API server. Its namespace enforces no Pod Security, which is a policy of ours."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.resources: dict[str, dict[str, Any]] = {}

    def verdict(self, value: dict[str, Any]) -> tuple[str, str]:
        """takes, refuses, or does not serve; and its words."""
        group = value["apiVersion"] if "/" in value["apiVersion"] else ""
        root = f"/apis/{group}" if group else f"/api/{value['apiVersion']}"
        if root not in self.resources:
            answer = self.api.get(root)
            self.resources[root] = {} if answer is None else answer.json()
        served = {one["kind"]: one for one in self.resources[root].get("resources", ()) if "/" not in one["name"]}
        resource = served.get(value["kind"])
        if resource is None:
            return "does not serve", "no such kind"
        sent = copy.deepcopy(value)
        if isinstance(sent.get("metadata"), dict) and sent["metadata"].get("namespace") == NAMESPACE:
            sent["metadata"]["namespace"] = self.namespace
        path = f"{root}/namespaces/{self.namespace}/" if resource["namespaced"] else f"{root}/"
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        try:
            self.api.request("POST", f"{path}{resource['name']}", body=json.dumps(sent).encode(), query=query)
        except ApiRefused as error:
            return "refuses", str(error)
        return "takes", ""


def _reason(words: str) -> str:
    """The server's words without the object's address."""
    return re.split(r" is (?:invalid|forbidden): ", words, maxsplit=1)[-1][:160]


def _write(file: Path, version: str, head: str, found: dict[str, str], default: dict[str, str]) -> None:
    """Writes what was found; of another version than the default only what differs ('' where there is nothing)."""
    if version != schemas.DEFAULT:
        head = f"# What Kubernetes {version} says otherwise than {file.name} has it.\n{head}"
        found = {key: found.get(key, "") for key in {**found, **default} if found.get(key) != default.get(key)}
    kept(file, version).write_text(head + yaml.safe_dump(found, sort_keys=False, width=10_000), encoding="utf-8")


def test_the_server_still_says_what_is_known_of_it(cluster: Cluster, api: Api) -> None:
    judge = Judge(api, cluster.namespace(enforce="privileged"))
    answers = {manifest.key: judge.verdict(manifest.value) for manifest in manifests()}
    assert len(answers) == len(manifests()), "two manifests have one key"
    said = {key: answer for key, (answer, _) in answers.items()}
    version = cluster.version()
    if version not in ASKED:  # nobody keeps its verdicts
        refused = [one.key for one in manifests() if said[one.key] == "takes" and ours(one.value, version) == "refuses"]
        assert refused == []
        return
    if os.environ.get("SLIPWAY_UPDATE") == "1":
        _write(VERDICTS, version, HEAD, said, verdicts() if version != schemas.DEFAULT else {})
        unsaid = {
            manifest.key: _reason(answers[manifest.key][1])
            for manifest in manifests()
            if said[manifest.key] != "takes" and ours(manifest.value, version) == "takes"
        }
        known_less = less() if version != schemas.DEFAULT else {}
        # the same manifest in both versions: the words may differ, which says nothing
        unsaid = {key: known_less.get(key, words) for key, words in unsaid.items()}
        _write(LESS, version, LESS_HEAD, unsaid, known_less)
        return
    known = verdicts(version)
    assert {key: answers[key] for key in said if said[key] != known.get(key)} == {}
