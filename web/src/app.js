// app.js: the pages for operators, by the address behind the #, and who may see them.
import { get, remove } from "./api.js";
import { boardPage } from "./board.js";
import { serverNow, ticking } from "./clock.js";
import { clockTime } from "./format.js";
import { mark, put } from "./dom.js";
import { formPage } from "./form.js";
import { loginPage } from "./login.js";
import { customersPage } from "./customers.js";
import { missingPage } from "./missing.js";
import { policyPage } from "./policy.js";
import { language, speak, t } from "./words.js";

const ROUTES = [
  { pattern: /^\/$/, page: "board", title: t("Board"), open: boardPage },
  { pattern: /^\/new$/, page: "new", title: t("New drop"), open: formPage },
  { pattern: /^\/policies\/(\d+)\/edit$/, page: "edit", title: t("Edit"), open: formPage },
  { pattern: /^\/customers$/, page: "customers", title: t("Customers"), open: customersPage },
  { pattern: /^\/policies\/(\d+)$/, page: "policy", title: t("Drop"), open: policyPage },
  { pattern: /^\/login$/, page: "login", title: t("Sign in"), open: loginPage },
];
const CONNECTION_WORDS = {
  connecting: t("Connecting"),
  live: t("Live"),
  waiting: t("Connection lost, trying again"),
  refused: t("Not connected"),
  ended: t("Not connected"),
  idle: "",
};

const root = document.getElementById("app");
const signOut = document.getElementById("sign-out");
let close = () => {};
let isFirst = true;

/* Tells how the page's stream is doing, in the same place on every page. */
function connection(state) {
  const node = document.getElementById("connection");
  mark(node, "data-state", state);
  put(node.lastElementChild, CONNECTION_WORDS[state]);
  // What is shown is of the past, and looks like it.
  mark(root, "data-stale", state === "waiting" ? "" : null);
}

/* A stream or call was refused: whoever was signed in is so no longer. */
export function refused(status) {
  connection("refused");
  if (status === 401) location.hash = `#/login?next=${encodeURIComponent(location.hash.slice(1))}`;
}

function where() {
  const [path, query] = (location.hash.slice(1) || "/").split("?");
  const route = ROUTES.find(({ pattern }) => pattern.test(path));
  return { route, path, id: route?.pattern.exec(path)[1], query: new URLSearchParams(query) };
}

/* An address behind the # that names no page. */
function unknown() {
  close();
  close = () => {};
  connection("idle");
  root.dataset.page = "missing";
  root.replaceChildren(missingPage(t("There is no such page"), t("Look at the address again.")));
}

async function show() {
  const place = where();
  if (!place.route) return unknown();
  close();
  close = () => {};
  connection("idle");
  const session = await get("/v1/session").catch(() => null);
  if (location.hash.slice(1) && where().path !== place.path) return;
  mark(signOut, "hidden", !(session?.admin && session.login === "token"));
  if (session && !session.admin && place.route.page !== "login") return refused(401);

  document.title = `${place.route.title} · dibs`;
  for (const link of document.querySelectorAll("nav a")) {
    mark(link, "aria-current", link.dataset.page === place.route.page ? "page" : null);
  }
  root.replaceChildren();
  root.dataset.page = place.route.page;
  scrollTo(0, 0);
  close = place.route.open(root, { ...place, session, connection, refused }) ?? (() => {});
  // A new page is read out from its beginning; the first is by the browser.
  if (!isFirst && !root.contains(document.activeElement)) root.focus({ preventScroll: true });
  isFirst = false;
}

signOut.addEventListener("click", async () => {
  await remove("/v1/session").catch(() => {});
  location.hash = "#/login";
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  root.focus();
});
for (const [selector, words] of [
  [".skip", t("Skip to the page")],
  ['[data-page="board"]', t("Board")],
  ['[data-page="new"]', t("New drop")],
  ['[data-page="customers"]', t("Customers")],
  ["#sign-out", t("Sign out")],
]) {
  put(document.querySelector(selector), words);
}
mark(document.querySelector("nav"), "aria-label", t("Pages"));
mark(document.getElementById("server-clock"), "title", t("The server's time"));
const other = language === "ko" ? ["en", "English"] : ["ko", "한국어"];
const switcher = document.getElementById("language");
put(switcher, other[1]);
mark(switcher, "lang", other[0]);
switcher.addEventListener("click", () => speak(other[0]));
addEventListener("hashchange", show);
ticking(250, () => put(document.getElementById("server-clock"), clockTime(serverNow())));
show();
