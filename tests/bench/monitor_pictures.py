"""The monitor's pictures in README.md and its tutorial, taken anew: python -m tests.bench.monitor_pictures [FOLDER]

The runs are made by hand, so that one page shows every state. Look at the pictures before you commit them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from launcher.protocol.records import Beat
from launcher.reasons import Reason
from launcher.results.verdicts import give_verdict
from launcher.spec.model import Limits, Output, Resources
from launcher.store.base import Store
from launcher.store.file import FileStore
from tests.integration.monitor.conftest import BROWSER
from tests.integration.monitor.served import Monitor
from tests.support.fakerun import FakeAttempt, fake_job, login_pipeline, write_run
from tests.support.faketraining import training_files
from tests.support.waiting import until

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PRICES = "prices: {gpu: 1.20 USD}\n"
WAITS = "eval-forms"
RUNNING = (  # name, step, of how many, seconds, what it says, GPU use
    ("sft-forms", 1240, 2000, 3300.0, "epoch 2 of 3", 0.94),
    ("grpo-clicks", 310, 1000, 2080.0, "reward 0.41", 0.71),
    ("eval-desktop", 57, 118, 900.0, "31 of 57 solved", 0.38),
)


def fill(store: Store) -> str:
    """Returns the training's run."""
    now = time.time()
    one_gpu = {"resources": Resources(cpus=4.0, gpus=1), "limits": Limits(deadline=7 * 3600.0)}
    login_pipeline(store, n=8)
    full = FakeAttempt(
        started=now - 2000, ended=now - 1800, reason=Reason.OUT_OF_MEMORY, message="the GPU's memory is full"
    )
    write_run(store, fake_job("sft-long", **one_gpu), [full], outcome="failed")
    files = training_files()
    training = write_run(
        store, fake_job("rl", outputs={"results": Output(sync="live")}), [FakeAttempt(outputs={"results": files})]
    )
    for place in ("train/1/0/0", "train/1/0/1"):
        give_verdict(store, training, place, True, "the form was sent", "ann")
    for name, step, total, running, said, gpu in RUNNING:
        beat = Beat(9, "running", step, total, first_step=0, running=running, message=said, usage={"gpu": gpu})
        attempt = FakeAttempt(started=now - beat.running - 20, ended=None, beat=beat)
        write_run(store, fake_job(name, **one_gpu), [attempt], outcome=None)
    write_run(store, fake_job(WAITS, **one_gpu), [], outcome=None)
    return training


def take(page: Page, monitor: Monitor, folder: Path) -> None:
    page.goto(monitor.address)
    page.wait_for_selector("#live[data-live=yes]")
    page.screenshot(path=folder / "monitor.png")
    page.goto(f"{monitor.base}/trainings")
    page.get_by_role("link", name="rl", exact=True).click()
    page.wait_for_selector("tr[data-moment=evals-2]")
    page.goto(f"{page.url}/steps/1")
    page.locator("a[href^='/groups/']").first.click()
    page.wait_for_selector(".pair .stage img")
    page.wait_for_selector("#live[data-live=yes]")
    # its policy forbids wait_for_function
    until(lambda: page.evaluate("[...document.images].every(one => one.complete)"))
    page.screenshot(path=folder / "monitor-group.png", full_page=True)


def main(folder: Path = IMAGES) -> None:
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        home = Path(made)
        (home / "slipway.yaml").write_text(PRICES)
        store = FileStore(home / "store", sync=False)
        run = fill(store)
        monitor = Monitor(home, store.url)
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        try:
            until(lambda: run in monitor.ask("/trainings").text and WAITS in monitor.ask("/").text)
            take(browser.new_page(viewport={"width": 1180, "height": 760}), monitor, folder)
        finally:
            browser.close()
            monitor.stop()


if __name__ == "__main__":
    main(*(Path(each) for each in sys.argv[1:]))
