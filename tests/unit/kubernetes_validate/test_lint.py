"""Rendered folders, spoiled: each way by its whole line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.backends.kubernetes.check.differences import differences
from launcher.backends.kubernetes.check.files import ManifestFiles, gather
from launcher.backends.kubernetes.check.lint import lint
from launcher.backends.kubernetes.render.manifests import render
from launcher.cli import main
from launcher.spec.hashing import work_hash
from launcher.spec.model import ResolvedJob
from tests.unit.kubernetes.support import job, needs, reading
from tests.unit.kubernetes_validate.support import GOLDEN

AGAIN = "change the job and render it again; this file stays as it was"
KILLS = "deletes a running job to make it again; leave it out"
NOTES = "  annotations:\n    slipway.dev/fingerprint"
VARIABLE = "        - name: PYTHONUNBUFFERED\n"
OTHER = "sha256:" + "cd" * 32


def folder(tmp_path: Path, *jobs: ResolvedJob) -> Path:
    """A folder of rendered jobs."""
    place = tmp_path / "jobs"
    place.mkdir(exist_ok=True)
    for name, text in render(jobs).documents.items():
        (place / name).write_text(text, encoding="utf-8")
    return place


def lines(place: Path, catalogue: Mapping[str, str] | None = None) -> list[str]:
    """What lint says of a folder, without the folder's name and the files' hashes."""
    found = [str(line) for line in lint(gather([place]), catalogue or {})]
    return [line.replace(f"{place}/", "").replace(str(place), "") for line in found]


def edited(tmp_path: Path, change: Callable[[str], str], *jobs: ResolvedJob) -> list[str]:
    """What lint says of the one file of a job after a change of its text; line numbers left out."""
    place = folder(tmp_path, *(jobs or (job(config={"seed": 1}),)))
    (file,) = place.iterdir()
    text = file.read_text(encoding="utf-8")
    file.write_text(change(text), encoding="utf-8")
    assert file.read_text(encoding="utf-8") != text
    return [re.sub(r"^[\w.-]+\.yaml(:\d+)?: ", "", line) for line in lines(place)]


def replaced(before: str, after: str) -> Callable[[str], str]:
    return lambda text: text.replace(before, after, 1)


def test_rendered_folders_are_sound(tmp_path: Path) -> None:
    big = job("big", config={"text": "x" * 200_000})
    first = job("first", outputs={"model": {}})
    first = msgspec.convert(msgspec.to_builtins(first), ResolvedJob)
    second = job("second", inputs=reading(work_hash(first)))
    array = [job("seeds", config={"seed": seed}, options={"array": True}) for seed in range(3)]
    ranks = job("ranks", roles={"main": msgspec.structs.replace(needs(), replicas=3, leader=True)})
    place = folder(tmp_path, job(), big, first, second, ranks, *array)
    assert len(list(place.iterdir())) == 5
    assert lines(place) == []


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.parent.name)
def test_goldens_are_what_their_jobs_render_to(path: Path) -> None:
    assert lint(gather([path]), {}) == []


def test_an_edited_field_of_the_object(tmp_path: Path) -> None:
    assert edited(tmp_path, replaced('memory: "1Gi"', 'memory: "2Gi"')) == [
        "spec.template.spec.containers[0].resources.requests.memory: `2Gi` is more than the limit `1Gi`; "
        "allowed: at most 1Gi",
        "spec.template.spec.containers[0].resources.requests.memory: edited after rendering: `2Gi`, where its job "
        f"gives `1Gi`; {AGAIN}",
    ]


def test_an_added_and_a_removed_field(tmp_path: Path) -> None:
    assert edited(
        tmp_path, replaced("      restartPolicy: Never\n", "      restartPolicy: Never\n      hostname: x\n")
    ) == ["spec.template.spec.hostname: edited after rendering: its job gives no such field; " + AGAIN]
    assert edited(tmp_path, replaced("      enableServiceLinks: false\n", "")) == [
        "spec.template.spec.enableServiceLinks: edited after rendering: is missing; its job gives `false`; " + AGAIN
    ]


def test_an_edited_job(tmp_path: Path) -> None:
    (said,) = edited(tmp_path, replaced('"seed":1', '"seed":2'))
    assert re.fullmatch(
        r"spec\.template\.spec\.containers\[0\]\.env\[\d+\]\.value: the job in it is job-[0-9a-f]{12}, which "
        r"slipway\.dev/runs does not name: it was edited; " + AGAIN,
        said,
    )


def test_an_edited_job_in_a_config_map(tmp_path: Path) -> None:
    said = edited(tmp_path, replaced('"text":"xxx', '"text":"yxx'), job(config={"text": "x" * 100_000}))
    assert len(said) == 1
    assert re.match(r'data\."job-[0-9a-f]{12}\.json": the job in it is job-', said[0])


def test_a_config_map_that_is_gone(tmp_path: Path) -> None:
    big = job(config={"text": "x" * 100_000})
    said = edited(tmp_path, lambda text: text[text.index("---\n") + 4 :], big)
    assert len(said) == 1
    assert re.match(
        r'metadata\.annotations\."slipway\.dev/runs": job-[0-9a-f]{12}: the file does not hold this job; change',
        said[0],
    )


def test_a_job_that_is_none(tmp_path: Path) -> None:
    (said,) = edited(tmp_path, replaced('"seed":1}', '"seed":1'))
    assert "does not hold a job: job.json: " in said


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        (
            "  backoffLimit:",
            "  ttlSecondsAfterFinished: 60\n  backoffLimit:",
            "spec.ttlSecondsAfterFinished: a finished Job that is deleted is created again by Argo CD and Flux, and "
            "runs again; leave it out; `kubectl delete -f` removes a finished Job",
        ),
        (
            "  backoffLimit:",
            "  suspend: true\n  backoffLimit:",
            "spec.suspend: Kueue sets it; from Git it would stop a running job; leave it out",
        ),
        (
            NOTES,
            f"  annotations:\n    argocd.argoproj.io/sync-options: Prune=false, Replace=true\n{NOTES[15:]}",
            f'metadata.annotations."argocd.argoproj.io/sync-options": Replace=true {KILLS}',
        ),
        (
            NOTES,
            f"  annotations:\n    argocd.argoproj.io/hook: Sync\n{NOTES[15:]}",
            'metadata.annotations."argocd.argoproj.io/hook": a hook runs at every sync; leave it out',
        ),
        (
            NOTES,
            f"  annotations:\n    kustomize.toolkit.fluxcd.io/force: enabled\n{NOTES[15:]}",
            f'metadata.annotations."kustomize.toolkit.fluxcd.io/force": force {KILLS}',
        ),
        (
            VARIABLE,
            f"        - name: WANDB_API_KEY\n          value: abc\n{VARIABLE}",
            "spec.template.spec.containers[0].env[11].value: `WANDB_API_KEY` has its value in plain text; "
            "valueFrom.secretKeyRef",
        ),
        (
            VARIABLE,
            f"        - name: LINK\n          value: hf_{'a1' * 12}\n{VARIABLE}",
            "spec.template.spec.containers[0].env[11].value: holds what looks like a secret; take it out, revoke it, "
            "and name it under `secrets:` in the job",
        ),
        (
            "# Job of run",
            f"# hf_{'a1' * 12}\n# Job of run",
            "a comment holds what looks like a secret; remove it and revoke it",
        ),
    ],
    ids=["ttl", "suspend", "replace", "hook", "force", "secret", "token", "comment"],
)
def test_what_a_gitops_controller_or_git_does_not_stand(tmp_path: Path, before: str, after: str, wanted: str) -> None:
    assert wanted in edited(tmp_path, replaced(before, after))


def test_generate_name(tmp_path: Path) -> None:
    said = edited(
        tmp_path, lambda text: re.sub(r"^  name: (\S+)$", r"  generateName: \1-", text, count=1, flags=re.MULTILINE)
    )
    assert (
        "metadata.generateName: `kubectl apply` and GitOps need a fixed name, and a new one would run the same thing "
        "again (house policy fixed-names); allowed: metadata.name"
    ) in said


def test_no_fingerprint(tmp_path: Path) -> None:
    said = edited(tmp_path, lambda text: re.sub(r"    slipway.dev/fingerprint: .*\n", "", text))
    assert len(said) == 1
    assert re.fullmatch(
        r"metadata: Job `job-[0-9a-f]{12}` has no fingerprint \(slipway\.dev/fingerprint\); render it: "
        r"`launcher render JOB --to DIR`",
        said[0],
    )


def test_a_name_without_its_hash(tmp_path: Path) -> None:
    said = edited(tmp_path, lambda text: re.sub(r"^  name: (\S+)$", "  name: mine", text, count=1, flags=re.MULTILINE))
    assert re.match(r"metadata\.name: `mine` does not carry its hash, [0-9a-f]{12}: a changed job would keep", said[0])


def test_another_version_of_the_renderer_may_write_bounds_differently_and_is_a_warning(tmp_path: Path) -> None:
    def older(text: str) -> str:
        text = re.sub(r'slipway.dev/renderer: "?[^"\n]*"?', 'slipway.dev/renderer: "0.0.9"', text)
        return re.sub(r"terminationGracePeriodSeconds: \d+", "terminationGracePeriodSeconds: 31", text)

    (said,) = edited(tmp_path, older)
    assert said == (
        'warning: metadata.annotations."slipway.dev/renderer": rendered by launcher 0.0.9, which this one does not '
        "know; known: 0.1.0, 0.1.0-2; lint it with the launcher that rendered it, or render it again if the run has "
        "not started"
    )


def test_one_run_in_two_files(tmp_path: Path) -> None:
    place = folder(tmp_path, job())
    (file,) = place.iterdir()
    (place / "again").mkdir()
    (place / "again" / "copy.yaml").write_text(file.read_text())
    run = file.stem
    assert [re.sub(r":\d+: ", ": ", line, count=1) for line in lines(place)] == [
        f"{file.name}: metadata.name: Job `{run}` is in again/copy.yaml:2, too; keep one of them",
        f'{file.name}: metadata.annotations."slipway.dev/runs": {run} is in again/copy.yaml:2, too; keep one of them',
    ]


def test_stale_images(tmp_path: Path) -> None:
    one = job()
    place = folder(tmp_path, one)
    (file,) = place.iterdir()
    digest = one.roles["main"].image.digest
    assert lines(place, {"image": f"registry.example.com/team/image@{digest}"}) == []
    assert lines(place, {"image": f"registry.example.com/team/other@{OTHER}"}) == []
    number = next(n for n, line in enumerate(file.read_text().splitlines(), 1) if "image: " in line)
    assert lines(place, {"image": f"registry.example.com/team/image:2@{OTHER}"}) == [
        f"{file.name}:{number}: warning: spec.template.spec.containers[0].image: stale: the catalogue has image as "
        f"{OTHER[:19]}..., this is {digest[:19]}...; "
        "render it again if the run has not started; leave files of finished runs as they are"
    ]


def test_secrets_in_git() -> None:
    text = "apiVersion: v1\nkind: Secret\nmetadata: {name: store}\nstringData: {password: geheim}\n"
    (line,) = lint(ManifestFiles(whole={"s.yaml": text}), {})
    assert str(line) == (
        "s.yaml:4: stringData: a Secret with its values in Git; make it in the cluster, or by a secrets operator"
    )
    assert "geheim" not in str(line)


def test_a_kustomization_that_changes_rendered_jobs(tmp_path: Path) -> None:
    place = folder(tmp_path, job())
    (file,) = place.iterdir()
    (place / "kustomization.yaml").write_text(
        f"resources: [{file.name}]\nnamePrefix: x-\nimages: [{{name: a, newTag: b}}]\nnamespace: ml\n"
    )
    change = "changes objects after their hash was made, so the names no longer match; change the jobs, and render them"
    assert lines(place) == [
        f"kustomization.yaml:2: `namePrefix` {change} again",
        f"kustomization.yaml:3: `images` {change} again",
        "kustomization.yaml:4: warning: `namespace` may change objects after their hash was made; leave it out of a "
        "folder of rendered jobs",
    ]


def test_a_folder_that_only_lists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: [a.yaml]\nnamespace: ml\n")
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n")
    assert lines(tmp_path) == []


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    place = folder(tmp_path, job())
    assert main(["lint", "jobs"]) == 0
    assert capsys.readouterr().err == "1 file: nothing found\n"
    (tmp_path / "slipway.yaml").write_text(f"images: {{image: 'registry.example.com/team/image@{OTHER}'}}\n")
    assert main(["lint", "jobs"]) == 0
    assert main(["lint", "jobs", "--strict"]) == 2
    said = capsys.readouterr()
    assert "warning: spec.template.spec.containers[0].image: stale" in said.out
    assert said.err == "1 file: 1 warning\n1 file: 1 warning\n"
    (file,) = place.iterdir()
    file.write_text(file.read_text().replace("backoffLimit:", "backofLimit:"))
    assert main(["lint", "jobs"]) == 2
    assert f"{file.relative_to(tmp_path)}:" in (out := capsys.readouterr().out)
    assert "spec.backofLimit: unknown field (did you mean `backoffLimit`?)" in out
    assert main(["lint", "nowhere"]) == 3


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_any_change_of_a_value_is_found(data: st.DataObject) -> None:
    """A leaf of a rendered object is replaced: either validation or the comparison says so, on its route."""
    one = job(config={"seed": data.draw(st.integers(0, 3))})
    (text,) = render([one]).documents.values()
    value = yaml.safe_load(text)
    leaves = [route for route, _ in _leaves(value) if route[-1] != "slipway.dev/renderer"]
    route = data.draw(st.sampled_from(leaves))
    node = value
    for key in route[:-1]:
        node = node[key]
    node[route[-1]] = data.draw(st.sampled_from(["other", 7, True, [], {}]).filter(lambda new: new != node[route[-1]]))
    spoiled = ManifestFiles(whole={"a.yaml": yaml.safe_dump(value, sort_keys=False)})
    assert any(line.level == "error" for line in lint(spoiled, {}))


def _leaves(value: object, route: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], object]]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in _leaves(item, (*route, key))]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in _leaves(item, (*route, index))]
    return [(route, value)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=12,
)


@given(JSON, JSON)
def test_differences_are_none_only_between_equals(one: object, two: object) -> None:
    assert differences(one, one) == []
    if differences(one, two) == []:
        assert repr(one) == repr(two) or one == two
