"""The judge, with the public package as it is published, before a stand-in for a desktop's server that fails."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from eval.benchmarks.osworld.judging import JudgeFailed, MetricRaised, PublicJudge, PublicVerdict
from eval.desktop import BrokenByAgent, SetupFailed
from tests.integration.osworld.playing import JUDGE, need_judge
from tests.support.http_thread import answering
from tests.support.needs import marked
from tests.support.osworld_tasks import printed, rule, vm_file

TOKEN = "a-token"
Answer = tuple[int, bytes]


class _Server(BaseHTTPRequestHandler):
    """Answers as `answers` says; None: the connection ends without an answer."""

    answers: ClassVar[Mapping[str, Answer | None]] = {}

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = self.answers.get(self.path, (404, b"{}"))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            answer = (401, b"no token")
        if answer is None:
            self.close_connection = True
            return
        self.send_response(answer[0])
        self.send_header("Content-Length", str(len(answer[1])))
        self.end_headers()
        self.wfile.write(answer[1])

    do_GET = do_POST = _answer

    def log_message(self, *arguments: Any) -> None:
        """Nothing is printed."""


@contextlib.contextmanager
def server(answers: Mapping[str, Answer | None]) -> Iterator[str]:
    kind = type("Server", (_Server,), {"answers": answers})
    http = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    with answering(http) as port:
        yield f"http://127.0.0.1:{port}"


def told(kind: str, message: str) -> bytes:
    return json.dumps({"kind": kind, "message": message, "error": message}).encode()


def output(text: str) -> Answer:
    return 200, json.dumps({"status": "success", "output": text, "error": "", "returncode": 0}).encode()


def judged(evaluator: Mapping[str, Any], answers: Mapping[str, Answer | None], **files: bytes) -> PublicVerdict:
    need_judge()
    cache = Path(tempfile.mkdtemp(prefix="st-", dir="/tmp"))
    try:
        for name, content in files.items():
            (cache / name).write_bytes(content)
        with server(answers) as address:
            work = PublicJudge(JUDGE).judge(evaluator, address=address, token=TOKEN, cache=cache, screen=(640, 480))
            return asyncio.run(work)
    finally:
        shutil.rmtree(cache)


SAME = {"func": "exact_match", "result": printed("date"), "expected": rule("now")}
FILE = {
    "func": "compare_text_file",
    "result": vm_file("/home/user/a", "a"),
    "expected": {"type": "cache_file", "path": "gold"},
}
SHELL = "/execute"


def test_what_the_desktop_prints_is_judged_and_no_token_is_needed_by_the_package() -> None:
    assert judged(SAME, {SHELL: output("now")}) == PublicVerdict("1.0.2", 1.0, [], None)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("evaluator", "answers", "score"),
    [
        (SAME, {SHELL: output("later")}, 0.0),
        (FILE, {"/file": (200, b"as it must be")}, 1.0),
        (FILE, {"/file": (404, told("not_found", "no such file"))}, 0.0),  # the state that the agent left
        # a folder that is not there is FileNotFoundError's case in evaluate: 0
        ({"func": "exact_match", "result": {"type": "conference_city_in_order", "csv_path": "none"}}, {}, 0.0),
        # the mean of several; one 0 of them gives 0; with `or` the highest
        ({**SAME, "func": ["exact_match"] * 2, "result": [SAME["result"]] * 2, "expected": [rule("now")] * 2}, {}, 1.0),
        (
            {**SAME, "func": ["exact_match"] * 2, "result": [SAME["result"]] * 2, "expected": [rule("now"), rule("x")]},
            {},
            0.0,
        ),
        (
            {
                **SAME,
                "conj": "or",
                "func": ["exact_match"] * 2,
                "result": [SAME["result"]] * 2,
                "expected": [rule("x"), rule("now")],
            },
            {},
            1.0,
        ),
        # a part of a point: fuzzy matches of two texts
        (
            {"func": "fuzzy_match", "result": printed("date"), "expected": rule("no")},
            {},
            0.8,
        ),
    ],
)
def test_scores_are_the_package_s_own(
    evaluator: Mapping[str, Any], answers: Mapping[str, Answer | None], score: float
) -> None:
    verdict = judged(evaluator, answers or {SHELL: output("now")}, gold=b"as it must be")
    assert verdict.score == pytest.approx(score)


# each of these is a 0 in the public harness, or an episode without a result
FAILED: list[tuple[Mapping[str, Any], Mapping[str, Answer | None], type[Exception], str]] = [
    (FILE, {"/file": None}, JudgeFailed, "POST /file: ConnectionError"),
    (FILE, {"/file": (503, told("desktop_gone", "the X server ended"))}, JudgeFailed, "the X server ended"),
    (FILE, {"/file": (500, told("bug", "the server failed"))}, JudgeFailed, "the server failed"),
    (SAME, {SHELL: (500, told("failed", "Command timed out"))}, JudgeFailed, "timed out"),
    (
        SAME,
        {SHELL: (500, told("failed", "[Errno 2] no such program: date"))},
        SetupFailed,
        "missing dependency: .*date",
    ),
    (SAME, {SHELL: (403, told("not_allowed", "no commands"))}, SetupFailed, "missing dependency: .*no commands"),
    (
        {"func": "exact_match", "result": {"type": "vm_wallpaper", "dest": "w"}, "expected": rule(b"".decode())},
        {"/wallpaper": (501, told("not_offered", "this desktop has no wallpaper"))},
        SetupFailed,
        "missing dependency: .*no wallpaper",
    ),
    (
        {**FILE, "expected": {"type": "cloud_file", "path": "http://127.0.0.1:9/gold", "dest": "g"}},
        {"/file": (200, b"x")},
        SetupFailed,
        "missing dependency: download http://127.0.0.1:9/gold",
    ),
    (
        {**FILE, "expected": {"type": "cache_file", "path": "n"}},
        {"/file": (200, b"x")},
        MetricRaised,
        "AssertionError",
    ),
    ({"func": "is_utc_0", "result": printed("timedatectl")}, {SHELL: output("")}, MetricRaised, "IndexError"),
    ({**SAME, "func": "compare_dreams"}, {SHELL: output("")}, MetricRaised, "compare_dreams"),
    (FILE, {"/file": (413, told("too_large", "/home/user/a: more than 1 byte"))}, BrokenByAgent, "more than 1 byte"),
    (SAME, {SHELL: (500, told("broken_by_agent", "the agent filled the memory"))}, BrokenByAgent, "filled the memory"),
]


@pytest.mark.parametrize(
    ("evaluator", "answers", "error", "text"),
    [FAILED[0], *(pytest.param(*case, marks=pytest.mark.nightly) for case in FAILED[1:])],
)
def test_a_getter_or_a_judge_that_fails_is_no_score(
    evaluator: Mapping[str, Any], answers: Mapping[str, Answer | None], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        judged(evaluator, answers, gold=b"")


@pytest.mark.nightly
def test_a_package_that_is_left_out_is_missing_also_where_its_metric_goes_on_without_it() -> None:
    evaluator = {
        "func": "compare_image_text",
        "result": {"type": "cache_file", "path": "picture"},
        "expected": {"type": "rule", "rules": {"type": "text", "text": ["now"]}},
    }
    with pytest.raises(SetupFailed, match="missing dependency: package easyocr"):
        judged(evaluator, {}, picture=b"")


@marked("root", missing=os.geteuid() != 0)  # another user has nothing to take away
def test_what_the_desktop_prints_runs_as_code_of_nobody_without_our_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check_gnome_favorite_apps` evaluates it."""
    monkeypatch.setenv("A_SECRET", "s3cret")
    look = "[str(o.getuid()), o.environ.get('A_SECRET', 'none'), str(o.access('/etc/shadow', 2))]"
    look = f"(o := __import__('os')) and {look}"
    evaluator = {
        "func": "check_gnome_favorite_apps",
        "result": printed("gsettings"),
        "expected": rule(["65534", "none", "False"]),
    }
    assert judged(evaluator, {SHELL: output(look)}).score == 1.0


