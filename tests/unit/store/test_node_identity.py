"""A node's identity, compared with Microsoft's own clients of the same service."""

from __future__ import annotations

import pytest

from launcher.runtime.secrets.credentials import is_credential
from launcher.store import node_identity

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the SDK's marshmallow


@pytest.mark.parametrize("name", node_identity.OTHERS)
def test_credentials_that_were_given_come_first(name: str) -> None:
    assert node_identity.token_request({"MSI_ENDPOINT": "http://x/", "MSI_SECRET": "y", name: "z"}) is None


@pytest.mark.parametrize(
    "name",
    ["MSI_ENDPOINT", "MSI_SECRET", "IDENTITY_ENDPOINT", "IDENTITY_HEADER", "OBO_ENDPOINT", "AZURE_CLIENT_SECRET"],
)
def test_a_command_gets_none_of_it(name: str) -> None:
    assert is_credential(name, "http://127.0.0.1/x")
