// preflight.js: what to know before a drop: is everything ready, and what could be lost.
import { get } from "./api.js";
import { h, put } from "./dom.js";
import { clockTime } from "./format.js";

const NAMES = {
  gate: "Gate",
  clock: "Clock",
  ledger: "Ledger",
  disk: "Disk",
  window: "Window",
  loss: "What can be lost",
  relay: "Relay",
  stock: "Stock",
  workers: "Workers",
};
const STATES = { ok: "fine", warn: "look at this", fail: "not ready" };

/* A card with a button; `run()` asks the server. */
export function preflight(id) {
  const verdict = h("p", { class: "preflight-verdict", role: "status" }, "Not checked yet.");
  const list = h("ul", { class: "checks" });
  const button = h("button", { type: "button", onclick: () => run() }, "Check now");

  async function run() {
    button.disabled = true;
    try {
      const { ready, now, checks } = await get(`/v1/policies/${id}/preflight`);
      put(verdict, `${ready ? "Ready for the drop" : "Not ready"}, checked at ${clockTime(now)}.`);
      verdict.dataset.state = ready ? "ok" : "fail";
      list.replaceChildren(
        ...checks.map((check) =>
          h(
            "li",
            { "data-state": check.state },
            h("i", { class: "dot" }),
            h(
              "div",
              {},
              h("b", {}, NAMES[check.name] ?? check.name),
              h("span", { class: "sr" }, ` ${STATES[check.state] ?? check.state}: `),
              h("p", {}, check.words),
            ),
          ),
        ),
      );
    } catch (problem) {
      put(verdict, problem.message);
      verdict.dataset.state = "fail";
    } finally {
      button.disabled = false;
    }
  }

  return {
    run,
    node: h(
      "section",
      { class: "card preflight", "aria-labelledby": "preflight-title" },
      h(
        "div",
        { class: "card-head" },
        h("h2", { id: "preflight-title" }, "Pre-flight check"),
        button,
      ),
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "group", "aria-label": "What was checked" },
        verdict,
        list,
      ),
    ),
  };
}
