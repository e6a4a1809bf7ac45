"""Run by .venv-lambda: `other_clients.py published|community URL KEY`, with the body of a launch as JSON on standard
input. Prints what the client understood, as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any


def published(url: str, key: str, body: dict[str, Any]) -> dict[str, Any]:
    """lambda-cloud-client: what it takes and reads, and where it fails."""
    import lambda_cloud_client as client
    from lambda_cloud_client.models.launch_instance_request import LaunchInstanceRequest
    from lambda_cloud_client.models.terminate_instance_request import TerminateInstanceRequest

    api = client.DefaultApi(client.ApiClient(client.Configuration(host=url, access_token=key)))
    request = LaunchInstanceRequest.from_dict(body)
    kept = request.to_dict()
    kept.pop("quantity")  # a field of 2023 that is none any more
    types = api.instance_types().data
    sent = {name: value for name, value in kept.items() if value is not None}
    launched = client.ApiClient().sanitize_for_serialization(sent)
    listed = api.list_instances().data
    shown = api.get_instance(listed[0].id).data

    def failure(call: Callable[[], object]) -> str:
        try:
            call()
        except Exception as error:
            return type(error).__name__
        return ""

    terminate = TerminateInstanceRequest(instance_ids=[listed[0].id])
    return {
        "sent": launched,
        "types": {name: [each.name for each in offer.regions_with_capacity_available] for name, offer in types.items()},
        "prices": {name: offer.instance_type.price_cents_per_hour for name, offer in types.items()},
        "listed": [[each.id, each.status, each.name, each.region.name, each.instance_type.name] for each in listed],
        "shown": shown.id,
        "ended": failure(lambda: api.terminate_instance(terminate)),
        "after": failure(api.list_instances),
    }


def community(url: str, key: str, body: dict[str, Any]) -> dict[str, Any]:
    """lambda-ai-cloud-api-client: the current types."""
    from lambda_ai_cloud_api_client.api.audit_events import get_audit_events
    from lambda_ai_cloud_api_client.api.instances import (
        get_instance,
        launch_instance,
        list_instance_types,
        list_instances,
        terminate_instance,
    )
    from lambda_ai_cloud_api_client.client import AuthenticatedClient
    from lambda_ai_cloud_api_client.models.audit_event import AuditEvent
    from lambda_ai_cloud_api_client.models.instance import Instance
    from lambda_ai_cloud_api_client.models.instance_launch_request import InstanceLaunchRequest
    from lambda_ai_cloud_api_client.models.instance_status import InstanceStatus
    from lambda_ai_cloud_api_client.models.instance_terminate_request import InstanceTerminateRequest

    client = AuthenticatedClient(base_url=url.removesuffix("/api/v1"), token=key)
    request = InstanceLaunchRequest.from_dict(body)
    launched = launch_instance.sync(client=client, body=request)
    listed = list_instances.sync(client=client)
    shown = get_instance.sync(id=launched.data.instance_ids[0], client=client)
    types = list_instance_types.sync(client=client)
    refused = launch_instance.sync(
        client=client, body=InstanceLaunchRequest.from_dict({**body, "instance_type_name": "gpu_8x_h100_sxm5"})
    )
    ended = terminate_instance.sync(client=client, body=InstanceTerminateRequest(instance_ids=[shown.data.id]))
    page = get_audit_events.sync(client=client, resource_type="instance")
    return {
        "kept": request.to_dict(),
        "unknown": sorted(request.additional_properties),
        "launched": launched.data.instance_ids,
        "listed": [[each.id, str(each.status), each.name] for each in listed.data],
        "unknown of an instance": sorted(shown.data.additional_properties),
        "tags": {tag.key: tag.value for tag in shown.data.tags},
        "types": {
            name: [each.name.value for each in offer.regions_with_capacity_available]
            for name, offer in types.data.additional_properties.items()
        },
        "refused": refused.error.to_dict()["code"],
        "ended": [each.id for each in ended.data.terminated_instances],
        "events": [event.resource_lrns for event in page.data.events],
        "fields of an event": sorted(page.data.events[0].to_dict()),
        "their fields": sorted(AuditEvent.__annotations__),
        "statuses": [status.value for status in InstanceStatus],
        "fields of an instance": sorted(Instance.__annotations__),
    }


if __name__ == "__main__":
    which, url, key = sys.argv[1:]
    print(json.dumps({"published": published, "community": community}[which](url, key, json.load(sys.stdin))))
