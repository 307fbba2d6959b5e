// customers.js: finds a person or a code, shows what they hold, and helps: cancel, block, give anew.
import { call, get, post } from "./api.js";
import { serverNow } from "./clock.js";
import { ask } from "./dialog.js";
import { h } from "./dom.js";
import { moment } from "./format.js";
import { told } from "./told.js";
import { t } from "./words.js";

const CODE = /^[1-9]\d*-[1-9]\d*(-[0-9a-z]+)?$/i;
const STATES = {
  ISSUED: t("Issued"),
  REDEEMED: t("Used"),
  CANCELLED: t("Cancelled"),
  EXPIRED: t("Expired"),
  VOID: t("Void"),
  MERGED: t("Merged"),
};

export function customersPage(root, { query }) {
  const wanted = query.get("q") ?? "";
  const input = h("input", {
    id: "customer",
    type: "search",
    name: "q",
    value: wanted,
    autocomplete: "off",
    spellcheck: "false",
  });
  const found = h("div", { class: "found", "aria-live": "polite" });
  const find = (event) => {
    event.preventDefault();
    const next = `#/customers?q=${encodeURIComponent(input.value.trim())}`;
    if (location.hash === next) look();
    else location.hash = next;
  };

  async function look() {
    const word = input.value.trim();
    if (word === "") return found.replaceChildren(h("p", { class: "empty" }, t("Nobody yet.")));
    try {
      const isCode = CODE.test(word);
      const coupon = isCode ? await get(`/v1/coupons/${word}`).catch(nothing) : null;
      const user = coupon?.user ?? word;
      const { items } = await get(`/v1/users/${encodeURIComponent(user)}/coupons?limit=1000`);
      show(user, items, coupon);
    } catch (problem) {
      found.replaceChildren(h("p", { class: "field-error", role: "alert" }, told(problem.message)));
    }
  }

  /* Of a code that names no coupon the person of that name is looked for. */
  function nothing(problem) {
    if (problem.status === 404) return null;
    throw problem;
  }

  function show(user, items, coupon) {
    const rows = items.map((item) => row(item, item.coupon_id === coupon?.coupon_id));
    found.replaceChildren(
      h(
        "div",
        { class: "card-head" },
        h("h2", {}, user),
        h(
          "div",
          { class: "row-actions" },
          button(t("Block"), () => block(user, true)),
          button(t("Unblock"), () => block(user, false)),
        ),
      ),
      rows.length
        ? h("ul", { class: "coupons" }, rows)
        : h("p", { class: "empty" }, t("Holds nothing, and never did.")),
    );
  }

  function row(item, isAskedFor) {
    const end = item.expires_at ? t("valid until {when}", { when: when(item.expires_at) }) : "";
    const isOpen = item.state === "ISSUED";
    return h(
      "li",
      { "data-state": item.state, "data-asked": isAskedFor },
      h("code", {}, item.code ?? item.coupon_id),
      h("span", { class: "pill", "data-state": PILLS[item.state] }, STATES[item.state]),
      h(
        "span",
        { class: "soft" },
        [t("won {when}", { when: when(item.issued_at) }), end, item.order_id ?? ""]
          .filter(Boolean)
          .join(" · "),
      ),
      h(
        "span",
        { class: "row-actions" },
        h("a", { class: "button", href: `#/policies/${item.policy_id}` }, t("Drop")),
        isOpen ? button(t("Cancel it"), () => cancel(item)) : null,
        isOpen ? button(t("Give anew"), () => reissue(item)) : null,
      ),
    );
  }
  const button = (words, does) => h("button", { type: "button", onclick: () => done(does()) }, words);
  const done = (asked) => asked.then((isDone) => isDone && look());

  root.append(
    h("h1", {}, t("Customers")),
    h(
      "form",
      { class: "card search", role: "search", onsubmit: find },
      h("label", { for: "customer" }, t("User or coupon code")),
      input,
      h("button", { class: "primary", type: "submit" }, t("Find")),
    ),
    h("section", { class: "card", "aria-label": t("What was found") }, found),
  );
  look();
  input.focus();
}

const PILLS = { ISSUED: "OPEN", REDEEMED: "SCHEDULED" };
const when = (at) => (at ? moment(at, serverNow()) : "–");

function block(user, blocked) {
  return ask({
    title: t(blocked ? "Block “{user}”?" : "Unblock “{user}”?", { user }),
    verb: t(blocked ? "Block" : "Unblock"),
    isDanger: blocked,
    words: blocked
      ? t("They can win nothing from now on. What they hold stays; cancel it if it must go.")
      : t("They can claim like everybody else."),
    act: () => call("PUT", `/v1/users/${encodeURIComponent(user)}`, { body: { blocked } }),
  });
}

function cancel(item) {
  return ask({
    title: t("Cancel {coupon}?", { coupon: item.coupon_id }),
    verb: t("Cancel it"),
    isDanger: true,
    words: t("Its code stops working, and its unit can be won by somebody else."),
    act: () => post(`/v1/coupons/${item.coupon_id}/cancel`, {}),
  });
}

function reissue(item) {
  return ask({
    title: t("Give {coupon} anew?", { coupon: item.coupon_id }),
    verb: t("Give anew"),
    isDanger: true,
    words: t("The old code stops working, and the same person gets a new one."),
    act: () => post(`/v1/coupons/${item.coupon_id}/reissue`, {}),
  });
}
