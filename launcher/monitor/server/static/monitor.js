// Keeps the page's parts up to date: an event names the runs that changed, htmx asks for the parts that show them, and morph
// changes what differs.
"use strict";
(() => {
  const sign = document.getElementById("live");
  let gathered = new Set();
  let again = false;
  let timer = 0;

  function flush() {
    timer = 0;
    const names = again ? ["again"] : ["any-run", ...[...gathered].map((run) => `run-${run}`)];
    gathered = new Set();
    again = false;
    for (const name of names) htmx.trigger(document.body, name);
  }

  function hear(message) {
    if (sign) {
      const text = message.live ? "live" : "not connected";
      sign.dataset.live = message.live ? "yes" : "no";
      if (sign.textContent !== text) sign.textContent = text;
    }
    again ||= Boolean(message.again);
    for (const run of message.runs || []) gathered.add(run);
    if ((again || gathered.size) && !timer) timer = setTimeout(flush, 250);
  }

  function connect() {
    if (!window.SharedWorker) {  // a browser without shared workers has one stream for each page
      const source = new EventSource("/stream");
      source.addEventListener("hello", () => hear({ live: true, again: true }));
      source.addEventListener("changed", (event) => hear({ live: true, runs: JSON.parse(event.data).runs }));
      source.onerror = () => hear({ live: false });
      return;
    }
    const port = new SharedWorker("/static/stream.js").port;
    port.onmessage = (event) => hear(event.data);
    window.addEventListener("pagehide", () => port.postMessage("bye"), { once: true });
  }

  connect();
  window.addEventListener("pageshow", (event) => { if (event.persisted) connect(); });

  // While a button of the mouse is down, or a finger, nothing moves under it: what comes is shown after the click.
  const late = new Map();
  let pressed = false;
  let ending = false;
  let held = 0;

  function release() {
    pressed = ending = false;
    const shows = [...late.values()];
    late.clear();
    for (const show of shows) show();
  }
  function releaseIn(milliseconds) {
    clearTimeout(held);
    held = setTimeout(release, milliseconds);
  }
  document.addEventListener("pointerdown", () => {
    pressed = true;
    ending = false;
    releaseIn(60000);
  }, true);
  for (const name of ["pointerup", "pointercancel", "pointermove"]) {  // the end of a press on a scroll bar may not be told
    document.addEventListener(name, (event) => {
      if (!pressed || ending || event.buttons) return;
      ending = true;
      releaseIn(100);  // the click comes after it
    }, true);
  }
  window.whenReleased = (what, show) => pressed ? late.set(what, show) : show();

  function show(target, text) {
    const log = target.querySelector("pre.log");
    const under = (line) => line.getBoundingClientRect().bottom - log.getBoundingClientRect().top;
    const atEnd = log && log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const first = log && [...log.children].find((line) => under(line) > 0);
    const place = first && under(first);
    morph(target, text);
    for (const child of target.children) htmx.process(child);
    const shown = target.querySelector("pre.log");
    // the end of a log stays in sight unless the reader went up; then the line stays where it is
    if (shown && (shown !== log || atEnd)) shown.scrollTop = shown.scrollHeight;
    else if (first?.isConnected) log.scrollTop += under(first) - place;
  }

  // htmx would put the new part in the place of the old one, with all that the reader does there
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const { shouldSwap, target, serverResponse, requestConfig: { elt: asker } } = event.detail;
    if (!shouldSwap) return;
    event.detail.shouldSwap = false;
    // After htmx has ended the request, whose state is kept at the element. By who asked, not by the target: the answer to a
    // click must not give way to an update of the same part that was asked for before it.
    queueMicrotask(() => whenReleased(asker, () => {
      if (asker.isConnected || !asker.hasAttribute("hx-trigger")) show(target, serverResponse);
    }));
  });

  // a part that cannot be read says so in the place of what it was waiting for
  document.body.addEventListener("htmx:responseError", (event) => {
    const note = event.detail.target.querySelector?.(":scope > .note:only-child");
    if (note) note.textContent = "It cannot be read now.";
  });

  // the picture is drawn in its own time, and may have failed before this script ran
  function unseen(picture) {
    const note = document.createElement("p");
    note.className = "note";
    note.textContent = "The picture cannot be read from the store.";
    picture.parentElement.replaceChildren(note);
  }
  document.addEventListener("error", (event) => { if (event.target.matches?.(".stage img[src$='.picture']")) unseen(event.target); }, true);
  for (const picture of document.querySelectorAll(".stage img[src$='.picture']")) if (picture.complete && !picture.naturalWidth) unseen(picture);

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, pre, .scroll")) return;
    const way = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
    const link = way && document.querySelector(`a[rel=${way}]`);
    if (link) {
      event.preventDefault();
      link.click();
    }
  });
})();
