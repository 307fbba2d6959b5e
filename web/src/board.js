// board.js: the first page: how the server is, what is being handed out, and every policy.
import { heardTime, serverNow, ticking } from "./clock.js";
import { deadLetters } from "./dead.js";
import { h, put } from "./dom.js";
import { clockTime, lasted, whole } from "./format.js";
import { healthLights, partsWithKinds } from "./health.js";
import { legend } from "./legend.js";
import { grouped, OUTCOMES, stackedBars } from "./plot.js";
import { policyList } from "./policies.js";
import { bestSellers } from "./products.js";
import { follow } from "./stream.js";
import { policyNow } from "./now.js";
import { t } from "./words.js";

const SPAN_S = 60;

/* What became of the claims of each second; kept while people look at other pages. */
const seconds = new Map();

export function boardPage(root, { connection, refused }) {
  const policies = new Map();
  const lights = healthLights();
  const server = serverLine();
  const now = policyNow();
  const rates = ratesFigure();
  const list = policyList();
  const sellers = bestSellers();
  const letters = deadLetters();

  root.append(
    h("h1", { class: "sr" }, t("Board")),
    h("section", { class: "strip card", "aria-label": t("The server") }, lights.node, server.node),
    h("div", { class: "hero" }, now.node, rates.node),
    h(
      "div",
      { class: "columns" },
      list.node,
      h("div", { class: "side" }, sellers.node, letters.node),
    ),
  );
  rates.start();

  function heard(numbers) {
    heardTime(numbers.now);
    for (const policy of numbers.policies) {
      policies.set(policy.id, { ...policies.get(policy.id), ...policy });
    }
    lights.show(partsWithKinds(numbers.parts, numbers.server));
    server.show(numbers);
    rates.add(Date.parse(numbers.now), numbers.claims_per_s);
    letters.show(numbers.dead_letters);
    draw();
  }
  function draw() {
    const all = [...policies.values()];
    list.show(all);
    now.show(all);
  }
  const stopTicking = ticking(250, () => policies.size && draw());
  const stopStream = follow("/v1/live", {
    on: {
      snapshot: (numbers) => {
        policies.clear();
        heard(numbers);
        list.isKnown();
      },
      numbers: heard,
    },
    quiet_ms: 8000,
    state: (state, status) => (state === "refused" ? refused(status) : connection(state)),
  });
  return () => {
    stopStream();
    stopTicking();
    sellers.stop();
    rates.stop();
  };
}

/* What the server is made of and how long it has been up. */
function serverLine() {
  const kinds = h("span"),
    streams = h("span"),
    up = h("span");
  const node = h("p", { class: "server-line" }, kinds, streams, up);
  return {
    node,
    show({ server, streams: count }) {
      put(kinds, `dibs ${server.version}`);
      put(streams, t("{n} watching", { n: whole(count) }));
      put(up, t("up {time}", { time: lasted(server.uptime_s * 1000) }));
    },
  };
}

/* Claims per second of the last minute, as far back as this page has been open. */
function ratesFigure() {
  const box = h("div", { class: "plot" });
  const total = h("b", { class: "figure-number" }, "0");
  const key = legend();
  const node = h(
    "figure",
    { class: "card rates", "aria-labelledby": "rates-title" },
    h("figcaption", {}, h("h2", { id: "rates-title" }, t("Claims per second")), total),
    box,
    key.node,
  );
  let plot,
    xs = [],
    columns = [],
    pointed = null,
    latest = OUTCOMES.map(() => 0);

  function label() {
    if (pointed !== null && xs[pointed]) {
      key.show(
        columns.map((column) => column[pointed]),
        clockTime(xs[pointed] * 1000),
      );
    } else key.show(latest, t("now"));
  }
  function draw() {
    const last = Math.floor(serverNow() / 1000);
    xs = Array.from({ length: SPAN_S }, (_, i) => last - SPAN_S + 1 + i);
    columns = OUTCOMES.map((_, k) => xs.map((t) => seconds.get(t)?.[k] ?? 0));
    for (const t of seconds.keys()) if (t < xs[0]) seconds.delete(t);
    plot.set(xs, columns, { min: xs[0], max: last + 1 });
    put(total, whole(latest.reduce((sum, n) => sum + n, 0)));
    label();
  }
  let stopTicking = () => {};
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
      stopTicking = ticking(1000, draw);
    },
    add(now_ms, counts) {
      latest = grouped(counts);
      seconds.set(Math.floor(now_ms / 1000), latest);
      draw();
    },
    stop() {
      stopTicking();
      plot.stop();
    },
  };
}
