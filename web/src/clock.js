// clock.js: the server's time, as near as the network lets a page know it.
//
// Each message says what time it was when it was sent. The one that travelled fastest is the
// nearest to the truth, so the estimate only ever moves ahead, unless the server's clock was set
// back.

const STEP_MS = 2000;
let offset_ms = null;

/* Takes in the `now` of a message that has just arrived. */
export function heardTime(now) {
  const sent_ms = Date.parse(now);
  if (Number.isNaN(sent_ms)) return;
  const sample_ms = sent_ms - performance.now();
  if (offset_ms === null || sample_ms > offset_ms || sample_ms < offset_ms - STEP_MS) {
    offset_ms = sample_ms;
  }
}

/* The server's time in milliseconds since 1970; this machine's until the server has spoken. */
export function serverNow() {
  return offset_ms === null ? Date.now() : offset_ms + performance.now();
}

/* Calls `tick` now and then every `every_ms`; returns what ends it. */
export function ticking(every_ms, tick) {
  tick();
  const timer = setInterval(tick, every_ms);
  return () => clearInterval(timer);
}
