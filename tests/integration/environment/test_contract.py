"""tests/contract/environment/test_environment.py for the environments that start programs."""

from __future__ import annotations

from tests.contract.environment import test_environment
from tests.support.again import asking_for

globals().update(asking_for({"world"}, test_environment))
