// preview.js: a policy in one sentence, as a person would say it.
import { whole } from "./format.js";
import { money } from "./money.js";
import { whenWords, zoneWords } from "./zones.js";
import { language, t } from "./words.js";

export function discountWords({ type, value }, currency) {
  return t("{amount} off", {
    amount: type === "percent" ? `${value}%` : money(value, currency, language),
  });
}

const eachWords = (limit) => (limit === 1 ? t("one each") : t("up to {n} each", { n: whole(limit) }));

/* "1,000 coupons, 10% off, one each, opens Friday 12:00 Seoul time". Times are milliseconds or
   null; one that does not exist yet may say that it opens at once. */
export function policySentence(policy, { zone, now_ms }) {
  const { total, discount, per_user_limit, opens_ms, closes_ms, coupon_valid_days } = policy;
  const at = (ms) => whenWords(ms, zone, now_ms);
  const words = [
    t(total === 1 ? "{n} coupon" : "{n} coupons", { n: whole(total) }),
    discountWords(discount, policy.currency),
    eachWords(per_user_limit),
  ];
  if (policy.opensAtOnce) words.push(t("opens at once"));
  if (opens_ms !== null) words.push(t(opens_ms > now_ms ? "opens {when}" : "opened {when}", { when: at(opens_ms) }));
  if (closes_ms !== null)
    words.push(t(closes_ms > now_ms ? "closes {when}" : "closed {when}", { when: at(closes_ms) }));
  const hasTime = opens_ms !== null || closes_ms !== null;
  const sentence = words.join(", ") + (hasTime ? ` ${zoneWords(zone)}` : "");
  const ends = [];
  if (coupon_valid_days)
    ends.push(
      t(coupon_valid_days === 1 ? "valid for {n} day" : "valid for {n} days", {
        n: whole(coupon_valid_days),
      }),
    );
  if (policy.expires_ms)
    ends.push(`${t("valid until {when}", { when: at(policy.expires_ms) })} ${zoneWords(zone)}`);
  return [sentence, ...ends].join(", ");
}

/* The same of a policy as the server tells it. */
export function sentenceOf(policy, zone, now_ms) {
  return policySentence(
    {
      ...policy,
      opens_ms: policy.opens_at ? Date.parse(policy.opens_at) : null,
      closes_ms: policy.closes_at ? Date.parse(policy.closes_at) : null,
      expires_ms: policy.coupon_expires_at ? Date.parse(policy.coupon_expires_at) : null,
    },
    { zone, now_ms },
  );
}
