// flow.js: from a press to a coupon in numbers: the funnel, and how long answers take.
import { h, put, vary } from "./dom.js";
import { milliseconds, share, whole } from "./format.js";
import { t } from "./words.js";

const STEPS = [
  { name: "received", title: t("Received"), of: null },
  { name: "won", title: t("Won"), of: "received" },
  { name: "pending", title: t("Pending"), of: "won" },
  { name: "issued", title: t("Issued"), of: "won" },
];

const OF = { received: "{share} of received", won: "{share} of won" };

export function funnel() {
  const rows = STEPS.map(({ name, title }) => {
    const number = h("b", {}, "0"),
      part = h("span", { class: "soft" });
    const node = h(
      "li",
      { class: `is-${name}` },
      h("span", {}, title),
      number,
      part,
      h("i", { class: "meter" }),
    );
    return { node, number, part };
  });
  const age = h("b", {}, "–");
  return {
    node: h(
      "section",
      { class: "card", "aria-labelledby": "funnel-title" },
      h("h2", { id: "funnel-title" }, t("From press to coupon")),
      h(
        "ol",
        { class: "funnel" },
        rows.map(({ node }) => node),
      ),
      h("p", { class: "fact" }, t("Oldest pending claim") + " ", age),
    ),
    show(numbers, pending_age_ms) {
      STEPS.forEach(({ name, of }, i) => {
        put(rows[i].number, whole(numbers[name]));
        put(
          rows[i].part,
          !of ? t("all claims") : numbers[of] ? t(OF[of], { share: share(numbers[name], numbers[of]) }) : "",
        );
        vary(rows[i].node, "--share", numbers.received ? numbers[name] / numbers.received : 0);
      });
      put(age, numbers.pending > 0 ? milliseconds(pending_age_ms) : t("none"));
    },
  };
}

const PERCENTILES = [
  ["p50", t("Half within")],
  ["p90", t("90% within")],
  ["p99", t("99% within")],
  ["p999", t("99.9% within")],
];

/* A bar's length for a time: a tenth of a millisecond is nothing, ten seconds is all. */
const reach = (ms) => Math.min(1, Math.max(0.02, (Math.log10(Math.max(ms, 0.1)) + 1) / 5));

export function latencies() {
  const rows = PERCENTILES.map(([, title]) => {
    const number = h("b", {}, "–");
    const node = h("li", {}, h("span", {}, title), number, h("i", { class: "meter" }));
    return { node, number };
  });
  return {
    node: h(
      "section",
      { class: "card", "aria-labelledby": "latency-title" },
      h("h2", { id: "latency-title" }, t("Time to an answer")),
      h(
        "ol",
        { class: "latency" },
        rows.map(({ node }) => node),
      ),
      h("p", { class: "fact" }, t("The last 10 seconds with claims, in the server")),
    ),
    show(numbers) {
      PERCENTILES.forEach(([name], i) => {
        const ms = numbers[name]; // null: nobody has claimed yet.
        put(rows[i].number, milliseconds(ms));
        vary(rows[i].node, "--share", ms === null ? 0 : reach(ms));
      });
    },
  };
}
