// legend.js: what the colours of a plot mean, with the numbers of the place pointed at.
import { h, put } from "./dom.js";
import { whole } from "./format.js";
import { OUTCOMES } from "./plot.js";

/* A legend; `show(numbers, words)` puts one number to each outcome and says of when they are. */
export function legend(outcomes = OUTCOMES) {
  const numbers = outcomes.map(() => h("b", {}, "0"));
  const when = h("span", { class: "legend-when" }, "\u00a0");
  const node = h(
    "div",
    { class: "legend" },
    outcomes.map(({ name, words }, i) =>
      h(
        "span",
        { class: "legend-item" },
        h("i", { class: `swatch is-${name}` }),
        `${words} `,
        numbers[i],
      ),
    ),
    when,
  );
  return {
    node,
    show(counts, words) {
      counts.forEach((n, i) => put(numbers[i], whole(n)));
      put(when, words);
    },
  };
}
