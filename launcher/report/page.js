// Moves through the replays, and filters the list of episodes; everything it shows is already in the page.
"use strict";
const NS = "http://www.w3.org/2000/svg";
function shape(parent, name, attributes) {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  parent.appendChild(node);
}
function begin(replay) {
  const data = JSON.parse(replay.querySelector("script").textContent);
  const [picture, after] = replay.querySelectorAll(".stage img"), overlay = replay.querySelector(".stage svg");
  const [back, next, changed] = replay.querySelectorAll("button");
  const slider = replay.querySelector("input"), place = replay.querySelector("output");
  const items = [...replay.querySelectorAll("li")];
  const [w, h] = data.screen, unit = Math.max(w, h);
  const frame = index => index < data.steps.length && data.steps[index].frame !== null ? data.frames[data.steps[index].frame] : null;
  function mark(x, y, r, colour) {
    shape(overlay, "circle", {cx: x * w, cy: y * h, r, fill: "none", stroke: "#fff", "stroke-width": unit * .011});
    shape(overlay, "circle", {cx: x * w, cy: y * h, r, fill: "none", stroke: colour, "stroke-width": unit * .006});
    shape(overlay, "circle", {cx: x * w, cy: y * h, r: unit * .006, fill: colour, stroke: "#fff", "stroke-width": unit * .002});
  }
  function show(index) {
    const step = data.steps[index], shown = frame(index), following = frame(index + 1);
    slider.value = index;
    back.disabled = index === 0;
    next.disabled = index === data.steps.length - 1;
    place.textContent = `${index + 1} / ${data.steps.length}`;
    overlay.replaceChildren();
    picture.style.visibility = shown ? "visible" : "hidden";
    if (shown) picture.src = shown;
    picture.alt = `screen at step ${index + 1}: ${step.text}`;
    changed.disabled = !(shown && following);
    after.hidden = changed.disabled || changed.getAttribute("aria-pressed") !== "true";
    if (!after.hidden) after.src = following;
    if (step.x !== null) {
      if (step.x2 !== null) {
        for (const [stroke, width] of [["#fff", .011], ["#e0342b", .006]])
          shape(overlay, "line", {x1: step.x * w, y1: step.y * h, x2: step.x2 * w, y2: step.y2 * h,
            stroke, "stroke-width": unit * width, "stroke-linecap": "round"});
        mark(step.x2, step.y2, unit * .012, "#e0342b");
      }
      mark(step.x, step.y, unit * .024, "#e0342b");
    }
    items.forEach((item, k) => item.classList.toggle("on", k === index));
    const list = items[index].parentNode, top = items[index].offsetTop - list.offsetTop;
    if (top < list.scrollTop || top + items[index].offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = top - 8;
  }
  back.addEventListener("click", () => show(+slider.value - 1));
  next.addEventListener("click", () => show(+slider.value + 1));
  changed.addEventListener("click", () => {
    changed.setAttribute("aria-pressed", changed.getAttribute("aria-pressed") !== "true");
    show(+slider.value);
  });
  slider.addEventListener("input", () => show(+slider.value));
  items.forEach((item, k) => item.addEventListener("click", () => show(k)));
  show(data.start);
}
for (const replay of document.querySelectorAll("[data-replay]")) {
  const line = replay.closest("details");
  if (!line || line.open) begin(replay);
  else line.addEventListener("toggle", () => begin(replay), {once: true});
}
for (const list of document.querySelectorAll("[data-episodes]")) {
  const form = list.querySelector(".filters"), lines = [...list.querySelectorAll(".episode")];
  const folds = [...list.querySelectorAll(".outcome")].map(fold => [fold, fold.open]);
  if (!form) continue;
  const texts = lines.map(line => [...line.querySelectorAll("summary, .why, header b, code")]
    .map(node => node.textContent).join(" ").toLowerCase());
  function filter() {
    const words = form.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = [...form.querySelectorAll("select")].filter(one => one.value);
    let count = 0;
    lines.forEach((line, k) => {
      line.hidden = !(chosen.every(one => line.dataset[one.name] === one.value) && words.every(word => texts[k].includes(word)));
      count += !line.hidden;
    });
    for (const [fold, opened] of folds) {  // a fold opens while the fields choose something in it
      fold.hidden = !fold.querySelector(".episode:not([hidden])");
      if (words.length || chosen.length) fold.open = true;
      else if (fold.dataset.chosen) fold.open = opened;
      fold.dataset.chosen = words.length || chosen.length ? "yes" : "";
    }
    form.querySelector("output").textContent = `${count} shown`;
  }
  form.addEventListener("input", filter);
  form.hidden = false;
  filter();
}
