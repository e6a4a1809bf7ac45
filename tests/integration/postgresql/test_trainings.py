"""tests/unit/monitor/test_trainings.py on a real PostgreSQL."""

from __future__ import annotations

from tests.support.again import asking_for
from tests.unit.monitor import test_trainings

globals().update(asking_for({"engine", "url"}, test_trainings))
