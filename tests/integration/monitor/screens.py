"""A desktop on the monitor's page beside what its server itself sees, as the browser decodes both pictures."""

from __future__ import annotations

import base64
import json
import urllib.request
from dataclasses import dataclass

from playwright.sync_api import Page

from tests.integration.monitor.served import Monitor

POINTER = 24  # pixels; the screen has the pointer in it, the server's screenshot has not
# width and height of the part where two pictures differ
DIFFERENT = """async ([a, b]) => {
  const data = [];
  for (const each of [a, b]) {
    const image = new Image();
    image.src = `data:image/png;base64,${each}`;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width, image.height];
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    data.push(context.getImageData(0, 0, image.width, image.height));
  }
  const [one, two] = data;
  if (one.width !== two.width || one.height !== two.height) return [Infinity, Infinity];
  let [left, top, right, bottom] = [Infinity, Infinity, -1, -1];
  for (let at = 0; at < one.data.length; at += 4) {
    if ([0, 1, 2, 3].every((channel) => one.data[at + channel] === two.data[at + channel])) continue;
    const [x, y] = [(at / 4) % one.width, Math.floor(at / 4 / one.width)];
    [left, top, right, bottom] = [Math.min(left, x), Math.min(top, y), Math.max(right, x), Math.max(bottom, y)];
  }
  return right < 0 ? [0, 0] : [right - left + 1, bottom - top + 1];
}"""


def differing(apart: Page, a: bytes, b: bytes) -> tuple[float, float]:
    """Width and height of the part where two PNGs differ. `apart`: a page without a content security policy."""
    width, height = apart.evaluate(DIFFERENT, [base64.b64encode(each).decode() for each in (a, b)])
    return width, height


def pictured(page: Page, monitor: Monitor) -> bytes:
    """The picture that the desktop's page shows."""
    return monitor.ask(str(page.locator("#screen img").get_attribute("src")).removeprefix(monitor.base)).body


@dataclass(frozen=True)
class DesktopServer:
    """`eval.desktops.server` at an address, asked with its token."""

    address: str
    token: str

    def ask(self, path: str, body: object = None) -> bytes:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: bytes = answer.read()
        return found
