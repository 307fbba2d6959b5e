// health.js: a light for each part of the server, with its words.
import { h, mark, put } from "./dom.js";

const NAMES = ["gate", "ledger", "relay", "reconciliation"];
const TITLES = {
  gate: "Gate",
  ledger: "Ledger",
  relay: "Relay",
  reconciliation: "Reconciliation",
  workers: "Workers", // of a shared gate only
  webhook: "Webhook", // where one is set
};
const STATES = { ok: "fine", degraded: "degraded", down: "down", unknown: "unknown" };

/* People win without these. */
const WITHOUT = new Set(["workers", "webhook"]);

/* What `/readyz` says, as the stream of the board says it. */
export function partsOf(readiness) {
  return readiness.parts.map(({ name, kind, ready, detail }) => ({
    name: name === "steward" ? "reconciliation" : name,
    state: ready ? "ok" : WITHOUT.has(name) ? "degraded" : "down",
    words: detail === "ok" ? kind : detail,
  }));
}

/* What the board's stream says, with the kind of each part where there is nothing to tell. */
export function partsWithKinds(parts, server) {
  return parts.map((part) => ({
    ...part,
    words: part.words === "ok" ? (server[part.name] ?? "in order") : part.words,
  }));
}

/* The lights; `show(parts)` takes what the server says of them. */
export function healthLights() {
  const lights = new Map(NAMES.map((name) => [name, light(TITLES[name])]));
  const node = h(
    "ul",
    { class: "lights", "aria-label": "Health" },
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
  const state = h("span", { class: "sr" }, "unknown");
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
      put(words, part.words);
      mark(node, "title", part.words);
    },
  };
}
