// The curves of a run: drawn anew when its metrics change. Drag over a chart to see a part of it, twice to see all.
"use strict";
(() => {
  const section = document.getElementById("charts");
  if (!section) return;
  const { metrics, event } = section.dataset;  // where the curves are, and what tells that they changed
  const plots = document.getElementById("plots");
  const note = document.getElementById("charts-note");
  const smooth = document.getElementById("smooth");
  const scale = document.getElementById("log-scale");
  const others = new URLSearchParams(location.search).getAll("with");
  const colours = ["--s0", "--s1", "--s2", "--s3", "--s4", "--s5"];
  const dashes = [[], [6, 4], [2, 3], [10, 3, 2, 3]];  // of each further six lines
  let charts = [];
  let notes = [];
  const drawn = new Map();  // of each metric: its figure, its plot and how it is drawn

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // an exponential mean that starts at the first value and passes over gaps
  function smoothed(values, weight) {
    let mean = null;
    return values.map((value) => {
      if (value === null) return null;
      mean = mean === null ? value : weight * mean + (1 - weight) * value;
      return mean;
    });
  }

  function table(lines) {
    const steps = [...new Set(lines.flatMap((line) => line.points.map((point) => point[0])))].sort((a, b) => a - b);
    const place = new Map(steps.map((step, index) => [step, index]));
    const weight = Number(smooth.value);
    return [steps, ...lines.map((line) => {
      const values = new Array(steps.length).fill(null);
      for (const [step, value] of line.points) values[place.get(step)] = scale.checked && value <= 0 ? null : value;
      return weight ? smoothed(values, weight) : values;
    })];
  }

  // of at most six characters, for which the axis has room
  const large = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  function written(mark) {
    if (mark === null) return "";
    return Math.abs(mark) >= 10000 ? large.format(mark) : String(Number(mark.toPrecision(3)));
  }

  function plotted(figure, chart, zeros) {
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { stroke: colour("--rule"), width: 1 } };
    const tell = ({ scales }) => { figure.dataset.low = scales.y.min; figure.dataset.high = scales.y.max; };
    return new uPlot({
      hooks: { draw: [tell] },
      width: Math.max(260, figure.clientWidth), height: 220, legend: { show: chart.lines.length > 1 },
      scales: { x: { time: false }, y: { distr: scale.checked ? 3 : 1, ...(zeros ? { range: [0, 1] } : {}) } },
      axes: [axis, { ...axis, size: 64, values: (_, marks) => marks.map(written) }],
      series: [{ label: "step" }, ...chart.lines.map((line, index) => ({
        label: line.run, stroke: colour(colours[index % colours.length]), width: 1.5, spanGaps: true,
        dash: dashes[Math.floor(index / colours.length) % dashes.length], points: { show: line.points.length < 40 },
      }))],
    }, table(chart.lines), figure);
  }

  // a chart that is drawn as before gets the new values: the part of it that the reader chose stays
  function draw() {
    const gone = new Set(drawn.keys());
    charts.forEach((chart, index) => {
      gone.delete(chart.metric);
      const values = chart.lines.flatMap((line) => line.points.map((point) => point[1]));
      const zeros = !scale.checked && values.every((value) => value === 0);  // uPlot would draw them to 100
      const lines = chart.lines.map((line) => [line.run, line.points.length < 40]);
      const way = JSON.stringify([lines, scale.checked, zeros, colour("--ink")]);
      const { figure = document.createElement("figure"), plot, way: before } = drawn.get(chart.metric) || {};
      if (!plot) figure.append(document.createElement("figcaption"));
      if (plots.children[index] !== figure) plots.insertBefore(figure, plots.children[index] || null);
      const last = chart.lines[0].points.at(-1);
      const alone = chart.lines.length === 1 || !section.dataset.group;
      const caption = alone ? `${chart.metric}: ${Number(last[1].toPrecision(6))} at step ${last[0]}` : chart.metric;
      if (figure.firstChild.textContent !== caption) figure.firstChild.textContent = caption;
      if (way === before) {
        const [steps, { min, max }] = [plot.data[0], plot.scales.x];
        const all = min <= steps[0] && max >= steps.at(-1);
        plot.setData(table(chart.lines), all);
        if (!all) plot.redraw();
      } else {
        plot?.destroy();
        drawn.set(chart.metric, { figure, way, plot: plotted(figure, chart, zeros) });
      }
    });
    for (const metric of gone) {
      const { figure, plot } = drawn.get(metric);
      plot.destroy();
      figure.remove();
      drawn.delete(metric);
    }
    const text = [...(charts.length ? [] : ["No metric has more than one value yet."]), ...notes].join(" ");
    if (note.textContent !== text) note.textContent = text;
  }

  async function load() {
    try {
      const query = new URLSearchParams(others.map((other) => ["with", other]));
      const answer = await fetch(`${metrics}?${query}`);
      if (!answer.ok) throw new Error(String(answer.status));
      ({ charts, notes } = await answer.json());
      whenReleased(plots, draw);
    } catch {
      note.textContent = "The curves cannot be read now.";
    }
  }

  let waiting = 0;
  const soon = () => { waiting ||= setTimeout(() => { waiting = 0; load(); }, 1000); };
  document.body.addEventListener(event, soon);
  document.body.addEventListener("again", soon);
  smooth.addEventListener("input", draw);
  scale.addEventListener("change", draw);
  window.addEventListener("resize", () => {
    for (const { figure, plot } of drawn.values()) plot.setSize({ width: Math.max(260, figure.clientWidth), height: 220 });
  });
  load();
})();
