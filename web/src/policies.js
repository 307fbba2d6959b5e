// policies.js: the list of policies, the most urgent first.
//
// Rows are placed by a transform, so that a list that reorders itself while people look at it
// glides, and never counts as a page that jumps.
import { h, mark, put, vary } from "./dom.js";
import { whole } from "./format.js";
import { nextWords, statePill } from "./state.js";
import { stockBar } from "./stock.js";

const ORDER = ["OPEN", "PAUSED", "SCHEDULED", "SOLD_OUT", "CLOSED"];
const SHOWN = 8;
const TOLD = 200; // more the stream does not tell of

/* What can be claimed first, then what is next to open, then the newest. */
export function byUrgency(a, b) {
  const rank = ORDER.indexOf(a.state) - ORDER.indexOf(b.state);
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
    "No policy yet. ",
    h("a", { href: "#/new" }, "Make the first one"),
    ".",
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
    const sorted = [...all].sort(byUrgency);
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
    put(count, all.length < TOLD ? whole(all.length) : `the newest ${whole(all.length)}`);
    mark(more, "hidden", all.length <= SHOWN);
    put(more, isWhole ? "Show fewer" : `Show all ${whole(all.length)}`);
  }

  const node = h(
    "section",
    { class: "card list", "aria-labelledby": "policies-title" },
    h(
      "div",
      { class: "card-head" },
      h("h2", { id: "policies-title" }, "Policies ", count),
      h("a", { class: "button", href: "#/new" }, "New policy"),
    ),
    empty,
    list,
    more,
  );
  return { node, show, isKnown: () => mark(empty, "hidden", known.length > 0) };
}

function row(id) {
  const pill = statePill();
  const name = h("b", { class: "row-name" });
  const next = h("span", { class: "row-next" });
  const bar = stockBar("Stock");
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
      put(counts, `${whole(policy.issued)} issued · ${whole(policy.pending)} pending`);
      put(number, whole(policy.remaining));
      put(of, `left of ${whole(policy.total)}`);
    },
  };
}
