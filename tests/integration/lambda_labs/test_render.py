"""What is rendered for Lambda, and what is refused."""

from __future__ import annotations

import subprocess

import pytest
import yaml

from launcher.backends.lambda_labs import render
from launcher.backends.lambda_labs.script import completed, with_archive
from tests.unit.lambda_labs.test_render import JOBS


@pytest.mark.parametrize("name", sorted(JOBS))
def test_the_script_is_a_shell_script_with_or_without_credentials(name: str) -> None:
    (text,) = render.render([JOBS[name]]).documents.values()
    for machine in yaml.safe_load(text)["machines"]:
        user_data = machine["request"]["user_data"]
        assert with_archive(user_data, "url").count("\nurl\n") == name.startswith("environment")
        for script in (user_data, completed(user_data, '{"AWS_SESSION_TOKEN":"a\'b$(c)"}', "0f" * 16)):
            subprocess.run(["sh", "-n"], input=script, text=True, check=True)
        assert completed(user_data, "other", "-").count("\nother\n") == 1
        assert completed(user_data, "{}", "other").count("\nother\n") == 1
