"""`launcher render` of Kubernetes jobs, as a user calls it: no cluster, no SDK."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.kubernetes.support import EXAMPLES, GOLDEN, ROOT, STORE

JOB = """\
name: one
image: registry.example.com/team/image@sha256:{digest}
command: [python, -c, pass]
resources: {{memory: 1Gi}}
limits: {{deadline: 1h}}
backend: kubernetes
kubernetes: {{namespace: ml, {block}}}
""".format
HEAVY = (
    "kubernetes",
    "launcher.backends.kubernetes.backend",
    "boto3",
    "azure",
    "pydantic",
    "torch",
    "requests",
    "urllib3",
)
# a finder that stands for a machine without the SDK, then the launcher; what it loaded comes last on stderr
PROGRAM = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "kubernetes":
            raise ModuleNotFoundError("No module named 'kubernetes'", name="kubernetes")
sys.meta_path.insert(0, Missing())
from launcher.cli import main
code = main(sys.argv[1:])
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


def launcher(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "KUBECONFIG": "/nowhere/at/all"}
    command = [sys.executable, "-c", PROGRAM, *arguments, "--store", STORE]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(JOB(digest="0" * 64, block=""))
    return tmp_path


@pytest.mark.parametrize("path", EXAMPLES[:3], ids=lambda path: path.stem)
def test_an_example_renders_without_the_sdk_to_its_golden(tmp_path: Path, path: Path) -> None:
    done = launcher(tmp_path, "render", str(path))
    (golden,) = (GOLDEN / path.stem).iterdir()
    assert done.stdout == golden.read_text(encoding="utf-8")
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_job_of_another_backend_may_be_rendered_for_kubernetes(home: Path) -> None:
    text = (home / "job.yaml").read_text().replace("backend: kubernetes", "backend: local")
    (home / "job.yaml").write_text(text)
    assert "kind: Job" in launcher(home, "render", "job.yaml", "--backend", "kubernetes").stdout


def test_several_objects_are_documents_of_one_stream(home: Path) -> None:
    text = (home / "job.yaml").read_text()
    (home / "job.yaml").write_text(text + "---\n" + text.replace("name: one", "name: two"))
    assert launcher(home, "render", "job.yaml").stdout.count("\n---\n") == 1


def test_the_file_of_an_unchanged_object_stays_as_it_is(home: Path) -> None:
    launcher(home, "render", "job.yaml", "--to", "out")
    (path,) = (home / "out").iterdir()
    older = path.read_text().replace("slipway.dev/renderer", "slipway.dev/old-renderer")
    path.write_text(older)
    assert ": unchanged" in launcher(home, "render", "job.yaml", "--to", "out").stderr
    assert path.read_text() == older
    launcher(home, "render", "job.yaml", "--to", "out", "--set", "limits.deadline=2h")
    assert len(list((home / "out").iterdir())) == 2


def test_the_file_of_a_pipeline_is_its_own_only_with_all_its_runs(home: Path) -> None:
    launcher(home, "render", str(ROOT / "examples/kubernetes/pipeline.yaml"), "--to", "out")
    (path,) = (home / "out").iterdir()
    whole = path.read_text()
    path.write_text(whole.replace("login-model-", "other-model-"))
    again = launcher(home, "render", str(ROOT / "examples/kubernetes/pipeline.yaml"), "--to", "out").stderr
    assert ": written" in again
    assert path.read_text() == whole


def test_a_ttl_is_for_submit_and_not_for_files(home: Path) -> None:
    (home / "job.yaml").write_text(JOB(digest="0" * 64, block="ttl: 1d"))
    assert "ttlSecondsAfterFinished: 86400" in launcher(home, "render", "job.yaml").stdout
    refused = launcher(home, "render", "job.yaml", "--to", "out", code=2).stderr
    assert "one has kubernetes.ttl" in refused
    assert not (home / "out").exists()
    launcher(home, "render", "job.yaml", "--to", "out", "--set", "kubernetes.ttl=null")


def test_names_that_stop_flux_are_not_for_files(home: Path) -> None:
    """Flux takes no commit of a repository that holds prn.yaml, jobs/ or not."""
    (home / "src").mkdir()
    (home / "src/prn.yaml").write_text(JOB(digest="0" * 64, block="queue: slipway"))
    (home / "src/Aux.yml").write_text("team: agents\n")
    assert "kind: Job" in launcher(home, "render", "src").stdout
    refused = launcher(home, "render", "src", "--to", "out", code=2).stderr
    why = "is a device on Windows, so Flux takes no commit that holds this file; allowed: another name"
    assert f"src/Aux.yml: `Aux.yml` {why}\nsrc/prn.yaml: `prn.yaml` {why}\n" in refused
    assert not (home / "out").exists()
    (home / "src/prn.yaml").rename(home / "src/printer.yaml")
    assert f"out/con: `con` {why}\n" in launcher(home, "render", "src/printer.yaml", "--to", "out/con", code=2).stderr
    launcher(home, "render", "src/printer.yaml", "--to", "out")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--set", "limits.deadline=null"), "limits.deadline: is missing"),
        (("--set", "+secrets=[HF_TOKEN]"), "kubernetes: {secrets: {HF_TOKEN: "),
        (("--set", "+kubernetes.queue=Team_A"), "kubernetes.queue"),
        (("--set", "+kubernetes.platform=gce"), "gke, eks, aks, plain"),
        (("--set", "+kubernetes.tolerations=[{effect: Never}]"), "NoSchedule"),
        (("--set", "+kubernetes.spred=x"), "did you mean `spread`"),
        (("--set", "+resources.gpu=H900"), "accelerators"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(home: Path, change: tuple[str, ...], said: str) -> None:
    refused = launcher(home, "render", "job.yaml", *change, code=2).stderr
    assert said in refused
    assert "Traceback" not in refused


def test_warnings_go_to_people_and_not_into_the_stream(home: Path) -> None:
    done = launcher(home, "render", "job.yaml", "--set", "resources.memory=null")
    assert "no resources.memory" in done.stderr
    assert "no resources.memory" not in done.stdout
