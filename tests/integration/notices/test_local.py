"""The supervisor of this machine's queue tells people of ends, also one that is killed while it does; and the verb."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.spec.hashing import run_id
from launcher.spec.model import Output
from launcher.store.layout import RunKeys
from launcher.verbs.submit import submit
from tests.integration.local.machine import Machine, machine, wait_for
from tests.support.jobs import group
from tests.support.receiver import SECRET_PATH, Receiver, receiver


@pytest.fixture
def slack() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


def profile(tmp_path: Path, home: Path, url: str, text: str = "notify: {team: {webhook: TEAM_URL}}\n") -> None:
    (tmp_path / "slipway.yaml").write_text(f"store: store\nlocal: {{state: state}}\n{text}")
    secrets = tmp_path / "state" / "secrets.json"
    secrets.parent.mkdir(mode=0o700, exist_ok=True)
    secrets.write_text(json.dumps({"TEAM_URL": url}))
    secrets.chmod(0o600)
    home.mkdir(exist_ok=True)


def launcher(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home")}
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "SLIPWAY_STORE", "SLIPWAY_PROFILE"):
        environ.pop(name, None)
    return subprocess.run(
        [sys.executable, "-m", "launcher.cli", *words],
        cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


@pytest.fixture
def here(tmp_path: Path, slack: Receiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A queue whose submitter's profile has a channel, as LocalBackend gets it from `Profile.backend_options`."""
    profile(tmp_path, tmp_path / "home", slack.url)
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    with machine(tmp_path, notify=(str(tmp_path), "")) as made:
        yield made


def test_the_end_of_a_local_run_is_told(here: Machine, slack: Receiver) -> None:
    bad = here.job("bad", "sys.exit(3)")
    here.submit(bad)
    here.wait(bad)
    assert [text.partition(":")[0] for text in slack.texts()] == [f"{run_id(bad)} failed (user_error"]


def test_a_training_that_failed_because_it_collapsed_is_told(here: Machine, slack: Receiver) -> None:
    """training.rl ends so. Its results must be `sync: live`: other outputs of a failed run are not in the store."""
    script = """
out = pathlib.Path(E["SLIPWAY_OUTPUTS"]) / "results"
out.mkdir(parents=True, exist_ok=True)
(out / "collapse.json").write_text(json.dumps({"text": "0 of 40 rollouts succeeded", "checkpoint_before": None}))
sys.exit(78)
"""
    one = here.job("rl", script, outputs={"results": Output(sync="live")})
    here.submit(one)
    here.wait(one)
    run = run_id(one)
    told = {text for text in slack.texts() if "collapsed" in text}
    assert told == {f"{run} collapsed in training: 0 of 40 rollouts succeeded"}


def test_a_supervisor_that_dies_while_it_tells_tells_it_once(here: Machine, slack: Receiver) -> None:
    """The receiver holds its answer back until the supervisor is dead; the process that tells goes on by itself, and
    the next supervisor finds its record."""
    arrived, dead = threading.Event(), threading.Event()

    def answer(number: int) -> int:
        arrived.set()
        dead.wait(200)
        return 200

    slack.answer = answer
    done = here.job("done", "pass")
    here.submit(done)
    wait_for(arrived.is_set, explain=here.explain)
    assert run_id(done) in here.state.queued()  # it leaves the queue only when people were told
    wait_for(here.kill_supervisor)
    wait_for(lambda: not here.state.held())
    dead.set()
    ended = RunKeys(run_id(done)).notices + "ended/team/1/ended.json"
    wait_for(lambda: here.store.head(ended) is not None, explain=here.explain)
    submit(group(done), here.store, here.backend)  # as any verb does, it starts the next supervisor
    here.backend.look_up(run_id(done))
    wait_for(lambda: not here.state.queued(), explain=here.explain)
    assert len(slack.arrived) == 1


