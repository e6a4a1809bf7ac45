"""What lets `launcher reap` run by itself: the files of deploy/reap and k8s/machines, their commands executed as they
stand against the stand-in for Lambda Cloud."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import yaml

from launcher.protocol.records import Result
from launcher.reasons import Reason
from launcher.spec.hashing import run_id
from launcher.store.layout import RunKeys
from tests.fakes.lambda_cloud.running import KEY
from tests.integration.lambda_labs.conftest import Account
from tests.support.needs import need

ROOT = Path(__file__).resolve().parents[3]
FILES = ROOT / "deploy/reap"
LAUNCHER = Path(sys.executable).with_name("launcher")


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string((FILES / name).read_text())
    return parser


def by_timer(env: Path) -> list[str]:
    """The command of the service, whose variables are those of EnvironmentFile."""
    service = unit("slipway-reap.service")["Service"]
    assert service["EnvironmentFile"] == "/etc/slipway/reap.env"
    return ["/bin/sh", "-c", f"set -a; . {env}; exec {service['ExecStart']}"]


def by_cron(env: Path) -> list[str]:
    (line,) = [line for line in (FILES / "slipway-reap.cron").read_text().splitlines() if not line.startswith("#")]
    *fields, user, command = line.split(None, 6)
    assert (fields, user) == (["*/5", "*", "*", "*", "*"], "slipway")
    return ["/bin/sh", "-c", command.replace("/etc/slipway/reap.env", str(env))]


def by_cronjob(env: Path) -> list[str]:
    """The container's command, with the variables that the ConfigMap and the Secret give."""
    objects = list(yaml.safe_load_all((ROOT / "k8s/machines/machines.yaml").read_text()))
    (spec,) = [each["spec"]["jobTemplate"]["spec"]["template"]["spec"] for each in objects if each["kind"] == "CronJob"]
    (container,) = spec["containers"]
    return ["/bin/sh", "-c", f"set -a; . {env}; exec {' '.join(container['command'])}"]


@pytest.mark.parametrize("command", [by_timer, by_cron, by_cronjob])
def test_it_ends_a_machine_whose_run_is_over(account: Account, tmp_path: Path, command: object) -> None:
    done = account.job("done")
    account.submit(done)
    keys = RunKeys(run_id(done))
    account.store.create(keys.result, msgspec.json.encode(Result("succeeded", 1, Reason.SUCCEEDED, "", 0.0, "n")))
    result = tmp_path / "store" / keys.result
    os.utime(result, (time.time() - 1000, time.time() - 1000))
    sample = (FILES / "reap.env").read_text()
    given = {"LAMBDA_API_KEY": KEY, "SLIPWAY_STORE": account.store.url}
    assert set(given) <= set(re.findall(r"^(\w+)=", sample, re.MULTILINE))
    env = tmp_path / "reap.env"
    env.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    words = [word.replace("/opt/slipway/bin/launcher", str(LAUNCHER)) for word in command(env)]  # type: ignore[operator]
    words[-1] = re.sub(r"exec python ", f"exec {sys.executable} ", words[-1])
    home = tmp_path / "home"
    home.mkdir()
    done_run = subprocess.run(
        words,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LAMBDA_API_URL": account.cloud.url,
            "PYTHONPATH": str(ROOT),
        },
        cwd=home,
        capture_output=True,
        text=True,
    )
    assert done_run.returncode == 0, done_run.stderr
    assert "its run has succeeded" in done_run.stdout
    assert account.cloud.bodies()[0]["status"].startswith("terminat")
    assert KEY not in done_run.stdout + done_run.stderr


def test_the_units_are_what_systemd_takes(tmp_path: Path) -> None:
    need("systemd")
    for name in ("slipway-reap.service", "slipway-reap.timer"):
        text = (FILES / name).read_text().replace("/opt/slipway/bin/launcher", str(LAUNCHER))
        (tmp_path / name).write_text(text)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.glob("slipway-reap.*")))],
        capture_output=True,
        text=True,
    )
    assert [line for line in checked.stderr.splitlines() if "slipway" in line] == []
    assert unit("slipway-reap.timer")["Timer"]["OnCalendar"] == "*:0/5"
