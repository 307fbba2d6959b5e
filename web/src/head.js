// head.js: the top of a policy's page: its name, its sentence, what can be done, and the numbers.
import { policyActions } from "./actions.js";
import { serverNow } from "./clock.js";
import { h, put } from "./dom.js";
import { left, share, whole } from "./format.js";
import { sentenceOf } from "./preview.js";
import { nextWords, statePill } from "./state.js";
import { stockBar } from "./stock.js";
import { ownZone } from "./zones.js";
import { t } from "./words.js";

/* The numbers, large; `say(key, number, note)` fills one in. */
function keyNumbers() {
  const facts = Object.fromEntries(
    ["remaining", "issued", "pending", "given", "next"].map((key) => [
      key,
      { number: h("dd", {}, "–"), note: h("dd", { class: "soft" }, " ") },
    ]),
  );
  const fact = (key, title, swatch) =>
    h(
      "div",
      { class: `is-${key}` },
      h("dt", {}, swatch ? h("i", { class: `swatch is-${swatch}` }) : null, title),
      facts[key].number,
      facts[key].note,
    );
  const say = (key, number, note) => {
    put(facts[key].number, number);
    put(facts[key].note, note);
  };
  const node = h(
    "dl",
    {},
    fact("remaining", t("Left")),
    fact("issued", t("Issued"), "won"),
    fact("pending", t("Pending"), "pending"),
    fact("given", t("Given out")),
    fact("next", t("Clock")),
  );
  return { node, say };
}

/* The name, what it is in a sentence, what can be done, and the numbers. */
export function policyHead(id) {
  const name = h("h1", {}, t("Drop {id}", { id })),
    pill = statePill();
  const sentence = h("p", { class: "sentence" }, " ");
  const actions = policyActions(id);
  const bar = stockBar(t("Stock"));
  const { node: numbers, say } = keyNumbers();

  return {
    node: h(
      "header",
      { class: "policy-head" },
      h("a", { class: "back", href: "#/" }, t("← Board")),
      h(
        "div",
        { class: "policy-title" },
        h("div", {}, h("div", { class: "policy-name" }, name, pill.node), sentence),
        actions.node,
      ),
      h("section", { class: "card kpis", "aria-label": t("Numbers") }, numbers, bar.node),
    ),
    show(policy) {
      const now_ms = serverNow();
      const opens_ms = policy.opens_at ? Date.parse(policy.opens_at) - now_ms : 0;
      put(name, policy.name);
      put(sentence, `#${id} · ${sentenceOf(policy, ownZone(), now_ms)}`);
      pill.show(policy.state);
      actions.show(policy);
      bar.show(policy);
      say("remaining", whole(policy.remaining), t("of {n}", { n: whole(policy.total) }));
      say("issued", whole(policy.issued), t("in the ledger"));
      say("pending", whole(policy.pending), t("on their way"));
      say("given", share(policy.issued + policy.pending, policy.total), t("won by somebody"));
      if (policy.state === "SCHEDULED" && opens_ms > 0)
        say("next", left(opens_ms), t("until it opens"));
      else clockFact(say, policy, now_ms);
    },
  };
}

function clockFact(say, policy, now_ms) {
  const closes_ms = policy.closes_at ? Date.parse(policy.closes_at) - now_ms : 0;
  if (policy.state !== "CLOSED" && closes_ms > 0) say("next", left(closes_ms), t("until it closes"));
  else if (policy.state === "CLOSED") say("next", t("Over"), nextWords(policy));
  else
    say(
      "next",
      policy.state === "OPEN" ? t("Running") : policy.state === "PAUSED" ? t("Held") : t("Done"),
      nextWords(policy),
    );
}
