"""A reader who does what a page says: types its commands in order, in a folder with a copy of k8s/ and examples/."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from tests.support.cluster.cluster import Cluster
from tests.support.cluster.programs import BIN
from tests.support.cluster.sandbox import without_proxies
from tests.support.documented import ROOT, Shown, blocks

YAML = re.compile(r"```yaml\n(# (platform/\S+)\n.*?)```", re.DOTALL)


class Reader:
    """
    folder  where commands are typed; slipway.yaml, store.env and the folder platform lie in it
    filled  what the reader writes in the place of a page's capitals and made-up values
    """

    def __init__(self, cluster: Cluster, folder: Path, filled: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.folder = folder
        self.filled = filled
        self.keys = store_keys(cluster)
        for tree in ("k8s", "examples"):
            shutil.copytree(ROOT / tree, folder / tree)
        kept = {name: value for name, value in without_proxies().items() if not name.startswith(("SLIPWAY_", "AWS_"))}
        self.environment = {
            **kept,
            **self.keys,
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), str(BIN), os.environ["PATH"])),
            "HOME": str(folder / "home"),
            "KUBECONFIG": str(cluster.kubeconfig),
            "KUBECACHEDIR": str(folder / "home" / "kubectl"),
            "NO_COLOR": "1",
            "PYTHONPATH": str(ROOT),
            **{f"XDG_{name}_HOME": str(folder / "home" / name.lower()) for name in ("CACHE", "STATE", "CONFIG")},
        }
        (folder / "store.env").write_text("".join(f"{k}={v}\n" for k, v in self.keys.items()))

    def fill(self, text: str) -> str:
        for shown, own in self.filled.items():
            text = re.sub(rf"(?<![A-Za-z]){re.escape(shown)}(?![A-Za-z])", own, text)
        return text

    def write(self, page: Path) -> list[str]:
        """Writes the files of `platform` that a page shows, and gives their names."""
        names = []
        for text, name in YAML.findall(page.read_text(encoding="utf-8")):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(self.fill(text))
            names.append(name)
        return names

    def type(self, shown: Shown, code: int = 0) -> str:
        """What a command prints; its exit code must be `code`."""
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", self.fill(shown.line)],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        text = done.stdout + done.stderr
        print(f"$ {self.fill(shown.line)}\n{text[-1500:]}")
        assert done.returncode == code, f"{shown.place}\n$ {self.fill(shown.line)}\n{done.returncode}: {text}"
        return text

    def launcher(self, *words: str) -> str:
        """What `launcher WORDS` prints."""
        return self.type(Shown("this test", shlex.join(("launcher", *words))))

    def impersonate(self, user: str, *groups: str) -> None:
        """From now on commands are typed by this user, who has no other right than those of the groups."""
        config = yaml.safe_load(self.cluster.kubeconfig.read_text())
        config["users"][0]["user"] |= {"as": user, "as-groups": list(groups)}
        path = self.folder / f"{user}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        self.environment["KUBECONFIG"] = str(path)


def store_keys(cluster: Cluster) -> dict[str, str]:
    """What the page asks for in store.env, of the tests' S3 server."""
    address = {"AWS_ENDPOINT_URL": cluster.s3.endpoint, "AWS_REGION": cluster.s3.region}
    return {**cluster.s3.environment, **address}


def section(page: Path, *titles: str) -> Iterable[list[Shown]]:
    """The command blocks right below the headings whose titles begin so, in the page's order."""
    lines = page.read_text(encoding="utf-8").split("\n")
    heading = ""
    within = {}
    fenced = False
    for number, line in enumerate(lines, 1):
        fenced ^= line.startswith("```")
        if line.startswith(("## ", "### ")) and not fenced:
            heading = line.lstrip("# ")
        within[number] = heading
    for block in blocks(page):
        if within[int(block[0].place.rpartition(":")[2])].startswith(titles):
            yield block
