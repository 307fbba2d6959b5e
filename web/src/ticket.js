// ticket.js: a coupon as a ticket: its place, its code, and a button that copies it.
import { h, mark, put, vary } from "./dom.js";

/* A ticket; `show(claim, words, date)` fills it in the language of `words`. */
export function ticket() {
  const title = h("h2", { class: "ticket-title" });
  const place = h("span", { class: "ticket-place" });
  const label = h("span", { class: "ticket-label" });
  const code = h("code", { class: "ticket-code" });
  const copy = h("button", { type: "button", class: "copy", onclick: copyCode });
  const until = h("p", { class: "ticket-until" });
  const stamp = h("span", { class: "ticket-stamp" });
  let say = null;

  async function copyCode() {
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      // No clipboard over plain HTTP: what is selected can be copied by hand.
      getSelection().selectAllChildren(code);
      return;
    }
    put(copy, say.copied);
    setTimeout(() => put(copy, say.copy), 2000);
  }

  const node = h(
    "article",
    { class: "coupon" },
    h("div", { class: "coupon-top" }, title, place, stamp),
    h(
      "div",
      { class: "coupon-bottom" },
      label,
      h("div", { class: "coupon-code" }, code, copy),
      until,
    ),
  );
  return {
    node,
    show(claim, words, date) {
      say = words;
      const state = words.couponStates[claim.coupon_state];
      put(title, state ?? words.wonTitle);
      put(place, words.place(claim.seq));
      put(label, words.code);
      put(code, claim.code ?? claim.coupon_id);
      vary(code, "--length", code.textContent.length);
      if (copy.textContent !== words.copied) put(copy, words.copy);
      put(until, claim.expires_at && !state ? words.goodUntil(date(claim.expires_at)) : "\u00a0");
      mark(node, "data-state", claim.coupon_state);
      mark(copy, "hidden", Boolean(state) || !claim.code);
      put(stamp, state ?? "");
    },
  };
}
