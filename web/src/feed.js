// feed.js: the last claims, and what happened to the policy, newest first.
//
// The rows stay where they are and only their words change: nothing jumps while a crowd goes by.
import { h, mark, put } from "./dom.js";
import { clockTime } from "./format.js";
import { told } from "./told.js";
import { t } from "./words.js";

const KEPT = 50;
const RESULTS = {
  issued: ["won", t("issued")],
  accepted: ["won", t("accepted")],
  already_issued: ["held", t("asked again")],
  sold_out: ["sold_out", t("sold out")],
  limit_reached: ["refused", t("limit reached")],
  not_open: ["refused", t("too early")],
  paused: ["refused", t("paused")],
  closed: ["refused", t("closed")],
  blocked: ["refused", t("blocked")],
  unavailable: ["refused", t("unavailable")],
};

/* What colour a result has, and its words. */
export const resultOf = (name) => RESULTS[name] ?? ["refused", name.replaceAll("_", " ")];

function slots(title, id, empty, row) {
  const rows = Array.from({ length: KEPT }, row);
  const note = h("p", { class: "empty" }, empty);
  const list = h(
    "ol",
    { class: id },
    rows.map(({ node }) => node),
  );
  let items = [];
  return {
    node: h(
      "section",
      { class: "card", "aria-labelledby": `${id}-title` },
      h("h2", { id: `${id}-title` }, title),
      h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": title }, note, list),
    ),
    /* Newer ones go on top, in the order of their time. */
    add(more) {
      if (!more?.length) return;
      items = [...more, ...items]
        .sort((a, b) => Date.parse(b.at) - Date.parse(a.at))
        .slice(0, KEPT);
      this.draw();
    },
    set(all) {
      items = [];
      this.add(all);
      if (!all?.length) this.draw();
    },
    draw() {
      mark(note, "hidden", items.length > 0);
      rows.forEach(({ node, show }, i) => {
        mark(node, "hidden", !items[i]);
        if (items[i]) show(items[i]);
      });
    },
  };
}

export function claimFeed() {
  return slots(t("Last claims"), "feed", t("Nobody has claimed yet."), () => {
    const at = h("time"),
      user = h("span", { class: "feed-user" });
    const result = h("span", { class: "feed-result" }),
      seq = h("b", { class: "feed-seq" });
    return {
      node: h("li", { hidden: true }, at, user, result, seq),
      show(claim) {
        const [kind, words] = resultOf(claim.result);
        put(at, clockTime(claim.at, 3));
        put(user, claim.user);
        put(result, words);
        mark(result, "data-kind", kind);
        put(seq, claim.seq ? `#${claim.seq}` : "");
      },
    };
  });
}

export function eventLog() {
  return slots(t("Event log"), "log", t("Nothing has happened yet."), () => {
    const at = h("time"),
      words = h("span");
    return {
      node: h("li", { hidden: true }, at, words),
      show(entry) {
        put(at, clockTime(entry.at));
        put(words, told(entry.words));
      },
    };
  });
}
