// figure.js: a plot with its title, a line of words and its legend, as a card; and what it is of, to choose.
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

/* One of `options`, each with its `words`; `chosen(option)` hears it, `set(option)` says it. */
export function choice(name, label, options, chosen) {
  const inputs = options.map((option, i) =>
    h("input", { type: "radio", name, checked: i === 0, onchange: () => chosen(option) }),
  );
  const node = h(
    "div",
    { class: "segments", role: "radiogroup", "aria-label": label },
    inputs.map((input, i) => h("label", {}, input, h("span", {}, options[i].words))),
  );
  return {
    node,
    set(option) {
      inputs[options.indexOf(option)].checked = true;
    },
  };
}
