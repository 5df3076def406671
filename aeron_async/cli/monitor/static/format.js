// Numbers as people read them, and elements whose foreign texts are only ever text.

const BYTES = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];

export function bytes(value) {
  if (value === null || value === undefined) return "";
  for (const [scale, unit] of BYTES) {
    if (Math.abs(value) >= scale) return `${(value / scale).toFixed(1)} ${unit}`;
  }
  return `${Math.round(value)} B`;
}

export const rate = (value) => (value === null || value === undefined ? "" : `${bytes(value)}/s`);

export function count(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "number" ? Math.round(value).toLocaleString("en") : String(value);
}

export function perSecond(value) {
  if (value === null || value === undefined) return "";
  return `${value >= 100 || value === 0 ? count(value) : value.toFixed(1)}/s`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms >= 1000) return `${(ms / 1000).toFixed(ms >= 10000 ? 0 : 1)} s`;
  return `${ms >= 10 || ms === 0 ? Math.round(ms) : ms.toFixed(1)} ms`;
}

export const percent = (value) =>
  value === null || value === undefined ? "" : `${Math.round(value * 100)} %`;

export const time = (ms) => new Date(ms).toLocaleTimeString("en-GB");

export const KINDS = { pub: "publication", img: "image", sub: "subscription" };

// A fact is named with its unit at the end, as in Python.
export function fact(name, value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  if (name.endsWith("_ns")) return duration(value / 1e6);
  return value.toLocaleString("en");
}

export const words = (name) => name.replace(/_(ns|count)$/, "").replaceAll("_", " ");

export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  fill(node, properties, children);
  return node;
}

export function svg(tag, properties = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(node, properties, children);
  return node;
}

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  // `append` makes text nodes of strings.
  node.append(...children.filter((each) => each !== null && each !== undefined));
}

// Set a text only if it changes, so that the browser lays nothing out in vain.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Show other parts in a place; what has the focus keeps it, and what was scrolled sideways stays so.
export function renew(place, ...parts) {
  const name = (each) => each.getAttribute("href") ?? each.getAttribute("aria-label");
  const focused = document.activeElement;
  const focus = place.contains(focused) ? name(focused) : null;
  const scrolled = new Map([...place.querySelectorAll(".scroll")].map((each) => [name(each), each.scrollLeft]));
  place.replaceChildren(...parts);
  const named = [...place.querySelectorAll("[href], [aria-label]")];
  for (const each of named) {
    if (scrolled.get(name(each)) > 0) each.scrollLeft = scrolled.get(name(each));
  }
  if (focus !== null) named.find((each) => name(each) === focus)?.focus({ preventScroll: true });
}

// A table whose cells are texts or nodes. A column is [heading, is a number].
export function table(caption, columns, rows, empty) {
  if (rows.length === 0) return el("p", { class: "note" }, empty);
  const head = columns.map(([heading, isNumber]) =>
    el("th", { scope: "col", class: isNumber ? "n" : null }, heading));
  const body = rows.map((row) => el("tr", {}, ...row.map((cell, place) => {
    const kind = columns[place][1] ? "n" : null;
    return place === 0 ? el("th", { scope: "row", class: kind }, cell) : el("td", { class: kind }, cell);
  })));
  const whole = el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, ...head)),
    el("tbody", {}, ...body));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, whole);
}

export function streamName(row) {
  const kind = KINDS[row.kind] ?? row.kind;
  return row.session === null ? `${kind} ${row.stream}` : `${kind} ${row.stream}, session ${row.session}`;
}
