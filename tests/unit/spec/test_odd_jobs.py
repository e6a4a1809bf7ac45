"""Jobs that nobody should write: each is refused in words, with its place, and none ends in a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.errors import BadInput
from launcher.spec.profile import load_profile
from launcher.spec.read import load as loading
from launcher.spec.read import matrix
from launcher.spec.read.load import load
from tests.unit.spec.support import group, loaded

JOB = "name: a\ncommand: [x]\n"
NINES = "9" * 400


def refusal(text: str, folder: Path, *overrides: str) -> str:
    with pytest.raises(BadInput) as caught:
        group(text, folder, overrides)
    return str(caught.value)


@pytest.mark.parametrize("outputs", ["1", "true", "1.5", "[1]", "[[m]]", "m", "{m: 1}", "{1: {}}"])
def test_outputs_of_a_wrong_form_are_told_where_they_stand_and_nowhere_else(outputs: str, tmp_path: Path) -> None:
    """Whoever refers to them says nothing, or that the output is not there."""
    text = f"""
name: up
command: [x, $SLIPWAY_OUTPUTS/m]
outputs: {outputs}
---
name: down
command: [y]
inputs: {{i: {{job: up, output: m}}}}
"""
    said = refusal(text, tmp_path).splitlines()
    assert said[-1].startswith("job.yaml:4:") or len(said) == 3, said
    assert any(line.startswith("job.yaml:4:") and "outputs" in line for line in said)


@pytest.mark.parametrize("inputs", ["1", "true", "[1]", "[{}]", "x", "{1: x}"])
def test_inputs_of_a_wrong_form_are_told(inputs: str, tmp_path: Path) -> None:
    text = f"name: a\ncommand: [x, $SLIPWAY_INPUTS/m]\ninputs: {inputs}\n"
    assert any(line.startswith("job.yaml:3:") for line in refusal(text, tmp_path).splitlines())


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("resources.memory", f"resources: {{memory: {NINES}Gi}}"),
        ("resources.cpus", f'resources: {{cpus: "{NINES}"}}'),
        ("limits.deadline", f"limits: {{deadline: {NINES}s}}"),
        ("limits.deadline", "limits: {deadline: 99999999d}"),
        ("limits.budget", f'limits: {{budget: "{NINES} USD"}}'),
        ("timing.stale", f"timing: {{stale: {NINES}d}}"),
        ("resources.memory", "resources: {memory: 9007199254740993Gi}"),
    ],
)
def test_quantities_beyond_all_bounds_are_told(field: str, text: str, tmp_path: Path) -> None:
    said = refusal(f"{JOB}{text}\n", tmp_path)
    assert said.startswith("job.yaml:3:"), said
    assert f": {field}: " in said
    assert len(said) < 400


def test_a_path_that_no_system_takes_is_told(tmp_path: Path) -> None:
    for path in ("x" * 300, "a/" * 3000, "x\0y", "", "file.yaml/x"):
        (tmp_path / "file.yaml").write_text(JOB)
        with pytest.raises(BadInput) as caught:
            load([path], cwd=tmp_path)
        assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(BadInput, match="empty"):
        load([""], cwd=tmp_path)


@pytest.mark.parametrize(
    "override",
    [
        f"command.{'9' * 5000}=x",
        f"command[{'9' * 5000}]=x",
        f"config.a.{'9' * 5000}=x",
        f"command[{'9' * 18}]=x",
        f"limits.deadline={'9' * 5000}s",
        f"{'x' * 100_000}=1",
        f"config.{'y' * 100_000}=1",
        f"{'j' * 100_000}:config.a=1",
    ],
)
def test_set_with_numbers_and_words_without_end_is_told(override: str, tmp_path: Path) -> None:
    said = refusal(f"{JOB}config: {{a: [1]}}\n", tmp_path, override)
    assert "--set" in said
    assert len(said) < 1000


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("command[1]", 'command: [x, "a\\0b"]'),
        ("env.A", 'command: [x]\nenv: {A: "a\\0b"}'),
        ("config.deep[0]", 'command: [x]\nconfig: {deep: ["a\\0b"]}'),
        ("config", 'command: [x]\nconfig: {"a\\0b": 1}'),
        ("labels.l", 'command: [x]\nlabels: {l: "a\\0b"}'),
        ("image", 'command: [x]\nimage: "a\\0b"'),
        ("inputs.i", 'command: [x]\ninputs: {i: "s3://b/a\\0b"}'),
        ("outputs.c.match", 'command: [x]\noutputs: {c: {kind: checkpoints, match: "a\\0"}}'),
        ("roles.r.command[0]", 'roles: {r: {command: ["a\\0b"]}}'),
        ("roles.r.env.A", 'roles: {r: {command: [x], env: {A: "\\0"}}}'),
        ('matrix."env.A"[0]', 'command: [x]\nmatrix: {env.A: ["\\0"]}'),
        ("code", 'command: [x]\ncode: "a\\0"'),
    ],
)
def test_a_nul_is_refused_wherever_a_program_or_a_file_would_get_it(field: str, text: str, tmp_path: Path) -> None:
    said = refusal(f"name: a\n{text}\n", tmp_path)
    assert any(f": {field}" in line and "NUL" in line for line in said.splitlines()), said
    assert "\0" not in said


def test_a_nul_in_set_and_profile_is_refused(tmp_path: Path) -> None:
    assert "NUL" in refusal(f"{JOB}env: {{A: b}}\n", tmp_path, 'env.A="a\\0b"')
    (tmp_path / "slipway.yaml").write_text('labels: {a: "x\\0"}\nstore: "a\\0b"\n')
    with pytest.raises(BadInput, match="NUL"):
        load_profile(tmp_path, None, {"HOME": str(tmp_path)})


def test_a_misspelt_axis_is_refused_as_set_refuses_it(tmp_path: Path) -> None:
    text = f"{JOB}config: {{lr: 1, model: {{path: x}}}}\noutputs: [o]\n"
    said = refusal(f"{text}matrix: {{config.rl: [1, 2]}}\n", tmp_path)
    assert said.startswith('job.yaml:5:10: matrix."config.rl": unknown path')
    assert "did you mean `lr`" in refusal(f"{text}matrix: {{config.lrr: [1, 2]}}\n", tmp_path)
    assert "did you mean `path`" in refusal(f"{text}matrix: {{config.model.pth: [1, 2]}}\n", tmp_path)
    assert "unknown path" in refusal(f"{JOB}outputs: {{o: {{}}}}\nmatrix: {{outputs.p.kind: [files]}}\n", tmp_path)
    added = group(f"{text}matrix: {{+config.seed: [1, 2]}}\n", tmp_path)
    assert [run.config["seed"] for run in added.runs if run.config] == [1, 2]
    assert set(added.names.values()) == {"a[seed=1]", "a[seed=2]"}
    twice = refusal(f"{text}matrix: {{+config.lr: [1, 2], config.lr: [1, 2]}}\n", tmp_path)
    assert "another path of the matrix" in twice


class Counted(dict[object, object]):
    """A mapping that counts how many of its keys were gone through."""

    steps = 0

    def __iter__(self) -> Iterator[object]:
        for key in super().__iter__():
            type(self).steps += 1
            yield key

    def keys(self) -> Iterator[object]:  # type: ignore[override]
        return iter(self)

    def items(self) -> Iterator[tuple[object, object]]:  # type: ignore[override]
        return ((key, self[key]) for key in self)


def test_a_matrix_with_too_many_values_is_told_before_they_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50,000 values took over a minute: each was compared with all before it."""
    monkeypatch.setattr(matrix, "_repeated", None)  # what compares them; nobody may call it
    values = ", ".join(map(str, range(50_000)))
    said = refusal(f"{JOB}config: {{a: 0}}\nmatrix: {{config.a: [{values}]}}\n", tmp_path)
    assert "50,000 combinations are too many; allowed: at most 10,000" in said


