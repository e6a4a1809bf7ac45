// Keeps the page's parts up to date: an event names the runs that changed, and htmx asks for the parts that show them.
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
      sign.dataset.live = message.live ? "yes" : "no";
      sign.textContent = message.live ? "live" : "not connected";
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

  // the end of a log stays in sight unless the reader went up
  let atEnd = true;
  let lastLog = "";
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    // one that has not grown is not made anew: a selection in it stays, and so does a link that is being clicked
    if (event.detail.target.id === "log" && !event.detail.isError) {
      if (event.detail.serverResponse === lastLog) event.detail.shouldSwap = false;
      lastLog = event.detail.serverResponse;
    }
    const log = event.detail.target.querySelector?.("pre.log");
    if (log) atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  });
  document.body.addEventListener("htmx:afterSwap", (event) => {
    const log = event.detail.target.querySelector?.("pre.log");
    if (log && atEnd) log.scrollTop = log.scrollHeight;
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
