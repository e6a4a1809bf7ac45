"""A page's parts are updated while a person uses them: a press, a selection, the focus and a place in a log stay."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from html import escape

import msgspec
import pytest
from playwright.sync_api import Browser, Locator, Page, Route

from launcher.protocol.records import Beat
from launcher.spec.hashing import run_id
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from tests.integration.monitor.served import Monitor
from tests.integration.monitor.visitor import Visitor, holds
from tests.support.fakerun import FakeAttempt, fake_job, write_run
from tests.support.waiting import until

# asks for every part of the page anew, and ends when each was answered
UPDATE = """() => new Promise((done) => {
  const parts = new Set(document.querySelectorAll("[hx-trigger*=again]"));
  document.body.addEventListener("htmx:afterRequest", function heard(event) {
    parts.delete(event.detail.requestConfig.elt);
    if (parts.size) return;
    document.body.removeEventListener("htmx:afterRequest", heard);
    done();
  });
  htmx.trigger(document.body, "again");
})"""
# the first line of the log that is seen, and where it stands
SEEN = """() => {
  const log = document.querySelector("pre.log");
  log.scrollIntoView({block: "center"});
  const box = log.getBoundingClientRect();
  const seen = document.caretRangeFromPoint(box.left + 30, box.top + 30);
  const text = seen.startContainer.data, from = text.lastIndexOf("\\n", seen.startOffset - 1) + 1;
  return [text.slice(from).split("\\n")[0], log.scrollHeight - log.clientHeight - Math.round(log.scrollTop)];
}"""


class Held:
    """Requests that wait until they may go on."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url, self.routes = page, url, list[Route]()
        page.route(url, lambda route: self.routes.append(route))

    def go_on(self) -> None:
        for route in self.routes:
            route.continue_()
        self.page.unroute(self.url)


class Watcher(Visitor):
    """Looks at one run of two processes that has not ended, which reports and writes when it is told to."""

    def __init__(self, browser: Browser, monitor: Monitor, store: Store, name: str) -> None:
        self.store, self.beats, self.lines, self.written = store, 1, 0, 0
        job = fake_job(name, replicas=2)
        self.run = run_id(job)
        logs = {"main-0": {0: b""}, "main-1": {0: b"I am 1\n"}}
        beat = Beat(1, "running", step=1, total=9)
        metrics = [("loss", float(step), 1.0 / step) for step in range(1, 9)]
        write_run(store, job, [FakeAttempt(ended=None, beat=beat, logs=logs, metrics=metrics)], outcome=None)
        until(lambda: self.run in monitor.ask("/").text)
        super().__init__(browser, monitor)
        self.write(1)

    def write(self, lines: int) -> None:
        body = b"".join(b"line %d\n" % number for number in range(self.lines, self.lines + lines))
        self.store.put(RunKeys(self.run).attempt(1).log_piece("main-0", self.written), body)
        self.lines, self.written = self.lines + lines, self.written + len(body)

    def open_run(self) -> Page:
        self.page.goto(f"{self.monitor.base}/runs/{self.run}")
        self.live()
        holds(self.page, f"document.querySelector('pre.log')?.innerText.includes('line {self.lines - 1}\\n')")
        return self.page

    def report(self) -> None:
        """The run is one step further, and the monitor knows."""
        self.beats += 1
        beat = Beat(self.beats, "running", step=self.beats, total=9)
        self.store.put(RunKeys(self.run).attempt(1).beat("main-0"), msgspec.json.encode(beat))
        until(lambda: f"{self.beats} of 9" in self.monitor.ask("/").text.partition(self.run)[2].partition("</tr>")[0])

    def press(self, target: Locator) -> None:
        """Once the pointer is on it: what is above it may still be drawn."""
        target.scroll_into_view_if_needed()

        def reached() -> bool:
            box = target.bounding_box()
            assert box is not None
            self.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            return bool(target.evaluate("(one) => one.matches(':hover')"))

        until(reached)
        self.page.mouse.down()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Monitor, Store]]:
    folder = tmp_path_factory.mktemp("updates")
    store = FileStore(folder / "store", sync=False)
    write_run(store, fake_job("first"))
    monitor = Monitor(folder / "home", store.url, "--allow-changes")
    yield monitor, store
    monitor.stop()


@pytest.fixture
def watcher(browser: Browser, place: tuple[Monitor, Store], request: pytest.FixtureRequest) -> Iterator[Watcher]:
    made = Watcher(browser, *place, f"watched-{zlib.crc32(request.node.name.encode())}")
    yield made
    assert made.said == []
    made.close()


