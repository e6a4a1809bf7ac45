"""Solutions on a stage without a desktop."""

from __future__ import annotations

from urllib.parse import urlencode

from eval.accessibility.tree import Tree, TreeNode
from eval.benchmarks.linux_desktop import solutions
from eval.benchmarks.linux_desktop.template import Instance
from eval.benchmarks.linux_desktop.templates import galculator, together_numbers
from eval.benchmarks.linux_desktop.webapps.serving import answer
from tests.support.folder_stage import FolderStage


def post(stage: FolderStage, where: str, **fields: object) -> None:
    """Sends a form to the web application; lists give a field several times."""
    assert stage.app
    reply = answer(stage.app, "POST", where, urlencode(fields, doseq=True).encode())
    assert reply.status in (200, 303), where


def post_all(stage: FolderStage, task: Instance) -> None:
    """Sends the forms of a solution."""
    for where, fields in solutions.posts(task):
        post(stage, where, **fields)


def shows(number: object) -> Tree:
    """What a calculator with this number in its display tells."""
    node = TreeNode(role="text", name="", text=str(number), states=("showing",), bounds=(0, 0, 10, 10))
    return Tree(screen=(1280, 720), applications=[TreeNode(role="application", name="galculator", children=[node])])


async def solve(task: Instance, stage: FolderStage) -> None:
    """Leaves the state of a solution."""
    if isinstance(task, galculator.Compute | together_numbers.AddPictures):
        stage.screen = shows(task.result if isinstance(task, galculator.Compute) else sum(task.numbers))
    for path, content in solutions.files(task).items():
        await stage.write_file(path, content)
    for path in task.removed():
        (stage.home / path).unlink()
    for path in solutions.folders(task):
        (stage.home / path).mkdir(mode=0o755)
    for path, mode in solutions.modes(task).items():
        (stage.home / path).chmod(mode)
    post_all(stage, task)
