"""What a project promises beside its code: licence, version, types, hooks, hosted CI, the documents' site."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.version import __version__
from tests.support.documented import ROOT, tracked
from tools.docs_site import without_outside_links
from tools.words import GOALS, read_until

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# fetched or hosted: they do not run on files
NOT_A_HOOK = ("launcher images check", "launcher validate", "launcher lint", "hadolint", "cd images")


@pytest.mark.parametrize(
    ("extra", "image"), [("unsloth", "unsloth-sft"), ("vllm", "trl-grpo"), ("desktop", "linux-desktop")]
)
def test_an_extra_is_what_its_image_installs(extra: str, image: str) -> None:
    """With the extra `agents`, for the evaluations that run in it."""
    folder = ROOT / "images" / image
    lines = [line.partition("#")[0].strip() for line in (folder / "requirements.in").read_text().splitlines()]
    extras = PROJECT["project"]["optional-dependencies"]
    asked = {*extras[extra], *extras["agents"], *PROJECT["project"]["dependencies"]}
    assert asked == {line for line in lines if line}
    locked = (folder / "requirements.lock").read_text()
    for pin in (line for line in asked if "==" in line):
        assert f"\n{pin} " in locked, pin


def test_the_changelog_begins_with_what_is_not_released() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", heading) for heading in headings[1:])


def test_the_hooks_run_what_make_check_runs() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert [repository["repo"] for repository in hooks] == ["local"]
    entries = [hook["entry"] for hook in hooks[0]["hooks"]]
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert recipe is not None
    checks = [line.strip().replace("$(BIN)/", ".venv/bin/") for line in recipe[1].splitlines()]
    for check in checks:
        program = " ".join(check.split()[:2]).removesuffix(" .")
        if not any(word in check for word in NOT_A_HOOK):
            assert any(entry.startswith(program) for entry in entries), check
    assert "make check" in entries  # before a push: what is too slow for a commit


def test_the_top_level_holds_what_the_project_is_made_of() -> None:
    """A program that is run in a clone leaves its output there: a checkpoint was committed that way."""
    folders = {path.relative_to(ROOT).parts[0] for path in tracked(".") if path.parent != ROOT}
    fixed = {"images", "k8s", "launcher", "training", "eval", "tests"}
    assert folders == fixed | {".ci", ".github", "deploy", "docs", "examples", "tools"}


def workflow(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows" / name).read_text(encoding="utf-8"))
    return read


def commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def test_hosted_ci_only_calls_the_script_and_what_make_has() -> None:
    jobs = workflow("ci.yaml")["jobs"]
    (command,) = commands(jobs["ci"])
    assert command.partition("#")[0].strip().endswith(".ci/run")
    assert commands(jobs["pythons"]) == ["make quick"]


def test_every_python_that_is_promised_is_in_ci() -> None:
    jobs = workflow("ci.yaml")["jobs"]
    (setup,) = (step for step in jobs["ci"]["steps"] if "setup-python" in step.get("uses", ""))
    tried = [setup["with"]["python-version"], *jobs["pythons"]["strategy"]["matrix"]["python"]]
    assert tried == ["3.11", "3.12", "3.13"]
    assert PROJECT["project"]["requires-python"] == f">={tried[0]}"


WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yaml"))
READS = {"contents": "read"}
RIGHTS = {  # of a job that does more than read
    "release.yaml wheel": {"id-token": "write"},
    "release.yaml catalogue": {"contents": "read", "id-token": "write"},
    "release.yaml provenance": {"id-token": "write", "attestations": "write"},
    "release.yaml documents": {"contents": "read", "pages": "write", "id-token": "write"},
    "release.yaml page": {"contents": "write", "id-token": "write", "attestations": "write"},
}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_pins_its_actions_and_has_the_least_rights(path: Path) -> None:
    """`make lint-workflows` looks at more: actionlint and zizmor."""
    text = path.read_text(encoding="utf-8")
    used = re.findall(r"uses: (.*)", text)
    assert used
    for action in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action
    assert workflow(path.name)["permissions"] == {}
    for name, job in workflow(path.name)["jobs"].items():
        assert job["permissions"] == RIGHTS.get(f"{path.name} {name}", READS)
        assert job["timeout-minutes"] <= 180
        for step in job["steps"]:
            assert "checkout" not in step.get("uses", "") or step["with"]["persist-credentials"] is False


def test_a_release_makes_the_images_of_the_tag_then_their_catalogue_then_the_wheel() -> None:
    release = workflow("release.yaml")
    assert list(release[True]["push"]) == ["tags"]  # YAML 1.1 reads the key `on` so
    jobs = release["jobs"]
    assert jobs["catalogue"]["needs"] == "images"
    assert any("-m tools.release_images" in command for command in commands(jobs["catalogue"]))
    assert jobs["files"]["needs"] == "catalogue"
    assert commands(jobs["files"]) == [
        'make release VERSION="${GITHUB_REF_NAME#v}" OF_TAG=1 CATALOGUE="build/${GITHUB_REF_NAME#v}.yaml"'
    ]
    assert set(jobs["wheel"]["needs"]) == {"files", "provenance"}
    assert "wheel" in jobs["page"]["needs"]
    assert jobs["documents"]["needs"] == "page"
    # a registry's name is one variable, of the repository
    assert "${{ vars.REGISTRY }}" in str(jobs["images"])
    assert not any("password" in str(step).lower() for step in jobs["wheel"]["steps"])


def test_the_actions_are_kept_up_to_date() -> None:
    (update,) = yaml.safe_load((ROOT / ".github/dependabot.yaml").read_text(encoding="utf-8"))["updates"]
    assert update["package-ecosystem"] == "github-actions"


def test_the_audit_is_each_night_and_runs_what_anybody_can() -> None:
    audit = workflow("audit.yaml")
    assert audit[True]["schedule"]
    (job,) = audit["jobs"].values()
    assert commands(job) == ["make audit"]


def test_security_names_the_version_that_gets_fixes_and_agrees_with_the_page_of_images() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert f"| the newest release, {'.'.join(__version__.split('.')[:2])} | yes |" in text
    for page in (text, (ROOT / "docs/howto/images.md").read_text(encoding="utf-8")):
        assert "setuid or setgid" in page
        assert "user 1000" in page
    assert len(text.splitlines()) < 80  # one page


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see [the tree](../../k8s/README.md)", "see the tree (`k8s/README.md`)"),
        ("[k8s/](../../k8s) and", "`k8s` and"),
        ("[job](../reference/job.md#x)", "[job](../reference/job.md#x)"),
        ("[web](https://example.com/a)", "[web](https://example.com/a)"),
        ("![picture](../images/report.png)", "![picture](../images/report.png)"),
        ("```\n[k8s](../../k8s)\n```\n", "```\n[k8s](../../k8s)\n```\n"),
    ],
)
def test_the_site_has_no_link_out_of_docs(text: str, expected: str) -> None:
    assert without_outside_links(text, "howto/page.md") == expected


INSTALL = re.compile(r"(?:pip3?|pipx|uv pip|uv tool)\s+(?:install|run)\b[^`\n]*?\bslipway(?:-cua)?\b(?!_cua-)[^`\n]*")


def by_name_alone(text: str) -> list[str]:
    """The commands that take Slipway from an index by its name."""
    return [found[0] for found in INSTALL.finditer(text) if not re.search(r"slipway-cua(\[[\w,-]+\])? @ ", found[0])]


def test_no_document_installs_slipway_by_its_name_alone() -> None:
    """Nobody has published it: whoever registers the name would own the line."""
    wrong = {}
    for path in tracked("*.md", "*.yaml", "*.yml", "*.py", "*.sh", "*Dockerfile", ".ci/run"):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith("tests/") and (found := by_name_alone(path.read_text(encoding="utf-8"))):
            wrong[name] = found
    assert not wrong


def test_the_search_finds_a_bare_name() -> None:
    for line in ("pip install 'slipway-cua[monitor,postgres]'", "pip install slipway", "uv tool install slipway-cua"):
        assert by_name_alone(f"`{line}` installs it") == [line]
    for line in ('pip install "slipway-cua[train] @ git+ADDRESS"', "pip install tools/slipway_cua-*.whl"):
        assert not by_name_alone(line)


def test_a_newcomer_reads_few_words_before_the_first_job_and_the_first_number() -> None:
    """The counts are an upper limit, and the goals stand in the README in the order in which they are reached."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    counted = [read_until(text, goal.until) for goal in GOALS]
    assert counted == sorted(counted)
    assert all(words <= goal.at_most for words, goal in zip(counted, GOALS, strict=True)), counted
    shown = "# A [page](to/a.md)\n<!-- not read -->\n![picture](x.png)\n```sh\nmake demo     # 5 min\nlast\n"
    assert read_until(shown, "make demo") == 8
