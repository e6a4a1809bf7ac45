"""A GitOps tool that follows a repository, and a user who commits rendered jobs to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.jobs.several import Desk
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.gitops import SHIPPED, TOOLS, GitOpsTool
from tests.support.cluster.gitserver import GitRepository, repository
from tests.support.cluster.programs import BIN

REMOVAL = re.compile(r"`(git show HEAD~1:jobs/FILE\.yaml \| kubectl delete .*?)`")


class Scene:
    """
    jobs   the repository's folder of rendered jobs
    files  run -> the name of its file, without `.yaml`, which is its object's name
    """

    def __init__(self, tool: GitOpsTool, desk: Desk, repo: GitRepository) -> None:
        self.tool, self.desk, self.repo = tool, desk, repo
        self.jobs = repo.folder / "jobs"
        self.files: dict[str, str] = {}

    def commit(self, message: str = "jobs") -> str:
        """Gives the commit once the tool has applied it as a whole."""
        commit = self.repo.commit(message)
        self.synced(commit)
        return commit

    def synced(self, commit: str) -> None:
        self.until(f"commit {commit}", lambda: self.tool.applied() == commit or self.poked())

    def poked(self) -> bool:
        """Pokes the tool while something has not happened."""
        self.tool.poke()
        return False

    def until(self, what: str, try_it: Any) -> Any:
        """Waits for something true that the tool does; else fails with what the tool tells."""
        try:
            return self.desk.cluster.wait_for(what, try_it, 240, every=0.5)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.tool.told()}") from None

    def render(self, *jobs: Mapping[str, Any]) -> list[str]:
        """Adds the jobs' files; gives the ids of the runs, in order."""
        text = self.desk.launcher("render", self.desk.write(*jobs), "--to", self.jobs)
        names = [Path(line.partition(": ")[0]) for line in text.splitlines() if line.endswith(("written", "unchanged"))]
        runs: dict[str, str] = {}
        for path in names:
            for document in yaml.safe_load_all(path.read_text()):
                there = json.loads(document["metadata"].get("annotations", {}).get("slipway.dev/runs", "{}"))
                runs |= dict.fromkeys(there, path.stem)
        self.files |= runs
        return sorted(runs)

    def remove(self, *runs: str) -> None:
        """Removes the files of runs; without a name, of all."""
        for name in {self.files[run] for run in runs} or {path.stem for path in self.jobs.glob("*.yaml")}:
            (self.jobs / f"{name}.yaml").unlink()

    def delete_as_documented(self, run: str) -> None:
        """What a file held that the last commit removed, by the command of k8s/gitops/README.md."""
        (command,) = REMOVAL.findall((SHIPPED / "README.md").read_text())
        environment = {**os.environ, **self.desk.environment, "PATH": f"{BIN}:{os.environ['PATH']}"}
        command = command.replace("FILE", self.files[run])
        done = subprocess.run(
            ["sh", "-ec", command], cwd=self.repo.folder, env=environment, capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr

    def object(self, name: str, kind: str = "job") -> dict[str, Any] | None:
        there: dict[str, Any] | None = self.desk.cluster.get(kind, name, self.desk.namespace)
        return there

    def uid(self, name: str, kind: str = "job") -> str:
        return str((self.object(name, kind) or {}).get("metadata", {}).get("uid", ""))

    def made_again(self, name: str, before: str) -> None:
        """Waits until the tool has made an object that was deleted."""
        self.until(f"{name} again", lambda: self.uid(name) not in ("", before) or self.poked())


@contextmanager
def scene_of(name: str, cluster: Cluster, place: Path) -> Iterator[Scene]:
    """The tool `name`, started on the cluster with an empty repository."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in {**cluster.s3.environment, "KUBECONFIG": str(cluster.kubeconfig)}.items():
            patch.setenv(variable, value)
        desk = Desk(cluster, place / "desk")
        with repository(cluster.host, place / "git") as repo:
            (repo.folder / "jobs").mkdir()
            (repo.folder / "jobs" / ".keep").touch()
            repo.commit("empty")
            tool = TOOLS[name](cluster)
            try:
                tool.follow(repo.url, desk.namespace)
                yield Scene(tool, desk, repo)
            finally:
                tool.stop()
