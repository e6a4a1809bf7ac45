"""The fixtures `cluster` and `other_cluster`, and what is built before the first test that asks for them.

`@pytest.mark.cluster` marks every test that needs one. Names of parts in the mark, as in
`@pytest.mark.cluster("jobset", "kueue")`, are built before tests begin: a compiler may take longer than a test may.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.cluster import programs
from tests.support.cluster.cluster import Cluster, running
from tests.support.cluster.sandbox import NoCluster
from tests.support.needs import lacking


def pytest_collection_finish(session: pytest.Session) -> None:
    parts = {
        part
        for item in session.items
        for mark in item.iter_markers("cluster")
        for part in ("core", *map(str, mark.args))
    }
    if not parts or session.config.option.collectonly:
        return
    try:
        programs.check()
        programs.build(*sorted(parts))
        programs.build_s3()
    except NoCluster:
        pass  # the fixture says it of each test


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A control plane, one real node and S3; one for all tests of a process. What a test breaks it mends."""
    try:
        with running() as found:
            yield found
    except NoCluster as error:
        lacking("cluster", str(error))


@pytest.fixture(scope="session")
def other_cluster() -> Iterator[Cluster]:
    """A second one beside it; its pods reach the first one's S3 server."""
    try:
        with running() as found:
            yield found
    except NoCluster as error:
        lacking("cluster", str(error))
