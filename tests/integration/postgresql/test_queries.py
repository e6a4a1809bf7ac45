"""tests/unit/monitor/test_queries.py on a real PostgreSQL."""

from __future__ import annotations

from tests.support.again import asking_for
from tests.unit.monitor import test_queries

globals().update(asking_for({"engine", "url"}, test_queries))
