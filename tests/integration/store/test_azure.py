"""What of Azure's storage is unlike the other stores, on Azurite."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from launcher.errors import BadInput, Unreachable
from launcher.store.base import Store
from launcher.store.opening import open_store
from tests.support.azurite import Azurite

pytestmark = pytest.mark.nightly


def test_a_container_that_is_not_there_is_no_empty_store(azurite: Azurite, az_store: Store) -> None:
    """A store that seems empty would have every run submitted once more. (A HEAD has no body that says which is
    missing, on S3 as here; nothing of ours asks by HEAD alone.)"""
    there = urlsplit(az_store.url)
    gone = open_store(there._replace(netloc="not-there").geturl())
    for ask in (
        lambda: gone.read("runs/a/job.json"),
        lambda: list(gone.scan("runs/")),
        lambda: gone.create("a", b""),
    ):
        with pytest.raises(Unreachable, match="the bucket does not exist"):
            ask()


def test_a_backslash_is_refused_because_it_would_be_a_slash(az_store: Store) -> None:
    for ask in (az_store.read, az_store.head, lambda key: az_store.put(key, b"")):
        with pytest.raises(BadInput, match="Azure takes a backslash for a slash"):
            ask("a\\b")


def test_the_wrong_key_is_told(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "AAAA")
    with pytest.raises(Unreachable, match="check the credentials"):
        open_store(azurite.url()).read("a")
