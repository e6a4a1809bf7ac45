"""A clone with evaluators of its own, in Windows Agent Arena's form: modules of ours, each function a few lines."""

from __future__ import annotations

from pathlib import Path
from typing import Final

CLIENT: Final = "src/win-arena-container/client"

MODULES: Final = {
    "controllers/vm.py": "import no_such_package_that_starts_machines\n",
    "controllers/setup.py": "import no_such_package_that_sets_up\n",
    "controllers/python.py": """
import requests


class PythonController:
    def __init__(self, vm_ip):
        self.http_server = f"http://{vm_ip}:5000"

    def yes(self, route, **given):
        return requests.post(self.http_server + route, json=given).status_code == 200
""",
    "envs/desktop_env.py": """
from desktop_env.controllers.python import PythonController
from desktop_env.controllers.setup import SetupController
from desktop_env.controllers.vm import VMController
from desktop_env.evaluators import getters, metrics


class DesktopEnv:
    def _set_task_info(self, task):
        self.evaluator = task["evaluator"]
        self.cache_dir = f"{self.cache_dir_base}/{task['id']}"
        self.metric = getattr(metrics, self.evaluator["func"])
        self.result_getter = getattr(getters, "get_" + self.evaluator["result"]["type"])

    def evaluate(self):
        self.setup_controller.setup(self.evaluator.get("postconfig", []))
        try:
            state = self.result_getter(self, self.evaluator["result"])
        except Exception:
            return 0
        expected = getters.get_rule(self, self.evaluator["expected"])
        return self.metric(state, expected)
""",
    "evaluators/__init__.py": "",
    "evaluators/getters/__init__.py": "from .all import get_details_view, get_printed, get_rule, get_tabs, get_wrong\n",
    "evaluators/getters/all.py": """
import requests


def get_details_view(env, config):
    return env.controller.yes("/is_details_view", path=config["folder_path"])


def get_printed(env, config):
    asked = {"command": config["command"], "shell": False}
    return requests.post(f"http://{env.vm_ip}:5000/execute", json=asked).json()["output"]


def get_rule(env, config):
    return config["rules"]


def get_wrong(env, config):
    return {}["a key that is not there"]


def get_tabs(env, config):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.connect_over_cdp(f"http://{env.vm_ip}:9222")
        return sorted(page.url for context in browser.contexts for page in context.pages)
""",
    "evaluators/metrics/__init__.py": "from .all import exact_match\n",
    "evaluators/metrics/all.py": """
def exact_match(state, rules):
    return float(state == rules["expected"])
""",
}


def make_clone(folder: Path) -> Path:
    """The clone; its package is where Windows Agent Arena has it."""
    for name, text in MODULES.items():
        path = folder / CLIENT / "desktop_env" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for above in ("", "controllers", "envs"):
        (folder / CLIENT / "desktop_env" / above / "__init__.py").touch()
    return folder
