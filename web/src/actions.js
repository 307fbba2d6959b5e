// actions.js: what an operator can do to a policy, each after a question.
import { patch, remove } from "./api.js";
import { ask } from "./dialog.js";
import { h, mark, put } from "./dom.js";
import { whole } from "./format.js";
import { t } from "./words.js";

const TOTAL_MAX = 1e8;

function pause(policy) {
  return ask({
    title: t("Pause “{name}”?", policy),
    verb: t("Pause"),
    words:
      t("Everyone who presses is told that it is paused. Coupons that were won stay, and it can go on at any time."),
    act: () => patch(`/v1/policies/${policy.id}`, { paused: true }),
  });
}

function resume(policy) {
  return ask({
    title: t("Let “{name}” go on?", policy),
    verb: t("Resume"),
    words: t("{n} of {total} are left and can be claimed.", {
      n: whole(policy.remaining),
      total: whole(policy.total),
    }),
    act: () => patch(`/v1/policies/${policy.id}`, { paused: false }),
  });
}

function end(policy) {
  return ask({
    title: t("Close “{name}” for good?", policy),
    verb: t("Close it"),
    isDanger: true,
    words: [
      t("{n} coupons are left and will not be handed out.", { n: whole(policy.remaining) }),
      t("This cannot be undone. Coupons that were won stay."),
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
    h("label", { for: "new-total" }, t("Coupons in all")),
    input,
    h(
      "p",
      { class: "hint", id: "new-total-hint" },
      t("{n} are given out; the total cannot be less.", { n: whole(given) }),
    ),
  );
  const done = ask({
    title: t("Change the total of “{name}”", policy),
    verb: t("Change"),
    words: [],
    fields: [field],
    act: () => {
      const total = Number(input.value.replaceAll(/[\s,]/g, ""));
      if (!Number.isInteger(total) || total < 1 || total > TOTAL_MAX) {
        throw new Error(
          t("A whole number from {least} to {most}.", { least: 1, most: whole(TOTAL_MAX) }),
        );
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
  const toggle = button(t("Pause"), (it) => (it.paused ? resume(it) : pause(it)), {
    class: "primary toggle",
  });
  const total = button(t("Change total"), changeTotal);
  const close = button(t("Close"), end, { class: "warn" });
  const winners = h(
    "a",
    { class: "button", href: `/v1/policies/${id}/winners.csv`, download: "" },
    t("Winners as CSV"),
  );
  const edit = h("a", { class: "button", href: `#/policies/${id}/edit` }, t("Edit"));
  const clone = h("a", { class: "button", href: `#/new?from=${id}` }, t("Clone"));
  const shop = h(
    "a",
    { class: "button", href: `/drop/${id}`, target: "_blank", rel: "noopener" },
    t("Storefront"),
  );
  return {
    node: h(
      "div",
      { class: "actions", role: "group", "aria-label": t("What to do with it") },
      toggle,
      total,
      edit,
      close,
      clone,
      winners,
      shop,
    ),
    show(now) {
      policy = now;
      const isOver = now.state === "CLOSED";
      put(toggle, now.paused ? t("Resume") : t("Pause"));
      for (const each of [toggle, total, close]) mark(each, "disabled", isOver);
      mark(edit, "hidden", isOver);
    },
  };
}
