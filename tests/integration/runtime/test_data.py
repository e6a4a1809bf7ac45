"""What goes into a rank: inputs and code; a store or a disk that fails meanwhile."""

from __future__ import annotations

import ctypes
import hashlib
import http.server
import os
import resource
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from launcher.install import install
from launcher.reasons import Reason
from launcher.spec.hashing import work_hash
from launcher.spec.model import Code, Input, Limits, Output
from launcher.store.layout import blob
from tests.integration.runtime.rig import Rig, python, until
from tests.integration.runtime.test_checkpoints import CHECKPOINTS, TRAINER

CAT = """
import os
from pathlib import Path
for name in sorted(os.listdir(os.environ["SLIPWAY_INPUTS"])):
    path = Path(os.environ["SLIPWAY_INPUTS"], name)
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    for file in files:
        print(name, file.relative_to(path).as_posix(), file.read_text(), flush=True)
"""


def folder(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


def test_local_inputs_are_linked_and_later_attempts_hold_them_to_the_first(tmp_path: Path) -> None:
    data = folder(tmp_path / "data", a="1", b="2")
    (tmp_path / "one").write_text("file")
    rig = Rig.of(
        tmp_path,
        (*python(CAT + "import sys; sys.exit(1)"),),
        inputs={"data": Input(url=data.as_uri()), "one": Input(url=(tmp_path / "one").as_uri())},
        limits=Limits(retries=1),
    )
    assert rig.go() == 1
    assert b"data a 1\ndata b 2\none . file\n" in rig.log()
    [event] = (event for event in rig.view().events if event.kind == "data")
    assert event.fields["one"] == f"sha256:{hashlib.sha256(b'file').hexdigest()}"
    (data / "b").write_text("3")
    assert rig.go() == 78
    assert rig.exit(2).reason is Reason.INPUT_MISSING
    assert "the first attempt of this run read" in rig.exit(2).message


@pytest.mark.parametrize("right", [True, False])
def test_a_pinned_input(tmp_path: Path, right: bool) -> None:
    (tmp_path / "one").write_text("file")
    digest = "sha256:" + (hashlib.sha256(b"file").hexdigest() if right else "0" * 64)
    rig = Rig.of(tmp_path, ("true",), inputs={"a": Input(url=(tmp_path / "one").as_uri(), digest=digest)})
    assert rig.go() == (0 if right else 78)
    assert right or digest in rig.exit().message
    result = rig.result()
    assert result is not None
    assert result.data == ({"a": digest} if right else {})


def test_outputs_of_other_runs(tmp_path: Path) -> None:
    code = TRAINER + "save(10); save(20)\n(out.parent / 'model' / 'w').write_text('weights')"
    first = Rig.of(tmp_path, python(code), outputs={**CHECKPOINTS, "model": Output()})
    assert first.go() == 0
    work = work_hash(first.job)
    inputs = {
        "a": Input(work=work, output="model", job="first"),
        "b": Input(run=first.run, output="model"),
        "c": Input(work=work, output="checkpoints", step="10"),
        "d": Input(work=work, output="checkpoints"),
        "e": Input(works={"lr-1": work, "lr-2": work}, output="model"),
    }
    second = Rig.of(tmp_path, python(CAT.replace("file.read_text()", "file.stat().st_size")), inputs=inputs)
    assert second.go() == 0
    log = second.log().decode()
    for line in ("a w 7", "b w 7", "c state 12", "c weights 1000", "d weights 1000", "e lr-1/w 7", "e lr-2/w 7"):
        assert f"{line}\n" in log
    for spec, reason, says in (
        (Input(work=work, output="nothing", step="best"), Reason.INPUT_MISSING, "no best"),
        (Input(work=work, output="checkpoints", step="15"), Reason.INPUT_MISSING, "no complete checkpoint of step 15"),
    ):
        third = Rig.of(tmp_path, ("true",), inputs={"x": spec})
        assert third.go() == 78
        assert third.exit().reason is reason
        assert says in third.exit().message


def test_a_failed_upstream_run(tmp_path: Path) -> None:
    first = Rig.of(tmp_path, ("false",), outputs={"model": Output()})
    assert first.go() == 78
    second = Rig.of(tmp_path, ("true",), inputs={"x": Input(run=first.run, output="model")})
    assert second.go() == 78
    assert second.exit().reason is Reason.UPSTREAM_FAILED
    assert f"{first.run} is failed (user_error)" in second.exit().message


def test_a_command_that_writes_into_its_inputs_changes_no_store_on_the_same_disk(tmp_path: Path) -> None:
    code = "cd $SLIPWAY_OUTPUTS/m; head -c 20000000 /dev/zero > big; echo x > small"
    first = Rig.of(tmp_path, ("sh", "-c", code), outputs={"m": Output()})
    assert first.go() == 0
    spoil = "for f in big small; do echo spoilt >> $SLIPWAY_INPUTS/m/$f; done"
    assert Rig.of(tmp_path, ("sh", "-c", spoil), inputs={"m": Input(run=first.run, output="m")}).go() == 0
    show = "wc -c < $SLIPWAY_INPUTS/m/big; cat $SLIPWAY_INPUTS/m/small"
    third = Rig.of(tmp_path, ("sh", "-c", show), inputs={"m": Input(run=first.run, output="m")})
    assert third.go() == 0
    assert b"20000000\nx\n" in third.log()


class Web(http.server.BaseHTTPRequestHandler):
    """Serves 3 MB; breaks the connection in the middle the first time, says 503 before that."""

    body: ClassVar[bytes] = os.urandom(3_000_000)
    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.asked.append(self.headers.get("Range"))
        if self.path != "/file":
            self.send_error(404)
        elif len(self.asked) == 1:
            self.send_error(503)
        else:
            first = int((self.headers.get("Range") or "bytes=0-").split("=")[1].rstrip("-"))
            self.send_response(206 if first else 200)
            self.send_header("ETag", '"v1"')
            self.send_header("Content-Length", str(len(self.body) - first))
            self.end_headers()
            self.wfile.write(self.body[first : 2_000_000 if len(self.asked) == 2 else None])
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[str]:
    Web.asked.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_download_that_breaks_is_taken_up(tmp_path: Path, web: str) -> None:
    digest = f"sha256:{hashlib.sha256(Web.body).hexdigest()}"
    rig = Rig.of(tmp_path, ("true",), inputs={"a": Input(url=f"{web}/file", digest=digest)})
    assert rig.go() == 0
    assert [first and int(first[6:-1]) > 1_000_000 for first in Web.asked] == [None, None, True]


def test_a_download_that_is_not_there(tmp_path: Path, web: str) -> None:
    rig = Rig.of(tmp_path, ("true",), inputs={"a": Input(url=f"{web}/other")})
    assert rig.go() == 78
    assert (rig.exit().reason, "HTTP 404" in rig.exit().message) == (Reason.INPUT_MISSING, True)


def test_the_hugging_face_hub_from_its_cache(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    commit = "a" * 40
    snapshot = tmp_path / "hub/models--team--tiny/snapshots" / commit
    folder(snapshot, **{"config.json": "{}"})
    folder(tmp_path / "hub/models--team--tiny/refs", main=commit)
    rig = Rig.of(tmp_path, python(CAT), inputs={"m": Input(url=f"hf://team/tiny@{commit}")})
    rig.environ |= {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    assert rig.go() == 0
    assert b"m config.json {}\n" in rig.log()
    result = rig.result()
    assert result is not None
    assert result.data == {"m": f"hf:{commit}"}


def test_the_hub_without_its_library(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['huggingface_hub'] = None")
    rig = Rig.of(tmp_path, ("true",), inputs={"m": Input(url="hf://team/tiny@main")})
    rig.environ["PYTHONPATH"] = str(tmp_path)
    assert rig.go() == 78
    assert (rig.exit().reason, "`" + install("huggingface_hub") + "`" in rig.exit().message) == (
        Reason.INPUT_MISSING,
        True,
    )


def test_code_comes_with_the_run(tmp_path: Path) -> None:
    source = folder(tmp_path / "source", **{"hello.py": "print('hello from the overlay')", "pkg/__init__.py": ""})
    archive = tmp_path / "code.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(source, ".")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    rig = Rig.of(tmp_path, ("sh", "-c", "python hello.py && cd / && python -c 'import pkg'"), code=Code(digest))
    rig.store.upload(blob(digest), archive)
    assert rig.go() == 0
    assert b"hello from the overlay\n" in rig.log()


def test_code_that_would_write_elsewhere_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "code.tar"
    (tmp_path / "evil").write_text("x")
    with tarfile.open(archive, "w") as tar:
        tar.add(tmp_path / "evil", "../../../../evil")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    rig = Rig.of(tmp_path, ("true",), code=Code(digest))
    rig.store.upload(blob(digest), archive)
    assert rig.go() == 78
    assert rig.exit().reason is Reason.CONFIG_ERROR
    assert "outside" in rig.exit().message


def swap(one: Path, other: Path) -> None:
    """Exchanges two names in one step: between two, a runtime would make the folder that it does not find."""
    libc, here, exchange = ctypes.CDLL(None, use_errno=True), -100, 2
    done = libc.renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange)
    assert done == 0, os.strerror(ctypes.get_errno())


def test_a_store_that_is_away_for_a_while(tmp_path: Path) -> None:
    code = "touch $SLIPWAY_OUTPUTS/../up; sleep 1; echo x > $SLIPWAY_OUTPUTS/m/a"
    rig = Rig.of(tmp_path, ("sh", "-c", code), outputs={"m": Output()})
    process = rig.start()
    until((tmp_path / "work/main-0/up").exists)
    store, away = tmp_path / "store", tmp_path / "away"
    away.symlink_to(store)
    swap(store, away)  # a link to itself: nothing can be read or written there
    until(lambda: b"store" in (tmp_path / "main-0.out").read_bytes())
    subprocess.run(["sleep", "1.5"], check=True)
    swap(store, away)
    assert process.wait(timeout=30) == 0
    assert rig.output("m/a") == b"x\n"
    assert b"succeeded" in rig.log()


def test_a_disk_without_room_for_the_inputs(tmp_path: Path) -> None:
    first = Rig.of(
        tmp_path, ("sh", "-c", "head -c 3000000 /dev/zero > $SLIPWAY_OUTPUTS/m/a"),
        outputs={"m": Output()},
    )  # fmt: skip
    assert first.go() == 0
    rig = Rig.of(tmp_path, ("true",), inputs={"m": Input(run=first.run, output="m")})
    assert rig.go(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))) == 75
    assert rig.exit().reason is Reason.INFRASTRUCTURE
    assert "File too large" in rig.exit().message or "no space left" in rig.exit().message
