// offer.js: what is handed out at the storefront, and how much of it is left.
import { h, mark, put, vary } from "./dom.js";

/* The top of the card and its bar; nothing is shown of it until it is known. */
export function offer(speech) {
  const pill = h("span", { class: "pill" }, h("i", { class: "dot" }), h("span", {}, "\u00a0"));
  const title = h("h1", {}, "dibs");
  const off = h("b"),
    offWord = h("span");
  const facts = h("p", { class: "facts" }, "\u00a0");
  const bar = h("div", { class: "stock", "aria-hidden": "true" }, h("i", { class: "stock-left" }));
  const left = h("p", { class: "stock-words" }, "\u00a0");
  return {
    top: h("div", { class: "offer" }, pill, title, h("p", { class: "off" }, off, offWord), facts),
    bottom: h("div", { class: "stock-box" }, bar, left),
    show(policy) {
      const { words, number, money } = speech,
        { type, value } = policy.discount;
      document.title = policy.name;
      put(title, policy.name);
      const amount = type === "percent" ? `${value}%` : money(value, policy.currency);
      put(off, amount);
      vary(off, "--length", amount.length);
      put(offWord, words.off);
      put(facts, words.facts(number(policy.total), policy.per_user_limit));
      mark(pill, "data-state", policy.state);
      put(pill.lastChild, words.states[policy.state] ?? policy.state);
      vary(bar, "--left", policy.total ? policy.remaining / policy.total : 0);
      put(left, words.stock(number(policy.remaining), number(policy.total)));
    },
    /* There is none to show. */
    nothing: () => put(title, "dibs"),
  };
}
