// rules.js: what may stand in each field of the form, and the words when it does not.
import { whole } from "./format.js";
import { instantOf } from "./zones.js";

export const LIMITS = {
  total: [1, 1e8],
  per_user_limit: [1, 1000],
  percent: [1, 100],
  fixed: [1, 1e12],
  coupon_valid_days: [1, 3650],
  reserve: [0, 1e8],
  id: [1, Number.MAX_SAFE_INTEGER],
};

/* A whole number as people type it, with or without commas; NaN when it is none. */
export function numberOf(text) {
  const digits = text.replaceAll(/[\s,_]/g, "");
  return /^\d+$/.test(digits) ? Number(digits) : NaN;
}

function wholeNumber(text, [least, most], isNeeded = true) {
  if (text.trim() === "") return isNeeded ? "A number is needed." : null;
  const n = numberOf(text);
  return n >= least && n <= most ? null : `A whole number from ${whole(least)} to ${whole(most)}.`;
}

/* What is wrong with each field of `typed` (texts by field), as words by field; empty when all is
   well. */
export function mistakesIn(typed, now_ms) {
  const { timing, zone } = typed;
  const opens_ms = timing === "at" ? instantOf(typed.opens_at, zone) : null;
  const closes_ms = typed.closes_at ? instantOf(typed.closes_at, zone) : null;
  const all = {
    name:
      typed.name.trim() === ""
        ? "A name is needed: people see it."
        : [...typed.name.trim()].length > 200
          ? "At most 200 characters."
          : null,
    "discount.value": wholeNumber(typed["discount.value"], LIMITS[typed["discount.type"]]),
    total: wholeNumber(typed.total, LIMITS.total),
    per_user_limit: wholeNumber(typed.per_user_limit, LIMITS.per_user_limit),
    opens_at:
      timing !== "at"
        ? null
        : Number.isNaN(opens_ms)
          ? "A day and a time are needed."
          : opens_ms <= now_ms
            ? "This is in the past. Choose “At once” to open it now."
            : null,
    closes_at:
      closes_ms === null
        ? null
        : Number.isNaN(closes_ms)
          ? "A day and a time."
          : closes_ms <= (opens_ms ?? now_ms)
            ? "It must close after it opens."
            : null,
    coupon_valid_days: wholeNumber(typed.coupon_valid_days, LIMITS.coupon_valid_days, false),
    reserve:
      wholeNumber(typed.reserve, LIMITS.reserve, false) ??
      (numberOf(typed.reserve) > numberOf(typed.total) ? "At most the total." : null),
    id: wholeNumber(typed.id, LIMITS.id, false),
  };
  return Object.fromEntries(Object.entries(all).filter(([, words]) => words !== null));
}

/* The body of the call that makes the policy, from fields without a mistake. */
export function policyOf(typed) {
  const iso = (wall) => new Date(instantOf(wall, typed.zone)).toISOString();
  const optional = (name) => (typed[name].trim() === "" ? {} : { [name]: numberOf(typed[name]) });
  return {
    ...optional("id"),
    name: typed.name.trim(),
    discount: { type: typed["discount.type"], value: numberOf(typed["discount.value"]) },
    total: numberOf(typed.total),
    per_user_limit: numberOf(typed.per_user_limit),
    ...(typed.timing === "at" ? { opens_at: iso(typed.opens_at) } : {}),
    ...(typed.closes_at ? { closes_at: iso(typed.closes_at) } : {}),
    ...optional("coupon_valid_days"),
    ...optional("reserve"),
  };
}
