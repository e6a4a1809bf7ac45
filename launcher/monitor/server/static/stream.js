// A shared worker: one stream of events for all pages of this browser. HTTP/1.1 allows a browser six connections to a
// server, and a stream for each of twenty pages would leave none to load them with.
"use strict";
const ports = new Set();
let live = false;

function tell(message) {
  for (const port of ports) port.postMessage(message);
}

function open() {
  const source = new EventSource("/stream");
  source.addEventListener("hello", () => { live = true; tell({ live, again: true }); });
  source.addEventListener("changed", (event) => tell({ live, runs: JSON.parse(event.data).runs }));
  source.onerror = () => {
    live = false;
    tell({ live });
    if (source.readyState === EventSource.CLOSED) setTimeout(open, 1000);
  };
}

self.onconnect = (event) => {
  const port = event.ports[0];
  ports.add(port);
  port.onmessage = () => ports.delete(port);  // the page says that it goes
  port.postMessage({ live, again: live });
};
open();
