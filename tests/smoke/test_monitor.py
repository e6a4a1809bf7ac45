"""The monitor's pages over a store with a pipeline, an evaluation, a training and a live run: its ASGI application."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from launcher.monitor.database import open_database
from launcher.monitor.ingest import StoreFollower
from launcher.monitor.server.entry import EntryCodes
from launcher.monitor.server.live.desktops import LiveDesktops
from launcher.monitor.server.pages.monitor_pages import MonitorPages
from launcher.monitor.server.queries.runs import Queries
from launcher.monitor.server.serve import application
from launcher.monitor.server.stream import Hub
from launcher.monitor.server.waiting_reasons import WaitingReasons
from launcher.protocol.records import Beat
from launcher.spec.model import Output
from launcher.spec.profile import LocalSettings, Profile
from launcher.store.base import Store
from launcher.store.file import FileStore
from tests.support import fakerun as fake
from tests.support.faketraining import training_files

EVIL = "<img src=x onerror=alert(1)>"
TOKEN, PORT = "token-of-this-test", 8640
CODES = EntryCodes()
START = ("/", "/evaluations", "/trainings", "/verdicts", "/search?q=login")
ASKING = ("/compare?", "/pair?")  # addresses that say in their query what they show
KINDS = {
    "/", "/now/runs", "/runs/N", "/runs/N/facts", "/runs/N/parts", "/runs/N/log", "/runs/N/job", "/runs/N/metrics.csv",
    "/runs/N/outputs/results",
    "/evaluations", "/evaluations/N", "/evaluations/N/table", "/judge/N", "/verdicts", "/search",
    "/trainings", "/trainings/N", "/trainings/N/line", "/trainings/N/steps/N", "/trainings/N/steps/N/groups",
    "/groups/N", "/rollouts/N", "/rollouts/N/N.picture", "/static/monitor.js", "/static/monitor.css",
}  # fmt: skip


def fill(store: Store) -> None:
    fake.login_pipeline(store, n=4)
    outputs = {"results": Output()}
    files = {**fake.eval_files([True], agent=EVIL), **fake.episode_files("e-0", True, instruction=EVIL, thought=EVIL)}
    told = {"benchmark": EVIL, "agent": EVIL, "task_id": EVIL, "seed": 0, "score": 1.0, "success": True}
    line = {**told, "version": "1", "outcome": "scored", "episode": "episodes/e-0", "steps": 4}
    files["tasks.jsonl"] = json.dumps(line).encode() + b"\n"
    for name, results in (("hostile", files), ("rl", training_files())):
        fake.write_run(store, fake.fake_job(name, outputs=outputs), [fake.FakeAttempt(outputs={"results": results})])
    beat = Beat(3, "running", step=140, total=300, message=EVIL)
    logs = {"main-0": {0: f"step 1 {EVIL}\n".encode()}}
    live = fake.FakeAttempt(ended=None, beat=beat, logs=logs, metrics=fake.loss_curve(140))
    fake.write_run(store, fake.fake_job("live"), [live], outcome=None)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ASGIApp]:
    folder = tmp_path_factory.mktemp("monitor")
    store = FileStore(folder / "store", sync=False)
    fill(store)
    engine = open_database(f"sqlite:///{folder / 'monitor.sqlite'}")
    assert StoreFollower(engine, store).once().problems == ()
    queries, hub, stores = Queries(engine), Hub(), {store.url: store}
    profile = Profile(store=store.url, local=LocalSettings(folder / "local"))
    waiting, desktops = WaitingReasons(queries, stores, profile, hub.changed), LiveDesktops(profile)
    changes = {"cancel": lambda store, run: "cancelled"}
    pages = MonitorPages(queries, hub, stores, waiting, profile.prices, changes, desktops)
    yield application(pages, TOKEN, CODES, PORT)
    desktops.stop()
    engine.dispose()


def browser(app: ASGIApp) -> TestClient:
    """A browser of this machine that has no token yet."""
    return TestClient(app, base_url=f"http://127.0.0.1:{PORT}")


def test_every_kind_of_page_is_there_and_shows_what_others_wrote_as_text(app: ASGIApp) -> None:
    monitor = browser(app)
    assert monitor.get(f"/enter?code={CODES.lasting}").status_code == 200
    pages: dict[str, str] = {}  # what the addresses of a kind answered
    left, seen = list(START), set(START)
    while left:
        path = left.pop()
        answer = monitor.get(path)
        assert answer.status_code == 200, path
        text = "" if path.endswith(".picture") else answer.text
        kind = path if path.startswith("/static/") else re.sub(r"\d+", "N", path.partition("?")[0])
        pages[kind] = pages.get(kind, "") + text
        found = map(html.unescape, re.findall(r'(?:href|src|hx-get)="(/[^"#]*)', text))
        links = {link if link.startswith(ASKING) else link.partition("?")[0] for link in found} - seen
        seen |= links
        left += links
    assert set(pages) >= KINDS
    for text in pages.values():
        assert "Traceback" not in text
        assert "<img src=x" not in text
    for kind in ("/", "/runs/N/log", "/evaluations/N", "/judge/N", "/rollouts/N"):
        assert "&lt;img src=x onerror=alert(1)&gt;" in pages[kind], kind
    shown = {kind: " ".join(re.sub("<[^>]*>", " ", text).split()) for kind, text in pages.items()}
    assert "1 running, 6 succeeded" in shown["/"]
    assert re.search(r"running [^/]{0,60}140 of 300", shown["/"])
    assert "success 100.0 % 20.7 – 100.0 % 1 " in shown["/evaluations/N"]  # Wilson's interval of 1 of 1
    assert "Solved 1 of 4 Mean return 0.21 Void 1 loss 0.5" in shown["/trainings/N/steps/N"]


def test_without_the_token_nothing_is_told(app: ASGIApp) -> None:
    monitor = browser(app)
    assert monitor.get(f"/enter?code={TOKEN}").status_code == 401
    for cookie in ("", f"slipway-monitor-{PORT}=wrong", f"slipway-monitor={TOKEN}"):
        for path in (*START, "/runs/1", "/static/monitor.js", "/nothing"):
            answer = monitor.get(path, headers={"Cookie": cookie})
            assert answer.status_code == 401
            assert "login" not in answer.text
    assert monitor.post("/runs/1/cancel", headers={"Origin": f"http://127.0.0.1:{PORT}"}).status_code == 401
    assert monitor.get("/", headers={"Host": "evil.example"}).status_code == 421
    assert monitor.get("/", headers={"Origin": "http://evil.example"}).status_code == 403
