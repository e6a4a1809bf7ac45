"""Runs for the tests of rendering: the examples as they resolve anywhere, and jobs made in the test."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from launcher.backends.base import Rendered
from launcher.backends.kubernetes.render.manifests import Object, objects, render
from launcher.errors import BadInput
from launcher.spec.hashing import work_hash
from launcher.spec.model import Image, Input, Limits, ResolvedJob, Resources, Role
from launcher.spec.profile import LocalSettings, Profile
from launcher.spec.read.load import load
from launcher.spec.resolve.group import resolve

ROOT = Path(__file__).parents[3]
# those that a user copies, and shapes that only tests need
EXAMPLES = sorted([*(ROOT / "examples/kubernetes").glob("*.yaml"), *(Path(__file__).parent / "jobs").glob("*.yaml")])
GOLDEN = Path(__file__).parent / "golden"
STORE = "s3://slipway-examples/runs"
DIGEST = "sha256:" + "ab" * 32
PROFILE = Profile(store=STORE, local=LocalSettings(Path("/nowhere")))
IMAGE = Image("registry.example.com/team/image:1.2", DIGEST)


def example(path: Path) -> Sequence[ResolvedJob]:
    return resolve(load([str(path)], cwd=ROOT), PROFILE, environment="").runs


def written(path: Path) -> Rendered:
    return render(example(path))


def role(**changes: Any) -> Role:
    need = Resources(cpus=1.0, memory=1 << 30)
    return msgspec.structs.replace(Role(command=("true",), image=IMAGE, resources=need), **changes)


def job(name: str = "job", *, roles: Mapping[str, Role] | None = None, **changes: Any) -> ResolvedJob:
    """A job of one rank, unless said otherwise. Anything that is a field of ResolvedJob or of its one role."""
    of_role = {key: changes.pop(key) for key in list(changes) if key in Role.__struct_fields__}
    made = ResolvedJob(
        name=name,
        roles=dict(roles) if roles else {"main": role(**of_role)},
        store=STORE,
        backend="kubernetes",
        limits=Limits(deadline=3600.0),
    )
    return msgspec.structs.replace(made, **changes)


def needs(**resources: Any) -> Role:
    return role(resources=Resources(**{"memory": 1 << 30, **resources}))


def reading(*works: str) -> dict[str, Input]:
    return {f"in{number}": Input(work=work, output="model") for number, work in enumerate(works)}


def only(group: Sequence[ResolvedJob]) -> Object:
    (found,) = objects(group)
    return found


def chain(*names_of: str, **changes: Any) -> list[ResolvedJob]:
    """Jobs of which each reads the one before."""
    made: list[ResolvedJob] = []
    for name in names_of:
        made.append(job(name, inputs=reading(*(work_hash(one) for one in made[-1:])), config={"n": name}, **changes))
    return made


def refused(*jobs: ResolvedJob) -> str:
    with pytest.raises(BadInput) as caught:
        objects(jobs)
    return str(caught.value)


def pods(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every pod template of a Job or JobSet."""
    if document["kind"] == "JobSet":
        return [one["template"]["spec"]["template"] for one in document["spec"]["replicatedJobs"]]
    return [document["spec"]["template"]]


def container(pod: Mapping[str, Any]) -> dict[str, Any]:
    (found,) = pod["spec"]["containers"]
    return dict(found)


def environment(pod: Mapping[str, Any], labels: Mapping[str, str], **fields: str) -> dict[str, str]:
    """What a container finds of its `env`, as the kubelet makes it: in order, `$(NAME)` of what stands before, `$$` for
    `$`. `labels` are those that controllers add; `fields` podIP and name."""
    found: dict[str, str] = {}
    known = {**pod["metadata"]["labels"], **labels}
    for variable in container(pod)["env"]:
        if "value" in variable:
            found[variable["name"]] = re.sub(
                r"\$(\$|\(([^)]*)\))",
                lambda match: "$" if match[1] == "$" else found.get(match[2], match[0]),
                variable["value"],
            )
            continue
        source = variable["valueFrom"]
        if "fieldRef" in source:
            path = source["fieldRef"]["fieldPath"]
            label = re.fullmatch(r"metadata\.labels\['(.*)'\]", path)
            found[variable["name"]] = known.get(label[1], "") if label else fields[path.rpartition(".")[2]]
    return found


def parsed(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))
