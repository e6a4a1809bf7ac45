"""A machine that makes a Python environment from a lock in place of an image: the user data as it was rendered, run on
this machine by the real uv, without a network. The packages of its index are wheels made here from installed ones."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from msgspec.structs import replace

from launcher.backends.lambda_labs import access, render
from launcher.backends.lambda_labs.script import END
from launcher.backends.lambda_labs.venv import ENTERING, UV_LOCK
from launcher.protocol.read import read_run
from launcher.spec.hashing import run_id
from launcher.spec.profile import LocalSettings, Profile
from launcher.spec.read.load import load
from launcher.spec.resolve.group import Group, resolve
from launcher.store import open_store
from launcher.store.layout import RunKeys, blob
from launcher.store.logs import Log
from launcher.verbs.overlays import upload_overlays
from launcher.verbs.submit import submit
from tests.integration.lambda_labs.conftest import Account, account_with_machines
from tests.integration.lambda_labs.test_access import aws  # noqa: F401
from tests.support.needs import marked
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[3]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
UV = shutil.which("uv") or str(ROOT / ".tools" / "uv" / "bin" / "uv")
SAY = """
import os, sys, yaml
import launcher
print("prefix", sys.prefix, "env", os.environ["VIRTUAL_ENV"], flush=True)
print("yaml", yaml.__file__, "launcher", launcher.__file__, "python", sys.executable, flush=True)
"""
JOB = """
name: bare
command: [python, -c, "import os; exec(os.environ['SAY'])"]
env: {SAY: %s}
backend: lambda
limits: {deadline: 10m}
lambda:
  instance_types: [gpu_1x_a10]
  ssh_key: laptop
  venv: {lock: r.lock, python: "%s"}
"""
# takes setpriv's or unshare's options, then becomes the program behind them
PLAIN = '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n'


def wheel(folder: Path, name: str, files: dict[str, bytes], version: str = "1.0") -> str:
    """A wheel of these files; its line in a lock."""
    info = f"{name}-{version}.dist-info"
    files |= {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {path: base64.urlsafe_b64encode(hashlib.sha256(body).digest()) for path, body in files.items()}
    record = [f"{path},sha256={digests[path].decode().rstrip('=')},{len(body)}" for path, body in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as out:
        for inner, body in files.items():
            out.writestr(inner, body)
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


def installed(name: str) -> dict[str, bytes]:
    """The files of an installed package."""
    found = [path for path in distribution(name).files or () if path.suffix in (".py", ".so")]
    return {path.as_posix(): path.read_binary() for path in found if ".." not in path.parts}


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """A lock whose index is a folder; boto3 and obstore are empty in it: a folder as store needs neither."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    lines = [wheel(folder, name, installed(name)) for name in ("msgspec", "PyYAML")]
    lines += [wheel(folder, name, {f"{name}.py": b""}) for name in ("boto3", "obstore")]
    path = tmp_path / "r.lock"
    path.write_text(f"--no-index\n--find-links {folder}\n{''.join(lines)}")
    return path


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    programs = tmp_path / "programs"
    programs.mkdir()
    # a user of this machine's own may not see the test's folder; `sleep` lets a failing machine try again at once
    texts = {"setpriv": PLAIN, "unshare": PLAIN, "mount": "#!/bin/sh\n", "sleep": "#!/bin/sh\nexec /bin/sleep 0.1\n"}
    for name, text in texts.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (programs / "uv").symlink_to(UV)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    with account_with_machines(tmp_path, monkeypatch) as made:
        yield made


def given(account: Account) -> Group:
    (account.path / "job.yaml").write_text(JOB % (json.dumps(SAY), VERSION))
    profile = Profile(store=account.store.url, local=LocalSettings(account.path))
    return resolve(load(["job.yaml"], cwd=account.path), profile, environment="")


def consoles(account: Account) -> str:
    return "\n".join(path.read_text() for path in (account.path / "cloud").glob("*/console"))


def test_a_machine_makes_the_environment_and_runs_the_command_in_it(account: Account, lock: Path) -> None:
    jobs = given(account)
    (run,) = [run_id(job) for job in jobs.runs]
    submit(jobs, account.store, account.backend(), overlays=jobs.packed)
    until(lambda: account.store.head(RunKeys(run).result), lambda: consoles(account))
    view = read_run(account.store, run)
    assert view.result is not None
    said = b"".join(piece.body for piece in Log(account.store, RunKeys(run).attempt(1), "main-0").more()).decode()
    assert view.result.outcome == "succeeded", said
    (root,) = [path.parent for path in (account.path / "cloud").rglob("job.json") if path.parent.name == "root"]
    env = root / "venv" / "env"
    assert f"prefix {env} env {env}" in said
    assert f"yaml {env}/lib" in said
    assert f"launcher {root}/venv/source/launcher/__init__.py" in said
    until(lambda: account.cloud.ledger("off"), lambda: consoles(account))