def test_a_press_on_a_link_of_a_row_that_changes(watcher: Watcher) -> None:
    watcher.live()
    held = Held(watcher.page, "**/now/runs")
    watcher.report()
    watcher.press(watcher.page.locator(f"tr[data-run='{watcher.run}'] a"))
    held.go_on()
    watcher.page.evaluate(UPDATE)
    watcher.page.mouse.up()
    watcher.page.wait_for_url("**/runs/*")
    assert watcher.run in watcher.page.locator("main .note").first.inner_text()


def test_a_press_while_a_row_comes_above(watcher: Watcher) -> None:
    """The link stays under the pointer until the button is released; the new row is seen then."""
    page = watcher.page
    watcher.live()
    page.evaluate("addEventListener('click', (event) => { event.preventDefault(); window.hit = event.target.href; })")
    link = page.locator(f"tr[data-run='{watcher.run}'] a")
    href = page.evaluate("(link) => link.href", link.element_handle())
    held = Held(page, "**/now/runs")
    other = write_run(watcher.store, fake_job("newer"), [], outcome=None)
    until(lambda: page.evaluate("1") and held.routes and other in watcher.monitor.ask("/").text)
    watcher.press(link)
    held.go_on()
    page.evaluate(UPDATE)
    page.mouse.up()
    holds(page, f"window.hit === '{href}'")
    page.wait_for_selector(f"tr[data-run='{other}']")


def test_a_press_on_a_process_while_its_run_reports_and_writes(watcher: Watcher) -> None:
    page = watcher.open_run()
    held = Held(page, "**/runs/*/*")  # the facts and the log
    watcher.write(1)
    watcher.report()
    watcher.press(page.get_by_role("link", name="main-1, attempt 1"))
    held.go_on()
    page.evaluate(UPDATE)
    page.mouse.up()
    holds(page, "document.querySelector('pre.log').innerText.includes('I am 1')")
    holds(page, f"document.querySelector('#facts').innerText.includes('{watcher.beats} of 9')")


def test_an_update_that_waits_with_the_answer_to_a_click_does_not_undo_it(watcher: Watcher) -> None:
    """Both wait for the end of a press; the update was asked for by the log of a process that is no longer shown."""
    page = watcher.open_run()
    page.mouse.move(5, 5)
    page.mouse.down()
    with page.expect_event("requestfinished", lambda request: "member=main-1" in request.url):
        page.evaluate("document.querySelector(\"#log a[hx-get*='member=main-1']\").click()")
    page.evaluate(UPDATE)
    page.mouse.up()
    holds(page, "document.querySelector('pre.log').innerText.includes('I am 1')")


def test_a_late_answer_does_not_undo_a_choice(watcher: Watcher) -> None:
    """It was asked for by the log of a process that is no longer shown."""
    page = watcher.open_run()
    held = Held(page, "**/log")
    until(lambda: page.evaluate("1") and held.routes)
    page.get_by_role("link", name="main-1, attempt 1").click()
    holds(page, "document.querySelector('pre.log').innerText.includes('I am 1')")
    with page.expect_event("requestfinished", lambda request: request.url.endswith("/log")):
        held.go_on()
    page.evaluate(UPDATE)
    assert "I am 1" in page.locator("pre.log").inner_text()


def test_the_same_elements_stay(watcher: Watcher) -> None:
    """With them the focus, the place in a wide table and a chart's part that was chosen."""
    page = watcher.open_run()
    page.set_viewport_size({"width": 320, "height": 700})
    page.wait_for_selector("#plots canvas")
    page.evaluate("""() => {
      window.kept = [...document.querySelectorAll("dt, .scroll, .scroll td, pre.log, #log a, #facts button, canvas")];
      document.querySelector(".scroll").scrollLeft = 50;
    }""")
    over = page.locator("#plots .u-over").first
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 30)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 30)
    page.mouse.up()
    low = "Number(document.querySelector('#plots figure').dataset.low)"
    holds(page, f"{low} > 0.1 && {low} < 0.2")  # the part from step 4.5 to 7.3 ends above the lowest value
    chosen = page.evaluate("document.querySelector('#plots figure').dataset.high")
    page.locator(".scroll").first.focus()
    for step in (9, 10):
        line = msgspec.json.encode({"name": "loss", "step": step, "value": 0.01, "time": 0}) + b"\n"
        watcher.store.put(RunKeys(watcher.run).attempt(1).metrics_piece("main-0", 10_000 + step * 100), line)
        watcher.report()
        watcher.write(1)
        page.evaluate(UPDATE)
        holds(page, f"document.querySelector('figcaption').innerText.includes('at step {step}')")
        holds(page, f"document.querySelector('pre.log').innerText.includes('line {watcher.lines - 1}')")
    assert page.evaluate("window.kept.length > 8 && window.kept.filter((each) => !each.isConnected).length") == 0
    assert page.evaluate("document.activeElement === document.querySelector('.scroll')")
    assert page.evaluate("document.querySelector('.scroll').scrollLeft") == 50
    assert page.evaluate("document.querySelector('#plots figure').dataset.high") == chosen


