"""What the packages of this machine are: by versions, and by content where no version says it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest

from launcher.errors import BadInput, Conflict
from launcher.spec.code import local_code
from launcher.spec.code.environment import (
    LocalEnvironment,
    check_environment,
    describe_changes,
    differences,
    local_environment,
    store_environment,
    stored_environment,
)
from launcher.spec.code.local_code import FileHashes, content, roots
from launcher.spec.code.own_files import OUTPUT
from launcher.spec.hashing import work_hash
from launcher.spec.model import Input, Output, ResolvedJob
from launcher.store.layout import MARKER
from launcher.verbs.retry import retry
from tests.support.fakerun import fake_job, write_run
from tests.support.memory_store import MemoryStore
from tests.unit.spec.test_distributions import add


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of distributions that counts."""
    made = tmp_path / "site-packages"
    made.mkdir()
    monkeypatch.setattr(sys, "path", [*(path for path in sys.path if not path.endswith("-packages")), str(made)])
    return made


def write(folder: Path, name: str, text: str) -> None:
    """A file that is older than what a cache of hashes passes over."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_another_version_is_another_environment_and_a_tool_is_not(site: Path) -> None:
    add(site, "jinja2", "3.1.5")
    first = local_environment()
    assert first.parts["jinja2"] == "3.1.5"
    assert first.parts["python"].startswith("cpython 3.")
    assert local_environment() == first
    add(site, "pytest", needs=("pluggy",))
    add(site, "pluggy")
    assert local_environment() == first
    (site / "jinja2-3.1.5.dist-info").rename(site / "jinja2-3.1.6.dist-info")
    second = local_environment()
    assert second.digest != first.digest
    assert differences(first.parts, second.parts) == ["jinja2 3.1.5 -> 3.1.6"]
    assert local_environment(["jinja2"]).digest not in (first.digest, second.digest)


def test_one_line_of_an_editable_one_edited_in_place(site: Path, tmp_path: Path) -> None:
    source = tmp_path / "project"
    write(source, "own/__init__.py", "X = 1\n")
    write(source, "own/table.json", "{}")
    write(source, "notes.txt", "not importable")
    add(site, "own", url=f"file://{source}", dir_info={"editable": True})
    (site / "__editable__.own-1.0.pth").write_text(f"{source}\n")
    before = local_environment()
    assert "__editable__.own.pth[0]" in before.parts
    write(source, "notes.txt", "still not importable")
    write(source, "report.html", "neither")
    assert local_environment() == before
    for name, text in (("own/__init__.py", "X = 2\n"), ("own/table.json", "[]"), ("own/deep/new.py", "")):
        write(source, name, text)
        after = local_environment()
        assert differences(before.parts, after.parts) != []
        before = after


def test_a_finder_of_an_editable_one(site: Path, tmp_path: Path) -> None:
    write(tmp_path, "src/own/__init__.py", "X = 1\n")
    finder = site / "__editable___own_1_0_finder.py"
    finder.write_text(f"import sys\nMAPPING: dict[str, str] = {{'own': '{tmp_path}/src/own'}}\nNAMESPACES = {{}}\n")
    assert [path for _, path in roots(str(site))] == [f"{tmp_path}/src/own"]
    before = local_environment()
    write(tmp_path, "src/own/__init__.py", "X = 2\n")
    assert local_environment().digest != before.digest


def test_a_folder_that_code_in_a_pth_file_adds(site: Path, tmp_path: Path) -> None:
    write(tmp_path, "src/own.py", "X = 1\n")
    (site / "own.pth").write_text(f"import sys; sys.path.insert(0, '{tmp_path}/src')\nimport not_a_path; x('src')\n")
    assert [path for _, path in roots(str(site))] == [f"{tmp_path}/src"]
    before = local_environment()
    write(tmp_path, "src/own.py", "X = 2\n")
    assert local_environment().digest != before.digest


def test_another_folder_of_distributions_is_not_read_file_by_file(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where an environment stands on another one: Python has both on its path."""
    base = tmp_path / "base/site-packages"
    add(base, "jinja2", "3.1.5")
    write(base, "jinja2/__init__.py", "X = 1\n")
    (site / "base.pth").write_text(f"{base}\n")
    monkeypatch.setattr(sys, "path", [str(base), *sys.path])
    parts = local_environment().parts
    assert parts["jinja2"] == "3.1.5"
    assert not [name for name in parts if name.startswith("base.pth")]


