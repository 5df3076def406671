// What has changed: the newest events of all drivers.

import { el, renew, table, time } from "./format.js";
import { state } from "./store.js";

export function events(root) {
  const list = el("div");
  root.append(el("h2", {}, "Events"), list);
  let drawn = null;

  function update() {
    const newest = state.events.at(-1)?.number ?? -1;
    const known = `${newest} ${state.isKnown}`;
    if (known === drawn) return;
    drawn = known;
    const rows = [...state.events].reverse().map((each) => {
      const driver = state.drivers[each.driver];
      const text = each.stream === null ? each.text : el("a", { href: `#/stream/${encodeURIComponent(each.stream)}` }, each.text);
      return [time(each.time), driver === undefined ? "" : `${driver.host}:${driver.pid ?? "?"}`, each.what, text];
    });
    renew(list, table("The newest events first", [["Time"], ["Driver"], ["What"], ["Event"]], rows, "Nothing has changed yet."));
  }

  return { update, leave: () => {} };
}