def test_the_verb_tells_once_and_shows_no_address(tmp_path: Path, slack: Receiver) -> None:
    profile(tmp_path, tmp_path / "home", slack.url)
    tested = launcher(tmp_path, "notify", "--test")
    assert (tested.returncode, len(slack.arrived)) == (0, 1)
    assert slack.texts() == ["a test of Slipway's notifications: no run ended"]
    done = launcher(tmp_path, "run", "--name", "one", "--backend", "local", "--", "true")
    assert done.returncode == 0, done.stderr
    waited = launcher(tmp_path, "wait", "one")
    assert waited.returncode == 0, waited.stderr
    wait_for(lambda: len(slack.arrived) == 2)
    wait_for(lambda: not list((tmp_path / "state" / "queue").glob("*.yaml")))
    again = launcher(tmp_path, "notify", "-o", "json")
    assert (again.returncode, json.loads(again.stdout)) == (0, [])
    reaped = launcher(tmp_path, "reap", "-o", "json")
    assert (reaped.returncode, json.loads(reaped.stdout)) == (0, [])
    assert len(slack.arrived) == 2
    secret = SECRET_PATH.rpartition("/")[2]
    said = "".join(one.stdout + one.stderr for one in (tested, done, waited, again, reaped))
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "secrets.json"]
    assert secret not in said
    assert [path for path in left if secret.encode() in path.read_bytes()] == []
    launcher(tmp_path, "local", "stop")


def test_reap_tells_what_nobody_told(tmp_path: Path, slack: Receiver) -> None:
    """The run was submitted without a channel: only who reads the store with one can tell it."""
    profile(tmp_path, tmp_path / "home", slack.url, text="")
    assert launcher(tmp_path, "run", "--name", "one", "--backend", "local", "--", "false").returncode == 1
    assert slack.arrived == []
    profile(tmp_path, tmp_path / "home", slack.url)
    planned = launcher(tmp_path, "reap", "--dry-run", "-o", "json")
    assert [row["did"] for row in json.loads(planned.stdout)] == ["would be told"]
    reaped = launcher(tmp_path, "reap", "-o", "json")
    assert [row["did"] for row in json.loads(reaped.stdout)] == ["told"]
    assert len(slack.arrived) == 1
    launcher(tmp_path, "local", "stop")


@pytest.mark.parametrize(
    ("notify", "said"),
    [
        (
            "{team: {webhook: 'https://hooks.example.com/services/T0/x9-secret-part'}}",
            "slipway.yaml:3:26: notify.team.webhook: is not the name of a secret; allowed: letters, digits and _; "
            "`launcher secrets set NAME` keeps the value",
        ),
        ("{team: {}}", "slipway.yaml:3:16: notify.team: has no way to tell anybody; allowed: exactly one of webhook, "
         "slack, command, mail"),
        ("{team: {mail: [a@x.com], command: [b]}}", "slipway.yaml:3:16: notify.team: has command and mail; allowed: "
         "exactly one of webhook, slack, command, mail"),
        ("{team: {slack: C0123456789}}", "slipway.yaml:3:16: notify.team: has only one of slack and token; allowed: "
         "slack: ID_OF_A_CHANNEL with token: NAME_OF_A_SECRET"),
        ("{team: {slack: '#general', token: BOT}}", "slipway.yaml:3:24: notify.team.slack: `#general` is not a "
         "channel's id; allowed: C0123456789, as Slack shows it below a channel's details"),
        ("{team: {slack: C0123456789, token: x9-secret-part}}", "slipway.yaml:3:44: notify.team.token: is not the "
         "name of a secret; allowed: letters, digits and _; `launcher secrets set NAME` keeps the value"),
        ("{team: {mail: [-oQ/tmp@x.com]}}", "slipway.yaml:3:24: notify.team.mail[0]: `-oQ/tmp@x.com` is not an "
         "address; allowed: name@host"),
        ("{team: {webhook: A, on: [end]}}", "slipway.yaml:3:34: notify.team.on[0]: `end` is not known (did you mean "
         "`ended`?); allowed: ended, failed, budget, collapse"),
    ],
)  # fmt: skip
def test_a_wrong_channel_is_one_line(tmp_path: Path, notify: str, said: str) -> None:
    profile(tmp_path, tmp_path / "home", "", text=f"notify: {notify}\n")
    answer = launcher(tmp_path, "notify")
    assert answer.returncode == 2
    assert answer.stderr.strip().removeprefix("launcher: ").removeprefix("launcher notify: ") == said
    assert "x9-secret-part" not in answer.stderr
