// products.js: what sells best over the last days, and who is rising.
import { get } from "./api.js";
import { h, mark, put } from "./dom.js";
import { whole } from "./format.js";
import { t } from "./words.js";

const COUNT = 5;
const EVERY_MS = 2000;

function movement(change) {
  if (change === null || change === undefined) return { kind: "new", sign: t("new"), words: t("new") };
  if (change > 0) return { kind: "up", sign: `▲ ${change}`, words: t("up {n}", { n: change }) };
  if (change < 0) return { kind: "down", sign: `▼ ${-change}`, words: t("down {n}", { n: -change }) };
  return { kind: "same", sign: "–", words: t("unchanged") };
}

/* The widget, which asks again every two seconds; `stop()` ends it. */
export function bestSellers() {
  const rows = Array.from({ length: COUNT }, (_, i) => row(i + 1));
  const note = h("p", { class: "empty" }, "…");
  const list = h(
    "ol",
    { class: "sellers" },
    rows.map(({ node }) => node),
  );
  const node = h(
    "section",
    { class: "card", "aria-labelledby": "sellers-title" },
    h("h2", { id: "sellers-title" }, t("Best sellers")),
    h("p", { class: "soft" }, t("Last three days")),
    h("div", { class: "sellers-box" }, list, note),
  );
  let timer,
    isOver = false;

  async function ask() {
    try {
      const { items } = await get(`/v1/products/top?days=3&limit=${COUNT}`);
      const most = Math.max(1, ...items.map((item) => item.sold));
      rows.forEach((each, i) => each.show(items[i], most));
      put(note, items.length ? "" : t("No orders yet."));
    } catch {
      put(note, rows[0].node.hidden ? t("The ranking cannot be read right now.") : "");
    }
    if (!isOver) timer = setTimeout(ask, EVERY_MS);
  }
  ask();
  return {
    node,
    stop: () => {
      isOver = true;
      clearTimeout(timer);
    },
  };
}

function row(rank) {
  const name = h("span", { class: "seller-name" });
  const sold = h("b", { class: "seller-sold" });
  const sign = h("span", { class: "seller-change", "aria-hidden": "true" });
  const words = h("span", { class: "sr" });
  const bar = h("i", { class: "seller-bar" });
  const node = h(
    "li",
    { hidden: true },
    h("span", { class: "seller-rank" }, rank),
    name,
    sold,
    sign,
    words,
    bar,
  );
  return {
    node,
    show(item, most) {
      mark(node, "hidden", !item);
      if (!item) return;
      const change = movement(item.change);
      put(name, item.name ?? item.product_id);
      put(sold, whole(item.sold));
      put(sign, change.sign);
      put(words, t("sold, {words}", { words: change.words }));
      mark(sign, "data-change", change.kind);
      bar.style.setProperty("--share", item.sold / most);
    },
  };
}
