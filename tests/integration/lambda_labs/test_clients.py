"""Others' clients of Lambda Cloud against our stand-in, and our client's answers against theirs: one that was generated
from the current document, and the published one of 2023."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launcher.backends.lambda_labs import wire
from launcher.backends.lambda_labs.api import LambdaApi
from launcher.backends.lambda_labs.render import parse, render, request_of
from launcher.spec.hashing import run_id
from tests.fakes.lambda_cloud.running import KEY
from tests.integration.lambda_labs.conftest import Account
from tests.support.needs import need
from tests.unit.lambda_labs.test_render import JOBS

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-lambda/bin/python"


def launch() -> dict[str, Any]:
    """A body as submit sends it, with every field that we ever send."""
    one = JOBS["two-nodes"]
    rendered = render([one])
    file = parse(rendered.documents[rendered.objects[run_id(one)]], "file")
    body = request_of(file, file.machines[0], "us-east-1", "gpu_1x_a10", 0.0, "{}", "0f" * 16)
    return dict(json.loads(json.dumps(body)))


def other(which: str, account: Account, body: dict[str, Any]) -> dict[str, Any]:
    need("lambda")
    environ = {"PATH": os.environ["PATH"], "NO_PROXY": "127.0.0.1"}
    command = [str(PYTHON), str(Path(__file__).with_name("other_clients.py")), which, account.cloud.url, KEY]
    done = subprocess.run(command, input=json.dumps(body), capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_client_of_the_current_document_understands_the_stand_in_and_every_field_that_we_send(
    account: Account, settings: Callable[..., object]
) -> None:
    settings(limits=False, boot=0.0, audit_lag=0.0, capacity={"gpu_1x_a10": {"us-east-1": 3}})
    body = launch()
    seen = other("community", account, body)
    assert seen["kept"] == body
    assert seen["unknown"] == []
    ours = LambdaApi(interval=0.006)
    (machine,) = [each for each in account.cloud.bodies() if each["id"] in seen["launched"]]
    assert machine["body"] == body
    assert seen["tags"] == {tag["key"]: tag["value"] for tag in body["tags"]}
    assert [row[0] for row in seen["listed"]] == seen["launched"] == seen["ended"]
    assert seen["refused"] == "instance-operations/launch/insufficient-capacity"
    assert seen["types"] == {name: offer.regions for name, offer in ours.types().items()}
    # the page of October says `first_healthy`, which that client does not have yet
    assert seen["unknown of an instance"] == ["first_healthy"]
    assert set(seen["statuses"]) == {*wire.LIVING, *wire.ENDED}
    assert set(wire.CloudInstance.__struct_fields__) - {"first_healthy"} <= set(seen["fields of an instance"])
    events = list(ours.audit_events(0.0))
    assert [event.resource_lrns for event in events] == seen["events"]
    assert set(seen["fields of an event"]) == set(seen["their fields"]) - {"additional_properties"}
    assert set(wire.AuditEvent.__struct_fields__) <= set(seen["their fields"])


def test_the_published_client_reads_the_stand_in_and_fails_where_the_reference_says(
    account: Account, settings: Callable[..., object]
) -> None:
    """It drops fields that we send, and it raises as soon as a machine of the account is terminating."""
    settings(limits=False, boot=0.0, terminating=1e6)
    body = launch()
    ours = LambdaApi(interval=0.006)
    machine = ours.launch(body)
    seen = other("published", account, body)
    assert seen["listed"] == [[machine, "active", body["name"], "us-east-1", "gpu_1x_a10"]]
    assert seen["shown"] == machine
    assert set(body) - set(seen["sent"]) == {"user_data", "tags", "image"}
    assert seen["types"] == {name: offer.regions for name, offer in ours.types().items()}
    assert seen["prices"] == {name: offer.instance_type.price_cents_per_hour for name, offer in ours.types().items()}
    assert (seen["ended"], seen["after"]) == ("ValidationError", "ValidationError")
    assert [each.status for each in ours.instances()] == ["terminating"]
