"""Which distributions are a part of what a local run is, and which are only tools."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import yaml

from launcher.spec.code.distributions import Distribution, installed, left_out, plain_name

ROOT = Path(__file__).resolve().parents[3]


def add(site: Path, name: str, version: str = "1.0", needs: tuple[str, ...] = (), **origin: object) -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = "".join(f"Requires-Dist: {line}\n" for line in needs)
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\n{lines}\nRequires-Dist: of-the-text\n")
    if origin:
        (info / "direct_url.json").write_text(json.dumps(origin))


def counted(site: Path, *ignore: str) -> set[str]:
    found = installed([str(site)])
    return set(found) - left_out(found, ignore)


def egg(site: Path, name: str, version: str, requires: str = "") -> None:
    (site / name).mkdir(parents=True)
    (site / name / "PKG-INFO").write_text(f"Metadata-Version: 1.2\nName: x\nVersion: {version}\n")
    (site / name / "requires.txt").write_text(requires)


def test_eggs_of_setup_py_and_of_debian_count_like_wheels(tmp_path: Path) -> None:
    egg(tmp_path, "PyYAML-6.0.egg-info", "6.0")
    egg(tmp_path, "some_thing-1.2-py3.11.egg-info", "1.2", "shared\n\n[dev]\nonly-a-tool\n")
    egg(tmp_path, "python_apt.egg-info", "2.6.0")
    (tmp_path / "flat-0.1.egg-info").write_text("Metadata-Version: 1.0\nName: flat\nVersion: 0.1\n")
    add(tmp_path, "pytest", needs=("shared", "only-a-tool"))
    for name in ("shared", "only_a_tool"):
        add(tmp_path, name)
    found = {name: one.version for name, one in installed([str(tmp_path)]).items()}
    eggs = {"pyyaml": "6.0", "some-thing": "1.2", "python-apt": "2.6.0", "flat": "0.1"}
    assert found == {**eggs, "pytest": "1.0", "shared": "1.0", "only-a-tool": "1.0"}
    assert counted(tmp_path) == {*eggs, "shared"}


def test_names_and_versions_come_from_the_folders_and_the_first_on_the_path_counts(tmp_path: Path) -> None:
    add(tmp_path / "a", "Jinja2", "3.1.6")
    add(tmp_path / "b", "jinja2", "3.1.5")
    add(tmp_path / "b", "zope.interface", "7.2")
    (tmp_path / "b" / "torch").mkdir()
    found = installed([str(tmp_path / "a"), str(tmp_path / "b"), str(tmp_path / "none")])
    assert {name: one.version for name, one in found.items()} == {"jinja2": "3.1.6", "zope-interface": "7.2"}


def test_a_tool_is_left_out_with_what_it_alone_brings(tmp_path: Path) -> None:
    add(tmp_path, "torch", needs=("jinja2", "numpy>=2"))
    add(tmp_path, "numpy")
    add(tmp_path, "jinja2", needs=("MarkupSafe (>=2.0)",))
    add(tmp_path, "markupsafe")
    before = counted(tmp_path)
    assert before == {"torch", "numpy", "jinja2", "markupsafe"}
    add(tmp_path, "pytest", needs=("pluggy>=1", "iniconfig", "numpy; extra == 'arrays'"))
    add(tmp_path, "pluggy")
    add(tmp_path, "iniconfig")
    add(tmp_path, "mkdocs", needs=("jinja2",))
    assert counted(tmp_path) == before
    add(tmp_path, "plugin_host", needs=("pluggy",))
    assert counted(tmp_path) == before | {"plugin-host", "pluggy"}


def test_what_a_local_project_asks_for_its_developers_is_a_tool(tmp_path: Path) -> None:
    own = {"url": "file:///home/me/own", "dir_info": {"editable": True}}
    needs = ("torch; extra == 'train'", "moto[server]>=5; extra == 'dev'", "torch; extra == 'dev'")
    add(tmp_path, "own", needs=needs, **own)
    add(tmp_path, "torch", needs=('colorama; platform_system == "Windows"',))
    before = counted(tmp_path)
    add(tmp_path, "moto", needs=("boto3", "flask; extra == 'server'", "pandas; extra == 'all'"))
    for name in ("boto3", "flask", "colorama"):
        add(tmp_path, name)
    # colorama was added by hand: nobody asks for it here
    assert counted(tmp_path) == before | {"colorama"}
    add(tmp_path, "pandas")
    assert counted(tmp_path) == before | {"colorama", "pandas"}


def test_the_user_says_what_is_a_tool_whatever_needs_it(tmp_path: Path) -> None:
    add(tmp_path, "torch", needs=("setuptools",))
    add(tmp_path, "setuptools")
    add(tmp_path, "Some_Tool", needs=("helper",))
    add(tmp_path, "helper")
    assert counted(tmp_path) == {"torch", "setuptools", "some-tool", "helper"}
    assert counted(tmp_path, "some.tool", "setuptools") == {"torch"}


@pytest.mark.parametrize("damage", ["", "{", "[]"])
def test_a_damaged_distribution_is_read_as_far_as_it_goes(tmp_path: Path, damage: str) -> None:
    info = tmp_path / "a-1.dist-info"
    info.mkdir()
    (info / "direct_url.json").write_text(damage)
    found = installed([str(tmp_path)])
    assert (found["a"].origin, list(found["a"].files()), left_out(found, ())) == ({}, [], set())


def test_our_own_tools_rename_no_run() -> None:
    """`make demo; make dev; make demo` computes nothing twice: with what slipway.yaml of this clone says."""

    def names(lock: str) -> set[str]:
        lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
        return {plain_name(line.partition("==")[0]) for line in lines if re.match(r"[\w.-]+==", line)} | {"slipway-cua"}

    found = installed([path for path in sys.path if path.endswith("-packages")])
    ignore = yaml.safe_load((ROOT / "slipway.yaml").read_text(encoding="utf-8"))["local"]["ignore"]
    demo: dict[str, Distribution] = {name: one for name, one in found.items() if name in names("requirements.lock")}
    with_tools = {name: one for name, one in found.items() if name in names("requirements-dev.lock")}
    assert demo.keys() < with_tools.keys()
    assert demo.keys() - left_out(demo, ignore) == with_tools.keys() - left_out(with_tools, ignore) == demo.keys()
