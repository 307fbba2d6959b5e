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
  closeStatus = null,
  isAway = false;

/* What keeps the page from the server: this device's own connection, or something further away. */
function showTrouble() {
  const { words } = view.speech;
  view.trouble(navigator.onLine === false ? words.offlineNow : isAway ? words.offline : "");
  draw();
}
for (const change of ["online", "offline"]) addEventListener(change, showTrouble);

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
  view.offer(policy, now.shop);
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
  const line = navigator.onLine === false
    ? words.offlinePress
    : told
      ? words[told]
      : words.pressedWords(clockTime(at_ms, 1));
  view.stage.press({
    words: words.pressed,
    label: words.pressed,
    line,
    isReady: false,
    isBusy: true,
  });
  view.announce(`${words.pressed} ${line}`);
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
    const coupons = claim.coupons ?? [claim];
    const count = coupons.filter(({ coupon_state }) => coupon_state !== "CANCELLED").length;
    const isMore = policy.state === "OPEN" && count < policy.per_user_limit;
    view.stage.won(coupons, isMore ? (count > 0 ? words.buttonMore : words.button) : null);
    const state = words.couponStates[claim.coupon_state];
    view.announce(
      [
        state ?? words.wonTitle,
        words.place(claim.seq),
        ...(state ? [] : [`${words.code} ${claim.code ?? ""}`]),
      ]
        .join(". ")
        .trim(),
    );
  }
}

function drawSoldOut() {
  const { words, clock, tenths, number } = view.speech,
    { verdict, policy } = now;
  const sold_out_at = verdict?.sold_out_at ?? policy.sold_out_at;
  const told = [words.soldOutWords];
  if (verdict?.code === "SOLD_OUT") {
    const early_s = (verdict.at_ms - Date.parse(sold_out_at)) / 1000;
    told[0] = early_s >= 0.1 ? words.soldOutBefore(tenths(early_s)) : words.soldOutJust;
  }
  if (sold_out_at) told.push(words.soldOutAt(clock(sold_out_at)));
  if (verdict?.code === "SOLD_OUT" && policy.per_user_limit === 1)
    told.push(words.soldOutFaster(number(policy.total)));
  if (now.shop?.look_again_at && Date.parse(now.shop.look_again_at) > serverNow())
    told.push(words.lookAgain(view.speech.day(now.shop.look_again_at)));
  else if (now.shop?.coupons_come_back) told.push(words.comesBack);
  tell("soldOut", told);
}

function tell(kind, text, title = view.speech.words[`${kind}Title`]) {
  const lines = [text ?? view.speech.words[`${kind}Words`]].flat();
  view.stage.message(title, lines);
  view.announce(`${title}. ${lines.join(" ")}`);
}

/* Takes in what the server says of this person's claims; the latest that is a coupon is shown. */
function heardClaim(status) {
  const coupons = (status.claims ?? [status]).filter((each) => each.state === "ISSUED");
  const shown = status.state === "PENDING" || !coupons.length ? status : coupons[0];
  // What was answered to a press has the code, which a status may leave out.
  const known = new Map((now.claim?.coupons ?? []).map((each) => [each.seq, each]));
  const all = coupons.map((each) => ({ ...known.get(each.seq), ...each }));
  const first = all.find(({ seq }) => seq === shown.seq);
  now.claim = { ...shown, ...first, ahead: status.ahead, ...(all.length ? { coupons: all } : {}) };
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
    const before = (now.claim?.coupons ?? []).filter(({ seq }) => seq !== claim.seq);
    now.claim = { ...claim, coupons: [claim, ...before] };
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
      isAway = true;
      showTrouble();
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
    now.shop = session.shop;
    isAway = false;
    showTrouble();
  } catch (problem) {
    return halt(problem.status === 404 || problem.status === 400 ? "missing" : "trouble");
  }
  follow(`/v1/policies/${id}/events`, {
    on: { numbers: heardNumbers },
    state: (state) => {
      isAway = state === "waiting";
      showTrouble();
    },
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