def test_the_work_for_a_matrix_grows_with_its_values_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is gone through for each variant does not depend on how many others there are."""

    def steps(count: int) -> int:
        Counted.steps = 0
        values = ", ".join(map(str, range(count)))
        text = f"{JOB}env: {{A: z}}\nmatrix: {{env.A: [{values}]}}\n"
        assert len(group(text, tmp_path).runs) == count
        return Counted.steps

    read = loading.read_file

    def counted(*given: object) -> object:
        documents = read(*given)  # type: ignore[arg-type]
        for document in documents:
            document.places = Counted(document.places)  # type: ignore[assignment]
        return documents

    monkeypatch.setattr(loading, "read_file", counted)
    few, many = steps(20), steps(200)
    assert few > 0
    assert many <= 20 * few


def test_a_consumer_of_two_wide_matrices_is_bounded(tmp_path: Path) -> None:
    """200 variants of one and 200 of another would be 40,000 consumers."""
    values = ", ".join(map(str, range(200)))
    one = "name: {}\ncommand: [x]\nconfig: {{a: 0}}\noutputs: [o]\nmatrix: {{config.a: [{}]}}\n"
    text = one.format("p", values) + "---\n" + one.format("q", values)
    text += "---\nname: both\ncommand: [x]\ninputs: {p: {job: p, output: o}, q: {job: q, output: o}}\n"
    said = refusal(text, tmp_path)
    assert "both" in said or "inputs" in said
    assert "at most 10,000" in said


def test_equal_numbers_of_two_kinds_are_two_values(tmp_path: Path) -> None:
    """`1` and `1.0` are two variants, and a consumer joins each with its own."""
    text = """
name: p
command: [x]
config: {a: 0}
outputs: [o]
matrix: {config.a: [1, 1.0, true, "1"]}
---
name: q
command: [y]
inputs: {i: {job: p, output: o}}
outputs: [o]
---
name: r
command: [z]
inputs: {i: {job: p, output: o}, j: {job: q, output: o}}
"""
    made = group(text, tmp_path)
    assert sum(run.name == "r" for run in made.runs) == 4


def test_a_list_of_unknown_names_is_told_without_comparing_texts_without_end(tmp_path: Path) -> None:
    said = refusal(f"name: a\ncommand: [x]\n? {'k' * 200_000}\n: 1\n", tmp_path)
    assert "unknown field" in said
    assert len(said) < 2000


def test_the_loaded_form_of_a_nul_free_job_is_unchanged(tmp_path: Path) -> None:
    assert loaded(JOB, tmp_path).jobs[0].variants[0].values == {"name": "a", "command": ["x"]}
