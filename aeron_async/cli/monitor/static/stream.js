// The page of one stream: why it is in trouble, its last hour, who holds it back, what was lost.

import { bytes, count, duration, el, fact, percent, perSecond, rate, renew, say, streamName, table, time, words } from "./format.js";
import { plot, summary } from "./plots.js";
import { ask, state } from "./store.js";

const LOSSES = ["gap", "socket_drop", "over_run", "unfilled", "left_behind", "forged", "malformed", "refused"];
const HISTORY_MS = 2000;
const PLOTS = [
  ["Rate", [["rate", "rate"]], rate, 1000],
  ["Lag", [["lag", "lag"]], bytes, 1000],
  ["Age of what is not read", [["lag_ms", "age"]], duration, 10],
  ["Loss by cause", LOSSES.map((each) => [each, each]), rate, 1000],
  ["Time in which offers waited", [["blocked", "blocked"]], percent, 1],
  ["NAKs", [["naks", "NAKs"]], perSecond, 10],
];

export function stream(root, id) {
  const title = el("h2", {}, "Stream");
  const where = el("p", { class: "note" });
  const body = el("div");
  const plots = el("div", { class: "plots" });
  const figures = el("div");
  const details = el("div");
  root.append(el("p", {}, el("a", { href: "#/" }, "All streams")), title, where, body,
    el("h3", {}, "The last hour"), plots, figures, details);
  const drawn = new Map();
  let isAsking = false;
  let historyTime = -Infinity;
  let isLeft = false;
  let shape = "";

  async function update() {
    if (isAsking || isLeft) return;
    isAsking = true;
    const found = await ask("stream", id);
    if (!isLeft) show(found);
    if (!isLeft && found !== null && found.has_history && performance.now() - historyTime >= HISTORY_MS) {
      historyTime = performance.now();
      const history = await ask("history", id);
      if (!isLeft && history !== null) draw(history);
    }
    isAsking = false;
  }

  function show(found) {
    if (found === null) {
      say(where, state.isConnected ? "This stream has gone, or the monitor does not know it." : "No connection to the monitor.");
      return;
    }
    const row = found.row;
    const driver = state.drivers[row.driver];
    say(title, streamName(row));
    const place = driver === undefined ? "" : ` · ${driver.host}:${driver.pid ?? "?"}`;
    say(where, `${row.channel}${place}${row.state ? ` · ${row.state}` : ""}`);
    // What is read or focused must not be made anew if nothing has changed.
    const text = JSON.stringify([found.causes, found.facts, found.receivers, found.readers, found.losses, found.episodes, found.events, driver?.failure]);
    if (text === shape) return;
    shape = text;
    renew(body, causes(found.causes, driver));
    renew(details, ...sections(found));
  }

  function draw(history) {
    const rows = [];
    for (const [name, columns, show, floor] of PLOTS) {
      const known = columns.filter(([key]) => (history[key] ?? []).some((each) => each !== null));
      const isLoss = columns.length > 1;
      if (known.length === 0 && !drawn.has(name)) continue;
      if (!drawn.has(name)) {
        drawn.set(name, plot(name, columns, show, floor));
        plots.append(drawn.get(name).figure);
      }
      drawn.get(name).update(history);
      for (const [key, label] of known) {
        const { now, mean, highest } = summary(history[key]);
        rows.push([isLoss ? `Lost by ${label}` : name, ...[now, mean, highest].map((each) => (each === null ? "" : show(each)))]);
      }
    }
    renew(figures, table("The plots in figures",
      [["What"], ["Now", true], ["Mean", true], ["Highest", true]], rows, "No points yet."));
  }

  return {
    update,
    leave() {
      isLeft = true;
      for (const each of drawn.values()) each.leave();
    },
  };
}

function causes(found, driver) {
  const list = found.map((each) => el("li", {}, el("b", {}, `▲ ${each.word}`), ` ${each.sentence}. `, el("br"), `To do: ${each.remedy}.`));
  if (driver !== undefined && driver.failure !== "") {
    list.unshift(el("li", {}, el("b", {}, "◌ no answer"), ` What is shown is old: ${driver.failure}`));
  }
  return list.length === 0 ? el("p", { class: "status ok" }, "● No trouble.") : el("ul", { class: "causes" }, ...list);
}

function sections(found) {
  const parts = [];
  if (found.row.kind === "pub") {
    parts.push(el("h3", {}, "Receivers and readers"), table("Who receives it, the furthest behind first",
      [["Receiver"], ["Kind"], ["Address"], ["Position", true], ["Window", true], ["Behind", true], ["Silent", true]],
      found.receivers.map((each) => [each.id, each.kind, each.address, count(each.position), count(each.window_bytes), bytes(each.lag_bytes),
        each.silent_ns === null ? "" : duration(each.silent_ns / 1e6)]),
      "None is known."));
    if (found.more_receivers > 0) parts.push(el("p", { class: "note" }, `${count(found.more_receivers)} more are not shown.`));
  }
  if (found.row.kind === "img") {
    parts.push(el("h3", {}, "Readers"), table("Subscriptions that read it",
      [["Subscription"], ["Position", true], ["Behind", true]],
      found.readers.map((each) => [String(each.registration_id), count(each.position), bytes(each.lag_bytes)]), "None."));
    if (found.more_readers > 0) parts.push(el("p", { class: "note" }, `${count(found.more_readers)} more are not shown.`));
    parts.push(el("h3", {}, "Losses"), table("Losses since it joined, by cause",
      [["Cause"], ["Times", true], ["Bytes", true], ["Now", true]],
      found.losses.map((each) => [each.cause, count(each.count), bytes(each.bytes), rate(each.per_second)]), "Nothing was lost."));
    parts.push(el("h3", {}, "Loss timeline"), table("When it lost what, the newest first",
      [["From"], ["Until"], ["Cause"], ["Times", true], ["Bytes", true]],
      [...found.episodes].reverse().map((each) => [time(each.begin_ms), time(each.end_ms), each.cause, count(each.count), bytes(each.bytes)]),
      "Nothing was lost while this monitor looked."));
  }
  parts.push(el("h3", {}, "Facts"), el("dl", { class: "facts" }, ...found.facts.map(([name, value]) =>
    el("div", {}, el("dt", {}, words(name)), el("dd", {}, fact(name, value))))));
  parts.push(el("h3", {}, "Events"), table("Events of this stream, the newest first", [["Time"], ["What"], ["Event"]],
    [...found.events].reverse().map((each) => [time(each.time), each.what, each.text]), "None yet."));
  return parts;
}
