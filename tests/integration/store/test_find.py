"""tests/unit/store/test_find.py on S3."""

from __future__ import annotations

import pytest

from tests.support.again import asking_for
from tests.unit.store import test_find
from tests.unit.store.test_find import store as store


@pytest.fixture(params=["s3"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


globals().update(asking_for({"store"}, test_find))
