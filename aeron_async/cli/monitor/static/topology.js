// Who publishes what to whom: a picture, and the same as a table.

import { el, renew, svg, table } from "./format.js";
import { ask } from "./store.js";

const WIDTH = 900;
const BOX = { width: 190, height: 40 };
const STEP = 56;
const TOP = 34;
const COLUMNS = [["publishers", "Publishers", 10], ["streams", "Streams", 355], ["subscribers", "Subscribers", 700]];
const LONGEST = 26;

const cut = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);

export function topology(root) {
  const note = el("p", { class: "note" }, "Each line has its rate; one in trouble is dashed, and has ▲ and the cause.");
  const picture = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Topology as a picture" });
  const list = el("div");
  root.append(el("h2", {}, "Topology"), note, picture, el("h3", {}, "The same as a table"), list);
  let isAsking = false;
  let isLeft = false;
  let drawn = "";

  async function update() {
    if (isAsking || isLeft) return;
    isAsking = true;
    const graph = await ask("topology", "");
    isAsking = false;
    const text = JSON.stringify(graph);
    if (isLeft || graph === null || text === drawn) return;
    drawn = text;
    renew(picture, draw(graph));
    renew(list, asTable(graph));
  }

  return { update, leave: () => { isLeft = true; } };
}

function draw(graph) {
  const highest = Math.max(...COLUMNS.map(([name]) => graph[name].length), 1);
  const height = TOP + highest * STEP;
  const places = new Map();
  const nodes = [];
  for (const [name, heading, x] of COLUMNS) {
    nodes.push(svg("text", { x, y: 20, class: "faint" }, heading));
    const gap = (highest * STEP) / Math.max(graph[name].length, 1);
    graph[name].forEach((node, place) => {
      const y = TOP + place * gap + (gap - BOX.height) / 2;
      places.set(node.id, { x, y: y + BOX.height / 2 });
      nodes.push(box(node, x, y));
    });
  }
  const lines = [];
  const labels = [];
  for (const each of graph.edges) {
    const begin = places.get(each.from);
    const end = places.get(each.to);
    if (begin === undefined || end === undefined) continue;
    const from = begin.x + BOX.width;
    const middle = (from + end.x) / 2;
    const kind = each.trouble ? "bad" : null;
    lines.push(svg("path", { d: `M${from} ${begin.y} C${middle} ${begin.y} ${middle} ${end.y} ${end.x} ${end.y}`, class: kind }));
    // A little beyond the middle, where lines that begin or end together are apart.
    labels.push(svg("text", { x: middle + 12, y: begin.y * 0.35 + end.y * 0.65 - 4, "text-anchor": "middle", class: each.trouble ? "edge bad" : "edge faint" },
      each.trouble ? `▲ ${cut(each.label)}` : each.label));
  }
  return svg("svg", { class: "graph", viewBox: `0 0 ${WIDTH} ${height}`, role: "group", "aria-label": "Publishers, streams and subscribers" },
    ...lines, ...labels, ...nodes);
}

function box(node, x, y) {
  const parts = [
    svg("rect", { x, y, width: BOX.width, height: BOX.height, rx: 6 }),
    svg("text", { x: x + 8, y: y + (node.note ? 16 : 25) }, cut(node.label)),
  ];
  if (node.note) parts.push(svg("text", { x: x + 8, y: y + 32, class: "faint" }, cut(node.note)));
  const whole = svg("title", {}, node.note ? `${node.label}: ${node.note}` : node.label);
  let href = null;
  if (node.link) href = `#/stream/${encodeURIComponent(node.link)}`;
  else if (node.driver) href = `#/driver/${encodeURIComponent(node.driver)}`;
  if (href === null) return svg("g", {}, whole, ...parts);
  const label = node.link ? `Stream ${node.label}, ${node.note}` : `Driver ${node.label}`;
  return svg("a", { href, "aria-label": label }, whole, ...parts);
}

function asTable(graph) {
  const labels = new Map();
  for (const [name] of COLUMNS) for (const node of graph[name]) labels.set(node.id, node);
  const name = (id) => {
    const node = labels.get(id);
    if (node === undefined) return "";
    return node.note ? `stream ${node.label} (${node.note})` : node.label;
  };
  const found = [table("From publishers to streams, and from streams to subscribers", [["From"], ["To"], ["Flow"], ["Trouble"]],
    graph.edges.map((each) => [name(each.from), name(each.to), each.trouble ? `▲ ${each.label}` : each.label, each.sentence]),
    "No streams.")];
  if (graph.more_streams > 0) found.push(el("p", { class: "note" }, `${graph.more_streams} more streams, with less trouble, are not drawn.`));
  if (graph.more_ends > 0) found.push(el("p", { class: "note" }, `${graph.more_ends} more publications, images or receivers are not drawn.`));
  return el("div", {}, ...found);
}
