"""Judges one task with the public package `desktop_env`, unchanged. Run by an interpreter as a file:

    PYTHON -I judge_program.py < ORDER

It knows nothing of the rest of this package, which that interpreter does not have. ORDER is one JSON object:

    address, token  a server that speaks OSWorld's protocol (`http://HOST:PORT`), and its token or null
    evaluator       the task's `evaluator`, without its `postconfig`
    cache           folder for the files of getters; what the task's set-up left there
    screen          width and height in pixels
    last_action     `FAIL` where the agent gave up
    browser_port    on the desktop's host, the debugging port of its browser; none: that of the public harness
    package         the folder above a clone's `desktop_env`, as Windows Agent Arena's; null: the interpreter's own

Windows Agent Arena's getters ask ports 5000 and 9222 of the desktop's host, whatever ports it has: what they ask goes
to `address` and `browser_port`. Its server says no to a question with a status of 400.

The answer is one JSON object on the standard output, and all that the package prints goes to the standard error:

    package   version of desktop-env; a clone has none
    score     what `DesktopEnv.evaluate` gives, from 0 to 1; null where it failed
    failures  why the score cannot be trusted: a request without a good answer, a program or package that is not here.
              With one of them the task is not judged, whatever the score is: getters turn a server that is gone into
              None, and metrics turn None into 0
    raised    the exception with which a metric or getter ended, or null: what the agent left may be its cause. With a
              score, a clone's own rule made a 0 of it
    broken    what the server tells as the agent's doing, or null
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import traceback
import types
from typing import Any, Final
from urllib.parse import urlsplit

NOT_THERE: Final = 404  # no such file, no such window: the state that the agent left
TOO_LARGE: Final = 413  # a file that is larger than the server gives: as well
SPOILED: Final = ("broken_by_agent", "no_plain_file")  # the agent's doing, such as a FIFO in the place of a file
# Windows Agent Arena's questions, which status 400 answers with no
QUESTIONS: Final = frozenset(
    (
        *("/are_all_images_tagged", "/are_files_sorted_by_modified_time", "/check_if_timer_started"),
        *("/check_if_world_clock_exists", "/file_exists", "/folder_exists", "/is_details_view"),
        *("/is_directory_read_only_for_user", "/library_folders", "/list_directory"),
    )
)
NO: Final = 400
# Ports of Windows Agent Arena's server and browser
SERVER, BROWSER = 5000, 9222
# Modules of a clone that start machines and do set-ups: judging needs neither them nor what they import
LEFT_OUT_OF_A_CLONE: Final = {"controllers.vm": "VMController", "controllers.setup": "SetupController"}
# Imported by modules of metrics that have no other use for it; it needs torch, and fetches its models when it is used
LEFT_OUT: Final = ("easyocr",)


class FailureWatch:
    """Notes what fails while getters and metrics run, also where they go on after it."""

    def __init__(self, address: str, token: str | None, cloned: bool = False) -> None:
        self.desktop = urlsplit(address).netloc
        self.cloned = cloned
        self.token = token
        self.failures: list[str] = []
        self.broken: str | None = None
        self.raised: str | None = None

    def failed(self, text: str) -> None:
        if text not in self.failures:
            self.failures.append(text)

    def start(self) -> None:
        """Takes the places of `requests`' sending, of starting programs, and of packages that are left out."""
        import requests

        send, popen, watch = requests.Session.send, subprocess.Popen.__init__, self

        def sent(session: Any, request: Any, **options: Any) -> Any:
            place = urlsplit(request.url)
            if watch.cloned and place.netloc == f"{urlsplit('//' + watch.desktop).hostname}:{SERVER}":
                place = place._replace(netloc=watch.desktop)
                request.url = place.geturl()
            ours = place.netloc == watch.desktop
            what = f"{request.method} {place.path}" if ours else f"missing dependency: download {request.url}"
            if ours and watch.token is not None:
                request.headers["Authorization"] = f"Bearer {watch.token}"
            try:
                answer = send(session, request, **options)
            except requests.RequestException as error:
                watch.failed(f"{what}: {type(error).__name__}")
                raise
            if ours and watch.cloned and answer.status_code == NO and place.path in QUESTIONS:
                return answer
            if ours:
                watch.answered(what, answer.status_code, answer.content)
            elif answer.status_code >= 400:
                watch.failed(f"{what}: status {answer.status_code}")
            return answer

        def started(process: Any, *arguments: Any, **options: Any) -> None:
            try:
                popen(process, *arguments, **options)
            except FileNotFoundError as error:
                watch.failed(f"missing dependency: program {error.filename}")
                raise

        for owner, name, work in ((requests.Session, "send", sent), (subprocess.Popen, "__init__", started)):
            setattr(owner, name, work)
        for name in LEFT_OUT:
            if importlib.util.find_spec(name) is None:
                sys.modules[name] = AbsentPackage(name, self)

    def noted(self, getter: Any) -> Any:
        """A getter whose exception is noted: Windows Agent Arena's `evaluate` turns it into a score of 0."""

        def get(*arguments: Any) -> Any:
            try:
                return getter(*arguments)
            except FileNotFoundError:  # 0 in both packages
                raise
            except Exception as error:
                self.raised = line_of(error)
                raise

        return getter and get

    def answered(self, what: str, status: int, body: bytes) -> None:
        """Takes note of an answer of the desktop's server."""
        if status < 400 or status == NOT_THERE:
            return
        kind, message = None, ""
        try:
            told = json.loads(body)
            kind, message = told.get("kind"), str(told.get("message", ""))
        except (ValueError, AttributeError):
            message = body[:200].decode(errors="replace")
        if kind in SPOILED or status == TOO_LARGE:
            self.broken = message
            return
        missing = kind in ("not_offered", "not_allowed") or "[Errno 2]" in message
        self.failed(f"{'missing dependency: ' if missing else ''}{what}: {message or f'status {status}'}")


