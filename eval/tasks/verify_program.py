"""Calls a verifier of Gym-Anything as its loader does, on a copy of the files that the agent left. Run as a file:

    python3 verify_program.py VERIFIER.py FUNCTION EXPORT.sh|- TASK.json PLACES.json

It knows nothing of the rest of this package. The last line that it prints is the verdict, {"passed", "score"}. An
export that fails ends it without one: the verifier would read what the agent left in the place of what is exported.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def copy_from_env(source: str, target: str) -> None:
    """A file of the desktop: this program sees the copies at the same paths."""
    if not Path(source).is_file():
        raise FileNotFoundError(f"no such file on the desktop: {source}")
    shutil.copyfile(source, target)


def not_here(*_: Any, **__: Any) -> Any:
    raise RuntimeError("not here: no program of the desktop runs where it is judged, and no model is asked")


def repository(places: str) -> Path:
    """The environment's folder in a copy of its repository, in which a verifier finds what lies beside it.

    places: a file with `environment`, its path there, and `mounts`, path there -> path here.
    """
    told = json.loads(Path(places).read_text(encoding="utf-8"))
    root = Path(tempfile.mkdtemp(dir="."))
    own = root.resolve() / str(told["environment"])
    beside = {own / name: name for name in ("tasks", "utils")} | {
        root / path: at for path, at in told["mounts"].items()
    }
    for target, source in beside.items():
        if Path(source).is_dir():
            shutil.copytree(source, target, copy_function=link, dirs_exist_ok=True)
    return own


def link(source: str, target: str) -> None:
    """In the place of a copy, which takes room. What two mounts bring is one file."""
    if not Path(target).exists():
        os.link(source, target)


def main(verifier: str, function: str, export: str, task: str, places: str) -> None:
    own = repository(places)  # before anything of the agent's is read
    for script in Path.cwd().rglob("*.sh"):  # they may start each other by their names
        script.chmod(0o755)
    if export != "-":
        subprocess.run(["bash", export], stdout=sys.stderr, check=True, timeout=120)
    spec = json.loads(Path(task).read_text(encoding="utf-8"))
    folder = tempfile.mkdtemp()
    traj: dict[str, Any] = {"steps": [], "episode_dir": folder, "frames": [], "step_frames": {}}
    traj |= dict.fromkeys(("final_screenshot", "post_verification_screenshot", "first_frame", "last_frame"))
    told: dict[str, Any] = {"env_id": spec.get("env_id"), "episode_dir": folder, "copy_from_env": copy_from_env}
    told |= dict.fromkeys(("copy_to_env", "exec_capture", "query_vlm", "sample_trajectory_frames"), not_here)
    told |= dict.fromkeys(("get_final_screenshot", "get_first_screenshot"), not_here)
    about = {"task_id": spec.get("id"), "metadata": spec.get("metadata") or {}, "task_spec": spec}
    place = (own / verifier).parent
    found = importlib.util.spec_from_file_location("verifier", own / verifier)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.path[:0] = [str(each) for each in (place, place.parent, own, own / "utils")]
    with contextlib.redirect_stdout(sys.stderr):
        found.loader.exec_module(module)
        said = getattr(module, function)(traj, told, about)
    # numbers and truth values of numpy are no JSON
    told = {"passed": bool(said["passed"]), "feedback": str(said.get("feedback", ""))}
    print(json.dumps(told | ({"score": float(said["score"])} if "score" in said else {})))


if __name__ == "__main__":
    main(*sys.argv[1:])
