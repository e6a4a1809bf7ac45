"""On a telephone (375 px) nothing sticks out, whatever the names and texts of a run are: drawn by a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from launcher.report.collect import collect
from launcher.report.page import render
from launcher.selection.select import select
from launcher.store.base import Store
from tests.support.fakerun import login_pipeline
from tests.support.needs import marked

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTH = 375
WORD = "averylongwordthatnobodycanbreak" * 8
# an element of each kind of text gets a word that has no place to break; tables scroll by themselves
FRAME = """<!doctype html><body style="margin:0">
<iframe id="page" src="page.html" style="width:{width}px;height:4000px;border:0"></iframe>
<pre id="found"></pre>
<script>
const frame = document.getElementById("page");
frame.onload = () => {{
  const page = frame.contentDocument, window_ = frame.contentWindow;
  const texts = "h1,h2,h3,p,b,li code,li div,dd,dt,figcaption,summary,.badge,header span,.legend span,footer,td,th";
  for (const one of page.querySelectorAll(texts)) one.append(" {word} ");
  const wide = [];
  for (const one of page.querySelectorAll("body *")) {{
    if (one.closest(".scroll") && !one.matches(".scroll")) continue;
    const box = one.getBoundingClientRect();
    if (box.width && box.right > {width} + 1 && window_.getComputedStyle(one).display !== "none")
      wide.push(`${{one.tagName}}.${{one.getAttribute("class")}}: ${{Math.round(box.right)}}`);
  }}
  document.getElementById("found").textContent = JSON.stringify(
    {{scroll: page.documentElement.scrollWidth, wide: wide.slice(0, 20)}});
}};
</script>"""


@pytest.mark.nightly
@marked("chromium", missing=BROWSER is None)
@pytest.mark.parametrize("word", ["", WORD], ids=["as it is", "long words"])
def test_nothing_sticks_out_of_a_narrow_page(word: str, file_store: Store, tmp_path: Path) -> None:
    pipeline = login_pipeline(file_store, n=40, thought="I click the field.")
    report = collect(file_store, select(file_store, [pipeline.group]))
    (tmp_path / "page.html").write_bytes(b"".join(render(report)))
    (tmp_path / "frame.html").write_text(FRAME.format(width=WIDTH, word=word), encoding="utf-8")
    done = subprocess.run(
        [
            *(str(BROWSER), "--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000", "--dump-dom"),
            (tmp_path / "frame.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    match = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match is not None
    assert match[1], done.stderr[-2000:]
    found = json.loads(match[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))
    assert found["wide"] == []
    assert found["scroll"] <= WIDTH
