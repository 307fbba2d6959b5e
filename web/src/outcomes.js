// outcomes.js: what became of the claims, second by second.
import { serverNow, ticking } from "./clock.js";
import { choice, figure } from "./figure.js";
import { clockTime } from "./format.js";
import { grouped, OUTCOMES, stackedBars } from "./plot.js";
import { t } from "./words.js";

const SPANS = [
  { span_s: 60, bin_s: 1, words: t("1 min") },
  { span_s: 300, bin_s: 1, words: t("5 min") },
  { span_s: 900, bin_s: 5, words: t("15 min") },
];

/* How many of an outcome there were a second in the `bin_s` seconds from `t`. */
function perSecond(seconds, t, bin_s, outcome) {
  let sum = 0;
  for (let second = t; second < t + bin_s; second++) sum += seconds.get(second)?.[outcome] ?? 0;
  return sum / bin_s;
}

/* Outcomes per second of the last minutes. */
export function outcomesFigure() {
  const seconds = new Map();
  let chosen = SPANS[0],
    plot,
    xs = [],
    columns = [],
    pointed = null,
    stopTicking = () => {};
  const spans = choice("span", t("How far back"), SPANS, (span) => {
    chosen = span;
    draw();
  });
  const { node, box, key } = figure(
    "outcomes-title",
    t("Outcomes per second"),
    t("Claims answered by this server, by what became of them"),
    OUTCOMES,
    spans.node,
  );

  function label() {
    const at = pointed ?? columns[0]?.length - 2;
    if (xs[at] === undefined) return;
    key.show(
      columns.map((column) => column[at]),
      pointed === null ? t("last second") : clockTime(xs[at] * 1000),
    );
  }
  function draw() {
    const { span_s, bin_s } = chosen;
    const last = Math.floor(serverNow() / 1000 / bin_s) * bin_s;
    xs = Array.from({ length: span_s / bin_s }, (_, i) => last - span_s + (i + 1) * bin_s);
    columns = OUTCOMES.map((_, k) => xs.map((t) => perSecond(seconds, t, bin_s, k)));
    plot.set(xs, columns, { min: xs[0], max: last + bin_s });
    label();
  }
  return {
    node,
    start() {
      plot = stackedBars(box, {
        words: (t) => clockTime(t * 1000),
        hover: (index) => {
          pointed = index;
          label();
        },
      });
      stopTicking = ticking(500, draw);
    },
    set(all) {
      seconds.clear();
      this.add(all);
    },
    add(some) {
      for (const counts of some ?? []) seconds.set(counts.t, grouped(counts));
      draw();
    },
    stop() {
      stopTicking();
      plot.stop();
    },
  };
}
