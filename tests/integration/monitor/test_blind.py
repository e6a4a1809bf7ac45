"""Blind mode in Debian's Chromium: nothing that a checker said is shown until the person has judged."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import Browser

from launcher.store.file import FileStore
from tests.integration.monitor.served import Monitor
from tests.integration.monitor.visitor import Visitor, fits
from tests.support.waiting import until
from tests.unit.monitor.test_ingest import evaluation
from tests.unit.monitor.test_trainings import training


def test_blind_nothing_of_the_checker_is_shown_until_the_person_has_judged(browser: Browser, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    run = training(store)
    monitor = Monitor(tmp_path / "home", store.url, "--allow-changes")
    until(lambda: run in monitor.ask("/trainings").text)
    visitor = Visitor(browser, monitor)
    page = visitor.page
    page.goto(f"{monitor.base}/trainings")
    page.get_by_role("link", name="rl", exact=True).click()
    page.get_by_role("link", name="judge its rollouts blind").click()
    judged = 0
    while page.locator("form.judge").count():
        page.wait_for_url("**?blind=1")
        for path in (page.url, page.url.replace("?blind=1", "?turn=1&blind=1")):
            page.goto(path)
            text = page.locator("main").inner_text()
            for word in ("solved,", "failed,", "Return", "advantage", "score", "welcome", "not in the loss"):
                assert word not in text, word
            assert page.locator(".badge").first.inner_text() == "not shown"
        page.get_by_label("solved", exact=True).check()
        page.get_by_label("Reason").fill("I saw the welcome page.")
        page.get_by_role("button", name="Say it as").click()
        page.wait_for_selector("ul .try")
        judged += 1
        assert page.locator(".badge").first.inner_text() in ("solved", "failed")
        assert "blind" in page.locator("main ul.plain").inner_text()
        page.get_by_role("link", name="The next one").click()
        page.wait_for_selector("form.judge, a[href='/verdicts']")
    assert judged == 11
    records = [json.loads(store.get(meta.key)) for meta in store.scan("verdicts/")]
    assert len(records) == 11
    assert all(record["blind"] for record in records)
    right = sum(record["checker"] for record in records)
    assert f"{right} of 11" in page.locator("main").inner_text()
    assert visitor.said == []
    visitor.close()
    monitor.stop()


def test_in_blind_mode_no_page_tells_what_the_person_has_not_judged(browser: Browser, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    run = training(store)
    evaluated = evaluation(store, episodes=2)
    monitor = Monitor(tmp_path / "home", store.url, "--allow-changes")
    until(lambda: run in monitor.ask("/trainings").text and evaluated in monitor.ask("/evaluations").text)
    visitor = Visitor(browser, monitor)
    page = visitor.page

    def told() -> str:
        """All that the page says, titles and colours with it."""
        return page.locator("main").inner_html()

    def evaluation_page() -> None:
        page.goto(f"{monitor.base}/evaluations")
        page.get_by_role("link", name="eval", exact=True).click()
        page.wait_for_selector("table.matrix")

    evaluation_page()
    assert 'class="try good"' in told()
    page.goto(f"{monitor.base}/verdicts")
    page.get_by_role("button", name="Begin blind mode").click()
    page.wait_for_selector("#blind")
    trained = f"{monitor.base}/trainings"
    page.goto(trained)
    page.get_by_role("link", name="rl", exact=True).click()
    page.wait_for_selector("tr[data-moment]")
    step = f"{page.url}/steps/1"
    hidden = (
        "try good",
        "try bad",
        "badge good",
        "badge bad",
        "of 2 solved",
        "loop",
        ">0 of 2<",
        ">1 of 2<",
        ">2 of 2<",
    )
    addresses = {"training": page.url, "step": step, "search": f"{monitor.base}/search?q=log+in"}
    page.goto(step)
    group = page.locator("a[href^='/groups/']").first.get_attribute("href")
    addresses["group"] = f"{monitor.base}{group}"
    addresses["rollout"] = f"{monitor.base}{page.locator('a.try').first.get_attribute('href')}"
    addresses["evaluations"] = f"{monitor.base}/evaluations"
    evaluation_page()
    addresses["evaluation"] = page.url
    for name, where in addresses.items():
        page.goto(where)
        page.wait_for_selector("h1")
        if name == "training":  # the run itself succeeded
            assert page.locator("main .badge.good").all_inner_texts() == ["succeeded"]
        found = [word for word in hidden if word in told().replace('<span class="badge good">succeeded</span>', "")]
        assert found == [], name
        assert "not shown" in told(), name
        fits(page, name)
    # what was judged is shown, and nothing else
    page.goto(addresses["evaluation"])
    page.locator("a.try").first.click()
    page.wait_for_selector("form.judge")
    page.get_by_label("solved", exact=True).check()
    page.get_by_label("Reason").fill("I saw the welcome page.")
    page.get_by_role("button", name="Say it as").click()
    page.wait_for_selector("ul .try")
    (record,) = [json.loads(store.get(meta.key)) for meta in store.scan("verdicts/")]
    assert record["blind"] is True
    page.goto(addresses["evaluation"])
    tries = page.locator("a.try").all_inner_texts()
    assert [each for each in tries if each != "judge"] == ["solved" if record["checker"] else "failed"]
    assert len(tries) == 4
    page.goto(f"{monitor.base}/verdicts")
    assert "eval, judged blind" in page.locator("main").inner_text()
    page.get_by_role("button", name="End blind mode").click()
    page.wait_for_selector("#blind", state="detached")
    page.goto(addresses["evaluation"])
    assert "judge" not in page.locator("a.try").all_inner_texts()
    assert visitor.said == []
    visitor.close()
    monitor.stop()


def test_blind_mode_is_only_turned_on_from_the_page_itself(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    evaluation(store)
    monitor = Monitor(tmp_path / "home", store.url)
    try:
        assert monitor.ask("/blind", "POST", Origin=monitor.base).status == 405  # it only reads
        monitor.stop()
        monitor = Monitor(tmp_path / "home", store.url, "--allow-changes")
        assert monitor.ask("/blind", "POST").status == 403
        assert monitor.ask("/blind", "POST", Origin="https://example.com").status == 403
        assert monitor.ask("/blind", "POST", known=False, Origin=monitor.base).status == 401
        assert monitor.ask("/blind", "POST", Origin=monitor.base, Content_Length="0").status == 422
        assert "blind mode</a>" not in monitor.ask("/").text
    finally:
        monitor.stop()
