// state.js: a policy's state as a pill, and what comes next on the server's clock.
import { h, mark, put } from "./dom.js";
import { left, moment } from "./format.js";
import { serverNow } from "./clock.js";
import { t } from "./words.js";

export const STATE_WORDS = {
  SCHEDULED: t("Scheduled"),
  OPEN: t("Open"),
  PAUSED: t("Paused"),
  SOLD_OUT: t("Sold out"),
  CLOSED: t("Closed"),
};

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
  if (!sold_out_at) return t("nothing left");
  const took_ms = opens_at ? Date.parse(sold_out_at) - Date.parse(opens_at) : null;
  return took_ms !== null && took_ms >= 0 && took_ms < SOON_MS
    ? t("gone in {s} s", { s: (took_ms / 1000).toFixed(2) })
    : t("sold out {when}", { when: moment(sold_out_at, now) });
}

/* What the clock has to say about a policy: "opens in 00:12", "closes in 2 d 03:04:05", … */
export function nextWords(policy) {
  const now = serverNow();
  if (policy.state === "CLOSED") {
    return policy.closed_at ? t("closed {when}", { when: moment(policy.closed_at, now) }) : t("closed");
  }
  const opens = policy.opens_at ? Date.parse(policy.opens_at) : null;
  if (opens !== null && opens > now) return t("opens in {time}", { time: left(opens - now) });
  const closes = policy.closes_at ? Date.parse(policy.closes_at) : null;
  if (closes !== null && closes > now) return t("closes in {time}", { time: left(closes - now) });
  if (policy.state === "SOLD_OUT") return soldOutWords(policy, now);
  if (policy.state === "PAUSED") return t("claims are refused");
  return opens !== null ? t("opened {when}", { when: moment(policy.opens_at, now) }) : t("open until closed");
}
