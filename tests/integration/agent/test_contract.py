"""tests/contract/agent/test_agent.py for the agents that ask a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.agent import test_agent
from tests.contract.agent.test_agent import CASES, SERVED, Pair, agent_of
from tests.support.again import asking_for
from tests.support.modelserver import Reply, completion, serving


@pytest.fixture(scope="module", params=sorted(SERVED))
def agent_and_builder(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """The agent, and a model that always says the same."""
    answer = Reply(completion("Action: CLICK(x=0.5000, y=0.5000)"))
    with serving(lambda asked, number: answer) as server:
        settings = {"base_url": f"{server.url}/v1", **CASES[request.param](Path())}
        yield agent_of(request.param, settings)


globals().update(asking_for({"agent_and_builder"}, test_agent))
