"""A job from Git under Flux' own controllers, where they are built; tests/cluster/test_gitops_tools.py has the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.scene import scene_of
from tests.support.cluster import programs
from tests.support.cluster.cluster import Cluster
from tests.support.needs import lacking

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_a_committed_job_runs_once_and_is_left_alone_by_the_next_sync(cluster: Cluster, tmp_path: Path) -> None:
    if not programs.built("flux"):
        lacking("gitops")
    with scene_of("flux", cluster, tmp_path) as scene:
        desk = scene.desk
        (run,) = scene.render(desk.job("committed", "print(1)"))
        scene.commit()
        assert desk.result(run).outcome == "succeeded"
        assert desk.ended_job(run)["type"] == "Complete"
        before = scene.uid(run)
        scene.commit("nothing")
        assert scene.uid(run) == before
        assert len(desk.view(run).attempts) == 1
    assert scene.uid(run) == before  # Flux has gone, with all that it followed; the Job stays
