// now.js: the one policy that matters most right now, large.
import { serverNow } from "./clock.js";
import { h, mark, put } from "./dom.js";
import { left, share, whole } from "./format.js";
import { nextWords, statePill } from "./state.js";
import { stockBar } from "./stock.js";
import { byUrgency } from "./policies.js";
import { t } from "./words.js";

const LINGER_MS = 20000;

/* The most urgent policy, but one that sold out before our eyes stays for a moment. */
function chooser() {
  let last = null,
    leaves_ms = 0;
  return (all) => {
    const first = [...all].sort(byUrgency)[0];
    const same = last && all.find(({ id }) => id === last.id);
    if (same?.state === "SOLD_OUT" && last.state === "OPEN") leaves_ms = serverNow() + LINGER_MS;
    const isStaying = same?.state === "SOLD_OUT" && serverNow() < leaves_ms;
    last = isStaying ? same : first;
    return last;
  };
}

export function policyNow() {
  const choose = chooser();
  const pill = statePill();
  const name = h("a", { class: "now-name", href: "#/" }, "…");
  const next = h("p", { class: "now-next" });
  const number = h("b", { class: "now-number" }, "–");
  const words = h("span", { class: "now-words" });
  const bar = stockBar(t("Stock"));
  const issued = h("dd", {}, "–"),
    pending = h("dd", {}, "–"),
    sold = h("dd", {}, "–");
  const node = h(
    "section",
    { class: "card now", "aria-labelledby": "now-title" },
    h("div", { class: "now-head" }, h("h2", { id: "now-title" }, name), pill.node),
    next,
    h("p", { class: "now-figure" }, number, words),
    bar.node,
    h(
      "dl",
      { class: "now-facts" },
      h("div", {}, h("dt", {}, h("i", { class: "swatch is-won" }), t("Issued")), issued),
      h("div", {}, h("dt", {}, h("i", { class: "swatch is-pending" }), t("Pending")), pending),
      h("div", {}, h("dt", {}, t("Given out")), sold),
    ),
  );
  return {
    node,
    show(all) {
      const policy = choose(all);
      mark(node, "data-empty", policy ? null : "true");
      if (!policy) {
        put(name, t("Nothing is being handed out"));
        mark(name, "href", "#/new");
        put(words, t("Make a drop to begin."));
        put(next, "");
        return;
      }
      const opens_ms = policy.opens_at ? Date.parse(policy.opens_at) - serverNow() : 0;
      const isWaiting = policy.state === "SCHEDULED" && opens_ms > 0;
      put(name, policy.name);
      mark(name, "href", `#/policies/${policy.id}`);
      pill.show(policy.state);
      put(number, isWaiting ? left(opens_ms) : whole(policy.remaining));
      put(
        words,
        isWaiting
          ? t("until {n} can be claimed", { n: whole(policy.total) })
          : t("left of {n}", { n: whole(policy.total) }),
      );
      bar.show(policy);
      put(issued, whole(policy.issued));
      put(pending, whole(policy.pending));
      put(sold, share(policy.issued + policy.pending, policy.total));
      put(next, isWaiting ? `#${policy.id}` : `#${policy.id} · ${nextWords(policy)}`);
    },
  };
}
