"""A ConfigMap whose Job was deleted a moment ago, and which the garbage collector takes while the Job is made again. No
request leaves this process."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from launcher.backends.kubernetes.api import ApiAnswer, ApiRefused
from launcher.backends.kubernetes.creating import Creator
from launcher.backends.kubernetes.objects import files
from launcher.backends.kubernetes.render.manifests import render
from launcher.errors import Unreachable
from tests.unit.kubernetes.support import job


class Cluster:
    """Objects by path. `collected`: how often the ConfigMap goes just before its Job becomes its owner; `made_again`:
    whether another submitter of the same jobs makes it again at once."""

    host = where = "https://cluster"

    def __init__(self, collected: int, *, made_again: bool = False) -> None:
        self.there: dict[str, dict[str, Any]] = {}
        self.left, self.made_again, self.uids = collected, made_again, 0

    def request(self, method: str, path: str, *, body: bytes = b"{}", **_: Any) -> ApiAnswer:
        value = msgspec.json.decode(body)
        if method == "POST":
            path = f"{path}/{value['metadata']['name']}"
            if path in self.there:
                raise ApiRefused(409, "AlreadyExists", "it exists", path)
            self.put(path, value)
            return ApiAnswer(201, msgspec.json.encode(self.there[path]))
        assert method == "PATCH"
        if self.left:
            self.left -= 1
            gone = self.there.pop(path)
            if self.made_again:
                self.put(path, {**gone, "metadata": {**gone["metadata"], "ownerReferences": []}})
        if path not in self.there:
            raise ApiRefused(404, "NotFound", "not found", path)
        metadata = self.there[path]["metadata"]
        if value["metadata"]["uid"] != metadata["uid"]:
            raise ApiRefused(409, "Conflict", "the UID in the precondition is another", path)
        metadata |= value["metadata"]
        return ApiAnswer(200, msgspec.json.encode(self.there[path]))

    def put(self, path: str, value: dict[str, Any]) -> None:
        self.uids += 1
        self.there[path] = {**value, "metadata": {**value["metadata"], "uid": f"u{self.uids}"}}

    def get(self, path: str, **_: Any) -> ApiAnswer | None:
        value = self.there.get(path)
        return ApiAnswer(200, msgspec.json.encode(value)) if value is not None else None

    def owners(self, kind: str) -> list[Any]:
        (value,) = [each for path, each in self.there.items() if f"/{kind}/" in path]
        return value["metadata"].get("ownerReferences") or []


def large() -> Any:
    rendered = render([job("large", config={"text": "x" * 150_000}, options={"namespace": "ml"})])
    (file,) = files(rendered, "ml").values()
    return file


@pytest.mark.parametrize("made_again", [False, True])
@pytest.mark.parametrize("collected", [0, 1, 3])
def test_the_job_that_was_made_owns_a_config_map_that_is_there(collected: int, made_again: bool) -> None:
    file, cluster = large(), Cluster(collected, made_again=made_again)
    (config_map,) = file.before
    cluster.put(config_map.path, {**config_map.value, "metadata": {**config_map.value["metadata"]}})
    cluster.there[config_map.path]["metadata"]["ownerReferences"] = [{"kind": "Job", "uid": "of a Job that is gone"}]
    carrier = Creator(cluster).create_file(file)  # type: ignore[arg-type]
    assert [each["uid"] for each in cluster.owners("configmaps")] == [carrier.uid]
    assert cluster.there[config_map.path]["data"] == config_map.value["data"]


def test_one_that_comes_and_goes_is_said_to() -> None:
    with pytest.raises(Unreachable, match="comes and goes"):
        Creator(Cluster(100)).create_file(large())  # type: ignore[arg-type]
