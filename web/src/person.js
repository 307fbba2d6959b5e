// person.js: who is in front of the storefront, and how the server is told.
import { keep, recall, randomName } from "./storage.js";

const TOKEN = "dibs.token";
const VISITOR = "dibs.visitor";

/* The `sub` of a user's token, or null when it is none. The server checks the signature, not we. */
export function subjectOf(token) {
  try {
    const body = token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
    const bytes = Uint8Array.from(atob(body), (letter) => letter.charCodeAt(0));
    const { sub } = JSON.parse(new TextDecoder().decode(bytes));
    return typeof sub === "string" ? sub : typeof sub === "number" ? String(sub) : null;
  } catch {
    return null;
  }
}

/* The shop links here with #token=…: kept for this tab, and taken out of the address. */
function tokenHere() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    keep(sessionStorage, TOKEN, given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return given ?? recall(sessionStorage, TOKEN);
}

/* `{ user, headers }`, or `{ cannot }`: "token" or "service", why nobody can claim here. */
export function whoIsHere(session) {
  const token = tokenHere();
  const subject = token ? subjectOf(token) : null;
  if (session.user_tokens && subject) {
    return { user: subject, headers: { Authorization: `Bearer ${token}` } };
  }
  if (session.claims !== "open") return { cannot: session.user_tokens ? "token" : "service" };
  const asked = new URLSearchParams(location.search).get("user");
  if (asked) return { user: asked, headers: {} };
  let visitor = recall(localStorage, VISITOR);
  if (typeof visitor !== "string") {
    visitor = `visitor-${randomName(6)}`;
    keep(localStorage, VISITOR, visitor);
  }
  return { user: visitor, headers: {} };
}
