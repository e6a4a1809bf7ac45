"""The code overlay: the same bytes for the same files."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import tarfile
from pathlib import Path

import pytest

from launcher.errors import BadInput
from launcher.spec.code import overlay, own_files
from launcher.spec.code.listing import listing
from launcher.spec.code.overlay import Overlay
from launcher.store import layout
from tests.support.needs import need


def write(folder: Path, names: dict[str, str]) -> Path:
    for name, text in names.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def git(folder: Path, *arguments: str) -> None:
    need("git")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, env=environment)


def names(path: Path) -> list[str]:
    with tarfile.open(path) as tar:
        return tar.getnames()


def test_pack_is_what_digest_says(tmp_path: Path) -> None:
    folder = write(tmp_path / "src", {"b.py": "2", "a/c.py": "3", "a.py": "1"})
    out = tmp_path / "overlay.tar"
    assert Overlay(folder).pack(out) == Overlay(folder).digest() == hashlib.sha256(out.read_bytes()).hexdigest()
    assert names(out) == ["a.py", "a/c.py", "b.py"]


def test_golden_digest(tmp_path: Path) -> None:
    """Other machines, Python versions and years pack the same bytes."""
    folder = write(tmp_path / "src", {"train.py": "print('hi')\n", "däta/x": "", "deep/" * 30 + "f": "long name"})
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("train.py")
    assert Overlay(folder).digest() == "72d0beaf8cc03989b9afbc1f048797a489855f5b3d407a24388c5b5fe586d901"


def test_golden_digest_of_a_git_project(tmp_path: Path) -> None:
    """As the launcher of 28 November 2026 (6594be4e) packed it: no run of such a project gets another name."""
    names = {"train.py": "print('hi')\n", "lib/__init__.py": "", ".gitignore": "*.log\nout/\n", "new.md": "# new\n"}
    folder = write(
        tmp_path / "src", names | {"a.log": "x", "out/w": "x", "lib/.gitignore": "!b.log\n", "lib/b.log": "b"}
    )
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("lib")
    git(folder, "init", "-q")
    git(folder, "add", "train.py", "run.sh", "link")
    assert Overlay(folder).digest() == "862b3bd5fc31cb0ee48505eef5c52c985989cfdc3e63a50e336ddb96824f73d7"


def test_times_owners_and_umask_do_not_count_but_content_and_the_x_bit_do(tmp_path: Path) -> None:
    folder = write(tmp_path / "src", {"a.py": "1"})
    before = Overlay(folder).digest()
    os.utime(folder / "a.py", (1, 1))
    (folder / "a.py").chmod(0o600)
    assert Overlay(folder).digest() == before
    (folder / "a.py").chmod(0o700)
    executable = Overlay(folder).digest()
    (folder / "a.py").write_text("2")
    assert len({before, executable, Overlay(folder).digest()}) == 3


def test_clutter_stays_out_without_git(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "a.py": "",
            ".venv/x": "",
            "p/__pycache__/a.pyc": "",
            "p/b.py": "",
            ".slipway/store/x": "",
            "x.egg-info/y": "",
        },
    )
    assert listing(folder).names == ["a.py", "p/b.py"]


def test_git_says_what_is_ignored(tmp_path: Path) -> None:
    folder = write(tmp_path, {".gitignore": "data/\n*.log\n", "a.py": "", "data/x": "", "b.log": "", "sub/new.py": ""})
    git(folder, "init", "-q")
    git(folder, "add", ".gitignore", "a.py")
    assert listing(folder).names == [".gitignore", "a.py", "sub/new.py"]
    # a folder within the work tree is packed by its own names
    assert listing(folder / "sub").names == ["new.py"]
    (folder / "a.py").unlink()
    assert listing(folder).names == [".gitignore", "sub/new.py"]


def test_another_trees_git_variables_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, {"a.py": "", "x.log": "", ".gitignore": "*.log\n"})
    git(folder, "init", "-q")
    monkeypatch.setenv("GIT_DIR", "/nonexistent/.git")
    assert listing(folder).names == [".gitignore", "a.py"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside"])
def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path, target: str) -> None:
    folder = write(tmp_path / "src", {"a.py": ""})
    (folder / "link").symlink_to(target)
    with pytest.raises(BadInput, match=f"link links to {target}"):
        Overlay(folder).digest()


def test_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "MAX_BYTES", 20_000)
    folder = write(tmp_path / "src", {"weights": "x" * 30_000})
    with pytest.raises(BadInput, match="data belongs in `inputs`"):
        Overlay(folder).digest()


def test_stores_and_states_of_other_settings_are_known_by_what_they_hold(tmp_path: Path) -> None:
    run = "a-0123456789ab"
    folder = write(
        tmp_path,
        {
            "old/runs/" + run + "/job.json": "",
            "old/objects/sha256/x": "",
            f"empty/{own_files.MARKER}": "",
            "empty/objects/sha256/x": "",
            "before/sites/" + run + ".json": "",
            "before/id": "",
            "runs/notes.txt": "",
            "sites/a.json": "",
        },
    )
    for _ in range(2):
        assert Overlay(folder).files == ["runs/notes.txt", "sites/a.json"]
        git(folder, "init", "-q")


def test_the_mark_of_a_store_is_the_stores_own() -> None:
    assert own_files.MARKER == layout.MARKER


def test_a_folder_within_the_store_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "store" / "deep" / "src", {"a.py": ""})
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with pytest.raises(BadInput, match="the store or the state"):
        Overlay(folder, apart=(tmp_path / "link",)).digest()


def test_a_link_to_what_stays_apart_does_not_enter(tmp_path: Path) -> None:
    folder = write(tmp_path / "src", {"a.py": ""})
    write(tmp_path / "store", {"runs/x": ""})
    (folder / "kept").symlink_to(tmp_path / "store")
    (folder / "one").symlink_to(tmp_path / "store" / "runs" / "x")
    git(folder, "init", "-q")
    assert Overlay(folder, apart=(tmp_path / "store",)).files == ["a.py"]
    with pytest.raises(BadInput, match="outside of"):
        Overlay(folder).digest()


HEADER = "-----BEGIN RSA " + "PRIVATE KEY-----"
HEX = "0123456789abcdef0123456789abcdef01234567"
OF_40_DIGITS = "a key of 40 hexadecimal digits"
GUID = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
SLACK = "hooks.slack.com/services/T01234567/B01234567/" + "aB3" * 8
WEBHOOK = "the address of a webhook"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"KEY = '''{HEADER}\nMIIEowIBAAKCAQEA\n'''", "a private key"),
        (f'"key": "{HEADER}\\nMIIEowIBAAKCAQEA\\n"', "a private key"),
        (f"if text.startswith('{HEADER}'):\n    pass\n", ""),
        ("url = 'postgres://app:hunter2@db.internal/x'", "a password in a URL"),
        ("url = 'postgres://postgres:postgres@localhost/x'", ""),
        ("url = f'postgres://{user}:{password}@{host}/x'", ""),
        ("id = 'AKIA" + "IOSFODNN7EXAMPLE'", ""),
        ("id = 'AKIA" + "IOSFODNN7EXAMPLD'", "an AWS key"),
        ("aws_secret_access_key = " + "aB3/" * 10, "an AWS secret key"),
        ("client-key-data: " + "aB3+" * 20, "the key of a kubeconfig"),
        ("post('https://" + SLACK + "')", "the address of a webhook"),
        ("url: https://contoso." + "webhook.office.com/webhookb2/" + GUID + "@x/IncomingWebhook/ab12", WEBHOOK),
        ("url: https://" + "discord.com/api/webhooks/123456789012345678/aB3-_cD4eF5gH6iJ7kL8", WEBHOOK),
        ("see https://api.slack.com/messaging/webhooks and https://hooks.slack.com/services/...", ""),
        (f"WANDB_API_KEY={HEX}", OF_40_DIGITS),
        (f"wandb.login(key=os.environ['K'])  # api-key: '{HEX}'", OF_40_DIGITS),
        (f"machine api.wandb.ai login user password {HEX}", OF_40_DIGITS),
        (f"uses: actions/checkout@{HEX}", ""),
        (f"rev: {HEX}\nref = '{HEX}'\ncommit {HEX}", ""),
        (f"cache_key: {HEX}", ""),
        (f"API_KEY={HEX}{HEX[:24]}", ""),  # a digest of SHA-256
    ],
)
def test_what_a_text_file_may_hold(tmp_path: Path, text: str, kind: str) -> None:
    folder = write(tmp_path, {"a.py": f"x = 1\n{text}\n"})
    if not kind:
        Overlay(folder).digest()
        return
    with pytest.raises(BadInput) as caught:
        Overlay(folder).digest()
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.what) == (str(folder / "a.py"), 2, f"looks like {kind}")
    assert Overlay(folder, include=("*.py",)).digest()


GITHUB = "ghp_" + "a1B2c3D4e5F6" * 3


@pytest.mark.parametrize(
    "data",
    [
        b"SQLite format 3\0\x10\0" + GITHUB.encode() + b"\0",
        f"TOKEN={GITHUB}\r\n".encode("utf-16"),  # what PowerShell writes
        f"TOKEN={GITHUB}\r\n".encode("utf-16-be"),
    ],
    ids=["a database", "UTF-16", "UTF-16 without a mark"],
)
def test_what_a_binary_file_may_hold(tmp_path: Path, data: bytes) -> None:
    folder = write(tmp_path, {"a.py": ""})
    (folder / "kept.bin").write_bytes(data)
    with pytest.raises(BadInput) as caught:
        Overlay(folder).digest()
    (problem,) = caught.value.problems
    assert (problem.file, problem.what) == (str(folder / "kept.bin"), "holds what looks like a GitHub token")
    assert GITHUB[4:] not in str(caught.value)
    (folder / "kept.bin").write_bytes(random.Random(1).randbytes(3_000_000) + b"\0")
    assert Overlay(folder).digest()


def test_revisions_of_git_are_no_keys(tmp_path: Path) -> None:
    workflow = f"jobs:\n  a:\n    steps:\n      - uses: actions/checkout@{HEX}\n        with: {{token: $TOKEN}}\n"
    lock = f'{{"key": "{HEX}", "sha": "{HEX}"}}'
    names = {".git-blame-ignore-revs": f"# secret\n{HEX}\n", ".github/workflows/a.yml": workflow, "a.lock": lock}
    assert Overlay(write(tmp_path, names)).digest()
