"""Every command of the documents runs as it stands, in order and in one place, as a reader would type it.

A block is left to somebody else only by a comment right above it: `<!-- ci: ... -->` for what .ci/run executes itself,
`<!-- needs: ... -->` for what is not here (a cloud, a cluster, a GPU, an engine). What needs only a cluster or a store
to go on is taken as far as it comes without one: nothing of it may be refused as bad input.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path

import pytest

from launcher.cli import VERBS, main
from launcher.spec.model import Output
from launcher.store.opening import open_store
from tests.support.documented import ROOT, Shown, blocks, in_comments, tracked
from tests.support.fakerun import FakeAttempt, eval_files, fake_job, write_run

MARKDOWN = [str(path.relative_to(ROOT)) for path in tracked("*.md")]
PACKAGES = ("launcher", "eval", "training")
ELSEWHERE = {"docs/howto/containers.md": "tests/integration/docker/test_docs.py"}  # whose own test runs its blocks


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """What a reader has: the files of a clone, with a store and a queue of its own."""
    yield from _clone(tmp_path / "clone")


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same for many tests that start nothing."""
    yield from _clone(tmp_path_factory.mktemp("read") / "clone")


def _clone(folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True)
    names = [path.relative_to(ROOT) for path in tracked(".")]
    # else Python compiles hundreds of modules in each clone
    names += [path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.pyc")]
    subprocess.run(["cp", "-pL", "--parents", "-t", folder, *names], cwd=ROOT, check=True)
    yield folder
    called(("local", "stop", "--runs"), folder)


def environ(folder: Path) -> dict[str, str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), str(ROOT / ".tools/bin"), os.environ["PATH"]))
    home = folder.parent / "home"
    homes = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "XDG_STATE_HOME": str(home / "state")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLIPWAY_", "AWS_", "KUBE"))}
    return {**kept, **homes, "PATH": path, "NO_COLOR": "1", "KUBECONFIG": str(home / "none"), "PYTHONPATH": str(folder)}