class AbsentPackage(types.ModuleType):
    """In the place of a package that is not installed. Using it is noted: metrics go on after an exception."""

    def __init__(self, name: str, watch: FailureWatch) -> None:
        super().__init__(name)
        self.__dict__["_watch"] = watch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what the import itself looks for
            raise AttributeError(name)
        text = f"missing dependency: package {self.__name__}"
        self._watch.failed(text)
        raise ImportError(text)


def known_hosts() -> None:
    """Has endings of hosts read from the list that comes with the package `tldextract`: it would fetch the newest one,
    and the same page could be judged otherwise on another day."""
    if importlib.util.find_spec("tldextract") is not None:
        package: Any = importlib.import_module("tldextract")
        package.extract = package.TLDExtract(cache_dir=None, suffix_list_urls=())


class StepsDone:
    """The steps before judging were done by who started this program."""

    def setup(self, steps: list[Any], proxy: bool = False) -> bool:
        assert not steps
        return True


def cloned_desktop(order: dict[str, Any], watch: FailureWatch) -> Any:
    """`desktop` of a clone in Windows Agent Arena's form."""
    for name, unused in LEFT_OUT_OF_A_CLONE.items():
        module: Any = types.ModuleType(f"desktop_env.{name}")
        setattr(module, unused, object)
        sys.modules[module.__name__] = module
    from desktop_env.controllers.python import PythonController
    from desktop_env.envs.desktop_env import DesktopEnv

    class JudgedDesktop(DesktopEnv):  # type: ignore[misc]
        def __init__(self) -> None:
            self.vm_ip = urlsplit(order["address"]).hostname
            self.controller = PythonController(vm_ip=self.vm_ip)
            self.setup_controller = StepsDone()
            self.cache_dir_base = order["cache"]
            self.action_history = [order["last_action"]]
            self._set_task_info({"id": ".", "instruction": "", "evaluator": order["evaluator"]})
            getters: Any = vars(self)["result_getter"]
            noted = [*map(watch.noted, getters)] if isinstance(getters, list) else watch.noted(getters)
            self.result_getter = noted

    return JudgedDesktop()


def watch_browser(order: dict[str, Any], watch: FailureWatch) -> None:
    """Has playwright connect to the desktop's browser wherever port 9222 is asked for. Where the desktop has no port
    for it, that is a failure: getters go on without a browser, and what they find is a 0. A browser that does not
    answer is none: the agent may have closed it."""
    if importlib.util.find_spec("playwright") is None:
        return
    kind: Any = importlib.import_module("playwright.sync_api").BrowserType
    connect, port = kind.connect_over_cdp, order.get("browser_port")

    def connected(self: Any, endpoint: str, **options: Any) -> Any:
        asked = urlsplit(endpoint)
        if port is None:
            watch.failed("missing dependency: the debugging port of the desktop's browser")
            raise ConnectionError(f"no browser at {endpoint}")
        if asked.port == BROWSER:
            endpoint = asked._replace(netloc=f"{asked.hostname}:{port}").geturl()
        return connect(self, endpoint, **options)

    kind.connect_over_cdp = connected


def desktop(order: dict[str, Any]) -> Any:
    """A `DesktopEnv` of the public package that starts no machine: the desktop is there. Its `evaluate` is theirs."""
    from desktop_env.controllers.python import PythonController
    from desktop_env.desktop_env import DesktopEnv

    place = urlsplit(order["address"])

    class JudgedDesktop(DesktopEnv):  # type: ignore[misc]
        def __init__(self) -> None:
            self.vm_ip, self.server_port = place.hostname, place.port
            self.chromium_port = order.get("browser_port", 9222)  # both as the public harness has them
            self.vlc_port = 8080
            self.controller = PythonController(self.vm_ip, self.server_port)
            self.controller.retry_interval = 0  # seconds; the server is here, and an answer stays the same
            self.setup_controller = StepsDone()
            self.cache_dir = self.cache_dir_base = order["cache"]
            self.screen_width, self.screen_height = order["screen"]
            self.enable_proxy = self.current_use_proxy = self.is_environment_used = False
            self.action_history = [order["last_action"]]
            self._set_evaluator_info({"evaluator": order["evaluator"]})

        def close(self) -> None:
            """There is nothing to end."""

    return JudgedDesktop()


def judged(order: dict[str, Any]) -> dict[str, Any]:
    """The answer to an order."""
    clone = order.get("package")
    watch = FailureWatch(order["address"], order["token"], clone is not None)
    score = raised = None
    try:
        if clone is not None:
            sys.path.insert(0, clone)
        watch.start()
        known_hosts()
        watch_browser(order, watch)
        made = desktop(order) if clone is None else cloned_desktop(order, watch)
        score = float(made.evaluate())
        if not 0.0 <= score <= 1.0:
            watch.failed(f"the score {score} is not between 0 and 1")
    except ModuleNotFoundError as error:
        watch.failed(f"missing dependency: package {error.name}")
    except Exception as error:  # a judge that fails judges nothing, whatever it fails with
        traceback.print_exc()
        raised = line_of(error)
    package = importlib.metadata.version("desktop-env") if clone is None else ""
    raised = raised or watch.raised
    return {"package": package, "score": score, "failures": watch.failures, "raised": raised, "broken": watch.broken}


def line_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:500]


def main() -> None:
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    order = json.load(sys.stdin)
    os.chdir(order["cache"])
    json.dump(judged(order), answer)
    answer.close()
    os._exit(0)  # some packages wait for threads of their own


if __name__ == "__main__":
    main()
