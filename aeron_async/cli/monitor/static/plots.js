// Plots of the last hour. They are drawn on a canvas, so each has a name that says its last values.

import { el, svg } from "./format.js";

const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 4], [12, 4], [1, 2], [6, 2, 1, 2]];
const HEIGHT = 170;
const dark = matchMedia("(prefers-color-scheme: dark)");

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A plot of some columns: [name, label]; `show` writes a value, `floor` is the least height.
export function plot(title, columns, show, floor) {
  const place = el("div", { "aria-hidden": "true" });
  const keys = el("div", { class: "keys" });
  const figure = el("figure", { role: "img" }, el("figcaption", {}, title), keys, place);
  let chart = null;
  let data = null;
  let explained = "";

  function make() {
    if (chart !== null) chart.destroy();
    const faint = colour("--faint");
    const axis = { stroke: faint, grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    chart = new uPlot({
      width: Math.max(200, figure.clientWidth - 14),
      height: HEIGHT,
      cursor: { drag: { x: false, y: false } },
      scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? Math.max(high * 1.05, floor / 100) : floor] } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map((each) => new Date(each * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" })), space: 90, size: 30 },
        { ...axis, size: 74, values: (_, ticks) => ticks.map(show) },
      ],
      series: [{}, ...columns.map(([, label], number) => ({
        label, stroke: colour(`--c${number % 8}`), width: 1.5, dash: DASHES[number % 8], points: { show: false },
      }))],
    }, data, place);
  }

  // Which line is which: by its dashes, and by its colour too.
  function explain(present) {
    const names = present.map(([name]) => name).join();
    if (names === explained) return;
    explained = names;
    keys.replaceChildren(...present.map(([, label]) => {
      const number = columns.findIndex((each) => each[1] === label);
      const line = svg("line", { x1: 0, y1: 5, x2: 36, y2: 5, "stroke-dasharray": DASHES[number % 8].join(" ") || null, class: `key${number % 8}` });
      return el("span", {}, svg("svg", { class: "key", viewBox: "0 0 36 10", "aria-hidden": "true" }, line), ` ${label}`);
    }));
  }

  const observer = new ResizeObserver(() => {
    if (chart !== null) chart.setSize({ width: Math.max(200, figure.clientWidth - 14), height: HEIGHT });
  });
  observer.observe(figure);
  const onScheme = () => { if (chart !== null) make(); };
  dark.addEventListener("change", onScheme);

  return {
    figure,
    update(history) {
      const present = columns.filter(([name]) => history[name] !== undefined);
      data = [history.time, ...columns.map(([name]) => history[name] ?? history.time.map(() => null))];
      if (chart === null) make();
      else chart.setData(data);
      const said = present.map(([name, label]) => {
        const { now, highest } = summary(history[name]);
        return `${label}: now ${now === null ? "unknown" : show(now)}, highest ${highest === null ? "unknown" : show(highest)}`;
      });
      figure.setAttribute("aria-label", `${title} over the last hour. ${said.join("; ")}`);
      if (columns.length > 1) explain(present);
    },
    leave() {
      observer.disconnect();
      dark.removeEventListener("change", onScheme);
      if (chart !== null) chart.destroy();
    },
  };
}

export function summary(values) {
  const known = (values ?? []).filter((each) => each !== null);
  if (known.length === 0) return { now: null, mean: null, highest: null };
  return {
    now: values[values.length - 1],
    mean: known.reduce((sum, each) => sum + each, 0) / known.length,
    highest: Math.max(...known),
  };
}
