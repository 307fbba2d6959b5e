// actions.js: what an operator can do to a policy, each after a question.
import { patch, remove } from "./api.js";
import { ask } from "./dialog.js";
import { h, mark, put } from "./dom.js";
import { whole } from "./format.js";

const TOTAL_MAX = 1e8;

function pause(policy) {
  return ask({
    title: `Pause “${policy.name}”?`,
    verb: "Pause",
    words:
      "Everyone who presses is told that it is paused. Coupons that were won stay, and it can go " +
      "on at any time.",
    act: () => patch(`/v1/policies/${policy.id}`, { paused: true }),
  });
}

function resume(policy) {
  return ask({
    title: `Let “${policy.name}” go on?`,
    verb: "Resume",
    words: `${whole(policy.remaining)} of ${whole(policy.total)} are left and can be claimed.`,
    act: () => patch(`/v1/policies/${policy.id}`, { paused: false }),
  });
}

function end(policy) {
  return ask({
    title: `Close “${policy.name}” for good?`,
    verb: "Close it",
    isDanger: true,
    words: [
      `${whole(policy.remaining)} coupons are left and will not be handed out.`,
      "This cannot be undone. Coupons that were won stay.",
    ],
    act: () => remove(`/v1/policies/${policy.id}`),
  });
}

function changeTotal(policy) {
  const given = policy.issued + policy.pending;
  const input = h("input", {
    id: "new-total",
    type: "text",
    inputmode: "numeric",
    value: policy.total,
    autocomplete: "off",
    "aria-describedby": "new-total-hint",
  });
  const field = h(
    "div",
    { class: "field" },
    h("label", { for: "new-total" }, "Coupons in all"),
    input,
    h(
      "p",
      { class: "hint", id: "new-total-hint" },
      `${whole(given)} are given out; the total cannot be less.`,
    ),
  );
  const done = ask({
    title: `Change the total of “${policy.name}”`,
    verb: "Change",
    words: [],
    fields: [field],
    act: () => {
      const total = Number(input.value.replaceAll(/[\s,]/g, ""));
      if (!Number.isInteger(total) || total < 1 || total > TOTAL_MAX) {
        throw new Error(`A whole number from 1 to ${whole(TOTAL_MAX)}.`);
      }
      return patch(`/v1/policies/${policy.id}`, { total });
    },
  });
  input.select();
  return done;
}

/* The buttons; `show(policy)` says which of them make sense now. */
export function policyActions(id) {
  let policy = null;
  const button = (words, does, props) =>
    h(
      "button",
      { type: "button", disabled: true, ...props, onclick: () => policy && does(policy) },
      words,
    );
  const toggle = button("Pause", (it) => (it.paused ? resume(it) : pause(it)), {
    class: "primary toggle",
  });
  const total = button("Change total", changeTotal);
  const close = button("Close", end, { class: "warn" });
  const winners = h(
    "a",
    { class: "button", href: `/v1/policies/${id}/winners.csv`, download: "" },
    "Winners as CSV",
  );
  const clone = h("a", { class: "button", href: `#/new?from=${id}` }, "Clone");
  const shop = h(
    "a",
    { class: "button", href: `/drop/${id}`, target: "_blank", rel: "noopener" },
    "Storefront",
  );
  return {
    node: h(
      "div",
      { class: "actions", role: "group", "aria-label": "What to do with it" },
      toggle,
      total,
      close,
      clone,
      winners,
      shop,
    ),
    show(now) {
      policy = now;
      const isOver = now.state === "CLOSED";
      put(toggle, now.paused ? "Resume" : "Pause");
      for (const each of [toggle, total, close]) mark(each, "disabled", isOver);
    },
  };
}
