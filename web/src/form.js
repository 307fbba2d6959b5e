// form.js: makes a policy without JSON, and says in a sentence what it will be.
import { get, post } from "./api.js";
import { serverNow, ticking } from "./clock.js";
import { h, mark, put } from "./dom.js";
import { choice, field, numberInput, textInput, timeInput, zoneInput } from "./fields.js";
import { discountWords, policySentence } from "./preview.js";
import { mistakesIn, numberOf, policyOf } from "./rules.js";
import { whole } from "./format.js";
import { instantOf, ownZone, wallOf } from "./zones.js";

const HOUR_MS = 3600000;

export function formPage(root, { query }) {
  const touched = new Set();
  const changed = () => check();
  const kind = choice(
    "discount.type",
    "Discount",
    [
      ["percent", "Percent"],
      ["fixed", "Amount"],
    ],
    changed,
  );
  const timing = choice(
    "timing",
    "Opens",
    [
      ["now", "At once"],
      ["at", "At a time"],
    ],
    () => {
      mark(opensBox, "hidden", timing.value !== "at");
      check();
    },
  );
  const zone = field("zone", "Time zone", zoneInput(ownZone()), "Of both times.");
  const fields = makeFields();
  const byName = new Map(fields.map((each) => [each.name, each]));
  const node = (name) => byName.get(name).node;
  const opensBox = h("div", { class: "field-pair is-wide", hidden: true }, node("opens_at"));
  const preview = previewCard();
  const refusal = h("p", { class: "field-error", role: "alert" });
  const submit = h("button", { class: "primary", type: "submit" }, "Make the policy");

  const typed = () => ({
    ...Object.fromEntries(fields.map(({ name, input }) => [name, input.value])),
    "discount.type": kind.value,
    timing: timing.value,
    zone: zone.input.value,
  });

  /* Says what is wrong, but only of fields that were left, or of all after a try; true if all is
     well. */
  function check(isAll = false) {
    const now = typed(),
      mistakes = mistakesIn(now, serverNow());
    for (const each of fields) {
      each.say(isAll || touched.has(each.name) ? (mistakes[each.name] ?? null) : null);
    }
    preview.show(now, mistakes);
    return mistakes;
  }

  async function make(event) {
    event.preventDefault();
    put(refusal, "");
    const mistakes = check(true);
    const wrong = fields.find(({ name }) => mistakes[name]);
    fields.forEach(({ name }) => touched.add(name));
    if (wrong) return reveal(wrong);
    submit.disabled = true;
    try {
      const { id } = await post("/v1/policies", policyOf(typed()));
      location.hash = `#/policies/${id}`;
    } catch (problem) {
      refuse(problem);
    } finally {
      submit.disabled = false;
    }
  }
  function refuse(problem) {
    const where =
      fields.find(({ name }) => name === problem.field) ??
      fields.find(({ name }) => problem.field && name.startsWith(`${problem.field}.`));
    if (!where) return put(refusal, problem.message);
    where.say(problem.message.replace(`${problem.field}: `, ""));
    reveal(where);
  }

  const form = h(
    "form",
    {
      class: "card policy-form",
      novalidate: true,
      onsubmit: make,
      oninput: changed,
      onfocusout: ({ target }) => {
        if (target.name && target.value !== "") (touched.add(target.name), check());
      },
    },
    node("name"),
    h("div", { class: "field-pair is-wide" }, kind.node, node("discount.value")),
    h("div", { class: "field-pair" }, node("total"), node("per_user_limit")),
    h("div", { class: "field-pair is-wide" }, timing.node, zone.node),
    opensBox,
    h("div", { class: "field-pair is-wide" }, node("closes_at"), node("coupon_valid_days")),
    h(
      "details",
      {},
      h("summary", {}, "More"),
      h("div", { class: "field-pair" }, node("id"), node("reserve")),
    ),
    refusal,
    h("div", { class: "form-actions" }, submit, h("a", { class: "button", href: "#/" }, "Cancel")),
  );
  const title = h("h1", {}, "New policy");
  root.append(title, h("div", { class: "form-columns" }, form, preview.node));

  function fill(policy) {
    put(title, `New policy, like “${policy.name}”`);
    kind.value = policy.discount.type;
    for (const name of ["name", "total", "per_user_limit", "coupon_valid_days", "reserve"]) {
      byName.get(name).input.value = policy[name] ?? "";
    }
    byName.get("discount.value").input.value = policy.discount.value;
    check();
  }
  const from = query.get("from");
  if (/^\d+$/.test(from ?? ""))
    get(`/v1/policies/${from}`).then(fill, (problem) => {
      put(refusal, `The policy to clone could not be read: ${problem.message}`);
    });
  byName.get("opens_at").input.value = wallOf(
    Math.ceil(serverNow() / HOUR_MS + 1) * HOUR_MS,
    ownZone(),
  );
  byName.get("name").input.focus();
  return ticking(5000, () => check());
}

function makeFields() {
  return [
    field(
      "name",
      "Name",
      textInput({ maxlength: 400, placeholder: "Launch day" }),
      "People see it on the storefront.",
    ),
    field("discount.value", "How much off", numberInput({ value: "10" })),
    field("total", "Coupons", numberInput({ value: "1,000" }), "Never one more is handed out."),
    field("per_user_limit", "For each person", numberInput({ value: "1" }), "At most."),
    field("opens_at", "Opens at", timeInput()),
    field("closes_at", "Closes at", timeInput(), "Empty: when you close it."),
    field(
      "coupon_valid_days",
      "Good for days",
      numberInput({ value: "" }),
      "Empty: until the drop closes.",
    ),
    field("id", "Id", numberInput({ value: "" }), "Empty: the server chooses."),
    field("reserve", "Reserve", numberInput({ value: "" }), "Kept back for when Redis is down."),
  ];
}

function reveal({ input }) {
  input.closest("details")?.setAttribute("open", "");
  input.focus();
}

/* What the policy will be, in words and as the storefront will show it. */
function previewCard() {
  const sentence = h("p", { class: "preview-sentence", role: "status" });
  const off = h("b", { class: "ticket-off" }),
    name = h("span", { class: "ticket-name" });
  const count = h("span", { class: "ticket-count" });
  return {
    node: h(
      "aside",
      { class: "card preview", "aria-labelledby": "preview-title" },
      h("h2", { id: "preview-title" }, "What it will be"),
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
          : "Fill in the numbers to see it.",
      );
      put(off, Number.isNaN(discount.value) ? "–" : discountWords(discount));
      put(name, typed.name.trim() || "Name");
      put(count, isWhole ? `${whole(policy.total)} in all` : "");
    },
  };
}
