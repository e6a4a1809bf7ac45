"""`launcher exec` and `launcher forward` on a machine: ssh's argv, run with a stand-in for ssh that is the machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.backends.base import Entered, Forwards
from launcher.backends.lambda_labs import names
from launcher.errors import NotFound
from launcher.spec.hashing import run_id
from tests.integration.lambda_labs.conftest import Account
from tests.integration.lambda_labs.test_ending import claim, tag

SSH = """#!/bin/sh
# takes ssh's options, then runs the command as a login shell of the machine would
while [ "${1#-}" != "$1" ]; do case $1 in -o|-L) shift 2 ;; *) shift ;; esac; done
echo "at $1"
shift
exec sh -c "$*"
"""
SUDO = '#!/bin/sh\nexec "$@"\n'
DOCKER = '#!/bin/sh\n[ "$1 $2 $3" = "exec -i slipway" ] || exit 99\nshift 3\nexec "$@"\n'


def test_a_command_runs_in_the_container_with_its_words_as_they_were(
    account: Account, settings: Callable[..., object], tmp_path: Path
) -> None:
    settings(boot=0.0)
    one = account.job("one")
    account.submit(one)
    backend = account.backend()
    assert isinstance(backend, Entered)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("ssh", SSH), ("sudo", SUDO), ("docker", DOCKER)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    words = ["printf", "[%s]", "a b", "$(id)", "it's", "*"]
    argv = backend.execute(run_id(one), "main-0", words, tty=False)
    environ = {"PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "at ubuntu@198.51.100.1\n[a b][$(id)][it's][*]")
    failing = backend.execute(run_id(one), "main-0", ["sh", "-c", "exit 7"], tty=False)
    assert subprocess.run(failing, env=environ, stdout=subprocess.DEVNULL).returncode == 7
    assert "-t" in backend.execute(run_id(one), "main-0", ["bash"], tty=True)


def test_ports_are_those_of_the_machines_loopback(account: Account, settings: Callable[..., object]) -> None:
    settings(boot=0.0)
    one = account.job("one")
    machine = account.submit(one)
    backend = account.backend()
    assert isinstance(backend, Forwards)
    argv = backend.forward(run_id(one), "main-0", [(8000, 80), (9000, 9000)])
    assert argv[-5:] == ["-L", "127.0.0.1:8000:127.0.0.1:80", "-L", "127.0.0.1:9000:127.0.0.1:9000", argv[-1]]
    assert argv[-1] == "ubuntu@198.51.100.1"
    assert f"HostKeyAlias=lambda-{machine}" in argv  # an address that another machine had is no changed host


def test_the_machine_that_works_is_entered(account: Account, settings: Callable[..., object]) -> None:
    settings(list_lag=1e6, faults=[{"on": "launch", "kind": "drop_after", "times": 1}])
    one = account.job("one")
    account.submit(one)
    account.cloud.admin("clock", add=600)
    for each in account.cloud.bodies():
        account.cloud.admin("instance", id=each["id"], visible=0.0)
    body = max(account.cloud.bodies(), key=lambda each: str(each["id"]))
    claim(account, run_id(one), launch=tag(body["body"], names.LAUNCH))
    argv = account.backend().execute(run_id(one), "main-0", ["true"], tty=False)
    assert f"HostKeyAlias=lambda-{body['id']}" in argv


def test_a_machine_without_an_address_is_told(account: Account) -> None:
    one = account.job("one")
    machine = account.submit(one)
    with pytest.raises(NotFound, match=f"machine {machine} of main-0 has no address yet: it is booting"):
        account.backend().execute(run_id(one), "main-0", ["true"], tty=False)
    with pytest.raises(NotFound, match="main-1 has no machine"):
        account.backend().execute(run_id(one), "main-1", ["true"], tty=False)
    with pytest.raises(NotFound, match="it has no machine"):
        account.backend().execute("other-000000000000", "main-0", ["true"], tty=False)
