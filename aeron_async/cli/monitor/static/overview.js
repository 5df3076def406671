// The list of streams, in order of their trouble or by any column.

import { bytes, count, duration, el, percent, perSecond, rate, say, streamName, svg } from "./format.js";
import { state } from "./store.js";

// Name, heading, class, value to sort by; numbers begin with the highest.
const COLUMNS = [
  ["stream", "Stream", "lead", (row) => row.stream],
  ["trouble", "Trouble", "", null],
  ["rate", "Rate", "n rate", (row) => -(row.rate ?? -1)],
  ["messages", "Messages", "n wide", (row) => -(row.messages ?? -1)],
  ["lag", "Lag", "n mid", (row) => -(row.lag ?? -1)],
  ["lost", "Lost", "n mid", (row) => -(row.lost ?? -1)],
  ["blocked", "Blocked", "n wide", (row) => -(row.blocked ?? -1)],
];
const STEPS = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };

let sortedBy = "trouble";
let isReversed = false;
let filter = "";

export function overview(root) {
  const rows = new Map();
  const visible = new WeakSet();
  const observer = new IntersectionObserver((entries) => {
    for (const each of entries) {
      if (each.isIntersecting) visible.add(each.target);
      else visible.delete(each.target);
    }
  });
  const heads = COLUMNS.map(([name, heading, kind]) => {
    const button = el("button", { type: "button" }, heading);
    button.addEventListener("click", () => {
      isReversed = sortedBy === name && !isReversed;
      sortedBy = name;
      update();
    });
    return el("th", { scope: "col", class: kind || null, "data-name": name }, button);
  });
  const caption = el("caption", {}, "Streams");
  const body = el("tbody");
  const headRow = el("tr", {}, ...heads, el("th", { scope: "col", class: "mid" }, "Cause and remedy"));
  const whole = el("table", { class: "streams" }, caption, el("thead", {}, headRow), body);
  const input = el("input", { type: "search", id: "filter", autocomplete: "off" });
  input.value = filter;
  input.addEventListener("input", () => { filter = input.value; update(); });
  const note = el("p", { class: "note" });
  root.append(
    el("h2", {}, "Streams"),
    el("div", { class: "tools" },
      el("div", {}, el("label", { for: "filter" }, "Show only rows with these words"), input)),
    note,
    el("div", { class: "scroll" }, whole),
  );
  body.addEventListener("keydown", onKey);
  body.addEventListener("focusin", (event) => rove(event.target.closest("a")));

  function onKey(event) {
    const step = STEPS[event.key];
    if (step === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const links = [...body.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(links.length - 1, at + step))]?.focus();
  }

  // One link of the table is in the tab order; arrow keys lead to the others.
  function rove(link) {
    if (link === null) return;
    for (const each of body.querySelectorAll('a[tabindex="0"]')) each.tabIndex = -1;
    link.tabIndex = 0;
  }

  function make(name) {
    const link = el("a", { href: `#/stream/${encodeURIComponent(name)}`, tabindex: "-1" });
    const where = el("small");
    // What the last column says where there is no room for it.
    const brief = el("small", { class: "brief" });
    const icon = el("span", { "aria-hidden": "true" });
    const word = el("span", { class: "word" });
    const status = el("td", { class: "status" }, icon, " ", word);
    const line = svg("polyline");
    const spark = svg("svg", { class: "spark", viewBox: "0 0 80 20", preserveAspectRatio: "none", "aria-hidden": "true" }, line);
    const cells = {};
    for (const [key, , kind] of COLUMNS.slice(2)) cells[key] = el("td", { class: kind });
    const speed = el("span");
    cells.rate.append(speed, spark);
    const why = el("span");
    const remedy = el("small");
    const cause = el("td", { class: "cause mid" }, why, remedy);
    const tr = el("tr", {}, el("th", { scope: "row" }, link, where, brief), status, ...Object.values(cells), cause);
    observer.observe(tr);
    const row = { tr, link, where, brief, icon, word, status, line, speed, cells, why, remedy, drawn: "" };
    rows.set(name, row);
    return row;
  }

  function paint(shown, row) {
    const driver = state.drivers[row.driver];
    say(shown.link, streamName(row));
    const place = driver === undefined ? "" : `${driver.host}:${driver.pid ?? "?"}`;
    say(shown.where, `${row.channel} · ${place}`);
    const isStale = driver !== undefined && driver.failure !== "";
    const kind = isStale ? "stale" : row.cause === null ? "ok" : "bad";
    if (shown.status.className !== `status ${kind}`) {
      shown.status.className = `status ${kind}`;
      shown.tr.className = kind === "bad" ? "bad" : "";
    }
    say(shown.icon, { stale: "◌", ok: "●", bad: "▲" }[kind]);
    say(shown.word, isStale ? "no answer" : row.cause === null ? row.state || "fine" : row.cause.word);
    say(shown.speed, rate(row.rate));
    say(shown.cells.messages, perSecond(row.messages));
    const age = row.lag_ms ? ` ${duration(row.lag_ms)}` : "";
    say(shown.cells.lag, row.lag === null ? "" : `${bytes(row.lag)}${age}`);
    say(shown.cells.lost, row.lost ? rate(row.lost) : row.losses ? perSecond(row.losses) : "");
    say(shown.cells.blocked, row.blocked ? percent(row.blocked) : "");
    say(shown.why, row.cause === null ? "" : row.cause.sentence);
    say(shown.remedy, row.cause === null ? "" : row.cause.remedy);
    say(shown.brief, row.cause === null ? "" : `${row.cause.sentence}. To do: ${row.cause.remedy}.`);
    if (visible.has(shown.tr)) drawSpark(shown, row.spark);
  }

  function arranged() {
    const wanted = filter.toLowerCase().split(/\s+/).filter(Boolean);
    let names = state.order.filter((name) => state.streams[name] !== undefined);
    if (wanted.length > 0) {
      names = names.filter((name) => {
        const row = state.streams[name];
        const driver = state.drivers[row.driver] ?? {};
        const text = [streamName(row), row.channel, row.state, row.cause?.word, driver.host, driver.path,
          driver.pid].join("\n").toLowerCase();
        return wanted.every((word) => text.includes(word));
      });
    }
    const value = COLUMNS.find(([name]) => name === sortedBy)[3];
    if (value !== null) names.sort((a, b) => value(state.streams[a]) - value(state.streams[b]));
    return isReversed ? names.reverse() : names;
  }

  function update() {
    const names = arranged();
    const focused = body.contains(document.activeElement) ? document.activeElement : null;
    const wanted = new Set(names);
    for (const [name, shown] of rows) {
      if (!wanted.has(name)) {
        observer.unobserve(shown.tr);
        shown.tr.remove();
        rows.delete(name);
      }
    }
    names.forEach((name, place) => {
      const shown = rows.get(name) ?? make(name);
      paint(shown, state.streams[name]);
      if (body.children[place] !== shown.tr) body.insertBefore(shown.tr, body.children[place] ?? null);
    });
    if (focused !== null && focused.isConnected && document.activeElement !== focused) {
      focused.focus({ preventScroll: true });
    }
    if (body.querySelector('a[tabindex="0"]') === null) rove(body.querySelector("a"));
    for (const each of heads) {
      const isThis = each.dataset.name === sortedBy;
      const first = sortedBy === "stream" ? "ascending" : "descending";
      const second = sortedBy === "stream" ? "descending" : "ascending";
      if (isThis) each.setAttribute("aria-sort", isReversed ? second : first);
      else each.removeAttribute("aria-sort");
    }
    say(caption, `${count(names.length)} streams. Arrow keys move from row to row, Enter opens one.`);
    const notes = [];
    if (state.more_streams > 0) notes.push(`${count(state.more_streams)} more streams, with less trouble, are not shown.`);
    if (state.without_history > 0) notes.push(`${count(state.without_history)} streams have no history: there is room for 1,000.`);
    if (state.isKnown && names.length === 0) notes.push(filter ? "No row has these words." : "No streams.");
    say(note, notes.join(" "));
  }

  return { update, leave: () => observer.disconnect() };
}

function drawSpark(shown, values) {
  const highest = Math.max(...values, 1);
  const step = values.length > 1 ? 80 / (values.length - 1) : 80;
  const points = values.map((each, place) => `${(place * step).toFixed(1)},${(19 - (each / highest) * 18).toFixed(1)}`).join(" ");
  if (points !== shown.drawn) {
    shown.drawn = points;
    shown.line.setAttribute("points", points);
  }
}