def test_a_selection_beside_what_changes(watcher: Watcher) -> None:
    page = watcher.page
    watcher.live()
    page.evaluate(f"getSelection().selectAllChildren(document.querySelector(\"tr[data-run='{watcher.run}'] code\"))")
    watcher.report()
    page.evaluate(UPDATE)
    holds(page, f"document.querySelector('#runs').innerText.includes('{watcher.beats} of 9')")
    assert page.evaluate("getSelection().toString()") == watcher.run


def test_the_answer_to_a_button_stays(watcher: Watcher) -> None:
    """It was in the part that the button's own effect updates."""
    page = watcher.open_run()
    page.evaluate("window.confirm = () => true")
    page.get_by_role("button", name="Cancel").click()
    holds(page, "document.querySelector('#changed').innerText !== ''")
    told = page.locator("#changed").inner_text()
    watcher.write(1)
    page.evaluate(UPDATE)
    assert page.locator("#changed").inner_text() == told


def test_what_a_person_does_to_a_part(watcher: Watcher) -> None:
    """An opened `details`, a text that is typed and the focus stay, where an update changes much else."""
    kept = watcher.page.evaluate("""() => {
      const part = document.getElementById("runs");
      const html = (count) => `<h2>${count}</h2>${"<p>new</p>".repeat(count)}
        <details><summary>more</summary><p>${count}</p></details>
        <form><label>${count} <input name="q" value=""></label><button>send</button></form>`;
      morph(part, html(1));
      const [details, input] = [part.querySelector("details"), part.querySelector("input")];
      details.open = true;
      input.focus();
      input.value = "typed";
      input.setSelectionRange(1, 3);
      morph(part, html(4));
      const typed = [document.activeElement === input, input.value, input.selectionStart, input.selectionEnd];
      return [part.innerText.match(/new/g).length, details.isConnected && details.open, ...typed];
    }""")
    assert kept == [4, True, True, "typed", 1, 3]


def test_a_part_is_what_the_server_sent(watcher: Watcher) -> None:
    """From any part to any other one; a text is never markup."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    texts = ["", " ", "one", "two", escape("<img src=x onerror=\"document.title='run'\">"), "&amp;lt;b&amp;gt;"]

    def html(depth: int) -> str:
        found = []
        for _ in range(chance.randrange(5)):
            tag, key = chance.choice(("p", "b", "i", "a")), chance.randrange(4)
            name = chance.choice(("", f' data-key="{key}"', f' title="{key}"', f' href="/{key}"'))
            inner = chance.choice(texts) if depth == 0 or tag in "pa" else html(depth - 1)
            found.append(chance.choice((chance.choice(texts), f"<{tag}{name}>{inner}</{tag}>")))
        return "".join(found)

    parts = ["<script>document.title = 'run'</script><b>one</b>", *(html(3) for _ in range(300))]
    wrong = watcher.page.evaluate("""(parts) => {
      const part = document.createElement("main");
      document.body.append(part);
      return parts.filter((html) => {
        morph(part, html);
        const wanted = new DOMParser().parseFromString(html, "text/html").body;
        return part.innerHTML !== wanted.innerHTML || part.querySelector("img");
      });
    }""", parts)  # fmt: skip
    assert wrong == [], f"seed {seed}"
    assert watcher.page.title() == "Now"


@pytest.mark.parametrize("lines", [100, 600])  # the page shows the last 400
def test_a_place_in_a_log_that_grows(watcher: Watcher, lines: int) -> None:
    watcher.write(lines)
    page = watcher.open_run()
    assert page.evaluate(SEEN)[1] == 0  # its end
    watcher.write(5)
    page.evaluate(UPDATE)
    holds(page, f"document.querySelector('pre.log').innerText.includes('line {watcher.lines - 1}')")
    assert page.evaluate(SEEN)[1] == 0
    page.evaluate("document.querySelector('pre.log').scrollTop -= 600")
    first, below = page.evaluate(SEEN)
    assert below > 500
    page.evaluate("getSelection().selectAllChildren(document.querySelector('pre.log').lastChild)")
    watcher.write(5)
    page.evaluate(UPDATE)
    holds(page, f"document.querySelector('pre.log').innerText.includes('line {watcher.lines - 1}')")
    now, further = page.evaluate(SEEN)
    assert now == first
    assert further > below
    assert page.evaluate("getSelection().toString()").strip() == f"line {watcher.lines - 6}"
    page.get_by_role("link", name="main-1, attempt 1").click()  # another process's log begins at its end
    holds(page, "document.querySelector('pre.log').innerText.includes('I am 1')")
