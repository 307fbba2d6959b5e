// rules.js: what may stand in each field of the form, and the words when it does not.
import { whole } from "./format.js";
import { instantOf } from "./zones.js";
import { t } from "./words.js";

/* The numbers of a policy as the form asks for them. A test holds the limits against the server's
   (src/base/policy.h). */
export const NUMBERS = {
  total: {
    limits: [1, 100000000],
    label: t("Coupons"),
    hint: t("Never one more is handed out."),
    start: "1,000",
  },
  per_user_limit: { limits: [1, 1000], label: t("For each person"), hint: t("At most."), start: "1" },
  coupon_valid_days: {
    limits: [1, 3650],
    label: t("Valid for days"),
    hint: t("Empty: as long as you like."),
  },
  id: { limits: [1, 9007199254740991], label: t("Id"), hint: t("Empty: the server chooses.") },
  reserve: {
    limits: [0, 100000000],
    label: t("Reserve"),
    hint: t("Kept back for when Redis is down."),
  },
};
const DISCOUNTS = {
  percent: { limits: [1, 100] },
  fixed: { limits: [1, 1000000000000] },
};

/* A whole number as people type it, with or without commas; NaN when it is none. */
export function numberOf(text) {
  const digits = text.replaceAll(/[\s,_]/g, "");
  return /^\d+$/.test(digits) ? Number(digits) : NaN;
}

function wholeNumber(text, { limits: [least, most] }, isNeeded) {
  if (text.trim() === "") return isNeeded ? t("A number is needed.") : null;
  const n = numberOf(text);
  return n >= least && n <= most ? null : t("A whole number from {least} to {most}.", { least: whole(least), most: whole(most) });
}

/* What is wrong with each field of `typed` (texts by field), as words by field; empty when all is
   well. */
export function mistakesIn(typed, now_ms, edited = null) {
  const { timing, zone } = typed;
  const opens_ms = timing === "at" ? instantOf(typed.opens_at, zone) : null;
  // A drop that is open already has opened in the past.
  const past_ms = edited ? 0 : now_ms;
  const closes_ms = typed.closes_at ? instantOf(typed.closes_at, zone) : null;
  /* What the form begins with is needed, what begins empty is not. */
  const numbers = Object.entries(NUMBERS).map(([name, rule]) => [
    name,
    wholeNumber(typed[name], rule, rule.start !== undefined),
  ]);
  const all = {
    ...Object.fromEntries(numbers),
    name:
      typed.name.trim() === ""
        ? t("A name is needed: people see it.")
        : [...typed.name.trim()].length > 200
          ? t("At most 200 characters.")
          : null,
    "discount.value": wholeNumber(typed["discount.value"], DISCOUNTS[typed["discount.type"]], true),
    opens_at:
      timing !== "at"
        ? null
        : Number.isNaN(opens_ms)
          ? t("A day and a time are needed.")
          : opens_ms <= past_ms
            ? t("This is in the past. Choose “At once” to open it now.")
            : null,
    closes_at:
      closes_ms === null
        ? null
        : Number.isNaN(closes_ms)
          ? t("A day and a time.")
          : closes_ms <= (opens_ms ?? past_ms)
            ? t("It must close after it opens.")
            : null,
  };
  const expires_ms = typed.coupon_expires_at ? instantOf(typed.coupon_expires_at, zone) : null;
  if (Number.isNaN(expires_ms)) all.coupon_expires_at = t("A day and a time.");
  else if (expires_ms !== null && expires_ms <= Math.max(opens_ms ?? past_ms, closes_ms ?? 0))
    all.coupon_expires_at = t("Coupons must end after the drop does.");
  if (numberOf(typed.reserve) > numberOf(typed.total)) all.reserve ??= t("At most the total.");
  return Object.fromEntries(Object.entries(all).filter(([, words]) => words !== null));
}

/* The body of the call that makes the policy, from fields without a mistake. */
export function policyOf(typed) {
  const iso = (wall) => new Date(instantOf(wall, typed.zone)).toISOString();
  const said = Object.keys(NUMBERS).filter((name) => typed[name].trim() !== "");
  return {
    name: typed.name.trim(),
    discount: { type: typed["discount.type"], value: numberOf(typed["discount.value"]) },
    ...Object.fromEntries(said.map((name) => [name, numberOf(typed[name])])),
    ...(typed.timing === "at" ? { opens_at: iso(typed.opens_at) } : {}),
    ...(typed.closes_at ? { closes_at: iso(typed.closes_at) } : {}),
    ...(typed.coupon_expires_at ? { coupon_expires_at: iso(typed.coupon_expires_at) } : {}),
    ...(typed.currency ? { currency: typed.currency } : {}),
  };
}

/* What of a drop was changed, as the call that changes it takes it. */
export function changesOf(typed, policy) {
  const wanted = policyOf(typed);
  const nulls = ["opens_at", "closes_at", "coupon_expires_at", "coupon_valid_days", "currency"];
  for (const name of nulls) wanted[name] ??= null;
  wanted.reserve ??= 0;
  delete wanted.id;
  const minute = (at) => (at ? Math.floor(Date.parse(at) / 60000) : null);
  const isSame = (name) =>
    name.endsWith("_at")
      ? minute(wanted[name]) === minute(policy[name])
      : JSON.stringify(wanted[name]) === JSON.stringify(policy[name]);
  return Object.fromEntries(Object.entries(wanted).filter(([name]) => !isSame(name)));
}
