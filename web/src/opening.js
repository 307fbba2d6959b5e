// opening.js: how the drop went since it opened: totals of all servers, by minute, then by hour.
import { get } from "./api.js";
import { serverNow, ticking } from "./clock.js";
import { h, mark, put } from "./dom.js";
import { resultOf } from "./feed.js";
import { choice, figure } from "./figure.js";
import { clockTime, moment, whole } from "./format.js";
import { OUTCOMES, stackedBars } from "./plot.js";
import { t } from "./words.js";

const EVERY_MS = 10000;
const BARS_MAX = 744; // as many hours as the server tells
const MINUTES = {
  words: t("First hour"),
  ms: 60000,
  axis: (n) => t("{n} min", { n }),
  rows: ({ minutes }) => minutes,
  least: 60,
};
const HOURS = {
  words: t("By hour"),
  ms: 3600000,
  axis: (n) => t("{n} h", { n }),
  rows: ({ minutes, hours }) => [...minutes, ...hours],
  least: 12,
};
const SPANS = [MINUTES, HOURS];
const UNREAD = { opened_at: 0, minutes: [], hours: [] };

/* In the order of OUTCOMES. */
const countsOf = (sums) => [sums.won, sums.asked_again, sums.sold_out, sums.refused];

/* Bars without gaps in time: `xs` counts minutes or hours from the one of the opening. */
function seriesOf(stats, { ms, rows, least }) {
  const from_ms = Math.floor(new Date(stats.opened_at) / ms) * ms;
  const found = rows(stats).map((row) => [Math.floor((Date.parse(row.at) - from_ms) / ms), row]);
  const places = found.map(([x]) => x);
  const max = Math.max(least, ...places.map((x) => x + 1));
  const min = Math.max(Math.min(0, ...places), max - BARS_MAX);
  const xs = Array.from({ length: max - min }, (_, i) => min + i);
  const columns = OUTCOMES.map(() => xs.map(() => 0));
  for (const [x, row] of found) {
    if (x >= min) countsOf(row).forEach((n, k) => (columns[k][x - min] += n));
  }
  return { from_ms, xs, columns, range: { min, max } };
}

/* What was refused, by reason, the most frequent first. */
function reasonsOf({ refused_by }) {
  const parts = Object.entries(refused_by)
    .sort(([, a], [, b]) => b - a)
    .map(([name, n]) => `${resultOf(name)[1]} ${whole(n)}`);
  return parts.length ? `${t("Refused")}: ${parts.join(", ")}` : "";
}

/* The figure of policy `id`; `refused(401)` is called when whoever looks is signed in no longer. */
export function openingFigure(id, refused) {
  let chosen = null,
    stats = UNREAD,
    read_ms = null,
    series = seriesOf(UNREAD, MINUTES),
    isAsking = false,
    pointed = null,
    plot,
    stopTicking = () => {};
  const spans = choice("since", t("Which"), SPANS, (span) => {
    chosen = span;
    draw();
  });
  const { node, box, key, words } = figure(
    "opening-title",
    t("Since the opening"),
    t("Being read…"),
    OUTCOMES,
    spans.node,
  );
  const reasons = h("p", { class: "fact" });
  node.classList.add("opening");
  node.append(reasons);

  const shown = () => chosen ?? (!stats.minutes.length && stats.hours.length ? HOURS : MINUTES);
  function label() {
    const x = series.xs[pointed ?? -1];
    if (x === undefined) return read_ms && key.show(countsOf(stats), t("in all"));
    const at = series.from_ms + x * shown().ms;
    return key.show(
      series.columns.map((column) => column[pointed]),
      shown() === MINUTES ? clockTime(at) : moment(at, serverNow()),
    );
  }
  function draw() {
    spans.set(shown());
    series = seriesOf(stats, shown());
    plot.set(series.xs, series.columns, series.range);
    label();
  }
  function heard(answer) {
    stats = answer;
    read_ms = serverNow();
    mark(node, "data-read", "");
    put(
      words,
      stats.asked > 0
        ? t("{n} claims, of all servers together", { n: whole(stats.asked) })
        : t("Nobody has claimed yet."),
    );
    put(reasons, reasonsOf(stats));
    draw();
  }
  /* What was read before stays, and is said to be of then. */
  function failed({ status }) {
    if (status === 401) return refused(status);
    const time = read_ms && clockTime(read_ms);
    return put(
      words,
      time
        ? t("Cannot be read since {time}, trying again.", { time })
        : t("Cannot be read right now, trying again."),
    );
  }
  async function ask() {
    if (document.hidden || isAsking) return;
    isAsking = true;
    await get(`/v1/policies/${id}/stats`).then(heard, failed);
    isAsking = false;
  }
  return {
    node,
    /* Once the policy is known to be there. */
    start() {
      plot = stackedBars(box, {
        words: (n) => shown().axis(n),
        hover: (index) => {
          pointed = index;
          label();
        },
      });
      draw();
      stopTicking = ticking(EVERY_MS, ask);
      document.addEventListener("visibilitychange", ask);
    },
    stop() {
      stopTicking();
      document.removeEventListener("visibilitychange", ask);
      plot?.stop();
    },
  };
}
