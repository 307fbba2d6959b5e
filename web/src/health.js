// health.js: a light for each part of the server, with its words.
import { h, mark, put } from "./dom.js";
import { told } from "./told.js";
import { t } from "./words.js";

const NAMES = ["gate", "ledger", "relay", "reconciliation"];
const TITLES = {
  gate: t("Gate"),
  ledger: t("Ledger"),
  relay: t("Relay"),
  reconciliation: t("Reconciliation"),
  workers: t("Workers"), // of a shared gate only
  webhook: t("Webhook"), // where one is set
};
const STATES = { ok: t("fine"), degraded: t("degraded"), down: t("down"), unknown: t("unknown") };

/* People win without these. */
const WITHOUT = new Set(["workers", "webhook"]);

/* What `/readyz` says, as the stream of the board says it. */
export function partsOf(readiness) {
  return readiness.parts.map(({ name, kind, ready, detail }) => ({
    name: name === "steward" ? "reconciliation" : name,
    state: ready ? "ok" : WITHOUT.has(name) ? "degraded" : "down",
    words: detail !== "ok" ? detail : name === "steward" ? t("in order") : kind,
  }));
}

/* What the board's stream says, with the kind of each part where there is nothing to tell. */
export function partsWithKinds(parts, server) {
  return parts.map((part) => ({
    ...part,
    words: part.words === "ok" ? (server[part.name] ?? t("in order")) : part.words,
  }));
}

/* The lights; `show(parts)` takes what the server says of them. */
export function healthLights() {
  const lights = new Map(NAMES.map((name) => [name, light(TITLES[name])]));
  const node = h(
    "ul",
    { class: "lights", "aria-label": t("Health") },
    [...lights.values()].map(({ node }) => node),
  );
  function lightOf(name) {
    if (!lights.has(name)) {
      lights.set(name, light(TITLES[name] ?? name));
      node.append(lights.get(name).node);
    }
    return lights.get(name);
  }
  return {
    node,
    show(parts) {
      for (const part of parts) lightOf(part.name).show(part);
    },
  };
}

function light(title) {
  const state = h("span", { class: "sr" }, t("unknown"));
  const words = h("span", { class: "light-words" }, "…");
  const node = h(
    "li",
    { "data-state": "unknown" },
    h("i", { class: "dot" }),
    h("b", {}, title),
    state,
    words,
  );
  return {
    node,
    show(part) {
      mark(node, "data-state", part.state);
      put(state, STATES[part.state] ?? part.state);
      put(words, told(part.words));
      mark(node, "title", told(part.words));
    },
  };
}
