// screenshots.test.mjs: every page in every state, both languages, widths and themes, into one folder.
//
// Nobody can judge a look by a test: these are for people. What they show is awaited, so that a state
// that cannot be reached any more fails. On the way each state is looked at for what a test can judge:
// axe finds nothing, it fits its width, and a Korean page has no English sentence and no word that is
// broken between two lines.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { useBrowser, Visitor } from "./browser.mjs";
import { Server } from "./server.mjs";

const SIZES = { phone: { width: 390, height: 800 }, desk: { width: 1280, height: 860 } };
const LOCALES = { ko: "ko-KR", en: "en-US" };

const TOKEN = "t".repeat(32);
let server, empty, guarded;
const drops = {};
useBrowser();
before(async () => {
  [server, empty, guarded] = await Promise.all([
    Server.start(),
    Server.start(),
    Server.start({ secrets: { admin_token_file: TOKEN, user_key_file: TOKEN } }),
  ]);
  const body = { id: 1, name: "오픈 기념 Launch day", total: 5, discount: { type: "percent", value: 20 } };
  await guarded.call("POST", "/v1/policies", body, { Authorization: `Bearer ${TOKEN}` });
  const fixed = { discount: { type: "fixed", value: 5000 }, currency: "KRW" };
  const made = async (name, options) => {
    drops[name] = (await server.policy({ name: "오픈 기념 Launch day", ...fixed, ...options })).id;
  };
  await made("countdown", { opens_in_s: 90000 });
  await made("open", { total: 1000, coupon_valid_days: 30, per_user_limit: 2 });
  await made("soldOut", { total: 1 });
  await made("paused", {});
  await made("closed", {});
  await server.claim(drops.open, "김하늘");
  await server.claim(drops.soldOut, "quick");
  await server.call("PATCH", `/v1/policies/${drops.paused}`, { paused: true });
  await server.call("DELETE", `/v1/policies/${drops.closed}`);
  await server.call("PUT", "/v1/products/mug", { name: "머그 Mug", price: 900 });
  await server.call("POST", "/v1/orders", {
    order_id: "1",
    items: [{ product_id: "mug", quantity: 9 }],
  });
  await server.crowd(drops.open, 40);
  const { body: used } = await server.claim(drops.open, "used");
  await server.call("POST", `/v1/coupons/${used.code}/redeem`, { order_id: "o1" });
});
after(() => Promise.all([server, empty, guarded].map((each) => each.stop())));

/* Each state: where it is, what is there when it is reached, and what leads there. */
const shop = (name, wanted, act) => [`/drop/${drops[name]}?user=${name}`, wanted, act];
const desk = (name, wanted, act) => [`/#/policies/${drops[name]}`, wanted, act];
const MESSAGE = ".view-message[data-shown]";
const READY = ".press:not([aria-disabled])";

/* As if the server never answered, or answered with that status. */
const silent = (path) => async (page) => {
  await page.route(path, () => {});
  await page.reload();
};
const failing = (path, status) => async (page) => {
  await page.route(path, (route) => route.fulfill({ status, json: { status, title: "Conflict" } }));
  await page.reload();
};
const press = async (page) => {
  await page.locator(READY).waitFor();
  await page.locator(".press").click();
};

/* What was kept from the server may still reach it when a state is left, and win: who presses does so
   in one language only. */
const STATES = (language) => ({
  "drop-countdown": shop("countdown", ".view-press[data-shown] .countdown:not([hidden])"),
  "drop-open": shop("open", READY),
  "drop-sending": [
    `/drop/${drops.open}?user=sender-${language}`,
    ".press[data-busy]",
    async (page) => {
      await page.route("**/claims", () => {});
      await press(page);
    },
  ],
  "drop-offline": [
    `/drop/${drops.open}?user=train-${language}`,
    ".trouble:not(:empty)",
    async (page) => {
      await page.locator(READY).waitFor();
      await page.context().setOffline(true);
      await page.locator(".press").click();
    },
  ],
  "drop-coupon": [`/drop/${drops.open}?user=${encodeURIComponent("김하늘")}`, ".coupon:visible"],
  "drop-used": [`/drop/${drops.open}?user=used`, ".view-won[data-shown]"],
  "drop-sold-out": shop("soldOut", MESSAGE),
  "drop-too-late": shop("soldOut", `${MESSAGE} p:nth-child(3)`, async (page) => {
    await page.route("**/events", () => {});
    await page.route(`**/v1/policies/${drops.soldOut}`, async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ json: { ...(await answer.json()), state: "OPEN", remaining: 1 } });
    });
    await page.reload();
    await press(page);
  }),
  "drop-paused": shop("paused", MESSAGE),
  "drop-closed": shop("closed", MESSAGE),
  "drop-missing": ["/drop/987654321", MESSAGE],
  "drop-error": shop("open", MESSAGE, failing(`**/v1/policies/${drops.open}`, 409)),
  "drop-loading": shop("open", ".drop-card", silent("**/v1/**")),
  "drop-stranger": [`${guarded.url}/drop/1`, MESSAGE],
  board: ["/#/", ".policies li"],
  "board-loading": ["/#/", "h1, h2", silent("**/v1/live")],
  "drop-page": desk("open", ".checks li, .kpis"),
  "drop-page-checked": desk("open", ".checks li", async (page) => {
    await page.locator(".preflight button").click();
    await page.locator(".checks li").first().waitFor();
    await page.locator(".preflight").scrollIntoViewIfNeeded();
  }),
  "drop-page-scheduled": desk("countdown", ".checks li"),
  "drop-page-sold-out": desk("soldOut", ".pill[data-state=SOLD_OUT]"),
  "drop-page-paused": desk("paused", ".pill[data-state=PAUSED]"),
  "drop-page-closed": desk("closed", ".pill[data-state=CLOSED]"),
  "drop-page-loading": desk("open", "h1", silent("**/live")),
  "drop-page-dialog": desk("open", "dialog[open]", async (page) => {
    await page.locator(".kpis").waitFor();
    await page.locator(".actions .toggle").click();
  }),
  edit: [`/#/policies/${drops.countdown}/edit`, ".policy-form"],
  "edit-error": [
    `/#/policies/${drops.countdown}/edit`,
    "[role=alert]:not(:empty)",
    failing(`**/v1/policies/${drops.countdown}`, 503),
  ],
  new: ["/#/new", ".policy-form"],
  "new-mistakes": ["/#/new", ".field-error:not(:empty)", async (page) => {
    await page.locator(".policy-form button[type=submit]").click();
  }],
  customers: [`/#/customers?q=${encodeURIComponent("김하늘")}`, ".coupons li"],
  "customers-empty": ["/#/customers", ".found .empty"],
  "customers-nobody": ["/#/customers?q=nobody", ".found .empty"],
  "customers-error": ["/#/customers?q=nobody", ".field-error", failing("**/v1/users/**", 503)],
  missing: ["/#/policies/987654321", ".missing"],
  login: [`${guarded.url}/`, "#token"],
});

