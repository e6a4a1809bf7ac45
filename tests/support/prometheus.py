"""A real Prometheus (tools/build-observers.sh builds it from its Go module) and questions to it."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.support.needs import lacking
from tests.support.s3 import free_port
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]


def built(name: str) -> Path:
    """The program, built if it is not there. Skips where there is no Go."""
    done = subprocess.run(
        ["nice", "-n", "5", ROOT / "tools/build-observers.sh", name], capture_output=True, text=True, check=False
    )
    if done.returncode == 3:
        lacking("go", done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return ROOT / ".tools/bin" / name


class Prometheus:
    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=60) as answer:
            document = json.load(answer)
        assert document["status"] == "success"
        return document["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an instant query: labels and value."""
        return [
            {**one["metric"], "value": float(one["value"][1])} for one in self.ask("query", query=expression)["result"]
        ]


@contextmanager
def prometheus(folder: Path, jobs: Mapping[str, Mapping[str, Any]], rules: Mapping[str, Any]) -> Iterator[Prometheus]:
    """Scrapes each job every second. `jobs`: name -> a scrape configuration without its name."""
    program = built("prometheus")
    (folder / "rules.yaml").write_text(yaml.safe_dump(dict(rules)))
    scrapes = [{"job_name": name, "scrape_interval": "1s", **one} for name, one in jobs.items()]
    config = {
        "global": {"evaluation_interval": "1s"}, "rule_files": ["rules.yaml"], "scrape_configs": scrapes,
    }  # fmt: skip
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    port = free_port()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program, f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{port}"],
            stdout=log, stderr=log,
        )  # fmt: skip
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        assert process.poll() is None, (folder / "log").read_text()[-3000:]
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    try:
        until(ready, (folder / "log").read_text)
        yield Prometheus(url)
    finally:
        process.terminate()
        process.wait(60)
