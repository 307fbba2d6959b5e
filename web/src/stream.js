// stream.js: server-sent events that come back by themselves after whatever broke them.
//
// EventSource cannot send a token, gives up for good on an HTTP error and never notices a silent
// connection; this reads the same format through fetch and does.

const FIRST_WAIT_MS = 400;
const LONGEST_WAIT_MS = 8000;

/* Opens `path` and keeps it open. `on[event](value)` gets each event's JSON; `state(name, detail)`
   hears "connecting" (once), "live", "waiting" (broken, trying again), "refused" (an answer that
   trying again would not change; detail is its status) and "ended" (with `ends`, when the server
   has said all). Nothing for `quiet_ms` counts as broken. Returns what closes it. */
export function follow(path, { on, state = () => {}, headers, quiet_ms = 40000, ends = false }) {
  const life = { closed: false, wait_ms: FIRST_WAIT_MS, abort: null, wake: null };
  const again = () => {
    if (document.visibilityState === "visible") life.wake?.();
  };
  const close = () => {
    life.closed = true;
    life.abort?.abort();
    life.wake?.();
    document.removeEventListener("visibilitychange", again);
    removeEventListener("online", again);
  };
  document.addEventListener("visibilitychange", again);
  addEventListener("online", again);

  (async () => {
    state("connecting");
    while (!life.closed) {
      const end = await readOnce(path, { on, state, headers, quiet_ms, life });
      if (life.closed) return;
      if (end === "done" && ends) return (state("ended"), close());
      if (typeof end === "number" && end < 500 && end !== 429 && end !== 408) {
        return (state("refused", end), close());
      }
      state("waiting");
      await pause(life);
    }
  })();
  return close;
}

/* One connection, until it ends: "done", "broken" or the status that refused it. */
async function readOnce(path, { on, state, headers, quiet_ms, life }) {
  life.abort = new AbortController();
  let watchdog = setTimeout(() => life.abort.abort(), quiet_ms);
  try {
    const answer = await fetch(path, {
      signal: life.abort.signal,
      credentials: "same-origin",
      cache: "no-store",
      headers: { Accept: "text/event-stream", ...headers },
    });
    if (!answer.ok) return answer.status;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parse = parser((event, text) => on[event]?.(JSON.parse(text)));
    state("live");
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return "done";
      clearTimeout(watchdog);
      watchdog = setTimeout(() => life.abort.abort(), quiet_ms);
      life.wait_ms = FIRST_WAIT_MS;
      parse(value);
    }
  } catch {
    return "broken";
  } finally {
    clearTimeout(watchdog);
    life.abort.abort();
  }
}

/* Waits before the next try, longer each time and never all at once with everybody else. */
function pause(life) {
  const wait_ms = life.wait_ms * (0.5 + Math.random());
  life.wait_ms = Math.min(life.wait_ms * 2, LONGEST_WAIT_MS);
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, wait_ms);
    life.wake = () => {
      clearTimeout(timer);
      resolve();
    };
  }).finally(() => {
    life.wake = null;
  });
}

/* Returns what takes text in pieces and calls `heard` for each whole event. */
export function parser(heard) {
  let rest = "",
    event = "message",
    lines = [];
  return (piece) => {
    const all = (rest + piece).split("\n");
    rest = all.pop();
    for (const raw of all) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (lines.length) heard(event, lines.join("\n"));
        event = "message";
        lines = [];
      } else if (line.startsWith("event:")) event = line.slice(6).trim();
      else if (line.startsWith("data:")) lines.push(line.slice(line[5] === " " ? 6 : 5));
    }
  };
}
