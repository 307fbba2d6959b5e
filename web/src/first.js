// first.js: the first thirty seconds up close, with the instant of the sell-out.
import { put } from "./dom.js";
import { figure } from "./figure.js";
import { clockTime } from "./format.js";
import { FIRST_OUTCOMES, stackedBars } from "./plot.js";
import { t } from "./words.js";

const TENTHS = 300;
const NOT_YET = t("Begins with the first claim after the opening");
const sumOf = (column) => column.reduce((sum, n) => sum + n, 0);

/* The figure, in tenths of a second; `set` takes all there is, `add` what is new. */
export function firstFigure() {
  const { node, box, key, words } = figure(
    "first-title",
    t("The first 30 seconds"),
    NOT_YET,
    FIRST_OUTCOMES,
  );
  const xs = Array.from({ length: TENTHS }, (_, i) => i / 10);
  const columns = FIRST_OUTCOMES.map(() => new Array(TENTHS).fill(0));
  let plot,
    began_ms = null,
    sold_out_ms = null,
    pointed = null;

  const soldAfter_s = () =>
    began_ms && sold_out_ms && sold_out_ms >= began_ms ? (sold_out_ms - began_ms) / 1000 : null;
  function label() {
    if (pointed === null) key.show(columns.map(sumOf), t("in all"));
    else
      key.show(
        columns.map((column) => column[pointed]),
        `${xs[pointed].toFixed(1)} s`,
      );
  }
  function draw() {
    const used = xs.findLastIndex((_, i) => columns.some((column) => column[i]));
    // Whoever sells out in a second sees that second, not a thin line before an empty half minute.
    const end = [5, 10, 20].find((seconds) => used / 10 < seconds * 0.9) ?? 30;
    plot.set(xs, columns, { min: 0, max: end });
    const sold = soldAfter_s();
    const end_words = sold === null ? "" : t("; sold out after {s} s", { s: sold.toFixed(2) });
    const began = began_ms === null ? null : clockTime(began_ms, 1);
    put(words, began === null ? NOT_YET : t("From the first claim at {time}", { time: began }) + end_words);
    label();
  }
  return {
    node,
    start() {
      plot = stackedBars(box, {
        outcomes: FIRST_OUTCOMES,
        words: (s) => `${+s.toFixed(1)} s`,
        mark: () => {
          const x = soldAfter_s();
          return x === null ? null : { x, words: t("sold out {s} s", { s: x.toFixed(2) }) };
        },
        hover: (index) => {
          pointed = index;
          label();
        },
      });
      draw();
    },
    set(first, sold_out_at) {
      for (const column of columns) column.fill(0);
      began_ms = null;
      this.began(first.at);
      this.add(0, first.tenths, sold_out_at);
    },
    /* When the first claim came; null while nobody has claimed. */
    began(at) {
      if (at) began_ms = Date.parse(at);
    },
    /* Each of `tenths` has a number for each of the outcomes. */
    add(from, tenths, sold_out_at) {
      sold_out_ms = sold_out_at ? Date.parse(sold_out_at) : null;
      tenths.forEach((counts, i) => {
        if (from + i < TENTHS)
          counts.forEach((n, k) => {
            columns[k][from + i] = n;
          });
      });
      draw();
    },
    stop: () => plot.stop(),
  };
}
