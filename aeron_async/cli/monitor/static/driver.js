// The page of one driver: its budgets, limits, cycles and sockets.

import { bytes, count, duration, el, fact, renew, say, table, words } from "./format.js";
import { ask, state } from "./store.js";

export function driver(root, id) {
  const title = el("h2", {}, "Driver");
  const where = el("p", { class: "note" });
  const body = el("div");
  root.append(el("p", {}, el("a", { href: "#/" }, "All streams")), title, where, body);
  let isAsking = false;
  let isLeft = false;
  let drawn = "";
  let isOpen = false;

  async function update() {
    if (isAsking || isLeft) return;
    isAsking = true;
    const found = await ask("driver", id);
    isAsking = false;
    if (isLeft) return;
    if (found === null) {
      say(where, state.isConnected ? "The monitor does not know this driver." : "No connection to the monitor.");
      return;
    }
    const row = found.row;
    say(title, `Driver ${row.host}:${row.pid ?? "?"}`);
    say(where, `${row.path}${row.version ? ` · version ${row.version}` : ""}${row.source ? ` · from its ${row.source === "driver" ? "own statistics" : "counters"}` : ""}${row.remark ? ` · ${row.remark}` : ""}`);
    // What is read or focused must not be made anew if only the time has changed.
    const text = JSON.stringify({ ...found, row: { ...row, time: null } });
    if (text === drawn) return;
    drawn = text;
    isOpen = body.querySelector("details")?.open ?? isOpen;
    renew(body, ...sections(found));
  }

  function sections(found) {
    const row = found.row;
    const parts = [];
    const list = row.causes.map((each) => el("li", {}, el("b", {}, `▲ ${each.word}`), ` ${each.sentence}. `, el("br"), `To do: ${each.remedy}.`));
    if (row.failure) list.unshift(el("li", {}, el("b", {}, "◌ no answer"), ` ${row.failure}`));
    parts.push(list.length === 0 ? el("p", { class: "status ok" }, `● ${row.sentence}`) : el("ul", { class: "causes" }, ...list));
    if (found.budgets === undefined) return parts;
    parts.push(el("h3", {}, "Budgets"), table("Bounded resources", [["Budget"], ["Used", true], ["Limit", true], ["Share"]],
      found.budgets.map((each) => [words(each.name), count(each.used), count(each.limit), meter(each)]), "None is known from here."));
    parts.push(el("h3", {}, "Limits that were reached"), table("Limits", [["Limit"], ["In all", true], ["Last 10 s", true]],
      found.limits.map((each) => [words(each.name), count(each.count), count(each.recent)]), "None was reached."));
    parts.push(el("h3", {}, "Event loop and duty cycles"));
    if (found.loop_lag_count !== null) {
      parts.push(el("p", {}, `The event loop was late ${count(found.loop_lag_count)} times, by at most ${duration((found.loop_lag_max_ns ?? 0) / 1e6)}.`));
    }
    parts.push(table("Duty cycles", [["Agent"], ["Longest", true], ["Too long", true]],
      found.cycles.map((each) => [each.agent, duration(each.max_ns / 1e6), count(each.exceeded_count)]), "None is known from here."));
    parts.push(el("h3", {}, "Sockets"), table("Sockets that receive", [["Address"], ["Dropped", true], ["Last 10 s", true], ["Queued", true], ["Buffer", true]],
      found.sockets.map((each) => [each.address, count(each.drop_count), count(each.recent), bytes(each.queued_bytes), bytes(each.buffer_bytes)]),
      "None is known from here."));
    parts.push(el("details", { open: isOpen }, el("summary", { "aria-label": "All counters" }, "All counters"), table("Counters", [["Counter"], ["Value", true]],
      found.counters.map(([name, value]) => [words(name), fact("", value)]), "None.")));
    return parts;
  }

  return { update, leave: () => { isLeft = true; } };
}

function meter(budget) {
  if (!(budget.limit > 0)) return "";
  const share = Math.round((100 * budget.used) / budget.limit);
  const bar = el("meter", { min: 0, max: budget.limit, high: budget.limit * 0.95, value: budget.used, "aria-label": `${words(budget.name)} used` });
  return el("span", {}, bar, ` ${share} %`);
}
