// A desktop's screen: asks which picture is the newest, and shows it when it is another. Nothing is sent to the desktop.
"use strict";
(() => {
  const figure = document.getElementById("screen");
  if (!figure) return;
  const image = figure.querySelector("img");
  const note = document.getElementById("screen-note");
  const from = figure.dataset.from;
  let shown = 0;

  function say(text) {
    if (note.textContent !== text) note.textContent = text;
  }

  async function look() {
    const answer = await fetch(`${from}/screen`);
    const told = await answer.json();
    if (told.problem) return say(told.problem);
    if (!told.number || told.number === shown) return undefined;
    const next = new Image();
    next.src = `${from}/${told.number}.png`;
    await next.decode();  // the old picture stays until the new one is whole
    image.src = next.src;
    figure.hidden = false;
    shown = told.number;
    figure.dataset.number = shown;
    return say(`${told.width} x ${told.height}, as it is now.`);
  }

  async function again() {
    if (!document.hidden) await look().catch(() => say("The monitor does not answer."));
    setTimeout(again, 400);
  }
  again();
})();