/* Sentences in English, and words that are broken between two lines. */
function strange() {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.textContent;
    const hidden = !node.parentElement.checkVisibility({ visibilityProperty: true });
    if (hidden || node.parentElement.closest("option, script, style, noscript")) continue;
    if (/[a-z]{2,} [a-z]{2,} [a-z]{2,}/i.test(text)) found.push(text);
    for (const { index, 0: word } of text.matchAll(/[가-힣]{2,}/g)) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const lines = new Set([...range.getClientRects()].map(({ top }) => Math.round(top)));
      if (lines.size > 1) found.push(`“${word}” is broken: ${text}`);
    }
  }
  for (const node of document.querySelectorAll("[aria-label], [placeholder], [title]"))
    for (const name of ["aria-label", "placeholder", "title"])
      if (/[a-z]{2,} [a-z]{2,} [a-z]{2,}/i.test(node.getAttribute(name) ?? ""))
        found.push(`${name}: ${node.getAttribute(name)}`);
  return found;
}

/* In both widths and themes. What a test can judge is judged where there is less room. */
async function shoot(visitor, name, language) {
  for (const [width, size] of Object.entries(SIZES)) {
    await visitor.page.setViewportSize(size);
    for (const colorScheme of ["light", "dark"]) {
      await visitor.page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      await visitor.shot(`all/${name}-${language}-${width}-${colorScheme}`);
    }
  }
  await visitor.page.setViewportSize(SIZES.phone);
  await visitor.fits();
  await visitor.isAccessible();
  if (language === "ko") assert.deepEqual(await visitor.page.evaluate(strange), []);
}

/* Goes to a state and takes its pictures; what is said of it begins with its name. */
async function visitState(visitor, language, name, [where, wanted, act]) {
  const { page } = visitor;
  try {
    await page.goto("about:blank");
    await page.goto(new URL(where, server.url).href);
    await act?.(page);
    await page.locator(wanted).first().waitFor();
    await shoot(visitor, name, language);
  } catch (error) {
    error.message = `${name}: ${error.message}`;
    throw error;
  } finally {
    await page.context().setOffline(false);
    await page.unrouteAll({ behavior: "ignoreErrors" });
  }
}

for (const [language, locale] of Object.entries(LOCALES)) {
  const options = { locale, size: SIZES.phone };
  test(`screenshots: every state, ${language}`, { timeout: 900000 }, async () => {
    const visitor = await Visitor.open({ url: `${empty.url}/`, ...options });
    const wanted = ".list .empty:not([hidden])";
    try {
      await visitState(visitor, language, "board-empty", [`${empty.url}/`, wanted]);
      const faults = [];
      for (const [name, state] of Object.entries(STATES(language)))
        await visitState(visitor, language, name, state).catch(({ message }) => faults.push(message));
      assert.equal(faults.join("\n\n"), "");
    } finally {
      await visitor.context.close();
    }
  });

  test(`screenshots: the server is gone, ${language}`, { timeout: 240000 }, async () => {
    const own = await Server.start();
    const { id } = await own.policy({ name: "오픈 기념 Launch day" });
    const pages = {
      board: ["/", ".policies li", "main[data-stale]"],
      "drop-page": [`/#/policies/${id}`, ".kpis", "main[data-stale]"],
      drop: [`/drop/${id}`, READY, ".trouble:not(:empty)"],
    };
    const visitors = [];
    try {
      for (const [where, before] of Object.values(pages)) {
        visitors.push(await Visitor.open({ url: own.url + where, ...options }));
        await visitors.at(-1).page.locator(before).first().waitFor();
      }
      await own.halt("SIGKILL");
      for (const [i, [name, [, , gone]]] of Object.entries(pages).entries()) {
        await visitors[i].page.locator(gone).waitFor();
        await shoot(visitors[i], `${name}-gone`, language);
      }
    } finally {
      await Promise.all(visitors.map(({ context }) => context.close()));
      await own.stop();
    }
  });
}
