// drop.js: the storefront: one policy and one person, from the countdown to the coupon.
import { get } from "./api.js";
import { heardTime, serverNow, ticking } from "./clock.js";
import { clockTime } from "./format.js";
import { whoIsHere } from "./person.js";
import { presses } from "./press.js";
import { scene } from "./scene.js";
import { follow } from "./stream.js";

const id = location.pathname.split("/")[2];
const ANNOUNCED_S = [60, 30, 10];
const REFUSALS = { LIMIT_REACHED: "limit", BLOCKED: "blocked", CLOSED: "closed" };
const STATES = ["SOLD_OUT", "PAUSED", "CLOSED"]; // what a policy's state says, too

/* All that the page shows follows from this. */
const now = { policy: null, person: null, claim: null, underWay: null, verdict: null, stop: null };
const view = scene(document.getElementById("drop"), { press, spoken: draw });
let hand = null,
  closeStatus = null;

/* Nothing can be claimed here, for a reason that waiting does not change: "missing", "token", … */
function halt(kind) {
  now.stop = kind;
  if (!now.policy) view.nothing();
  draw();
}

function draw() {
  const { words } = view.speech,
    { policy, claim } = now;
  if (now.stop) return tell(now.stop);
  if (!policy) return;
  view.offer(policy);
  view.who(now.person?.user);
  if (now.underWay) return drawUnderWay();
  if (claim) return drawClaim();
  const { code, title, detail } = now.verdict ?? {};
  if (REFUSALS[code]) return tell(REFUSALS[code]);
  // Of what these pages have no words for, the server's own are told.
  if (code && !STATES.includes(code)) return tell(null, detail, title);
  if (policy.state === "CLOSED") return tell("closed");
  if (policy.state === "PAUSED") return tell("paused");
  if (policy.state === "SOLD_OUT") return drawSoldOut();
  const opens_ms = policy.opens_at ? Date.parse(policy.opens_at) : 0;
  const left_ms = opens_ms - serverNow();
  if (left_ms > 0) return drawCountdown(left_ms);
  const isKnown = now.person !== null;
  view.stage.press({
    words: isKnown ? words.openNow : "",
    label: words.button,
    line: "\u00a0",
    isReady: isKnown,
  });
  if (isKnown) view.announce(words.openNow);
}

function drawCountdown(left_ms) {
  const { words } = view.speech;
  view.stage.countdown(left_ms);
  view.stage.press({
    isCounting: true,
    label: words.buttonWaits,
    line: words.opensAt(view.speech.day(now.policy.opens_at)),
    isReady: false,
  });
  const seconds = Math.ceil(left_ms / 1000);
  if (ANNOUNCED_S.includes(seconds)) view.announce(words.announceSoon(seconds));
}

function drawUnderWay() {
  const { words } = view.speech,
    { at_ms, told } = now.underWay;
  const line = told ? words[told] : words.pressedWords(clockTime(at_ms, 1));
  view.stage.press({
    words: words.pressed,
    label: words.pressed,
    line,
    isReady: false,
    isBusy: true,
  });
  view.announce(told ? line : `${words.pressed}. ${line}`);
}

function drawClaim() {
  const { words } = view.speech,
    { claim, policy } = now;
  if (claim.state === "PENDING") {
    const title = words.pendingTitle(view.speech.number(claim.seq));
    const line = words.pendingWords(claim.ahead ?? 0);
    view.stage.press({ words: title, label: words.pressed, line, isReady: false, isBusy: true });
    view.announce(`${title}. ${line}`);
  } else if (claim.state === "VOID") {
    tell("void", words.voidWords(claim.reason ?? ""));
  } else {
    const isMore = policy.state === "OPEN" && (claim.held ?? 1) < policy.per_user_limit;
    view.stage.won(claim, isMore);
    view.announce(
      `${words.wonTitle}. ${words.place(claim.seq)}. ${words.code} ${claim.code ?? ""}`,
    );
  }
}