def test_an_interpreter_that_is_not_there_is_a_missing_dependency(tmp_path: Path) -> None:
    with pytest.raises(SetupFailed, match="missing dependency: the public evaluators"):
        PublicJudge(tmp_path / "python").check()


GOLD = """
import sys, zipfile
import docx, openpyxl, pptx
out = sys.argv[1]
book = openpyxl.Workbook(); book.active["A1"] = 5; book.save(f"{out}/gold.xlsx")
text = docx.Document(); text.add_paragraph("rice"); text.save(f"{out}/gold.docx")
show = pptx.Presentation(); show.slides.add_slide(show.slide_layouts[0]); show.save(f"{out}/gold.pptx")
with zipfile.ZipFile(f"{out}/gold.zip", "w") as archive: archive.writestr("a.txt", "rice")
open(f"{out}/gold.json", "w").write('{"a": 1}')
"""
SHEET = {"rules": [{"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0"}]}
# each has a file of the task to compare with; what the public harness does with a broken one: it raises, or gives 0
OF_FILES = {
    "compare_table": ("gold.xlsx", SHEET),
    "compare_docx_files": ("gold.docx", {}),
    "compare_docx_tables": ("gold.docx", {}),
    "compare_line_spacing": ("gold.docx", {}),
    "compare_pptx_files": ("gold.pptx", {}),
    "compare_zip_files": ("gold.zip", {}),
    "is_included_all_json_objects": ("gold.json", {}),
}

RAISE = ("compare_pptx_files", "compare_zip_files", "is_included_all_json_objects")


@pytest.fixture(scope="module")
def gold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_judge()
    folder = tmp_path_factory.mktemp("gold")
    subprocess.run([JUDGE, "-c", GOLD, folder], check=True, capture_output=True)
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize("func", OF_FILES)
def test_a_broken_file_of_the_agent_is_its_doing_for_each_metric_of_files(func: str, gold: Path) -> None:
    """A 0, or BrokenByAgent, which is one, where the metric raises; the right file is solved by the same evaluator."""
    name, options = OF_FILES[func]
    right = (gold / name).read_bytes()
    mine = vm_file(f"/home/user/mine{Path(name).suffix}", f"mine{Path(name).suffix}")
    expected = {"type": "cloud_file", "path": f"https://example.test/{name}", "dest": name}
    evaluator = {"func": func, "result": mine, "expected": expected, "options": options}
    broken: dict[str, Answer | None] = {"/file": (200, b"\x00\x01 broken")}
    if func in RAISE:
        with pytest.raises(BrokenByAgent, match="judges the right file, and fails on what is there"):
            judged(evaluator, broken, **{name: right})
    else:
        assert judged(evaluator, broken, **{name: right}).score == 0.0
    assert judged(evaluator, {"/file": (200, right)}, **{name: right}).score == 1.0
