// policies.js: the list of policies, the most urgent first.
//
// Rows are placed by a transform, so that a list that reorders itself while people look at it
// glides, and never counts as a page that jumps.
import { h, mark, put, vary } from "./dom.js";
import { whole } from "./format.js";
import { nextWords, statePill } from "./state.js";
import { stockBar } from "./stock.js";
import { choice } from "./fields.js";
import { serverNow } from "./clock.js";
import { t } from "./words.js";

const ORDER = ["OPEN", "PAUSED", "SCHEDULED", "SOLD_OUT", "CLOSED"];
/* A drop that is about to open is looked at more than one that is open already. */
const SOON_MS = 120000;
const FILTERS = [
  ["current", t("Current"), (policy) => policy.state !== "CLOSED"],
  ["scheduled", t("Scheduled"), (policy) => policy.state === "SCHEDULED"],
  ["archive", t("Archive"), (policy) => policy.state === "CLOSED"],
  ["all", t("All"), () => true],
];
const SHOWN = 8;
const TOLD = 200; // more the stream does not tell of

const isSoon = ({ state, opens_at }) =>
  state === "SCHEDULED" && Date.parse(opens_at) - serverNow() < SOON_MS;
const rankOf = (policy) => (isSoon(policy) ? -1 : ORDER.indexOf(policy.state));

/* What is about to open and what can be claimed first, then what is next to open, then the newest. */
export function byUrgency(a, b) {
  const rank = rankOf(a) - rankOf(b);
  if (rank !== 0) return rank;
  if (a.state === "SCHEDULED") return Date.parse(a.opens_at) - Date.parse(b.opens_at);
  return (Date.parse(b.opens_at ?? 0) || 0) - (Date.parse(a.opens_at ?? 0) || 0) || b.id - a.id;
}

export function policyList() {
  const rows = new Map();
  const list = h("ul", { class: "policies" });
  const count = h("span", { class: "count" });
  const empty = h(
    "p",
    { class: "empty", hidden: true },
    t("No drop yet."),
    " ",
    h("a", { href: "#/new" }, t("Make the first one")),
  );
  const none = h("p", { class: "empty", hidden: true }, t("No drop is like that."));
  const search = h("input", {
    type: "search",
    class: "list-search",
    placeholder: t("Name or number"),
    "aria-label": t("Search the drops"),
    oninput: () => show(known),
  });
  const filter = choice(
    "filter",
    t("Which"),
    FILTERS.map(([value, words]) => [value, words]),
    () => show(known),
  );
  const more = h("button", {
    type: "button",
    class: "quiet more",
    hidden: true,
    onclick: () => {
      isWhole = !isWhole;
      show(known);
    },
  });
  let isWhole = false,
    known = [];

  function show(all) {
    known = all;
    const wants = FILTERS.find(([value]) => value === filter.value)[2];
    const asked = search.value.trim().toLowerCase();
    const fitting = all.filter(
      (policy) =>
        wants(policy) &&
        (policy.name.toLowerCase().includes(asked) || `#${policy.id}`.includes(asked)),
    );
    const sorted = fitting.sort(byUrgency);
    const shown = isWhole ? sorted : sorted.slice(0, SHOWN);
    const wanted = new Set(shown.map(({ id }) => id));
    for (const [id, { node }] of rows) if (!wanted.has(id)) (node.remove(), rows.delete(id));
    shown.forEach((policy, i) => {
      if (!rows.has(policy.id)) rows.set(policy.id, row(policy.id));
      const { node, show: fill } = rows.get(policy.id);
      if (list.children[i] !== node) list.insertBefore(node, list.children[i] ?? null);
      vary(node, "--place", i);
      fill(policy);
    });
    vary(list, "--rows", shown.length);
    mark(none, "hidden", fitting.length > 0 || all.length === 0);
    const n = whole(fitting.length);
    put(count, all.length < TOLD ? n : t("{n} of the newest", { n }));
    mark(more, "hidden", fitting.length <= SHOWN);
    put(more, isWhole ? t("Show fewer") : t("Show all {n}", { n }));
  }

  function isKnown() {
    mark(node, "data-known", "");
    mark(empty, "hidden", known.length > 0);
  }

  const node = h(
    "section",
    { class: "card list", "aria-labelledby": "policies-title" },
    h(
      "div",
      { class: "card-head" },
      h("h2", { id: "policies-title" }, t("Drops") + " ", count),
      h("a", { class: "button", href: "#/new" }, t("New drop")),
    ),
    h("div", { class: "list-tools" }, search, filter.node),
    empty,
    none,
    list,
    more,
  );
  return { node, show, isKnown };
}

function row(id) {
  const pill = statePill();
  const name = h("b", { class: "row-name" });
  const next = h("span", { class: "row-next" });
  const bar = stockBar(t("Stock"));
  const counts = h("span", { class: "row-counts" });
  const number = h("b", { class: "row-number" });
  const of = h("span", { class: "row-of" });
  const node = h(
    "li",
    {},
    h(
      "a",
      { href: `#/policies/${id}` },
      h("span", { class: "row-title" }, name, next),
      pill.node,
      h("span", { class: "row-stock" }, bar.node, counts),
      h("span", { class: "row-left" }, number, of),
    ),
  );
  return {
    node,
    show(policy) {
      put(name, policy.name);
      put(next, `#${id} · ${nextWords(policy)}`);
      pill.show(policy.state);
      bar.show(policy);
      put(counts, t("{issued} issued · {pending} pending", {
          issued: whole(policy.issued),
          pending: whole(policy.pending),
        }));
      put(number, whole(policy.remaining));
      put(of, t("left of {n}", { n: whole(policy.total) }));
    },
  };
}
