// preview.js: a policy in one sentence, as a person would say it.
import { whole } from "./format.js";
import { whenWords, zoneWords } from "./zones.js";

export function discountWords({ type, value }) {
  return type === "percent" ? `${value}% off` : `${whole(value)} off`;
}

const eachWords = (limit) => (limit === 1 ? "one each" : `up to ${whole(limit)} each`);

/* "1,000 coupons, 10% off, one each, opens Friday 12:00 Seoul time". Times are milliseconds or
   null; one that does not exist yet may say that it opens at once. */
export function policySentence(policy, { zone, now_ms }) {
  const { total, discount, per_user_limit, opens_ms, closes_ms, coupon_valid_days } = policy;
  const at = (ms) => whenWords(ms, zone, now_ms);
  const words = [
    `${whole(total)} ${total === 1 ? "coupon" : "coupons"}`,
    discountWords(discount),
    eachWords(per_user_limit),
  ];
  if (policy.opensAtOnce) words.push("opens at once");
  if (opens_ms !== null) words.push(`${opens_ms > now_ms ? "opens" : "opened"} ${at(opens_ms)}`);
  if (closes_ms !== null)
    words.push(`${closes_ms > now_ms ? "closes" : "closed"} ${at(closes_ms)}`);
  const hasTime = opens_ms !== null || closes_ms !== null;
  const sentence = words.join(", ") + (hasTime ? ` ${zoneWords(zone)}` : "");
  if (coupon_valid_days === null) return sentence;
  return (
    `${sentence}, good for ${whole(coupon_valid_days)} ` +
    `${coupon_valid_days === 1 ? "day" : "days"}`
  );
}

/* The same of a policy as the server tells it. */
export function sentenceOf(policy, zone, now_ms) {
  return policySentence(
    {
      ...policy,
      opens_ms: policy.opens_at ? Date.parse(policy.opens_at) : null,
      closes_ms: policy.closes_at ? Date.parse(policy.closes_at) : null,
    },
    { zone, now_ms },
  );
}
