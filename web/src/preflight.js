// preflight.js: what to know before a drop: is everything ready, and what could be lost.
import { get } from "./api.js";
import { h, put } from "./dom.js";
import { clockTime } from "./format.js";
import { told } from "./told.js";
import { t } from "./words.js";

const NAMES = {
  gate: t("Gate"),
  clock: t("Clock"),
  ledger: t("Ledger"),
  disk: t("Disk"),
  window: t("Window"),
  loss: t("What can be lost"),
  relay: t("Relay"),
  stock: t("Stock"),
  workers: t("Workers"),
  reserve: t("Reserve"),
  steward: t("Steward"),
  webhook: t("Webhook"),
};
const STATES = { fail: t("not ready"), warn: t("look at this"), ok: t("fine") };

/* What has to be looked at comes first. */
const RANKS = Object.keys(STATES);
const byUrgency = (a, b) => RANKS.indexOf(a.state) - RANKS.indexOf(b.state);

/* A card with a button; `run()` asks the server. */
export function preflight(id) {
  const verdict = h("p", { class: "preflight-verdict", role: "status" }, t("Not checked yet."));
  const list = h("ul", { class: "checks" });
  const button = h("button", { type: "button", onclick: () => run() }, t("Check now"));

  async function run() {
    button.disabled = true;
    try {
      const { ready, now, checks } = await get(`/v1/policies/${id}/preflight`);
      put(verdict, t(ready ? "Ready for the drop, checked at {time}." : "Not ready, checked at {time}.", {
          time: clockTime(now),
        }));
      verdict.dataset.state = ready ? "ok" : "fail";
      list.replaceChildren(
        ...checks.sort(byUrgency).map((check) =>
          h(
            "li",
            { "data-state": check.state },
            h("i", { class: "dot" }),
            h(
              "div",
              {},
              h("b", {}, NAMES[check.name] ?? check.name),
              h("span", { class: "sr" }, ` ${STATES[check.state] ?? check.state}: `),
              h("p", {}, told(check.words)),
            ),
          ),
        ),
      );
    } catch (problem) {
      put(verdict, told(problem.message));
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
        h("h2", { id: "preflight-title" }, t("Pre-flight check")),
        button,
      ),
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "group", "aria-label": t("What was checked") },
        verdict,
        list,
      ),
    ),
  };
}