@pytest.mark.parametrize("what", ["wheel", "archive"])
def test_what_is_not_as_the_lock_says_starts_nothing(account: Account, lock: Path, what: str) -> None:
    jobs = given(account)
    (job,) = jobs.runs
    upload_overlays(account.store, [job], jobs.packed)
    if what == "archive":
        (digest,) = jobs.packed
        path = account.path / "store" / blob(digest)
        path.chmod(0o644)
        path.write_bytes(path.read_bytes() + b"x")
    else:
        (changed,) = (account.path / "wheels").glob("boto3*")
        wheel(changed.parent, "boto3", {"boto3.py": b"print('another')"})
    submit(jobs, account.store, account.backend(), overlays=jobs.packed)
    until(lambda: account.cloud.ledger("off"), lambda: consoles(account))
    said = consoles(account)
    assert said.count("; try ") == 5
    assert "there is no Python environment of " in said
    assert ("Hash mismatch" in said, "the archive is not" in said) == (what == "wheel", what == "archive")
    assert not read_run(account.store, run_id(job)).attempts


@marked(
    "root",
    missing=os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0,
)
def test_the_command_is_no_root_and_sees_no_home(tmp_path: Path) -> None:
    for folder in [tmp_path, *tmp_path.parents][:-2]:
        folder.chmod(folder.stat().st_mode | 0o055)
    for folder in ("run", "work", "venv/env/bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "private.json").write_text("secret")
    (tmp_path / "private.json").chmod(0o600)
    (tmp_path / "env").write_text('A=a b\nB=\'$(id)" \\n\nSLIPWAY_SECRETS={"X": "y z"}\n')
    environ = {"PATH": os.environ["PATH"], "SLIPWAY_MACHINE": str(tmp_path), "LEFT": "out"}
    script = f'root="$SLIPWAY_MACHINE"\n{ENTERING.format(end=END, user=2000)}'
    subprocess.run(["sh", "-c", script], env=environ, check=True)

    def inside(*words: str) -> str:
        argv = [str(tmp_path / "enter"), *words]
        return subprocess.run(argv, env=environ, check=True, capture_output=True, text=True).stdout

    assert inside("id", "-u") == "2000\n"
    assert inside("id", "-G") == "2000\n"
    status = dict(line.split(":\t", 1) for line in inside("cat", "/proc/self/status").splitlines())
    assert status["NoNewPrivs"] == "1"
    assert {status[name].strip("0") for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {""}
    assert inside("ls", "/home") == ""
    assert len(inside("sh", "-c", "ls -d /proc/[0-9]*").split()) <= 3
    refused = subprocess.run([str(tmp_path / "enter"), "cat", "../private.json"], env=environ, capture_output=True)
    assert refused.returncode == 1
    assert inside("printf", "[%s]", "a b", "$(id)", "it's", "*") == "[a b][$(id)][it's][*]"
    got = dict(line.split("=", 1) for line in inside("env").splitlines())
    assert (got["A"], got["B"], got["SLIPWAY_SECRETS"]) == ("a b", "'$(id)\" \\n", '{"X": "y z"}')
    assert got["SLIPWAY_PRIVATE"] == f"{tmp_path}/run/private.json"
    assert "LEFT" not in got


def test_the_uv_of_a_machine_is_the_one_that_this_repository_pins() -> None:
    assert (ROOT / UV_LOCK.removeprefix("source/")).read_bytes() == (ROOT / "tools" / "uv.lock").read_bytes()


def test_the_url_of_an_archive_opens_that_object_only(aws: str, account: Account, lock: Path) -> None:  # noqa: F811
    store = open_store("s3://bucket/some/runs")
    (job,) = (replace(each, store=store.url) for each in given(account).runs)
    import boto3

    boto3.client("s3").create_bucket(Bucket="bucket")
    digest = job.roles["main"].image.environment.removeprefix("sha256:")
    store.create(blob(digest), b"the archive")
    url = access.archive_url(job, digest, access.access(job))
    assert urllib.request.urlopen(url, timeout=10).read() == b"the archive"
    assert "X-Amz-Security-Token" in url  # signed with the machine's credentials: it ends with them
    got = subprocess.run(["curl", "-fsS", url], capture_output=True, check=True)
    assert got.stdout == b"the archive"
    (machine,) = render.launch_file(job).machines
    told = render.fetching(machine, job, access.access(job), "0f" * 16).request["user_data"]
    assert told.count(f"{aws}/bucket/some/runs/objects/sha256/{digest}?") == 1
