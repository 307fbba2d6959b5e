// press.js: one press of the button, until there is an answer, however often the network breaks.
//
// Each press has an Idempotency-Key that is kept in the browser until the answer is there: sent
// again after a lost answer or a reload it is the same wish, and never a second one.
import { get, post } from "./api.js";
import { serverNow } from "./clock.js";
import { keep, randomName, recall } from "./storage.js";

const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 5000;

const sleep = (ms) =>
  new Promise((resolve) => {
    const wake = () => {
      clearTimeout(timer);
      removeEventListener("online", wake);
      resolve();
    };
    const timer = setTimeout(wake, ms);
    addEventListener("online", wake);
  });

/* The presses of one person at one policy. `told(kind)` hears "retrying" and "opening" meanwhile.
 */
export function presses(policy_id, { user, headers }, told) {
  const slot = `dibs.press.${policy_id}.${user}`;
  const kept = () => recall(localStorage, slot);

  async function send({ key, at_ms }) {
    for (let wait_ms = FIRST_WAIT_MS; ; wait_ms = Math.min(wait_ms * 2, LONGEST_WAIT_MS)) {
      try {
        const claim = await post(
          `/v1/policies/${policy_id}/claims`,
          { user },
          { headers: { ...headers, "Idempotency-Key": key } },
        );
        keep(localStorage, slot, null);
        return { claim };
      } catch (problem) {
        if (problem.code === "NOT_OPEN") {
          told("opening");
          await sleep(
            Math.min(60000, Math.max(50, Date.parse(problem.body.opens_at) - serverNow())),
          );
        } else if (problem.isOpen) {
          told("retrying");
          await sleep(problem.retry_after_ms ?? wait_ms * (0.5 + Math.random()));
        } else return { verdict: await refusal(problem, at_ms) };
      }
    }
  }

  /* What a refusal means to this press. That it came too late is kept, so that a reload says the
     same. */
  async function refusal(problem, at_ms) {
    const { code, body, message: detail } = problem;
    const verdict = { code, title: body.title, detail, at_ms };
    if (problem.code === "SOLD_OUT") {
      const status = await get(`/v1/policies/${policy_id}/claims/${encodeURIComponent(user)}`, {
        headers,
      }).catch((answer) => answer);
      verdict.sold_out_at = status.body?.sold_out_at ?? null;
    }
    keep(localStorage, slot, problem.code === "SOLD_OUT" ? { verdict } : null);
    return verdict;
  }

  return {
    /* Presses, or goes on with the press that was under way before a reload. */
    begin() {
      const record = kept()?.key ? kept() : { key: randomName(), at_ms: serverNow() };
      keep(localStorage, slot, record);
      return { at_ms: record.at_ms, answer: send(record) };
    },
    isUnderWay: () => typeof kept()?.key === "string",
    lastVerdict: () => kept()?.verdict ?? null,
    forget: () => keep(localStorage, slot, null),
  };
}
