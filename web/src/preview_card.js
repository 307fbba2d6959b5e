// preview_card.js: what is being typed, as a sentence and as the storefront will show it.
import { serverNow } from "./clock.js";
import { h, put } from "./dom.js";
import { whole } from "./format.js";
import { discountWords, policySentence } from "./preview.js";
import { numberOf } from "./rules.js";
import { instantOf } from "./zones.js";
import { t } from "./words.js";

/* What the policy will be, in words and as the storefront will show it. */
export function previewCard() {
  const sentence = h("p", { class: "preview-sentence", role: "status" });
  const off = h("b", { class: "ticket-off" }),
    name = h("span", { class: "ticket-name" });
  const count = h("span", { class: "ticket-count" });
  return {
    node: h(
      "aside",
      { class: "card preview", "aria-labelledby": "preview-title" },
      h("h2", { id: "preview-title" }, t("What it will be")),
      sentence,
      h("div", { class: "ticket", "aria-hidden": "true" }, off, name, count),
    ),
    show(typed, mistakes) {
      const wall = (name) =>
        typed[name] && !mistakes[name] ? instantOf(typed[name], typed.zone) : null;
      const number = (name) => (mistakes[name] ? NaN : numberOf(typed[name]));
      const discount = { type: typed["discount.type"], value: number("discount.value") };
      const policy = {
        total: number("total"),
        discount,
        per_user_limit: number("per_user_limit"),
        opensAtOnce: typed.timing === "now",
        currency: typed.currency || null,
        expires_ms: wall("coupon_expires_at"),
        opens_ms: typed.timing === "at" ? wall("opens_at") : null,
        closes_ms: wall("closes_at"),
        coupon_valid_days:
          mistakes.coupon_valid_days || !typed.coupon_valid_days
            ? null
            : number("coupon_valid_days"),
      };
      const isWhole = ![policy.total, discount.value, policy.per_user_limit].some(Number.isNaN);
      put(
        sentence,
        isWhole
          ? `${policySentence(policy, { zone: typed.zone, now_ms: serverNow() })}.`
          : t("Fill in the numbers to see it."),
      );
      put(off, Number.isNaN(discount.value) ? "–" : discountWords(discount, policy.currency));
      put(name, typed.name.trim() || t("Name"));
      put(count, isWhole ? t("{n} in all", { n: whole(policy.total) }) : "");
    },
  };
}
