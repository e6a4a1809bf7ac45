"""What the launcher itself writes into a project's folder never changes what a job of it is."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.errors import BadInput
from launcher.spec.code import own_files
from launcher.spec.code.overlay import Overlay
from launcher.spec.code.own_files import MARK, OUTPUT
from launcher.spec.profile import load_profile
from tests.integration.spec.test_code import git, write

ROOT = Path(__file__).resolve().parents[3]
RUN = "train-0123456789ab"
OWN = {
    "report.html": f"<!doctype html>\n<html><head><meta charset='utf-8'>{MARK}<title>x</title>",
    f"gathered/{RUN}/gathered.json": "{}",
    f"gathered/{RUN}/outputs/model/w": "w",
    f"deep/copies/{RUN}/gathered.json": "{}",
    f"manifests/{RUN}.yaml": f"metadata: {{name: {RUN}}}\n",
    f"checked/{OUTPUT}": "",
    "checked/summary.json": "{}",
    "checked/episodes/0/000.png": "png",
}
THEIRS = {
    "a.py": "",
    "page.html": "<!doctype html><title>my own</title>",
    "gathered/notes.txt": "",
    f"data/{RUN}.json": '{"name": "another"}',
    "summary.json": "{}",
}


def test_reports_gathered_runs_rendered_jobs_and_results_stay_out(tmp_path: Path) -> None:
    folder = write(tmp_path / "src", THEIRS)
    before = Overlay(folder).digest()
    write(folder, OWN)
    found = Overlay(folder)
    assert (found.files, found.digest()) == (sorted(THEIRS), before)
    assert "left out of the overlay" in found.note()
    assert "the launcher's own: checked/" in found.note()


def test_what_git_tracks_was_chosen(tmp_path: Path) -> None:
    """As the manifests of jobs that Argo CD applies, kept beside the code."""
    folder = write(tmp_path / "src", THEIRS | OWN)
    git(folder, "init", "-q")
    git(folder, "add", f"manifests/{RUN}.yaml")
    assert Overlay(folder).files == sorted([*THEIRS, f"manifests/{RUN}.yaml"])


@pytest.mark.parametrize("page", ["launcher/report/page.py", "eval/replay.py", "training/data/inspection/page.py"])
def test_every_page_has_the_mark(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert MARK in text or "Markup(MARK)" in text


def test_the_mark_of_results_is_evals_own() -> None:
    assert f'"{OUTPUT}"' in (ROOT / "eval/config/strict.py").read_text(encoding="utf-8")


def test_caches_states_and_settings_below_the_folder_stay_out(tmp_path: Path) -> None:
    """HOME as the project, as in containers and notebooks."""
    profile = load_profile(tmp_path, None, {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")})
    names = [".cache/slipway/status.sqlite", ".local/state/slipway/monitor/token", ".config/slipway/slipway.yaml"]
    write(tmp_path, dict.fromkeys((*names, "data/slipway/x", ".config/other", "a.py"), ""))
    assert Overlay(tmp_path, apart=profile.own_folders).files == [".config/other", "a.py"]


WAYS = {
    "a redirection": "{python} digest.py > submit.log",
    "a redirection of both": "{python} digest.py >> submit.log 2>&1",
    "tee": "{python} digest.py 2>&1 | tee -a tee.log",
    "nohup": "nohup {python} digest.py < /dev/null >> nohup.out 2>&1",
}
SCRIPT = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from launcher.spec.code.overlay import Overlay
from launcher.spec.code.own_files import remember_outputs
print("a line before", flush=True)
overlay = Overlay(Path("."))
digest = overlay.digest()
print("a line between", flush=True)
assert overlay.pack(Path("../tar")) == digest
remember_outputs()
Path("../digests").open("a").write(digest + " " + ",".join(overlay.files) + "\\n")
"""


def test_the_files_of_our_own_output_stay_out_now_and_later(tmp_path: Path) -> None:
    folder = write(tmp_path / "src", {"digest.py": SCRIPT})
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    for way in (*WAYS.values(), *WAYS.values(), "{python} digest.py"):
        line = way.format(python=shlex.quote(sys.executable))
        command = ["bash", "-o", "pipefail", "-c", line]
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE)
    assert {path.name for path in folder.iterdir()} == {"digest.py", "submit.log", "tee.log", "nohup.out"}
    digests = (tmp_path / "digests").read_text().splitlines()
    assert len(digests) == 2 * len(WAYS) + 1
    assert len(set(digests)) == 1
    assert digests[0].endswith(" digest.py")


@pytest.mark.parametrize("verb", ["render job.yaml", "doctor"])
@pytest.mark.parametrize("way", ["> x.txt", "| tee x.txt"])
def test_what_any_verb_prints_into_a_file_is_no_code(tmp_path: Path, verb: str, way: str) -> None:
    folder = write(tmp_path / "src", {"job.yaml": "name: x\ncommand: ['true']\n", "a.py": ""})
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "SLIPWAY_STORE": str(tmp_path / "store")}
    launcher = shlex.quote(str(Path(sys.executable).with_name("launcher")))
    command = ["bash", "-c", f"{launcher} {verb} {way}"]
    subprocess.run(command, cwd=folder, env=os.environ | state, check=False, stdout=subprocess.PIPE)
    assert (folder / "x.txt").read_text()
    script = "from pathlib import Path; from launcher.spec.code.overlay import Overlay; print(Overlay(Path('.')).files)"
    later = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=os.environ | state, capture_output=True, text=True
    )
    assert later.stdout == "['a.py', 'job.yaml']\n"


def test_a_file_that_changes_while_it_is_submitted_is_packed_as_it_was_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "src", {"a.py": "1"})
    overlay = Overlay(folder)
    digest = overlay.digest()
    (folder / "a.py").write_text("2")
    assert overlay.pack(tmp_path / "tar") == digest != Overlay(folder).digest()


def test_another_users_processes_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = os.pipe()
    monkeypatch.setattr(own_files, "_link", lambda path: "")
    try:
        assert list(own_files._written_by_readers(f"pipe:[{os.fstat(there).st_ino}]")) == []
    finally:
        os.close(here)
        os.close(there)


def test_an_empty_overlay_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "src", {".gitignore": "out/\n", "a.py": "", "out/b.py": ""})
    (tmp_path / "empty").mkdir()
    git(folder, "init", "-q")
    for empty in (tmp_path / "empty", folder / "out"):
        with pytest.raises(BadInput, match="holds no file to pack"):
            Overlay(empty).digest()
