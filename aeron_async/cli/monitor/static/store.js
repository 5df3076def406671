// What the page knows: one whole state, then differences, by server-sent events. A page that is
// hidden does not watch, since a browser has six connections for a host.

const EVENTS_MAX = 200;
const SPARK_POINTS = 40;
const AGAIN_MS = 3000;

export const state = {
  drivers: {}, streams: {}, order: [], events: [], more_streams: 0, without_history: 0,
  isConnected: false, isKnown: false,
};
const listeners = new Set();
let source = null;
let timer = null;
let isDue = false;

export function listen(listener) {
  listeners.add(listener);
}

function changed() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    for (const each of listeners) each();
  });
}

function onState(event) {
  Object.assign(state, JSON.parse(event.data));
  state.isConnected = state.isKnown = true;
  changed();
}

function onDifference(event) {
  const news = JSON.parse(event.data);
  // Drivers of which there is a new snapshot: what does not answer has no new rates.
  const looked = new Set(Object.keys(news.drivers).filter((id) => state.drivers[id]?.time !== news.drivers[id].time));
  Object.assign(state.drivers, news.drivers);
  for (const name of news.gone) delete state.streams[name];
  const fresh = new Set();
  for (const [name, row] of Object.entries(news.streams)) {
    if (state.streams[name] === undefined) {
      state.streams[name] = row;
      fresh.add(name);
    } else {
      Object.assign(state.streams[name], row);
    }
  }
  for (const [name, row] of Object.entries(state.streams)) {
    if (!fresh.has(name) && row.rate !== null && looked.has(row.driver)) {
      row.spark.push(row.rate);
      if (row.spark.length > SPARK_POINTS) row.spark.shift();
    }
  }
  if (news.order) state.order = news.order;
  state.events.push(...news.events);
  state.events.splice(0, state.events.length - EVENTS_MAX);
  state.more_streams = news.more_streams;
  state.without_history = news.without_history;
  state.isConnected = true;
  changed();
}

function onError() {
  state.isConnected = false;
  changed();
  // After an answer such as "too many pages", the browser does not try again by itself.
  if (source !== null && source.readyState === EventSource.CLOSED) {
    close();
    timer = setTimeout(open, AGAIN_MS);
  }
}

function open() {
  close();
  source = new EventSource("events");
  source.addEventListener("state", onState);
  source.addEventListener("difference", onDifference);
  source.addEventListener("error", onError);
}

function close() {
  clearTimeout(timer);
  if (source !== null) source.close();
  source = null;
}

export function watch() {
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) open(); });
  open();
}

// Ask for a page of one thing; null if there is none.
export async function ask(path, id) {
  try {
    const answer = await fetch(`api/${path}?id=${encodeURIComponent(id)}`);
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}
