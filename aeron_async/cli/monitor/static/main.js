// The frame of all pages: the drivers, the summary, and which page is shown.

import { count, duration, el, rate, say } from "./format.js";
import { driver } from "./driver.js";
import { events } from "./events.js";
import { overview } from "./overview.js";
import { listen, state, watch } from "./store.js";
import { stream } from "./stream.js";
import { topology } from "./topology.js";

const PAGES = { "": overview, topology, events, stream, driver };
const TITLES = { "": "Streams", topology: "Topology", events: "Events", stream: "Stream", driver: "Driver" };
const main = document.getElementById("main");
const summary = document.getElementById("summary");
const drivers = document.getElementById("drivers");
const cards = new Map();
let page = null;

function route() {
  const hash = location.hash;
  // Another place within this page, such as the one that the first link leads to.
  if (hash !== "" && !hash.startsWith("#/")) return;
  const [name = "", id = ""] = hash.slice(2).split("/").map(decode);
  const known = Object.hasOwn(PAGES, name) ? name : "";
  const isFirst = page === null;
  if (page !== null) page.leave();
  main.replaceChildren();
  page = PAGES[known](main, id);
  document.title = `${TITLES[known]} - Aeron monitor`;
  for (const each of document.querySelectorAll("nav a")) {
    if (each.dataset.page === (known || "streams")) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  page.update();
  if (!isFirst) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

function card(id) {
  const link = el("a", { href: `#/driver/${encodeURIComponent(id)}` });
  const icon = el("span", { "aria-hidden": "true" });
  const verdict = el("span");
  const path = el("div", { class: "path" });
  const facts = {};
  const items = [["out", "Out"], ["in", "In"], ["loop", "Loop lag"], ["drops", "Socket drops"], ["limits", "Limits reached"], ["blocked", "Blocked streams"]];
  const list = items.map(([name, label]) => {
    facts[name] = el("b");
    return el("li", {}, `${label} `, facts[name]);
  });
  const whole = el("section", {}, el("h2", {}, link), path, el("p", { class: "verdict" }, icon, " ", verdict), el("ul", {}, ...list));
  drivers.append(whole);
  return { whole, link, icon, verdict, path, facts };
}

const ICONS = { fine: "●", elsewhere: "◆", here: "▲", gone: "◌", new: "○" };
const known = (value, show) => (value === null ? "unknown" : show(value));

function paintDrivers() {
  // A monitor that was started anew may look at others.
  for (const [id, shown] of cards) {
    if (state.drivers[id] === undefined) {
      shown.whole.remove();
      cards.delete(id);
    }
  }
  for (const [id, row] of Object.entries(state.drivers)) {
    if (!cards.has(id)) cards.set(id, card(id));
    const shown = cards.get(id);
    const kind = `driver ${row.verdict}`;
    if (shown.whole.className !== kind) shown.whole.className = kind;
    say(shown.link, `${row.host}:${row.pid ?? "?"}`);
    if (shown.whole.getAttribute("aria-label") !== `Driver ${shown.link.textContent}`) {
      shown.whole.setAttribute("aria-label", `Driver ${shown.link.textContent}`);
    }
    say(shown.path, row.remark ? `${row.path} · ${row.remark}` : row.path);
    say(shown.icon, ICONS[row.verdict] ?? "○");
    const since = row.verdict === "gone" && row.time > 0 ? ` Last seen at ${new Date(row.time).toLocaleTimeString("en-GB")}.` : "";
    say(shown.verdict, row.sentence + since);
    say(shown.facts.out, known(row.out, rate));
    say(shown.facts.in, known(row.in, rate));
    say(shown.facts.loop, row.measures_loop ? known(row.loop_lag_ms, duration) : "unknown");
    say(shown.facts.drops, known(row.drops, count));
    say(shown.facts.limits, known(row.limits, count));
    say(shown.facts.blocked, known(row.blocked, count));
  }
}

function paintSummary() {
  summary.classList.toggle("lost", state.isKnown && !state.isConnected);
  if (!state.isConnected) {
    say(summary, state.isKnown ? "No connection to the monitor: what is shown is old" : "Connecting");
    return;
  }
  const all = Object.values(state.drivers);
  const gone = all.filter((each) => each.failure !== "").length;
  const streams = all.reduce((sum, each) => sum + each.streams, 0);
  const trouble = all.reduce((sum, each) => sum + each.trouble, 0);
  const parts = [`${count(trouble)} of ${count(streams)} streams in trouble`];
  if (gone > 0) parts.push(`${count(gone)} of ${count(all.length)} drivers do not answer`);
  say(summary, parts.join("; "));
}

listen(() => {
  paintDrivers();
  paintSummary();
  page.update();
});
addEventListener("hashchange", route);
route();
watch();
