// plot.js: bars over time, stacked by what became of the claims, drawn by uPlot.
import uPlot from "uplot";
import { short } from "./format.js";
import { t } from "./words.js";

/* What a claim can come to, from the bottom of a stack up: a name, its words, and the fields of the
   server's counts that it sums; the last takes what is left. */
export const OUTCOMES = [
  { name: "won", words: t("Won"), fields: ["issued", "accepted"] },
  { name: "held", words: t("Asked again"), fields: ["already_issued"] },
  { name: "sold_out", words: t("Sold out"), fields: ["sold_out"] },
  { name: "refused", words: t("Refused"), fields: null },
];

/* What the first seconds are told apart by. */
export const FIRST_OUTCOMES = [
  { name: "won", words: t("Won") },
  { name: "sold_out", words: t("Sold out") },
  { name: "other", words: t("Other") },
];

const KNOWN = new Set(["t", ...OUTCOMES.flatMap((outcome) => outcome.fields ?? [])]);

/* The server's counts of one span of time, one number for each outcome. */
export function grouped(counts) {
  return OUTCOMES.map(({ fields }) =>
    fields
      ? fields.reduce((sum, field) => sum + (counts[field] ?? 0), 0)
      : Object.entries(counts).reduce((sum, [name, n]) => sum + (KNOWN.has(name) ? 0 : n), 0),
  );
}

const colours = {};

/* Canvases do not know the style sheet: its colours are read once, and again when they change. */
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["won", "held", "sold_out", "refused", "other", "ink", "soft", "line"]) {
    colours[name] = style.getPropertyValue(`--${name}`).trim();
  }
}

const HEADROOM = 1.1;
const STEPS = [1, 1.5, 2, 3, 4, 6, 8, 10];

/* A round number at or above n, for the top of an axis. */
export function ceiling(n) {
  const power = 10 ** Math.floor(Math.log10(Math.max(n, 1)));
  return Math.max(4, STEPS.map((step) => step * power).find((top) => top >= n) ?? 4);
}

/* A dashed line with words at `mark()`, `{ x, words }` or null. */
function drawMark(u, mark) {
  const at = mark?.();
  if (!at) return;
  const { ctx, bbox } = u;
  const x = u.valToPos(at.x, "x", true),
    ratio = devicePixelRatio;
  if (x < bbox.left || x > bbox.left + bbox.width) return;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colours.ink;
  ctx.lineWidth = ratio;
  ctx.setLineDash([4 * ratio, 3 * ratio]);
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.font = `600 ${12 * ratio}px ${getComputedStyle(document.body).fontFamily}`;
  ctx.textBaseline = "top";
  const isRight = x + ctx.measureText(at.words).width + 8 * ratio > bbox.left + bbox.width;
  ctx.textAlign = isRight ? "right" : "left";
  ctx.fillText(at.words, x + (isRight ? -6 : 6) * ratio, bbox.top + 2 * ratio);
  ctx.restore();
}

function axes(words) {
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const common = { stroke: () => colours.soft, font, ticks: { show: false } };
  return [
    {
      ...common,
      size: 26,
      gap: 6,
      space: 84,
      grid: { show: false },
      values: (u, splits) => splits.map(words),
    },
    {
      ...common,
      size: 46,
      gap: 6,
      space: 36,
      grid: { stroke: () => colours.line, width: 1 },
      values: (u, splits) => splits.map((n) => (Number.isInteger(n) ? short(n) : "")),
    },
  ];
}

/* Puts a plot of `outcomes` in `box`, whose size is the style sheet's. `words(x)` labels the axis,
   `mark()` may name an instant, `hover(index)` hears which bar is pointed at, null for none. */
export function stackedBars(box, { outcomes = OUTCOMES, words, mark, hover = () => {} }) {
  readColours();
  const series = [...outcomes].reverse().map(({ name }) => ({
    fill: () => colours[name],
    width: 0,
    points: { show: false },
    paths: uPlot.paths.bars({ size: [0.86, 64], align: 1, gap: 0 }),
  }));
  const u = new uPlot(
    {
      width: box.clientWidth || 300,
      height: box.clientHeight || 200,
      padding: [10, 30, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      scales: {
        x: { time: false },
        y: { range: (self, min, max) => [0, ceiling((max ?? 0) * HEADROOM)] },
      },
      axes: axes(words),
      series: [{}, ...series],
      hooks: {
        draw: [(self) => drawMark(self, mark)],
        setCursor: [(self) => hover(self.cursor.idx ?? null)],
      },
    },
    [[], ...outcomes.map(() => [])],
    box,
  );

  const size = new ResizeObserver(() => {
    if (box.clientWidth) u.setSize({ width: box.clientWidth, height: box.clientHeight });
  });
  size.observe(box);
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const recolour = () => {
    readColours();
    u.redraw(false);
  };
  scheme.addEventListener("change", recolour);

  return {
    /* `columns` has one array for each outcome, as long as `xs`. */
    set(xs, columns, range) {
      const sums = xs.map(() => 0);
      // Nothing is no bar, not one without height.
      const stacked = columns.map((column) => column.map((n, i) => (sums[i] += n) || null));
      u.batch(() => {
        u.setData([xs, ...stacked.reverse()], false);
        u.setScale("x", range ?? { min: xs[0], max: xs.at(-1) });
      });
    },
    stop() {
      size.disconnect();
      scheme.removeEventListener("change", recolour);
      u.destroy();
    },
  };
}
