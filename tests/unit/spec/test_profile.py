"""slipway.yaml: where it is looked for, what wins, what it gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.errors import BadInput
from launcher.spec.images import catalogue
from launcher.spec.profile import load_profile
from tests.support.releases import NAME, install, reference

DIGEST = "sha256:" + "1" * 64


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / "deep" / "er").mkdir(parents=True)
    (tmp_path / "home" / ".config" / "slipway").mkdir(parents=True)
    return tmp_path / "project"


def env(project: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(project.parent / "home"), **more}


def test_without_any_file_everything_is_in_the_home(project: Path) -> None:
    home = project.parent / "home"
    profile = load_profile(project, None, env(project))
    assert profile.store == f"file://{home}/.local/state/slipway/store"
    assert profile.local_state == home / ".local" / "state" / "slipway" / "local"
    assert (profile.backend, dict(profile.origins)) == ("local", {})
    moved = load_profile(project, None, env(project, XDG_STATE_HOME="/var/x"))
    assert (moved.store, moved.local_state) == ("file:///var/x/slipway/store", Path("/var/x/slipway/local"))


@pytest.mark.parametrize("store", ["file://.slipway/store", ".slipway/store", "./.slipway/store"])
def test_paths_are_relative_to_the_file(project: Path, store: str) -> None:
    (project / "slipway.yaml").write_text(f"store: {store}\nlocal: {{state: .slipway/local, cpus: 2, memory: 8Gi}}\n")
    profile = load_profile(project / "deep" / "er", None, env(project))
    assert profile.store == f"file://{project}/.slipway/store"
    assert profile.backend_options("local") == {
        "state": project / ".slipway" / "local",
        "cpus": 2.0,
        "memory": 8 << 30,
        "gpus": None,
    }


def test_the_command_line_beats_variables_beat_the_project_beats_the_user(project: Path) -> None:
    user = project.parent / "home" / ".config" / "slipway" / "slipway.yaml"
    user.write_text("store: s3://user/x\nbackend: docker\nsecrets: {A: user, B: user}\nlabels: {who: me}\n")
    (project / "slipway.yaml").write_text("store: s3://project/x/\nbackend: kubernetes\nsecrets: {A: project}\n")
    profile = load_profile(project, None, env(project))
    assert (profile.store, profile.backend) == ("s3://project/x", "kubernetes")
    assert profile.secrets == {"A": "project", "B": "user"}
    assert profile.labels == {"who": "me"}
    assert profile.origins["secrets.A"].endswith("slipway.yaml:3")
    assert profile.origins["secrets.B"] == f"{user}:3"
    by_variable = load_profile(project, None, env(project, SLIPWAY_STORE="s3://v/x", SLIPWAY_BACKEND="local"))
    assert (by_variable.store, by_variable.backend) == ("s3://v/x", "local")
    assert by_variable.origins["store"] == "SLIPWAY_STORE"
    by_flag = load_profile(project, None, env(project, SLIPWAY_STORE="s3://v/x"), "rel/ative")
    assert by_flag.store == f"file://{project}/rel/ative"
    assert by_flag.origins["store"] == "--store"


def test_a_named_profile_lies_over_its_file(project: Path) -> None:
    (project / "slipway.yaml").write_text(
        "store: s3://a/x\nkubernetes: {namespace: ml}\n"
        f"images: {{trl: 'r/trl@{DIGEST}'}}\nprices: {{H100: 2.99 USD}}\n"
        "profiles:\n  big: {store: s3://b/x, kubernetes: {queue: q}}\n"
    )
    assert load_profile(project, None, env(project)).blocks == {"kubernetes": {"namespace": "ml"}}
    for profile in (
        load_profile(project, "big", env(project)),
        load_profile(project, None, env(project, SLIPWAY_PROFILE="big")),
    ):
        assert profile.store == "s3://b/x"
        assert profile.blocks == {"kubernetes": {"namespace": "ml", "queue": "q"}}
        assert profile.images == {"trl": f"r/trl@{DIGEST}"}
        assert profile.prices == {"H100": (2.99, "USD")}
    with pytest.raises(BadInput, match=r"--profile: bg: no such profile \(did you mean `big`\?\); allowed: big"):
        load_profile(project, "bg", env(project))


def test_problems_of_both_files_come_together(project: Path) -> None:
    user = project.parent / "home" / ".config" / "slipway" / "slipway.yaml"
    user.write_text("stores: x\n")
    (project / "slipway.yaml").write_text("backend: kubernets\n---\nstore: x\n")
    with pytest.raises(BadInput) as caught:
        load_profile(project, None, env(project, SLIPWAY_BACKEND="kube"))
    assert [problem.what for problem in sorted(caught.value.problems, key=lambda problem: problem.what)] == [
        "`kube` is not a backend",
        "`kubernets` is not known (did you mean `kubernetes`?)",
        "several documents",
        "unknown field (did you mean `store`?)",
    ]


@pytest.mark.parametrize("store", ["ftp://x/y", "s3://", "s3:///"])
def test_a_store_that_is_none_is_refused_wherever_it_is_named(project: Path, store: str) -> None:
    for profile in (
        lambda: load_profile(project, None, env(project), store),
        lambda: load_profile(project, None, env(project, SLIPWAY_STORE=store)),
    ):
        with pytest.raises(BadInput, match=r"(--store|SLIPWAY_STORE): store: .*allowed: file://"):
            profile()


def test_the_images_are_those_of_the_installed_release_unless_the_file_keeps_another(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "packed", monkeypatch, "0.9.0", "0.10.0")
    newest = load_profile(project, None, env(project))
    assert (newest.catalogue, newest.images) == ("0.10.0", {NAME: reference("0.10.0")})
    assert newest.origins[f"images.{NAME}"] == "the catalogue of 0.10.0"
    file = project / "slipway.yaml"
    file.write_text("catalogue: 0.9.0\n")
    kept = load_profile(project, None, env(project))
    assert (kept.catalogue, kept.images) == ("0.9.0", {NAME: reference("0.9.0")})
    file.write_text("catalogue: 0.9.0\nimage_registry: mirror.example:5000/a\n")
    assert load_profile(project, None, env(project)).images == {NAME: reference("0.9.0", "mirror.example:5000/a")}
    own = f"registry.example/other@{DIGEST}"
    file.write_text(f"image_registry: mirror.example\nimages: {{{NAME}: '{own}'}}\n")
    assert load_profile(project, None, env(project)).images == {NAME: own}


def test_a_release_that_the_launcher_does_not_know_is_an_error_of_its_line(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "slipway.yaml").write_text("store: s3://a/b\ncatalogue: 0.11.0\n")
    with pytest.raises(BadInput, match=r"slipway\.yaml:2:1: catalogue: .* knows no release `0\.11\.0`; .*none"):
        load_profile(project, None, env(project))  # a clone, before the first release
    install(tmp_path / "packed", monkeypatch, "0.9.0", "0.10.0")
    with pytest.raises(BadInput, match=r"knows no release `0\.11\.0`; allowed: 0\.10\.0, 0\.9\.0"):
        load_profile(project, None, env(project))


def test_a_clone_takes_the_images_of_no_release_that_nobody_named(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sources may be others than those of any release."""
    install(tmp_path / "clone", monkeypatch, "0.9.0")
    monkeypatch.setattr(catalogue, "PACKED", tmp_path / "packed")
    assert load_profile(project, None, env(project)).images == {}
    (project / "slipway.yaml").write_text("catalogue: 0.9.0\n")
    assert load_profile(project, None, env(project)).images == {NAME: reference("0.9.0")}
