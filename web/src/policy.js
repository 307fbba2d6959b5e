// policy.js: one policy's page: its numbers, what becomes of the claims, and what to do with it.
import { get } from "./api.js";
import { heardTime, ticking } from "./clock.js";
import { h, mark } from "./dom.js";
import { claimFeed, eventLog } from "./feed.js";
import { firstFigure } from "./first.js";
import { funnel, latencies } from "./flow.js";
import { policyHead } from "./head.js";
import { healthLights, partsOf } from "./health.js";
import { openingFigure } from "./opening.js";
import { outcomesFigure } from "./outcomes.js";
import { preflight } from "./preflight.js";
import { follow } from "./stream.js";
import { t } from "./words.js";
import { missingPage } from "./missing.js";

const HEALTH_MS = 5000;

/* The parts in their places: pictures, then details. */
function layout(parts) {
  return [
    h(
      "div",
      { class: "pictures" },
      parts.outcomes.node,
      parts.funnel.node,
      parts.first.node,
      parts.latency.node,
      parts.opening.node,
    ),
    h(
      "div",
      { class: "details" },
      parts.feed.node,
      parts.log.node,
      h(
        "div",
        { class: "side" },
        h(
          "section",
          { class: "card", "aria-labelledby": "health-title" },
          h("h2", { id: "health-title" }, t("Health")),
          parts.lights.node,
        ),
        parts.check.node,
      ),
    ),
    h(
      "p",
      { class: "footnote" },
      t(
        "Stock and the totals since the opening are of all servers together; rates, times and the feed are of the server that this page came from.",
      ),
    ),
  ];
}

export function policyPage(root, { id, connection, refused }) {
  const head = policyHead(id);
  const parts = {
    outcomes: outcomesFigure(),
    first: firstFigure(),
    funnel: funnel(),
    latency: latencies(),
    opening: openingFigure(id, refused),
    lights: healthLights(),
    check: preflight(id),
    feed: claimFeed(),
    log: eventLog(),
  };
  let policy = null;

  /* An address that somebody kept, or mistyped: nothing of the page would be true. */
  function missing() {
    connection("idle");
    document.title = `404 · dibs`;
    root.replaceChildren(
      missingPage(
        t("There is no drop {id}", { id }),
        t("It may be on another server, or its address is mistyped."),
      ),
    );
  }

  root.append(head.node, ...layout(parts));
  parts.outcomes.start();
  parts.first.start();

  function heard(message) {
    heardTime(message.now);
    policy = { ...policy, ...message.policy };
    if (message.funnel) parts.funnel.show(message.funnel, message.pending_age_ms);
    if ("latency_ms" in message) parts.latency.show(message.latency_ms);
    head.show(policy);
    mark(root, "data-read", "");
  }
  function heardHistory(message) {
    const isFirst = policy === null;
    heard(message);
    parts.outcomes.set(message.seconds);
    parts.first.set(message.first, message.sold_out_at ?? null);
    parts.feed.set(message.feed);
    parts.log.set(message.log);
    document.title = `${policy.name} · dibs`;
    if (isFirst) parts.opening.start();
    if (isFirst && policy.state === "SCHEDULED") parts.check.run();
  }
  function heardNumbers(message) {
    heard(message);
    parts.outcomes.add(message.last);
    parts.first.began(message.first_at);
    parts.first.add(message.tenths_from, message.tenths, message.sold_out_at);
    parts.feed.add(message.feed);
    parts.log.add(message.log);
  }
  const stopTicking = ticking(250, () => policy && head.show(policy));
  // A part that is down makes the answer a refusal, which says the same.
  const stopAsking = ticking(HEALTH_MS, () =>
    get("/readyz")
      .catch(({ body }) => body)
      .then((answer) => {
        if (answer?.parts) parts.lights.show(partsOf(answer));
      }),
  );
  const stopStream = follow(`/v1/policies/${id}/live`, {
    on: { history: heardHistory, numbers: heardNumbers },
    quiet_ms: 8000,
    state: (state, status) => {
      if (state === "refused" && status === 404) return missing();
      if (state === "refused") refused(status);
      else connection(state);
    },
  });
  return () => {
    mark(root, "data-read", null);
    stopStream();
    stopTicking();
    stopAsking();
    parts.outcomes.stop();
    parts.first.stop();
    parts.opening.stop();
  };
}
