// state.js: a policy's state as a pill, and what comes next on the server's clock.
import { h, mark, put } from "./dom.js";
import { left, moment, STATE_WORDS } from "./format.js";
import { serverNow } from "./clock.js";

export function statePill() {
  const words = h("span", {}, "\u00a0");
  const node = h("span", { class: "pill" }, h("i", { class: "dot" }), words);
  return {
    node,
    show(state) {
      mark(node, "data-state", state);
      put(words, STATE_WORDS[state] ?? state);
    },
  };
}

const SOON_MS = 600000;

/* "gone in 2.31 s" when it went fast, else when the last one went. */
function soldOutWords({ opens_at, sold_out_at }, now) {
  if (!sold_out_at) return "nothing left";
  const took_ms = opens_at ? Date.parse(sold_out_at) - Date.parse(opens_at) : null;
  return took_ms !== null && took_ms >= 0 && took_ms < SOON_MS
    ? `gone in ${(took_ms / 1000).toFixed(2)} s`
    : `sold out ${moment(sold_out_at, now)}`;
}

/* What the clock has to say about a policy: "opens in 00:12", "closes in 2 d 03:04:05", … */
export function nextWords(policy) {
  const now = serverNow();
  if (policy.state === "CLOSED") {
    return policy.closed_at ? `closed ${moment(policy.closed_at, now)}` : "closed";
  }
  const opens = policy.opens_at ? Date.parse(policy.opens_at) : null;
  if (opens !== null && opens > now) return `opens in ${left(opens - now)}`;
  const closes = policy.closes_at ? Date.parse(policy.closes_at) : null;
  if (closes !== null && closes > now) return `closes in ${left(closes - now)}`;
  if (policy.state === "SOLD_OUT") return soldOutWords(policy, now);
  if (policy.state === "PAUSED") return "claims are refused";
  return opens !== null ? `opened ${moment(policy.opens_at, now)}` : "open until closed";
}
