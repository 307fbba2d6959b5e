// figure.js: a plot with its title, a line of words and its legend, as a card.
import { h } from "./dom.js";
import { legend } from "./legend.js";

/* `box` is for the plot, `key` the legend, `words` the line; `extra` goes beside the title. */
export function figure(id, title, note, outcomes, extra) {
  const box = h("div", { class: "plot" }),
    key = legend(outcomes);
  const words = h("p", { class: "soft" }, note);
  const node = h(
    "figure",
    { class: "card", "aria-labelledby": id },
    h("figcaption", {}, h("h2", { id }, title), extra ?? null),
    words,
    box,
    key.node,
  );
  return { node, box, key, words };
}
