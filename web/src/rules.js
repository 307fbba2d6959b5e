// rules.js: what may stand in each field of the form, and the words when it does not.
import { whole } from "./format.js";
import { instantOf } from "./zones.js";

/* The numbers of a policy as the form asks for them. A test holds the limits against the server's
   (src/base/policy.h). */
export const NUMBERS = {
  total: {
    limits: [1, 100000000],
    label: "Coupons",
    hint: "Never one more is handed out.",
    start: "1,000",
  },
  per_user_limit: { limits: [1, 1000], label: "For each person", hint: "At most.", start: "1" },
  coupon_valid_days: {
    limits: [1, 3650],
    label: "Good for days",
    hint: "Empty: until the drop closes.",
  },
  id: { limits: [1, 9007199254740991], label: "Id", hint: "Empty: the server chooses." },
  reserve: {
    limits: [0, 100000000],
    label: "Reserve",
    hint: "Kept back for when Redis is down.",
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
  /* What the form begins with is needed, what begins empty is not. */
  const numbers = Object.entries(NUMBERS).map(([name, rule]) => [
    name,
    wholeNumber(typed[name], rule, rule.start !== undefined),
  ]);
  const all = {
    ...Object.fromEntries(numbers),
    name:
      typed.name.trim() === ""
        ? "A name is needed: people see it."
        : [...typed.name.trim()].length > 200
          ? "At most 200 characters."
          : null,
    "discount.value": wholeNumber(typed["discount.value"], DISCOUNTS[typed["discount.type"]], true),
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
  };
  if (numberOf(typed.reserve) > numberOf(typed.total)) all.reserve ??= "At most the total.";
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
  };
}
