// policy.js: one policy's page: its numbers, what becomes of the claims, and what to do with it.
import { policyActions } from "./actions.js";
import { get } from "./api.js";
import { heardTime, serverNow, ticking } from "./clock.js";
import { h, put } from "./dom.js";
import { claimFeed, eventLog } from "./feed.js";
import { funnel, latencies } from "./flow.js";
import { left, share, whole } from "./format.js";
import { healthLights, partsOf } from "./health.js";
import { preflight } from "./preflight.js";
import { sentenceOf } from "./preview.js";
import { firstFigure, outcomesFigure } from "./seconds.js";
import { nextWords, statePill } from "./state.js";
import { stockBar } from "./stock.js";
import { follow } from "./stream.js";
import { ownZone } from "./zones.js";

const HEALTH_MS = 5000;

export function policyPage(root, { id, connection, refused }) {
  const head = policyHead(id);
  const parts = {
    outcomes: outcomesFigure(),
    first: firstFigure(),
    funnel: funnel(),
    latency: latencies(),
    lights: healthLights(),
    check: preflight(id),
    feed: claimFeed(),
    log: eventLog(),
  };
  let policy = null;

  root.append(
    head.node,
    h(
      "div",
      { class: "pictures" },
      parts.outcomes.node,
      parts.funnel.node,
      parts.first.node,
      parts.latency.node,
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
          h("h2", { id: "health-title" }, "Health"),
          parts.lights.node,
        ),
        parts.check.node,
      ),
    ),
    h(
      "p",
      { class: "footnote" },
      "Stock is of all servers together; rates, times and the feed are of " +
        "the server that this page came from.",
    ),
  );
  parts.outcomes.start();
  parts.first.start();

  function heard(message) {
    heardTime(message.now);
    policy = { ...policy, ...message.policy };
    if (message.funnel) parts.funnel.show(message.funnel, message.pending_age_ms);
    if ("latency_ms" in message) parts.latency.show(message.latency_ms);
    head.show(policy);
  }
  function heardHistory(message) {
    const isFirst = policy === null;
    heard(message);
    parts.outcomes.set(message.seconds);
    parts.first.set(message.first, message.sold_out_at ?? null);
    parts.feed.set(message.feed);
    parts.log.set(message.log);
    document.title = `${policy.name} · dibs`;
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
      if (state === "refused" && status === 404) head.missing();
      if (state === "refused") refused(status);
      else connection(state);
    },
  });
  return () => {
    stopStream();
    stopTicking();
    stopAsking();
    parts.outcomes.stop();
    parts.first.stop();
  };
}

/* The name, what it is in a sentence, what can be done, and the numbers. */
function policyHead(id) {
  const name = h("h1", {}, `Policy ${id}`),
    pill = statePill();
  const sentence = h("p", { class: "sentence" }, " ");
  const actions = policyActions(id);
  const bar = stockBar("Stock");
  const facts = Object.fromEntries(
    ["remaining", "issued", "pending", "given", "next"].map((key) => [
      key,
      { number: h("dd", {}, "–"), note: h("dd", { class: "soft" }, " ") },
    ]),
  );
  const fact = (key, title, swatch) =>
    h(
      "div",
      { class: `is-${key}` },
      h("dt", {}, swatch ? h("i", { class: `swatch is-${swatch}` }) : null, title),
      facts[key].number,
      facts[key].note,
    );
  const say = (key, number, note) => {
    put(facts[key].number, number);
    put(facts[key].note, note);
  };

  return {
    node: h(
      "header",
      { class: "policy-head" },
      h("a", { class: "back", href: "#/" }, "← Board"),
      h(
        "div",
        { class: "policy-title" },
        h("div", {}, h("div", { class: "policy-name" }, name, pill.node), sentence),
        actions.node,
      ),
      h(
        "section",
        { class: "card kpis", "aria-label": "Numbers" },
        h(
          "dl",
          {},
          fact("remaining", "Left"),
          fact("issued", "Issued", "won"),
          fact("pending", "Pending", "held"),
          fact("given", "Given out"),
          fact("next", "Clock"),
        ),
        bar.node,
      ),
    ),
    show(policy) {
      const now_ms = serverNow();
      const opens_ms = policy.opens_at ? Date.parse(policy.opens_at) - now_ms : 0;
      put(name, policy.name);
      put(sentence, `#${id} · ${sentenceOf(policy, ownZone(), now_ms)}`);
      pill.show(policy.state);
      actions.show(policy);
      bar.show(policy);
      say("remaining", whole(policy.remaining), `of ${whole(policy.total)}`);
      say("issued", whole(policy.issued), "in the ledger");
      say("pending", whole(policy.pending), "on their way");
      say("given", share(policy.issued + policy.pending, policy.total), "won by somebody");
      if (policy.state === "SCHEDULED" && opens_ms > 0)
        say("next", left(opens_ms), "until it opens");
      else clockFact(say, policy, now_ms);
    },
    missing() {
      put(name, "No such policy");
      put(sentence, `There is no policy ${id}. It may be on another server.`);
    },
  };
}

function clockFact(say, policy, now_ms) {
  const closes_ms = policy.closes_at ? Date.parse(policy.closes_at) - now_ms : 0;
  if (policy.state !== "CLOSED" && closes_ms > 0) say("next", left(closes_ms), "until it closes");
  else if (policy.state === "CLOSED") say("next", "Over", nextWords(policy));
  else
    say(
      "next",
      policy.state === "OPEN" ? "Running" : policy.state === "PAUSED" ? "Held" : "Done",
      nextWords(policy),
    );
}