function drawSoldOut() {
  const { words } = view.speech,
    { verdict } = now;
  if (verdict?.code !== "SOLD_OUT") return tell("soldOut");
  const early_s = (verdict.at_ms - Date.parse(verdict.sold_out_at)) / 1000;
  tell(
    "soldOut",
    early_s >= 0.1 ? words.soldOutBefore(view.speech.tenths(early_s)) : words.soldOutJust,
  );
}

function tell(kind, text, title = view.speech.words[`${kind}Title`]) {
  const line = text ?? view.speech.words[`${kind}Words`];
  view.stage.message(title, line);
  view.announce(`${title}. ${line}`);
}

/* Takes in what the server says of this person's claims; the latest that is a coupon is shown. */
function heardClaim(status) {
  const good = (status.claims ?? [status]).filter((each) => each.state === "ISSUED");
  const shown = status.state === "PENDING" || !good.length ? status : good[0];
  now.claim = { ...now.claim, ...shown, ahead: status.ahead, held: Math.max(good.length, 1) };
  draw();
}

function followClaim() {
  closeStatus?.();
  const { user, headers } = now.person;
  closeStatus = follow(`/v1/policies/${id}/claims/${encodeURIComponent(user)}/events`, {
    headers,
    ends: true,
    on: { status: heardClaim },
    state: (state, status) => state === "refused" && status === 401 && halt("expired"),
  });
}

async function press() {
  if (now.underWay || !hand) return;
  const { at_ms, answer } = hand.begin();
  now.underWay = { at_ms, told: null };
  now.verdict = null;
  draw();
  const { claim, verdict } = await answer;
  now.underWay = null;
  if (claim) {
    now.claim = { ...claim, held: claim.nth };
    followClaim();
  } else if (verdict.code === "UNAUTHORIZED") return halt("expired");
  else {
    now.verdict = verdict;
    // The stream will say so too, in a moment; what was just refused is not offered again until
    // then.
    if (STATES.includes(verdict.code)) now.policy.state = verdict.code;
    if (verdict.code === "SOLD_OUT") now.policy.remaining = 0;
  }
  draw();
}

function heardNumbers(numbers) {
  heardTime(numbers.now);
  const { policy_id, now: sent, ...rest } = numbers;
  now.policy = { ...now.policy, ...rest };
  if (now.verdict?.code === "PAUSED" && rest.state !== "PAUSED") now.verdict = null;
  draw();
}

/* Asks until the server answers: a storefront is opened before anything else is ready. */
async function insist(path, options) {
  for (let wait_ms = 500; ; wait_ms = Math.min(wait_ms * 2, 5000)) {
    try {
      return await get(path, options);
    } catch (problem) {
      if (!problem.isOpen) throw problem;
      view.trouble(view.speech.words.offline);
      await new Promise((resolve) => setTimeout(resolve, wait_ms));
    }
  }
}

async function start() {
  let session;
  try {
    [now.policy, session] = await Promise.all([
      insist(`/v1/policies/${id}`),
      insist("/v1/session"),
    ]);
  } catch (problem) {
    return halt(problem.status === 404 || problem.status === 400 ? "missing" : "trouble");
  }
  follow(`/v1/policies/${id}/events`, {
    on: { numbers: heardNumbers },
    state: (state) => view.trouble(state === "waiting" ? view.speech.words.offline : ""),
  });
  ticking(100, () => now.policy?.state === "SCHEDULED" && draw());
  const person = whoIsHere(session);
  if (person.cannot) return (draw(), halt(person.cannot));
  hand = presses(id, person, (told) => {
    if (now.underWay) now.underWay.told = told;
    draw();
  });
  try {
    const status = await insist(`/v1/policies/${id}/claims/${encodeURIComponent(person.user)}`, {
      headers: person.headers,
    });
    heardClaim(status);
    if (status.state === "PENDING") {
      now.person = person;
      followClaim();
    }
  } catch (problem) {
    if (problem.status === 401) return halt("expired");
    now.verdict = hand.lastVerdict();
  }
  now.person = person;
  if (hand.isUnderWay()) press();
  else draw();
}

start();
