"""tests/unit/monitor/test_export.py on a real PostgreSQL."""

from __future__ import annotations

from tests.support.again import asking_for
from tests.unit.monitor import test_export

globals().update(asking_for({"engine", "url"}, test_export))
