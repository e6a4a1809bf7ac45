"""The verbs init, schema and render as a shell sees them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

HEAVY = ("kubernetes", "boto3", "botocore", "azure", "pydantic", "torch", "obstore", "numpy", "rich")
PIPELINE = """
name: train
command: [x]
config: {lr: 1e-5}
outputs: [model]
matrix: {config.lr: [1e-5, 3e-5]}
---
name: evaluate
command: [y]
inputs: {model: {job: train, output: model}}
"""


def launcher(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "launcher.cli", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_init_writes_a_job_that_renders_and_overwrites_nothing(home: Path) -> None:
    assert "job.yaml written" in launcher("init").stdout
    schema = json.loads(launcher("schema").stdout)
    jsonschema.validate(yaml.safe_load((home / "job.yaml").read_text()), schema)
    assert "run: job-" in launcher("render", "job.yaml").stdout
    (home / "job.yaml").write_text("mine")
    assert "already exists" in launcher("init", code=5).stderr
    assert (home / "job.yaml").read_text() == "mine"


def test_init_names_the_job_after_its_file(home: Path) -> None:
    launcher("init", "My first Job_2.yaml")
    assert "\nname: my-first-job-2\n" in (home / "My first Job_2.yaml").read_text()
    launcher("init", "b.yaml", "--name", "given")
    assert "\nname: given\n" in (home / "b.yaml").read_text()
    assert "is not a name" in launcher("init", "c.yaml", "--name", "No", code=2).stderr
    assert "No such file" in launcher("init", "nowhere/c.yaml", code=2).stderr


def test_every_commented_field_of_the_starter_is_one(home: Path) -> None:
    launcher("init")
    lines = (home / "job.yaml").read_text().splitlines()
    fields = [line.removeprefix("# ").split(":")[0] for line in lines if line.startswith("# ") and ": " in line]
    schema = json.loads(launcher("schema").stdout)["properties"]
    assert {"image", "env", "secrets", "labels", "code", "matrix"} <= set(fields) & set(schema)


def test_schema_explains_a_field(home: Path) -> None:
    text = launcher("schema", "limits.deadline").stdout
    assert text.startswith("limits.deadline\n  maximum running time")
    assert "inputs.NAME.step" in launcher("schema", "inputs.model.step").stdout
    assert "did you mean `limits.deadline`" in launcher("schema", "limits.dedline", code=2).stderr
    assert "store" in json.loads(launcher("schema", "--of", "profile").stdout)["properties"]


def test_render_prints_every_object_the_same_each_time(home: Path) -> None:
    (home / "job.yaml").write_text(PIPELINE)
    first = launcher("render", "job.yaml").stdout
    assert first == launcher("render", ".").stdout
    documents = list(yaml.safe_load_all(first))
    assert len(documents) == 4
    assert not (home.parent / "home").exists()


def test_render_prints_the_same_bytes_in_any_surroundings(home: Path) -> None:
    (home / "job.yaml").write_text(PIPELINE)
    (home / "slipway.yaml").write_text("store: s3://b/x\nsecrets: {B: y, A: x}\n")
    said = set()
    for seed, zone, locale in (("0", "UTC", "C"), ("1", "Asia/Tokyo", "C.UTF-8"), ("2", "America/Lima", "POSIX")):
        environment = {"PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": locale, "HOME": f"/home/{seed}", "USER": seed}
        command = [sys.executable, "-m", "launcher.cli", "render", "job.yaml"]
        said.add(subprocess.run(command, capture_output=True, check=True, env=environment).stdout)
    assert len(said) == 1


def test_render_touches_no_network_clock_or_chance(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import random
    import socket
    import time

    from launcher.cli import main

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("render is pure")

    (home / "job.yaml").write_text(PIPELINE)
    for module, name in ((socket, "socket"), (time, "time"), (random, "random"), (os, "urandom")):
        monkeypatch.setattr(module, name, refused)
    assert main(["render", "job.yaml"]) == 0


def test_render_leaves_the_file_of_an_unchanged_run(home: Path) -> None:
    (home / "job.yaml").write_text(PIPELINE)
    launcher("render", "job.yaml", "--to", "out")
    files = sorted((home / "out").iterdir())
    assert len(files) == 4
    # what another version of the launcher may have written for the same run
    older = files[0].read_text() + "# written by an older launcher\n"
    files[0].write_text(older)
    again = launcher("render", "job.yaml", "--to", "out").stderr
    assert again.count(": unchanged") == 4
    assert files[0].read_text() == older
    changed = launcher("render", "job.yaml", "--to", "out", "--set", "evaluate:labels.a=b").stderr
    assert (changed.count(": unchanged"), changed.count(": written")) == (2, 2)


def test_the_folder_of_render_was_named_by_o_before(home: Path) -> None:
    """For one minor version it still is."""
    (home / "job.yaml").write_text(PIPELINE)
    assert (
        "launcher render: -o DIR goes away in 0.2: write --to DIR\n"
        in launcher("render", "job.yaml", "-o", "out").stderr
    )
    assert len(list((home / "out").iterdir())) == 4


def test_render_explains(home: Path) -> None:
    (home / "job.yaml").write_text(PIPELINE)
    (home / "slipway.yaml").write_text("store: s3://b/x\n")
    text = launcher("render", "job.yaml", "--explain", "--set", "limits.retries=2").stdout
    assert text.count("FIELD") == 4
    rows = {line.split()[0]: line for line in text.split("\n\n")[0].splitlines()[1:]}
    assert rows["store"].split()[1:] == ['"s3://b/x"', "slipway.yaml:1"]
    assert rows["limits.retries"].endswith("--set limits.retries")
    assert rows["limits.grace"].split()[1:] == ["30.0", "default"]


def test_problems_are_printed_once_and_exit_2(home: Path) -> None:
    (home / "job.yaml").write_text("name: a\ncomand: [x]\n")
    said = launcher("render", "job.yaml", code=2).stderr
    assert said.count("comand") == 1
    assert "job.yaml:2:1: comand: unknown field (did you mean `command`?)" in said
    assert "did you mean `local`" in launcher("render", "job.yaml", "--backend", "locl", code=2).stderr
    assert "no such file or folder" in launcher("render", "nowhere.yaml", code=2).stderr


def test_help_and_render_load_nothing_heavy(home: Path) -> None:
    (home / "job.yaml").write_text(PIPELINE)
    program = (
        "import sys; from launcher.cli import main; main({argv}); "
        "print([m for m in {heavy} if m in sys.modules], file=sys.stderr)"
    )
    for argv in (["--help"], ["render", "job.yaml"], ["render", "job.yaml", "--explain"], ["schema"]):
        script = program.format(argv=argv, heavy=HEAVY)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stderr.strip().splitlines()[-1] == "[]", argv


def test_help_imports_no_verb(home: Path) -> None:
    script = "import sys; from launcher.cli import main; main(['--help'])"
    script += "; print(len(sys.modules), 'argparse' in sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    count, argparse = done.stdout.split()[-2:]
    assert int(count) < 90
    assert argparse == "False"
