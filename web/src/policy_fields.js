// policy_fields.js: all that can be said of a new policy, as fields in rows.
import { serverNow } from "./clock.js";
import { h, mark } from "./dom.js";
import { choice, field, numberInput, textInput, timeInput, zoneInput } from "./fields.js";
import { NUMBERS } from "./rules.js";
import { ownZone, wallOf } from "./zones.js";

const HOUR_MS = 3600000;
const KINDS = [
  ["percent", "Percent"],
  ["fixed", "Amount"],
];
const TIMINGS = [
  ["now", "At once"],
  ["at", "At a time"],
];
const FIRST = ["total", "per_user_limit", "coupon_valid_days"];
const MORE = Object.keys(NUMBERS).filter((name) => !FIRST.includes(name));
/* Another policy has its own id. */
const CLONED = ["name", ...Object.keys(NUMBERS).filter((name) => name !== "id")];

function makeFields() {
  const name = textInput({ maxlength: 400, placeholder: "Launch day" });
  const opens_at = timeInput({
    value: wallOf(Math.ceil(serverNow() / HOUR_MS + 1) * HOUR_MS, ownZone()),
  });
  return [
    field("name", "Name", name, "People see it on the storefront."),
    field("discount.value", "How much off", numberInput({ value: "10" })),
    ...Object.entries(NUMBERS).map(([number, { label, hint, start }]) =>
      field(number, label, numberInput({ value: start ?? "" }), hint),
    ),
    field("opens_at", "Opens at", opens_at),
    field("closes_at", "Closes at", timeInput(), "Empty: when you close it."),
  ];
}

/* The fields; `changed()` hears of choices, `rows` go into a form, `all` are the single fields. */
export function policyFields(changed) {
  const all = makeFields();
  const byName = new Map(all.map((each) => [each.name, each]));
  const node = (name) => byName.get(name).node;
  const row = (...nodes) => h("div", { class: "field-pair" }, ...nodes);
  const wide = (...nodes) => h("div", { class: "field-pair is-wide" }, ...nodes);
  const kind = choice("discount.type", "Discount", KINDS, changed);
  const zone = field("zone", "Time zone", zoneInput(ownZone()), "Of both times.");
  const timing = choice("timing", "Opens", TIMINGS, () => {
    mark(opens, "hidden", timing.value !== "at");
    changed();
  });
  const opens = wide(node("opens_at"));
  mark(opens, "hidden", "");

  return {
    all,
    rows: [
      node("name"),
      wide(kind.node, node("discount.value")),
      row(node("total"), node("per_user_limit")),
      wide(timing.node, zone.node),
      opens,
      wide(node("closes_at"), node("coupon_valid_days")),
      h("details", {}, h("summary", {}, "More"), row(...MORE.map(node))),
    ],
    /* What stands in them, as texts by name. */
    typed: () => ({
      ...Object.fromEntries(all.map(({ name, input }) => [name, input.value])),
      "discount.type": kind.value,
      timing: timing.value,
      zone: zone.input.value,
    }),
    /* Takes over what another policy has; its times are its own. */
    fill(policy) {
      kind.value = policy.discount.type;
      byName.get("discount.value").input.value = policy.discount.value;
      for (const name of CLONED) byName.get(name).input.value = policy[name] ?? "";
    },
  };
}
