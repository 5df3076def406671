// The page of the exchange. What the gateway says is written as text, never as markup.

const DEPTH = 12;
const TAPE = 24;
const POINTS = 600;
const WAIT_MS = 500;
const AGAIN_MS = 2000;
const $ = (id) => document.getElementById(id);
const cents = (price) => (price / 100).toFixed(2);
const micro = (ns) => (ns < 1e6 ? `${(ns / 1e3).toFixed(0)} µs` : `${(ns / 1e6).toFixed(1)} ms`);
const account = localStorage.account ??= `web-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;
const unanswered = new Map(); // by client order id: sent again when the connection comes back
const resting = new Map(); // by order id
const leftOf = new Map(); // by order id, as fills said: they may come before the answer
const points = new Map(); // by symbol: [time, price], the oldest first
let symbol = "";
let lastId = Date.now() * 1000;
let market = null;
let orders = null;
let lastTrade = new Map();
let shown = null; // the newest book, until the next frame draws it
let version = 0;
let skipped = 0;

const address = (path) => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`;

function element(name, text = "", className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function rows(body, count) {
  for (let at = 0; at < count; at += 1) {
    const row = body.insertRow();
    for (let cell = 0; cell < 4; cell += 1) row.insertCell();
  }
}

function put(row, ...texts) {
  texts.forEach((text, at) => {
    const cell = row.cells[at];
    if (cell.textContent !== text) cell.textContent = text;
  });
}

// Market data.

function watch(name) {
  symbol = name;
  shown = null;
  version = 0;
  for (const each of $("symbols").children) each.setAttribute("aria-pressed", each.textContent === name);
  market?.close();
  const socket = market = new WebSocket(address(`/ws/market?symbol=${name}`));
  socket.onmessage = (event) => {
    if (socket !== market) return;
    const message = JSON.parse(event.data);
    if (message.type === "status") return showState(message);
    if (message.type !== "book") return;
    if (version) skipped += Math.max(0, message.version - version - 1);
    version = message.version;
    if (!shown) requestAnimationFrame(draw);
    shown = message;
  };
  socket.onclose = () => {
    if (socket !== market) return;
    showState(null);
    setTimeout(() => socket === market && watch(symbol), WAIT_MS);
  };
}

function showState(status) {
  const state = $("state");
  state.classList.toggle("away", !status?.engine);
  if (!status) state.textContent = "No connection to the gateway";
  else if (!status.engine) state.textContent = "The engine is away: orders wait until it is back";
  else {
    const agreed = status.differing
      ? `the replicas DIFFER at command ${status.differing}`
      : `both replicas agree up to command ${status.agreed}`;
    state.textContent = `Open; ${agreed}${status.losses ? `; the engine was lost ${status.losses === 1 ? "once" : `${status.losses} times`}` : ""}`;
  }
}

function draw() {
  const book = shown;
  shown = null;
  if (!book) return;
  const most = Math.max(1, ...book.bids.concat(book.asks).map(([, quantity]) => quantity));
  side($("asks"), book.asks, most, "▼ ask", (at) => DEPTH - 1 - at);
  side($("bids"), book.bids, most, "▲ bid", (at) => at);
  const [bid, ask] = [book.bids[0]?.[0], book.asks[0]?.[0]];
  $("spread").textContent = bid && ask ? `spread ${cents(ask - bid)}` : "one side is empty";
  const trades = book.trades;
  for (const [number, time, , price] of trades) {
    if (number <= (lastTrade.get(book.symbol) ?? 0)) continue;
    lastTrade.set(book.symbol, number);
    const known = points.get(book.symbol) ?? [];
    known.push([time, price]);
    points.set(book.symbol, known.slice(-POINTS));
  }
  [...trades].reverse().slice(0, TAPE).forEach(([, time, taker, price, quantity], at) => {
    const row = $("tape").rows[at];
    put(row, new Date(time).toLocaleTimeString(), taker === "BUY" ? "▲ buy" : "▼ sell", cents(price), `${quantity}`);
    row.className = taker === "BUY" ? "buy" : "sell";
  });
  for (let at = trades.length; at < TAPE; at += 1) put($("tape").rows[at], "", "", "", "");
  const price = trades.at(-1)?.[3];
  $("last").textContent = price ? cents(price) : "";
  if (price && !$("price").value) $("price").value = cents(price);
  $("skipped").textContent = `${skipped} changes left out, for newer ones came before they were drawn`;
  chart(points.get(book.symbol) ?? []);
}

function side(body, levels, most, name, place) {
  for (let at = 0; at < DEPTH; at += 1) {
    const row = body.rows[place(at)];
    const level = levels[at];
    row.style.setProperty("--depth", level ? `${(level[1] * 100) / most}%` : "0%");
    row.dataset.price = level ? cents(level[0]) : "";
    if (level) put(row, name, cents(level[0]), `${level[1]}`, `${level[2]}`);
    else put(row, "", "", "", "");
  }
}

function chart(known) {
  const canvas = $("chart");
  const scale = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
  if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  if (!known.length) return;
  const prices = known.map(([, price]) => price);
  const [low, high] = [Math.min(...prices), Math.max(...prices)];
  canvas.setAttribute("aria-label", `Last prices of ${symbol}: now ${cents(prices.at(-1))}, between ${cents(low)} and ${cents(high)}`);
  const style = getComputedStyle(document.documentElement);
  const right = width - 62;
  const x = (at) => 4 + ((right - 8) * at) / Math.max(1, known.length - 1);
  const y = (price) => 12 + (height - 24) * (high === low ? 0.5 : (high - price) / (high - low));
  pen.font = "12px system-ui, sans-serif";
  pen.fillStyle = style.getPropertyValue("--soft");
  pen.strokeStyle = style.getPropertyValue("--line");
  for (const price of new Set([low, Math.round((low + high) / 2), high])) {
    pen.fillText(cents(price), right + 4, y(price) + 4);
    pen.beginPath();
    pen.moveTo(0, y(price));
    pen.lineTo(right, y(price));
    pen.stroke();
  }
  pen.strokeStyle = style.getPropertyValue("--mark");
  pen.lineWidth = 2;
  pen.beginPath();
  // A trade holds until the next one: steps.
  known.forEach(([, price], at) => {
    if (at) pen.lineTo(x(at), y(known[at - 1][1]));
    pen.lineTo(x(at), y(price));
  });
  pen.stroke();
}

// Orders.

function trade() {
  const socket = orders = new WebSocket(address(`/ws/orders?account=${account}`));
  socket.onopen = () => {
    // Those that have no answer are sent again: the engine knows them by their numbers.
    for (const id of unanswered.keys()) transmit(id);
  };
  socket.onmessage = (event) => {
    const message = JSON.parse(event.data);
    if (message.type === "ack") onAck(message);
    else if (message.type === "fill") onFill(message);
    else if (message.type === "error") onRefused(message);
  };
  socket.onclose = () => setTimeout(trade, WAIT_MS);
}

function send(body) {
  lastId += 1;
  const whole = { ...body, account, client_order_id: lastId };
  unanswered.set(lastId, { body: whole, sentAt: performance.now() });
  say(transmit(lastId) ? "Sent" : "It will be sent when the gateway is back");
}

function transmit(id) {
  const asked = unanswered.get(id);
  if (!asked || orders.readyState !== WebSocket.OPEN) return false;
  orders.send(JSON.stringify(asked.body));
  return true;
}

function say(text) {
  $("said").textContent = text;
}

function onAck(ack) {
  const asked = unanswered.get(ack.client_order_id);
  if (!asked) return;
  unanswered.delete(ack.client_order_id);
  const { body, sentAt } = asked;
  way(ack, (performance.now() - sentAt) * 1e6);
  if (ack.status === "REJECTED") {
    say(`Order rejected: ${ack.reason.toLowerCase().replaceAll("_", " ")}`);
    if (body.type === "cancel") resting.delete(body.order_id);
  } else if (body.type === "cancel") {
    resting.delete(ack.order_id);
    say(`Order ${ack.order_id} cancelled`);
  } else {
    const repeated = ack.is_repeated ? ", known from before" : "";
    say(`Order ${ack.order_id} ${ack.status.toLowerCase()}: ${ack.filled} filled, ${ack.remaining} left${repeated}`);
    const left = Math.min(leftOf.get(ack.order_id) ?? Infinity, ack.remaining);
    if (ack.status === "RESTING" && left) resting.set(ack.order_id, { ...body, remaining: left });
  }
  list();
}

function onFill(fill) {
  const left = Math.min(leftOf.get(fill.order_id) ?? Infinity, fill.remaining);
  leftOf.delete(fill.order_id);
  leftOf.set(fill.order_id, left);
  if (leftOf.size > 1000) leftOf.delete(leftOf.keys().next().value);
  const order = resting.get(fill.order_id);
  if (!order || order.remaining <= left) return;
  order.remaining = left;
  if (!left) resting.delete(fill.order_id);
  say(`Order ${fill.order_id}: ${fill.quantity} traded at ${cents(fill.price)}, ${left} left`);
  list();
}

function onRefused({ client_order_id: id, error, again }) {
  if (again && unanswered.has(id)) {
    // It may have been done: only the same number keeps it from being done twice.
    setTimeout(() => transmit(id), AGAIN_MS);
    say("There is no answer yet: it is sent again");
    return;
  }
  unanswered.delete(id);
  say(`Not done: ${error}`);
}

function list() {
  $("mine").replaceChildren(
    ...[...resting].reverse().map(([id, order]) => {
      const what = `${order.side === "BUY" ? "▲ buy" : "▼ sell"} ${order.remaining} ${order.symbol} at ${cents(order.price)}`;
      const item = element("li");
      const button = element("button", "Cancel");
      button.setAttribute("aria-label", `Cancel order ${id}: ${what}`);
      button.onclick = () => send({ type: "cancel", order_id: id });
      item.append(element("span", what, order.side === "BUY" ? "buy" : "sell"), button);
      return item;
    }),
  );
}

function way(ack, total) {
  const inside = ack.queued_ns + ack.recorded_ns + ack.matched_ns;
  const parts = [
    ["Browser and gateway", Math.max(0, total - ack.call_ns)],
    ["Gateway and engine", Math.max(0, ack.call_ns - inside)],
    ["Recorded in the log", ack.queued_ns + ack.recorded_ns],
    ["Matched", ack.matched_ns],
  ];
  $("bar").replaceChildren(
    ...parts.map(([, ns], at) => {
      const made = element("span", "", `part-${at + 1}`);
      made.style.flexGrow = ns;
      return made;
    }),
  );
  const lines = [...parts, ["Altogether", total]].map(([name, ns], at) => {
    const line = element("div", "", at < parts.length ? `part-${at + 1}` : "");
    line.append(element("dt", name), element("dd", micro(ns)));
    return line;
  });
  $("parts").replaceChildren(...lines);
}

function onSubmit(event) {
  event.preventDefault();
  const form = new FormData(event.target);
  const kind = form.get("kind");
  const price = kind === "MARKET" ? 0 : Math.round(Number(form.get("price")) * 100);
  send({ type: "order", symbol, side: form.get("side"), kind, price, quantity: Number(form.get("quantity")) });
}

async function begin() {
  $("account").textContent = account;
  rows($("asks"), DEPTH);
  rows($("bids"), DEPTH);
  rows($("tape"), TAPE);
  $("form").onsubmit = onSubmit;
  $("form").onchange = () => ($("price").disabled = $("form").elements.kind.value === "MARKET");
  for (const body of [$("asks"), $("bids")]) {
    body.onclick = ({ target }) => {
      const price = target.closest("tr")?.dataset.price;
      if (price) $("price").value = price;
    };
  }
  const names = await (await fetch("/api/symbols")).json();
  for (const name of names) {
    const button = element("button", name);
    button.onclick = () => {
      $("price").value = "";
      watch(name);
    };
    $("symbols").append(button);
  }
  matchMedia("(prefers-color-scheme: dark)").onchange = () => chart(points.get(symbol) ?? []);
  new ResizeObserver(() => chart(points.get(symbol) ?? [])).observe($("chart"));
  watch(names[0]);
  trade();
}

begin();
