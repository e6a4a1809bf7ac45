"""What `code: .` packs, by real submits: never the store, never the local backend's state, nothing private."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from launcher.store.opening import open_store
from tests.support.needs import need

VALUE = "hush-6b1f0c-hush"
JOB = "name: a\ncommand: [python, main.py]\ncode: .\n"
# how the store and the state lie in the tree: files of the project, and the words that every verb gets
LAYOUTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "as init makes it": ("store: .slipway/store\nlocal: {state: .slipway/local}\n", ()),
    "other names": ("store: keep/all\nlocal: {state: mine}\n", ()),
    "by --store": ("local: {state: mine}\n", ("--store", "kept")),
    "a profile's": ("profiles: {p: {store: kept, local: {state: mine}}}\n", ("--profile", "p")),
    "through a link": ("store: link/all\nlocal: {state: here}\n", ()),
    "the folder itself": ("store: .\nlocal: {state: mine}\n", ()),
}


def git(folder: Path, *arguments: str) -> None:
    need("git")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, env=environment)


def launcher(cwd: Path, *words: str, text: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLIPWAY_", "AWS_"))}
    home = cwd.parent / "home"
    environ |= {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "XDG_CACHE_HOME": str(home / "cache")}
    command = [str(Path(sys.executable).with_name("launcher")), *words]
    done = subprocess.run(
        command, cwd=cwd, env=environ, input=text, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def project(folder: Path, settings: str, *, tree: bool) -> Path:
    made = folder / "project"
    made.mkdir()
    (folder / "home").mkdir()
    (made / "slipway.yaml").write_text(settings)
    (made / "job.yaml").write_text(JOB)
    (made / "main.py").write_text("print('hello')\n")
    if "link/" in settings:
        for name in ("elsewhere", "under"):
            (made / name).mkdir()
        (made / "link").symlink_to("elsewhere")
        (made / "here").symlink_to("under")
    if tree:
        git(made, "init", "-q")
    return made


def packed(url: str) -> list[dict[str, bytes]]:
    """The files of every overlay in a store, without links."""
    store = open_store(url)
    found = []
    for meta in store.scan("objects/sha256/"):
        with tarfile.open(fileobj=io.BytesIO(store.get(meta.key))) as tar:
            files = [(member.name, tar.extractfile(member)) for member in tar if member.isreg()]
            found.append({name: file.read() if file else b"" for name, file in files})
    return found


def place(made: Path, settings: str, words: Sequence[str]) -> str:
    if "--store" in words:
        return (made / "kept").as_uri()
    store = settings.partition("store: ")[2].partition("\n")[0].partition(",")[0]
    return f"file://{made / store}"


@pytest.mark.parametrize("tree", [True, False], ids=["git", "no git"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_neither_store_nor_state_enters_an_overlay(tmp_path: Path, layout: str, tree: bool) -> None:
    settings, words = LAYOUTS[layout]
    made = project(tmp_path, settings, tree=tree)
    profile = words if words[:1] == ("--profile",) else ()
    launcher(made, "secrets", "set", "HF_TOKEN", *profile, text=VALUE)
    launcher(made, "submit", "job.yaml", *words, "--follow")
    launcher(made, "submit", "job.yaml", *words, "--follow", "--fresh", "1")  # by now both are full
    overlays = packed(place(made, settings, words))
    assert [sorted(overlay) for overlay in overlays] == [["job.yaml", "main.py", "slipway.yaml"]], "one, and only code"
    assert VALUE.encode() not in b"".join(overlays[0].values())


def test_what_is_private_is_left_out_in_one_line_and_comes_in_by_its_name(tmp_path: Path) -> None:
    made = project(tmp_path, "store: ../store\n", tree=True)
    key = f"-----BEGIN OPENSSH {'PRIVATE'} KEY-----\n{'b3BlbnNzaC1r' * 8}\n-----END-----\n"
    private = {
        "secrets.json": "{}",
        "deep/id_rsa": key,
        "tls/server.pem": key,
        ".env": "A=1",
        ".env.local": "A=1",
        ".netrc": "machine h login me password x",
        "home/.aws/credentials": "[default]",
        "kubeconfig": "kind: Config",
        "deep/.kube/config": "kind: Config",
    }
    kept = {"tls/ca.pem": "-----BEGIN CERTIFICATE-----\n", ".env.example": "A=\n", "secrets.py": "", "env.py": ""}
    for name, text in {**private, **kept}.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)

    for verb in (("submit", "job.yaml", "--follow"), ("push", "job.yaml"), ("render", "job.yaml", "--explain")):
        said = [line for line in launcher(made, *verb).stderr.splitlines() if "left out" in line]
        assert len(said) == 1, verb
        assert "code.include" in said[0]
        assert all(name in said[0] for name in private), said
    (overlay,) = packed(f"file://{tmp_path / 'store'}")
    assert set(overlay) == {"job.yaml", "main.py", "slipway.yaml", *kept}

    (made / "job.yaml").write_text(JOB.replace("code: .", "code: {folder: ., include: [.env, deep/*]}"))
    said = [line for line in launcher(made, "submit", "job.yaml", "--follow").stderr.splitlines() if "left out" in line]
    assert len(said) == 1
    assert ".env," not in said[0]
    newest = next(one for one in packed(f"file://{tmp_path / 'store'}") if ".env" in one)
    # `deep/*` names all below, and `.env` no other file
    assert set(newest) - set(overlay) == {".env", "deep/id_rsa", "deep/.kube/config"}


def test_a_token_in_a_file_is_refused_with_its_place_and_never_shown(tmp_path: Path) -> None:
    made = project(tmp_path, "store: ../store\n", tree=True)
    token = "hf_" + "aB3" * 8
    (made / "deep").mkdir()
    (made / "deep" / "settings.py").write_text(f"x = 1\nTOKEN = '{token}'\n")
    (made / "blob.bin").write_bytes(b"\0" * 100 + token.encode())
    for verb in ("submit", "push", "render"):
        done = launcher(made, verb, "job.yaml", code=2)
        assert "deep/settings.py:2:" in done.stderr
        assert "Hugging Face" in done.stderr
        assert "code.include" in done.stderr
        assert "blob.bin: code: holds what looks like a Hugging Face token" in done.stderr
        assert token not in done.stdout + done.stderr
    assert not (tmp_path / "store" / "objects").exists()
    (made / "job.yaml").write_text(JOB.replace("code: .", "code: {include: [deep/settings.py, blob.bin]}"))
    launcher(made, "push", "job.yaml")
    (made / "job.yaml").write_text(JOB.replace("code: .", "code: {include: [deep/setings.py, blob.bin]}"))
    done = launcher(made, "render", "job.yaml", code=2)
    assert "job.yaml:3:" in done.stderr
    assert "deep/setings.py" in done.stderr
