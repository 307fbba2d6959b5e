// seconds.js: what became of the claims over time: every second, and the first thirty up close.
import { serverNow, ticking } from "./clock.js";
import { h, put } from "./dom.js";
import { clockTime } from "./format.js";
import { legend } from "./legend.js";
import { FIRST_OUTCOMES, grouped, OUTCOMES, stackedBars } from "./plot.js";

const SPANS = [
  { span_s: 60, bin_s: 1, words: "1 min" },
  { span_s: 300, bin_s: 1, words: "5 min" },
  { span_s: 900, bin_s: 5, words: "15 min" },
];
const TENTHS = 300;

function figure(id, title, note, outcomes, extra) {
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

/* Outcomes per second of the last minutes. */
export function outcomesFigure() {
  const seconds = new Map();
  let chosen = SPANS[0],
    plot,
    xs = [],
    columns = [],
    pointed = null,
    stopTicking = () => {};
  const radios = SPANS.map((span, i) =>
    h(
      "label",
      {},
      h("input", {
        type: "radio",
        name: "span",
        checked: i === 0,
        onchange: () => {
          chosen = span;
          draw();
        },
      }),
      h("span", {}, span.words),
    ),
  );
  const { node, box, key } = figure(
    "outcomes-title",
    "Outcomes per second",
    "Claims answered by this " + "server, by what they came to",
    OUTCOMES,
    h("div", { class: "segments", role: "radiogroup", "aria-label": "How far back" }, radios),
  );

  function label() {
    const at = pointed ?? columns[0]?.length - 2;
    if (xs[at] === undefined) return;
    key.show(
      columns.map((column) => column[at]),
      pointed === null ? "last second" : clockTime(xs[at] * 1000),
    );
  }
  function draw() {
    const { span_s, bin_s } = chosen;
    const last = Math.floor(serverNow() / 1000 / bin_s) * bin_s;
    xs = Array.from({ length: span_s / bin_s }, (_, i) => last - span_s + (i + 1) * bin_s);
    const sums = xs.map((t) =>
      OUTCOMES.map((_, k) => {
        let sum = 0;
        for (let second = t; second < t + bin_s; second++) sum += seconds.get(second)?.[k] ?? 0;
        return sum / bin_s;
      }),
    );
    columns = OUTCOMES.map((_, k) => sums.map((each) => each[k]));
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

/* The first thirty seconds in tenths, with the instant of the sell-out. */
export function firstFigure() {
  const { node, box, key, words } = figure(
    "first-title",
    "The first 30 seconds",
    "Begins with the first claim after the opening",
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
    if (pointed !== null) {
      key.show(
        columns.map((column) => column[pointed]),
        `${xs[pointed].toFixed(1)} s`,
      );
    } else
      key.show(
        columns.map((column) => column.reduce((a, b) => a + b, 0)),
        "in all",
      );
  }
  function draw() {
    const used = columns[0].reduce(
      (last, _, i) => (columns.some((column) => column[i]) ? i : last),
      0,
    );
    // Whoever sells out in a second sees that second, not a thin line before an empty half minute.
    const end = [5, 10, 20].find((seconds) => used / 10 < seconds * 0.9) ?? 30;
    plot.set(xs, columns, { min: 0, max: end });
    const sold = soldAfter_s();
    put(
      words,
      began_ms === null
        ? "Begins with the first claim after the opening"
        : `From the first claim at ${clockTime(began_ms, 1)}` +
            (sold === null ? "" : `; sold out after ${sold.toFixed(2)} s`),
    );
    label();
  }
  return {
    node,
    start() {
      plot = stackedBars(box, {
        outcomes: FIRST_OUTCOMES,
        words: (s) => `${+s.toFixed(1)} s`,
        mark: () =>
          soldAfter_s() === null
            ? null
            : { x: soldAfter_s(), words: `sold out ${soldAfter_s().toFixed(2)} s` },
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