def test_what_was_copied_beside_the_distributions_counts_by_content(site: Path) -> None:
    add(site, "jinja2", "3.1.5")
    add(site, "flask", "3.0")
    write(site, "jinja2/__init__.py", "X = 1\n")
    write(site, "werkzeug/__init__.py", "X = 1\n")
    write(site, "flask-3.0.dist-info/RECORD", "werkzeug/__init__.py,sha256=x,7\nflask-3.0.dist-info/METADATA,,\n")
    before = local_environment(remember=True)
    assert not [name for name in before.parts if name.startswith("site-packages/")]
    write(site, "mine/__init__.py", "X = 1\n")
    write(site, "sitecustomize.py", "X = 1\n")
    write(site, "own.pth", "# nothing\n")
    (site / "__pycache__").mkdir()
    now = local_environment(remember=True)
    assert now.parts.keys() - before.parts.keys() == {"site-packages/mine", "site-packages/sitecustomize.py"}
    write(site, "mine/__init__.py", "X = 2\n")
    assert local_environment().digest != now.digest
    assert local_environment(["mine", "sitecustomize"]).digest == before.digest


def test_what_a_dry_run_worked_out_is_kept_by_the_submit_after_it(site: Path, tmp_path: Path) -> None:
    add(site, "flat", "1.0")
    kept = tmp_path / "cache" / "slipway" / "environment"
    before = local_environment()
    assert not list(kept.glob("*.json"))
    assert local_environment(remember=True) == before
    assert {"copied.json", "tools.json"} <= {path.name for path in kept.iterdir()}


def test_a_linked_package_is_read_once_and_linked_data_is_not(site: Path, tmp_path: Path) -> None:
    write(tmp_path, "far/one/__init__.py", "X = 1\n")
    write(tmp_path, "data/tool.py", "X = 1\n")
    write(tmp_path, "src/own/__init__.py", "")
    for link, target in (("src/own/one", "far/one"), ("far/one/back", "src/own"), ("src/data", "data")):
        (tmp_path / link).symlink_to(tmp_path / target)
    (site / "own.pth").write_text(f"{tmp_path}/src\n")
    digests = [local_environment().digest]
    for file in ("far/one/__init__.py", "data/tool.py"):
        write(tmp_path, file, "X = 2\n")
        digests.append(local_environment().digest)
    assert digests[0] != digests[1] == digests[2]


@pytest.mark.parametrize("mark", [MARKER, "gathered.json", OUTPUT])
def test_what_the_launcher_itself_wrote_below_such_a_folder_does_not_count(
    site: Path, tmp_path: Path, mark: str
) -> None:
    """A store, a gathered run, the results of an evaluation: an output may be a Python file."""
    write(tmp_path, "src/own/__init__.py", "X = 1\n")
    (site / "own.pth").write_text(f"{tmp_path}/src\n")
    before = local_environment()
    for folder in ("src/made", "src/own/made"):
        write(tmp_path, f"{folder}/{mark}", "{}")
        write(tmp_path, f"{folder}/runs/one/answer.py", "X = 1\n")
    write(tmp_path, "src/state/runs/one/main-0/source/own/__init__.py", "X = 1\n")
    for name in ("queue", "sites", "cancels", "notes"):
        (tmp_path / "src/state" / name).mkdir()
    assert local_environment() == before


def test_the_same_source_at_another_place_is_the_same_environment(site: Path, tmp_path: Path) -> None:
    digests = []
    for place in ("here", "there"):
        write(tmp_path / place, "own/__init__.py", "X = 1\n")
        (site / "own.pth").write_text(f"{tmp_path / place}\n")
        digests.append(local_environment().digest)
    assert digests[0] == digests[1]


def test_a_folder_of_pythonpath(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "lib", "mine.py", "X = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    before = local_environment()
    assert "PYTHONPATH[0]" in before.parts
    write(tmp_path / "lib", "mine.py", "X = 2\n")
    assert local_environment().digest != before.digest


def test_what_came_from_a_folder_a_file_or_a_repository(site: Path) -> None:
    add(site, "copied", url="file:///home/me/copied", dir_info={})
    (site / "copied.py").write_text("X = 1")
    (site / "copied-1.0.dist-info/RECORD").write_text("copied.py,sha256=abc,5\ncopied-1.0.dist-info/RECORD,,\n")
    add(site, "from_git", url="https://host/x.git", vcs_info={"vcs": "git", "commit_id": "abc123"})
    add(site, "wheel_of_the_web", url="https://host/x.whl", archive_info={"hash": "sha256=" + "f" * 64})
    before = local_environment().parts
    assert before["from-git"] == "1.0 abc123"
    assert before["wheel-of-the-web"] == "1.0 " + "f" * 16
    (site / "copied.py").write_text("X = 2")
    now = local_environment().parts
    assert [line.split()[0] for line in differences(before, now)] == ["copied"]


def test_a_hash_is_remembered_and_a_change_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.py"
    path.write_text("X = 1")
    os.utime(path, (1, 1))
    known = FileHashes(tmp_path / "known.json")
    known.sha256(str(path))
    known.save()
    # it was written just now, and may be again within the same instant
    assert (tmp_path / "known.json").read_bytes() == b"{}"
    monkeypatch.setattr(local_code, "_SETTLED", -1)
    known = FileHashes(tmp_path / "known.json")
    first = known.sha256(str(path))
    known.save()
    with monkeypatch.context() as patched:
        patched.setattr(local_code.hashlib, "sha256", None)
        assert FileHashes(tmp_path / "known.json").sha256(str(path)) == first
    path.write_text("X = 2")
    os.utime(path, (1, 1))  # the same time and size: its ctime tells
    again = FileHashes(tmp_path / "known.json")
    assert again.sha256(str(path)) != first
    (tmp_path / "known.json").write_text("{")
    assert FileHashes(tmp_path / "known.json").sha256(str(path)) != first


def test_a_folder_that_is_no_project_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_code, "MAX_FILES", 3)
    for number in range(5):
        write(tmp_path, f"{number}.py", "")
    with pytest.raises(BadInput, match="take it out of PYTHONPATH"):
        content(str(tmp_path), FileHashes(tmp_path / "known.json"))