def run(command: str, folder: Path, timeout: float = 250.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environ(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def called(words: Sequence[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """`launcher WORDS...` in this process, where it plans or reads: Python's start is most of such a line's time."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        told = environ(folder) | more
        for name in os.environ.keys() - told.keys():
            patch.delenv(name)
        for name, value in told.items():
            patch.setenv(name, value)
        code = main(list(words))
    return subprocess.CompletedProcess(words, code, *(each.buffer.getvalue().decode() for each in (out, err)))


def split(line: str, folder: Path) -> list[str]:
    """The words after `launcher` of a line, as a shell reads them."""
    first, *words = run(f"printf '%s\\0' {line}", folder).stdout.split("\0")[:-1]
    assert first == "launcher"
    return words


def unmarked(name: str) -> list[Shown]:
    return [one for block in blocks(ROOT / name) for one in block if not one.mark]


RUN_HERE = [name for name in MARKDOWN if unmarked(name) and name not in ELSEWHERE]


def test_most_documents_with_commands_are_run() -> None:
    assert {"README.md", "docs/explanation/memory.md", "k8s/README.md"} <= set(RUN_HERE)
    for name, test in ELSEWHERE.items():
        assert unmarked(name)
        assert Path(name).name in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", RUN_HERE)
def test_every_command_runs(name: str, clone: Path) -> None:
    for one in unmarked(name):
        done = run(one.line, clone)
        assert done.returncode == 0, f"{one.place}\n$ {one.line}\n{done.stdout}{done.stderr}"


def test_the_ci_block_is_what_ci_runs() -> None:
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    found = [one for block in blocks(ROOT / "README.md") for one in block if one.mark.startswith("ci")]
    assert [one.line for one in found] == ["make demo", "make test"]
    for one in found:
        assert f"\n{one.line}\n" in script


def submits() -> Iterator[Shown]:
    """What is submitted to something that is not here, in documents and in the examples' own comments."""
    for name in MARKDOWN:
        yield from (one for block in blocks(ROOT / name) for one in block if one.mark.startswith("needs"))
    for path in tracked("examples/*.yaml"):
        yield from in_comments(path)


# not of job.yaml, which the reader writes, nor of what only `launcher cluster up` makes possible (tests/cluster)
FAR = [
    one
    for one in submits()
    if one.words[:2] == ["launcher", "submit"] and not {"job.yaml", "examples/login"} & set(one.words)
]


# what reads the runs that an earlier step of the page takes minutes to make
READ = [one for one in submits() if one.words[:1] == ["launcher"] and one.words[1] in ("results", "compare", "report")]


def test_every_command_that_reads_results_is_found() -> None:
    assert {(one.words[1], one.words[2]) for one in READ} >= {
        ("results", "login-before"),
        ("compare", "login-before"),
        ("report", "login-after"),
        ("results", "agentnet-before"),
    }


@pytest.mark.parametrize("shown", READ, ids=lambda shown: shown.line)
def test_what_reads_results_runs_on_runs_of_these_names(shown: Shown, read_only: Path, tmp_path: Path) -> None:
    """The runs are finished evaluations as a store has them, written without running anything."""
    (tmp_path / "store").mkdir()
    url = (tmp_path / "store").as_uri()
    line = re.sub(r"\bRUN\b", "some-run", shown.line)  # the reader's to fill in
    names = [word for word in Shown("", line).words[2:] if re.fullmatch("[a-z]+[0-9]?(-[a-z]+)+", word)]
    for number, name in enumerate(names):
        job = fake_job(name, outputs={"results": Output(sync="live")}, config={"number": number})
        tasks = eval_files([index % 3 <= number for index in range(12)])
        if "--by program" in line:
            tasks["tasks.jsonl"] = tasks["tasks.jsonl"].replace(b'"outcome"', b'"programs": ["xterm"], "outcome"')
        write_run(open_store(url), job, [FakeAttempt(outputs={"results": tasks})])
    done = called(split(line, read_only), read_only, SLIPWAY_STORE=url)
    assert done.returncode == 0, f"{shown.place}\n$ {line}\n{done.stdout}{done.stderr}"
    assert all(name in done.stdout + done.stderr for name in names) or "--file" in shown.words, done.stdout


KUBERNETES = "docs/howto/kubernetes.md"  # the page has the reader write a slipway.yaml


def profile(page: Path) -> str:
    """The slipway.yaml that a page shows: its first YAML block."""
    shown = re.search(r"```yaml\n(store: .*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None, f"{page} shows no profile"
    return f"{shown[1]}local: {{state: .slipway/local}}\n"


@pytest.mark.parametrize("one", FAR, ids=[one.place for one in FAR])
def test_what_needs_something_else_is_right_as_far_as_it_goes(one: Shown, read_only: Path) -> None:
    """It is planned up to the first word of a cluster, an engine, a bucket (exit code 4), a GPU or a secret that is to
    be set; nothing else of it is refused."""
    line = " ".join(one.line.replace("PATH_OR_URL", "s3://bucket/data").split())
    there = (ROOT / "slipway.yaml").read_text()
    page = ROOT / one.place.partition(":")[0]
    written = "\nbackend: kubernetes\n" in page.read_text()
    (read_only / "slipway.yaml").write_text(profile(ROOT / KUBERNETES) if written else there)
    planned = called(split(f"{line.replace('--follow', '')} --dry-run", read_only), read_only)
    said = planned.stdout + planned.stderr
    lacks = re.compile(r"it needs \d+ GPUs and this machine has 0$|secret \w+: is not set on this machine; `launcher ")
    lines = said.strip().splitlines()
    only_lacks = bool(lines) and all(lacks.search(line) for line in lines)
    assert planned.returncode in (0, 4) or only_lacks, f"{one.place}\n$ {one.line}\n{said}"


def test_the_starter_of_init_runs_by_the_line_that_it_prints(clone: Path) -> None:
    """The day's first two commands: `launcher init`, and what it says next."""
    written = called(("init",), clone)
    assert written.returncode == 0, written.stderr
    following = re.search(r"Next: (launcher submit .*)", written.stdout)
    assert following is not None
    done = run(following[1], clone)
    assert done.returncode == 0, done.stdout + done.stderr
    header = (clone / "job.yaml").read_text().split("\n\n")[0]
    commands = re.findall(r"launcher submit \S+ --follow|`(launcher [^`]+)`", header)
    assert any(commands)
    for line in filter(None, [following[1], *commands, "launcher schema > job.schema.json"]):
        done = run(line.replace("FIELD", "limits.deadline"), clone)
        assert done.returncode == 0, f"$ {line}\n{done.stdout}{done.stderr}"


def test_a_starter_with_an_odd_name_prints_a_line_that_can_be_typed(clone: Path) -> None:
    for name in ("my job.yaml", "it's.yaml", "a;b.yaml", "$HOME.yaml"):
        written = called(("init", name), clone)
        following = re.search(r"Next: (launcher submit .*)", written.stdout)
        assert following is not None, written.stderr
        done = called(split(following[1].replace("--follow", "--dry-run"), clone), clone)
        assert done.returncode == 0, f"$ {following[1]}\n{done.stderr}"
        header = (clone / name).read_text().split("\n")[0]
        shown = header.partition("as it is:")[2].strip().replace("--follow", "--dry-run")
        assert called(split(shown, clone), clone).returncode == 0, shown


def test_every_commented_line_of_the_starter_works_when_it_is_taken_in(clone: Path) -> None:
    called(("init",), clone)
    text = (clone / "job.yaml").read_text()
    taken = [line for line in text.splitlines() if re.match(r"^ *# [a-z]+: ", line) and not line.startswith("# yaml-")]
    assert len(taken) >= 8
    (clone / "data").mkdir()
    for line in taken:
        inside = line.replace("# ", "", 1)
        name = inside.split(":")[0].strip()
        if name in ("image", "model", "base", "budget", "code") and not inside.startswith("  model: {}"):
            continue  # need a registry, another job, prices or a program: said in the line beside them
        changed = text.replace(line, inside)
        if not line.startswith("  "):
            changed = re.sub(rf"^{name}: [^\n]*\n(?=# {name}: )", "", changed, flags=re.MULTILINE)
            if changed.count(f"\n{name}:") > 1:
                continue  # the line beside it says the same field with other values
        (clone / "taken.yaml").write_text(changed)
        done = called(("render", "taken.yaml"), clone)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


# verbs whose examples need what is not here: a GPU, an engine, a cluster, a bucket, two evaluations, a container
NOT_HERE = {"run", "images", "cluster", "exec", "forward", "doctor", "compare", "local", "secrets", "reap", "retry"}
NOT_HERE |= {"queues"}  # its second line stops a queue of Kueue's
NOT_HERE |= {"move"}  # of a run with two backends
NOT_HERE |= {"monitor"}  # it serves until it is ended: tests/integration/monitor
# without channels nobody is told, without a collector nothing is sent: tests/integration/{notices,tracing}
NOT_HERE |= {"notify", "trace"}
STARTING = {"submit", "dev"}  # processes of the queue
LAST = ("cancel", "rm", "gc")  # they take away what the others look at


def examples(verb: str) -> list[str]:
    """The lines of a verb's example; a second column says what each does."""
    text = import_module(VERBS[verb][0]).EXAMPLE
    return [re.split(r"\s{3,}", line.strip())[0] for line in text.split("\n") if line.strip()]


def test_the_examples_of_help_run(clone: Path) -> None:
    """With the name of a run that is there in place of the made-up one, none is refused as bad input."""
    done = run("launcher submit examples/hello --backend local --follow", clone)
    assert done.returncode == 0, done.stderr
    name = run("launcher status -o json", clone).stdout
    found = re.search(r"hello-[0-9a-f]{12}", name)
    assert found is not None, name
    # the first day begins with `init`, whose job.yaml others name
    verbs = ["init", *sorted(set(VERBS) - NOT_HERE - {"init", *LAST}), *LAST]
    tried = 0
    for verb in verbs:
        for line in examples(verb):
            typed = re.sub(r"\b[a-z-]+-[0-9a-f]{12}\b|\bRUN\b|\bGROUP\b", found[0], line).replace("--watch", "")
            elsewhere = ("s3://", "examples/login", "jobs/", "fish", "zsh")
            if any(word in typed for word in elsewhere) or not typed.startswith("launcher"):
                continue
            got = (
                run(typed, clone)
                if set(typed) & set("|<>;&") or verb in STARTING
                else called(split(typed, clone), clone)
            )
            said = f"{verb}: $ {typed}\n{got.stdout}{got.stderr}"
            # 3: the example asks for a rank, an attempt or a neighbour that this run has not; diff: 1 where jobs differ
            assert got.returncode in ((0, 1, 3) if verb == "diff" else (0, 3)), said
            assert "Traceback" not in got.stderr, said
            tried += 1
    assert tried >= 20
