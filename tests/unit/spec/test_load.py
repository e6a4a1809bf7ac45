"""Files, folders, --set and matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher.errors import BadInput
from launcher.spec.read.load import load
from launcher.spec.read.override import parse_route
from tests.unit.spec.support import loaded

PIPELINE = """
name: train
command: [x]
config: {epochs: 2, model: {path: m}, steps: [1, 2]}
outputs: [model]
---
name: evaluate
command: [y]
config: {episodes: 100}
inputs: {model: {job: train, output: model}}
"""


def values(text: str, folder: Path, *overrides: str) -> dict[str, Any]:
    """The checked values of the last job."""
    return dict(loaded(text, folder, overrides).jobs[-1].variants[0].values)


def test_a_folder_holds_the_jobs_at_its_top(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("name: b\ncommand: [x]\ninputs: {m: {job: a, output: r}}\n")
    (tmp_path / "a.yml").write_text("name: a\ncommand: [x]\noutputs: [r]\n")
    (tmp_path / "sft.yaml").write_text("model: {path: x}\nepochs: 1\n")
    (tmp_path / "slipway.yaml").write_text("store: s3://b/c\n")
    (tmp_path / "kustomization.yaml").write_text("apiVersion: x/v1\nresources: [a.yml]\nlabels: []\n")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "c.yaml").write_text("name: c\ncommand: [x]\n")
    jobs = load([str(tmp_path)], cwd=Path("/")).jobs
    assert [job.name for job in jobs] == ["a", "b"]
    # given twice, and once more by its file, a folder still holds two
    assert len(load([".", str(tmp_path), "a.yml"], cwd=tmp_path).jobs) == 2


def test_a_misspelled_job_in_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: a\ncomand: [x]\noutputs: [r]\n")
    with pytest.raises(BadInput, match="did you mean `command`"):
        load(["."], cwd=tmp_path)


@pytest.mark.parametrize("paths", [["."], []])
def test_no_job_is_an_error(tmp_path: Path, paths: list[str]) -> None:
    with pytest.raises(BadInput, match="no job in"):
        load(paths, cwd=tmp_path)


def test_files_that_are_not_there_are_told_together(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        load(["x.yaml", "y.yaml"], cwd=tmp_path)
    assert str(caught.value) == "x.yaml: no such file or folder\ny.yaml: no such file or folder"


def test_a_file_that_can_not_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").symlink_to(tmp_path / "x.yaml")
    with pytest.raises(BadInput, match=r"x.yaml: no such file or folder"):
        load(["x.yaml"], cwd=tmp_path)


def test_jobs_come_after_what_they_need(tmp_path: Path) -> None:
    first, second = PIPELINE.split("---")
    assert [job.name for job in loaded(f"{second}\n---{first}", tmp_path).jobs] == ["train", "evaluate"]


def test_texts_are_taken_as_written_where_programs_read_texts(tmp_path: Path) -> None:
    got = values("name: a\ncommand: [x, 1e-5, 0777, 1.50]\nenv: {A: 0x1F, B: 1e3}\nlabels: {v: 1.0}\n", tmp_path)
    assert got["command"] == ["x", "1e-5", "0777", "1.50"]
    assert got["env"] == {"A": "0x1F", "B": "1e3"}
    assert got["labels"] == {"v": "1.0"}


def test_quantities(tmp_path: Path) -> None:
    got = values("name: a\ncommand: [x]\nresources: {memory: 1.5Gi, disk: 2T}\nlimits: {deadline: 1h30m}\n", tmp_path)
    assert got["resources"] == {"memory": 3 << 29, "disk": 2 * 10**12}
    assert got["limits"] == {"deadline": 5400.0}


def test_local_paths_become_urls_of_the_files_folder(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    text = "name: a\ncommand: [x]\ninputs: {a: ./d, b: ../e, c: /f, d: 'file://g', e: {url: h}, f: s3://b/i}\n"
    (tmp_path / "jobs" / "a.yaml").write_text(text)
    inputs = load(["jobs/a.yaml"], cwd=tmp_path).jobs[0].variants[0].values["inputs"]
    assert {name: item["url"] for name, item in inputs.items()} == {
        "a": f"file://{tmp_path}/jobs/d",
        "b": f"file://{tmp_path}/e",
        "c": "file:///f",
        "d": f"file://{tmp_path}/jobs/g",
        "e": f"file://{tmp_path}/jobs/h",
        "f": "s3://b/i",
    }


@pytest.mark.parametrize(
    ("text", "route"),
    [
        ("a", ("a",)),
        ("a.b.c", ("a", "b", "c")),
        ("a[0].b", ("a", 0, "b")),
        ("a.0", ("a", "0")),
        ('labels."x.y"', ("labels", "x.y")),
        ("matrix.config.lr", ("matrix", "config.lr")),
        ("", None),
        ("a.", None),
        ("a..b", None),
        (".a", None),
        ("a[x]", None),
    ],
)
def test_routes(text: str, route: object) -> None:
    assert parse_route(text) == route


def test_set_changes_every_job_that_has_the_path(tmp_path: Path) -> None:
    overrides = [
        "config.epochs=3",
        "limits.deadline=2h",
        "evaluate:labels.team=x",
        "train:config.model={path: n, a: on}",
    ]
    train, evaluate = (job.variants[0].values for job in loaded(PIPELINE, tmp_path, overrides).jobs)
    assert train["config"] == {"epochs": 3, "model": {"path": "n", "a": "on"}, "steps": [1, 2]}
    assert evaluate["config"] == {"episodes": 100}
    assert train["limits"] == evaluate["limits"] == {"deadline": 7200.0}
    assert "labels" not in train
    assert evaluate["labels"] == {"team": "x"}


@pytest.mark.parametrize(
    ("override", "config"),
    [
        ("config.a=1e-5", {"a": 1e-5, "l": [1, {"b": 2}]}),
        ("config.a=0777", {"a": 777, "l": [1, {"b": 2}]}),
        ("config.a='1'", {"a": "1", "l": [1, {"b": 2}]}),
        ("config.a=on", {"a": "on", "l": [1, {"b": 2}]}),
        ("config.a=x=y", {"a": "x=y", "l": [1, {"b": 2}]}),
        ("config.a=", {"a": None, "l": [1, {"b": 2}]}),
        ("config.a=[1, {x: y}]", {"a": [1, {"x": "y"}], "l": [1, {"b": 2}]}),
        ("config.l.0=9", {"a": 0, "l": [9, {"b": 2}]}),
        ("config.l[1].b=9", {"a": 0, "l": [1, {"b": 9}]}),
        ("+config.new.deep=9", {"a": 0, "l": [1, {"b": 2}], "new": {"deep": 9}}),
    ],
)
def test_set_values_are_yaml(tmp_path: Path, override: str, config: object) -> None:
    assert values("name: a\ncommand: [x]\nconfig: {a: 0, l: [1, {b: 2}]}\n", tmp_path, override)["config"] == config


def test_set_null_removes_a_field(tmp_path: Path) -> None:
    assert "limits" not in values("name: a\ncommand: [x]\nlimits: {retries: 1}\n", tmp_path, "limits=null")
    got = values("name: a\ncommand: [x]\nlimits: {retries: 1, grace: 5s}\n", tmp_path, "limits.retries=")
    assert got["limits"] == {"grace": 5.0}


def test_set_mends_what_is_wrong_in_the_file(tmp_path: Path) -> None:
    assert values("name: a\ncommand: [x]\nresources: {gpus: many}\n", tmp_path, "resources.gpus=2")["resources"] == {
        "gpus": 2
    }


def test_set_keeps_numbers_as_written(tmp_path: Path) -> None:
    got = values("name: a\ncommand: [x, y]\nenv: {A: 1}\n", tmp_path, "env.A=007", "command.1=1e-3")
    assert (got["env"], got["command"]) == ({"A": "007"}, ["x", "1e-3"])


def test_a_matrix_is_the_product_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "name: a\ncommand: [x]\nconfig: {seed: 9, keep: k, lr: 1}\n"
    text += "matrix: {config.lr: [1e-5, 3e-5], config.seed: [0, 1]}\n"
    variants = loaded(text, tmp_path).jobs[0].variants
    assert [variant.values["config"] for variant in variants] == [
        {"seed": seed, "keep": "k", "lr": lr} for lr in (1e-5, 3e-5) for seed in (0, 1)
    ]
    assert variants[1].chosen == {"config.lr": 1e-5, "config.seed": 1}


def test_a_matrix_varies_typed_fields_lists_and_mappings(tmp_path: Path) -> None:
    text = """
