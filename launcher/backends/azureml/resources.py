"""What a resource group holds beside its workspace, asked of Azure's resource manager: disks and public addresses,
which are billed whether a machine uses them or not. The requests go through the SDK's own pipeline, with its login."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from azure.mgmt.core import ARMPipelineClient

URL: Final = "https://management.azure.com"
DISKS: Final = ("Microsoft.Compute/disks", "2024-03-02")
ADDRESSES: Final = ("Microsoft.Network/publicIPAddresses", "2024-05-01")
COMPUTES: Final = ("Microsoft.MachineLearningServices/workspaces/computes", "2024-04-01")
# the version in which the SDK makes compute instances: with their idle shutdown
MAKES: Final = "2023-08-01-preview"
GIB: Final = 2**30


@dataclass(frozen=True)
class LooseResource:
    """A disk or a public address. `used`: a machine has it; `size`: bytes of a disk."""

    id: str
    name: str
    location: str
    used: bool
    size: int = 0
    tags: Mapping[str, str] | None = None


def pipeline(credential: Any, settings: Mapping[str, Any], **more: Any) -> ARMPipelineClient:
    """The SDK's client of the resource manager; `settings`: its timeouts and repeats; `more`: of its own, as the
    transport."""
    from azure.core.configuration import Configuration
    from azure.core.pipeline import policies
    from azure.mgmt.core import ARMPipelineClient
    from azure.mgmt.core.policies import ARMChallengeAuthenticationPolicy

    config: Configuration[Any, Any] = Configuration()
    config.headers_policy = policies.HeadersPolicy()
    config.user_agent_policy = policies.UserAgentPolicy("slipway")
    config.proxy_policy = policies.ProxyPolicy()
    config.retry_policy = policies.RetryPolicy(retry_total=settings.get("retry_total", 2))
    config.redirect_policy = policies.RedirectPolicy()
    config.authentication_policy = ARMChallengeAuthenticationPolicy(credential, f"{URL}/.default")
    return ARMPipelineClient(base_url=URL, config=config, **more)


def ask(client: ARMPipelineClient, method: str, path: str, version: str, body: Any = None) -> Any:
    """One request of the resource manager; its answer, None if that is empty. `path`: or a whole URL. Raises
    HttpResponseError and other AzureErrors."""
    from azure.core.exceptions import HttpResponseError
    from azure.core.rest import HttpRequest

    url = path if path.startswith("https://") else f"{URL}{path}"
    parameters = {} if path.startswith("https://") else {"api-version": version}
    request = HttpRequest(method, url, params=parameters, json=body)
    answer = client.send_request(request, connection_timeout=10, read_timeout=60)
    if answer.status_code >= 400:
        raise HttpResponseError(response=answer)
    return answer.json() if answer.content else None


def listed(client: ARMPipelineClient, group: str, kind: tuple[str, str]) -> Iterator[LooseResource]:
    """All pages. `group`: the path of the resource group."""
    yield from map(_loose, pages(client, f"{group}/providers/{kind[0]}", kind[1]))


def pages(client: ARMPipelineClient, path: str, version: str) -> Iterator[Mapping[str, Any]]:
    """All resources of a list, as Azure describes them."""
    page = ask(client, "GET", path, version)
    while True:
        yield from page.get("value", ())
        if not page.get("nextLink"):
            return
        page = ask(client, "GET", page["nextLink"], version)


def _loose(each: Mapping[str, Any]) -> LooseResource:
    given = each.get("properties") or {}
    used = bool(each.get("managedBy") or given.get("ipConfiguration") or given.get("natGateway"))
    size = int(given.get("diskSizeBytes") or int(given.get("diskSizeGB") or 0) * GIB)
    return LooseResource(
        str(each.get("id", "")), str(each.get("name", "")), str(each.get("location", "")), used, size, each.get("tags")
    )
