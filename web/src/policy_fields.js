// policy_fields.js: all that can be said of a new policy, as fields in rows.
import { serverNow } from "./clock.js";
import { h, mark } from "./dom.js";
import { choice, currencyInput, field, numberInput, textInput, timeInput, zoneInput } from "./fields.js";
import { NUMBERS } from "./rules.js";
import { ownZone, wallOf } from "./zones.js";
import { t } from "./words.js";

const HOUR_MS = 3600000;
const DAY_MS = 24 * HOUR_MS;
const OPENING_MS = 5000;
const KINDS = [
  ["percent", t("Percent")],
  ["fixed", t("Amount")],
];
const TIMINGS = [
  ["now", t("At once")],
  ["at", t("At a time")],
];
const FIRST = ["total", "per_user_limit", "coupon_valid_days"];
const MORE = Object.keys(NUMBERS).filter((name) => !FIRST.includes(name));
/* Another policy has its own id. */
const CLONED = ["name", "currency", ...Object.keys(NUMBERS).filter((name) => name !== "id")];
/* What never changes, and what does only as long as nobody can have claimed. */
const FIXED = ["id"];
const PROMISED = ["discount.value", "currency", "per_user_limit", "coupon_valid_days", "coupon_expires_at"];

function makeFields() {
  const name = textInput({ maxlength: 400, placeholder: "Launch day" });
  const opens_at = timeInput({
    value: wallOf(Math.ceil(serverNow() / HOUR_MS + 1) * HOUR_MS, ownZone()),
  });
  return [
    field("name", t("Name"), name, t("People see it on the storefront.")),
    field("discount.value", t("How much off"), numberInput({ value: "10" })),
    field("currency", t("Currency"), currencyInput(), t("Empty: a plain number.")),
    ...Object.entries(NUMBERS).map(([number, { label, hint, start }]) =>
      field(number, label, numberInput({ value: start ?? "" }), hint),
    ),
    field("opens_at", t("Opens at"), opens_at),
    field("closes_at", t("Closes at"), timeInput(), t("Empty: when you close it.")),
    field("coupon_expires_at", t("Coupons end at"), timeInput(), t("Empty: never, or after their days.")),
  ];
}

/* The fields; `changed()` hears of choices, `rows` go into a form, `all` are the single fields. */
export function policyFields(changed) {
  const all = makeFields();
  const byName = new Map(all.map((each) => [each.name, each]));
  const node = (name) => byName.get(name).node;
  const row = (...nodes) => h("div", { class: "field-pair" }, ...nodes);
  const wide = (...nodes) => h("div", { class: "field-pair is-wide" }, ...nodes);
  const kind = choice("discount.type", t("Discount"), KINDS, () => {
    sayUnit();
    changed();
  });
  const sayUnit = () =>
    byName
      .get("discount.value")
      .hint(kind.value === "percent" ? t("From 1 to 100.") : t("In the currency's smallest unit: won, cents."));
  sayUnit();
  const zone = field("zone", t("Time zone"), zoneInput(ownZone()), t("Of all times."));
  const timing = choice("timing", t("Opens"), TIMINGS, () => {
    mark(opens, "hidden", timing.value !== "at");
    changed();
  });
  const opens = wide(node("opens_at"));
  mark(opens, "hidden", "");

  const set = (name, value) => {
    byName.get(name).input.value = value ?? "";
  };
  function fillCommon(policy) {
    kind.value = policy.discount.type;
    sayUnit();
    set("discount.value", policy.discount.value);
    for (const name of CLONED) set(name, policy[name]);
  }

  return {
    all,
    rows: [
      node("name"),
      wide(kind.node, node("discount.value")),
      row(node("currency")),
      row(node("total"), node("per_user_limit")),
      wide(timing.node, zone.node),
      opens,
      wide(node("closes_at"), node("coupon_expires_at")),
      row(node("coupon_valid_days")),
      h("details", {}, h("summary", {}, t("More")), row(...MORE.map(node))),
    ],
    /* What stands in them, as texts by name. */
    typed: () => ({
      ...Object.fromEntries(all.map(({ name, input }) => [name, input.value])),
      "discount.type": kind.value,
      timing: timing.value,
      zone: zone.input.value,
    }),
    /* Takes over what another drop has. Its times are moved as one, so that it opens at the same time
       of day in the days to come: a copy never opens by itself at once. */
    clone(policy, now_ms) {
      fillCommon(policy);
      const opened_ms = Date.parse(policy.opens_at ?? policy.created_at);
      const days = Math.max(1, Math.ceil((now_ms - opened_ms) / DAY_MS));
      const shift_ms = opened_ms > now_ms ? 0 : days * DAY_MS;
      const moved = (at) => (at ? wallOf(Date.parse(at) + shift_ms, ownZone()) : "");
      timing.value = "at";
      mark(opens, "hidden", null);
      set("opens_at", wallOf(opened_ms + shift_ms, ownZone()));
      set("closes_at", moved(policy.closes_at));
      set("coupon_expires_at", moved(policy.coupon_expires_at));
    },
    /* Shows a drop that is to be changed; what may not change any more cannot be typed. */
    edit(policy, now_ms) {
      const wall = (at) => (at ? wallOf(Date.parse(at), ownZone()) : "");
      const isOpen = !policy.opens_at || Date.parse(policy.opens_at) - now_ms < OPENING_MS;
      const isGiven = policy.issued + policy.pending > 0;
      fillCommon(policy);
      set("reserve", policy.reserve);
      timing.value = policy.opens_at ? "at" : "now";
      mark(opens, "hidden", policy.opens_at ? null : "");
      for (const name of ["opens_at", "closes_at", "coupon_expires_at"]) set(name, wall(policy[name]));
      for (const name of FIXED) byName.get(name).input.disabled = true;
      for (const name of PROMISED) byName.get(name).input.disabled = isOpen || isGiven;
      byName.get("name").input.disabled = isOpen;
      for (const radio of kind.node.querySelectorAll("input")) radio.disabled = isOpen || isGiven;
      return isOpen || isGiven;
    },
    restore(typed) {
      for (const { name, input } of all) if (typeof typed[name] === "string") input.value = typed[name];
      kind.value = typed["discount.type"];
      sayUnit();
      timing.value = typed.timing;
      zone.input.value = typed.zone;
      mark(opens, "hidden", timing.value === "at" ? null : "");
    },
  };
}