name: a
command: [x, old]
resources: {memory: 1Gi}
env: {A: 1}
matrix:
  resources.memory: [1Gi, 2Gi]
  "command[1]": [0777]
  env.A: [007]
  config.model: [{path: x, layers: [1, 2]}]
"""
    variants = loaded(text, tmp_path).jobs[0].variants
    assert [variant.values["resources"]["memory"] for variant in variants] == [1 << 30, 2 << 30]
    assert variants[0].values["command"] == ["x", "0777"]
    assert variants[0].values["env"] == {"A": "007"}
    assert variants[0].values["config"] == {"model": {"path": "x", "layers": [1, 2]}}


def test_set_reaches_the_matrix(tmp_path: Path) -> None:
    text = "name: a\ncommand: [x]\nmatrix: {config.lr: [1, 2], config.seed: [0, 1]}\n"
    job = loaded(text, tmp_path, ["matrix.config.lr=[5]", "a:matrix.config.seed=[7, 8]"]).jobs[0]
    assert [variant.chosen for variant in job.variants] == [{"config.lr": 5, "config.seed": seed} for seed in (7, 8)]
    assert loaded(text, tmp_path, ["matrix=null"]).jobs[0].variants[0].chosen == {}
    with pytest.raises(BadInput, match=r"did you mean `config.lr`"):
        loaded(text, tmp_path, ["matrix.config.lt=[5]"])


def test_a_comment_or_another_order_changes_nothing(tmp_path: Path) -> None:
    one = values("name: a\ncommand: [x]\nconfig: {a: 1, b: 2}\n", tmp_path)
    other = values("# why\nconfig:\n  b: 2   # two\n  a: 1\ncommand:\n- x\nname: 'a'\n", tmp_path)
    assert one == other


def test_problems_of_all_files_come_together_and_in_order(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: a\ncommand: [x]\nfoo: 1\n---\nname: A\ncommand: []\n")
    (tmp_path / "b.yaml").write_text("name: b\ncommand: [x\n")
    with pytest.raises(BadInput) as caught:
        load(["b.yaml", "a.yaml"], cwd=tmp_path)
    places = [(problem.file, problem.line, problem.col) for problem in caught.value.problems]
    assert places == [("a.yaml", 3, 1), ("a.yaml", 5, 7), ("a.yaml", 6, 10), ("b.yaml", 3, 1)]


def test_one_mistake_is_told_once(tmp_path: Path) -> None:
    """A mistake in one job must not look like others in the jobs that refer to it."""
    text = """
name: train
command: [x, $SLIPWAY_INPUTS/d, $SLIPWAY_OUTPUTS/model]
inputs: {d: 3}
outputs: {model: {sync: never}}
matrix: {config.seed: []}
---
name: evaluate
command: [y]
inputs: {m: {job: train, output: model, all: true}}
"""
    with pytest.raises(BadInput) as caught:
        loaded(text, tmp_path)
    assert [problem.field for problem in caught.value.problems] == [
        "inputs.d",
        "outputs.model.sync",
        'matrix."config.seed"',
    ]


def test_a_job_before_a_dot_is_answered_with_the_right_spelling(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"is a job; write `--set train:config\.epochs=3`"):
        loaded(PIPELINE, tmp_path, ["train.config.epochs=3"])
    with pytest.raises(BadInput, match=r"begins with a field of the job: write `--set config\.epochs=3`"):
        loaded(PIPELINE, tmp_path, ["job.config.epochs=3"])
    (tmp_path / "one").mkdir()
    assert loaded(PIPELINE, tmp_path / "one", ["train:config.epochs=3"])