def named_for(environment: LocalEnvironment) -> ResolvedJob:
    job = fake_job("train")
    image = job.roles["main"].image
    role = msgspec.structs.replace(
        job.roles["main"], image=msgspec.structs.replace(image, environment=environment.digest)
    )
    return msgspec.structs.replace(job, roles={"main": role})


def test_a_job_that_is_named_for_other_packages_is_refused_with_what_differs(site: Path) -> None:
    add(site, "jinja2", "3.1.5")
    before = local_environment()
    store_environment(before)
    job = named_for(before)
    check_environment([job], before)
    add(site, "torch", "2.0")
    (site / "jinja2-3.1.5.dist-info").rename(site / "jinja2-3.1.6.dist-info")
    with pytest.raises(Conflict, match=r"train: the packages here .*\(jinja2 3.1.5 -> 3.1.6, new torch 2.0\): submit"):
        check_environment([job], local_environment())


def test_hashes_of_files_that_nobody_asks_for_go_when_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_code, "_ROWS", 2)
    files = [tmp_path / f"{number}.py" for number in range(3)]
    for number, file in enumerate(files):
        file.write_text("x")
        os.utime(file, (0, 0))
        monkeypatch.setattr("time.time_ns", lambda: file.stat().st_ctime_ns + 3 * 10**9)  # noqa: B023 - called at once
        hashes = FileHashes(tmp_path / "hashes")
        hashes.sha256(str(file))
        hashes.save()
        kept_ = msgspec.json.decode((tmp_path / "hashes").read_bytes())
        assert list(kept_) == [str(one) for one in (files[: number + 1] if number < 2 else files[2:])]


def test_what_was_ignored_then_is_ignored_now(site: Path) -> None:
    """`submit --run` and `retry` from another folder, with another slipway.yaml."""
    add(site, "jinja2", "3.1.5")
    before = local_environment(["jinja2"])
    store_environment(before)
    assert local_environment().digest != before.digest
    check_environment([named_for(before)], local_environment())


def test_a_retry_takes_todays_packages_and_starts_from_the_beginning(site: Path) -> None:
    """Of two stages the second reads the new work of the first."""
    store = MemoryStore("memory:", lambda: 1000.0)
    add(site, "jinja2", "3.1.5")
    before = local_environment()
    store_environment(before)
    first = msgspec.structs.replace(named_for(before), outputs={"out": Output()})
    second = msgspec.structs.replace(
        named_for(before), name="second", inputs={"x": Input(work=work_hash(first), output="out")}
    )
    runs = [write_run(store, job, outcome="failed") for job in (first, second)]
    said: list[str] = []
    same = retry(store, runs, say=said.append)
    assert ([job.resume for job in same.runs], said) == (runs, [])
    (site / "jinja2-3.1.5.dist-info").rename(site / "jinja2-3.1.6.dist-info")
    now = local_environment()
    new_first, new_second = retry(store, runs, say=said.append).runs
    assert [job.resume for job in (new_first, new_second)] == [None, None]
    assert {job.roles["main"].image.environment for job in (new_first, new_second)} == {now.digest}
    assert new_second.inputs["x"].work == work_hash(new_first) != work_hash(first)
    told_ = ": the packages of this machine are not those that it ran with (jinja2 3.1.5 -> 3.1.6)"
    assert said == [f"{run}{told_}: it starts from the beginning" for run in runs]


def test_what_is_told_of_many_and_of_none() -> None:
    assert describe_changes(None, {"a": "1"}) == ""
    assert describe_changes({"a": "1"}, {"a": "1"}) == ""
    assert describe_changes({}, {str(number): "1" for number in range(7)}).endswith("new 4 1 and 2 more)")
    assert stored_environment("0" * 64) is None
