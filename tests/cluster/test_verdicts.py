"""What a real API server says to the manifests of tests/unit/kubernetes_validate/manifests, by a dry run of each."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from launcher.backends.kubernetes.access.login import login
from launcher.backends.kubernetes.api import Api, ApiRefused
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.programs import SET
from tests.unit.kubernetes_validate.verdicts import LESS, NAMESPACE, VERDICTS, manifests, ours, verdicts

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


def test_the_server_still_says_what_is_known_of_it(cluster: Cluster, api: Api) -> None:
    judge = Judge(api, cluster.namespace(enforce="privileged"))
    answers = {manifest.key: judge.verdict(manifest.value) for manifest in manifests()}
    assert len(answers) == len(manifests()), "two manifests have one key"
    said = {key: answer for key, (answer, _) in answers.items()}
    if SET == "newest":  # the verdicts in the file are of the other version
        version = cluster.version()
        refused = [one.key for one in manifests() if said[one.key] == "takes" and ours(one.value, version) == "refuses"]
        assert refused == []
        return
    if os.environ.get("SLIPWAY_UPDATE") == "1":
        VERDICTS.write_text(HEAD + yaml.safe_dump(said, sort_keys=False, width=10_000), encoding="utf-8")
        unsaid = {
            manifest.key: _reason(answers[manifest.key][1])
            for manifest in manifests()
            if said[manifest.key] != "takes" and ours(manifest.value) == "takes"
        }
        LESS.write_text(LESS_HEAD + yaml.safe_dump(unsaid, sort_keys=False, width=10_000), encoding="utf-8")
        return
    known = verdicts()
    assert {key: answers[key] for key in said if said[key] != known.get(key)} == {}
