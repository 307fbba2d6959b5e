// stock.js: where a policy's units are, as a bar: issued, on their way, left.
import { h, mark, vary } from "./dom.js";
import { whole } from "./format.js";
import { t } from "./words.js";

/* A bar; `show({ total, issued, pending, remaining })` moves it. */
export function stockBar(label) {
  const node = h(
    "div",
    { class: "stock", role: "img", "aria-label": label },
    h("i", { class: "stock-issued" }),
    h("i", { class: "stock-pending" }),
  );
  // Nothing yet; the second is also the name of a colour.
  vary(node, "--issued", 0);
  vary(node, "--pending", 0);
  return {
    node,
    show({ total, issued, pending, remaining }) {
      const all = Math.max(total, 1);
      vary(node, "--issued", Math.min(1, issued / all));
      vary(node, "--pending", Math.min(1, pending / all));
      mark(
        node,
        "aria-label",
        `${label}: ` +
          t("{issued} issued, {pending} pending, {left} left of {total}", {
            issued: whole(issued),
            pending: whole(pending),
            left: whole(remaining),
            total: whole(total),
          }),
      );
    },
  };
}
