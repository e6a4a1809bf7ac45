"""tests/contract/store/test_store.py on servers: S3, and Azurite at night."""

from __future__ import annotations

import pytest

from launcher.store.base import Store
from tests.contract.store import test_store
from tests.support.again import asking_for


@pytest.fixture(params=["s3", pytest.param("az", marks=pytest.mark.nightly)])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(f"{request.param}_store")
    return found


globals().update(asking_for({"store"}, test_store))
