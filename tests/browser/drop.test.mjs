// drop.test.mjs: the storefront: one person, one press, one honest answer.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { after, before, test } from "node:test";
import { browsing, PHONE, useBrowser } from "./browser.mjs";
import { Server } from "./server.mjs";
import en from "../../web/src/i18n/en.js";
import ko from "../../web/src/i18n/ko.js";

let server;
useBrowser();
before(async () => {
  server = await Server.start();
});
after(() => server.stop());

/* A visitor of a policy's storefront; whoever has nothing yet is told so by 404. */
const shopper = (visit, id, { user, ...options } = {}) =>
  visit({
    size: PHONE,
    url: `${(options.at ?? server).url}/drop/${id}${user ? `?user=${user}` : ""}`,
    ...options,
    allowed: [`404 /v1/policies/${id}/claims/*`, ...(options.allowed ?? [])],
  });
const held = async (id, user) =>
  (await server.get(`/v1/policies/${id}/claims/${user}`)).claims ?? [];

browsing("countdown, press, coupon, reload", async (visit) => {
  const { id } = await server.policy({ total: 3, opens_in_s: 3600, coupon_valid_days: 30 });
  // The visitor's clock is an hour slow: the page must go by the server's.
  const shop = await shopper(visit, id, {
    user: "minji",
    clipboard: true,
    before: () => {
      const real = Date.now;
      Date.now = () => real() - 3600000;
    },
  });
  await shop.reads("h1", "Launch day");
  await shop.reads(".off", "20%off");
  await shop.reads(".countdown", /^00days(01hours00min00|00hours59min\d\d)sec$/);
  assert.equal(await shop.page.locator(".press").getAttribute("aria-disabled"), "true");
  await shop.reads(".press-note", /^Opens .* GMT\+9$/);
  assert.match(await shop.page.locator(".calendar").getAttribute("href"), /^blob:/);
  await shop.isAccessible();
  await shop.page.locator(".press").focus();
  await shop.page.keyboard.press("Enter");
  assert.equal((await held(id, "minji")).length, 0, "pressed before it opened");
  const opens_at = new Date(Date.now() + 1500).toISOString();
  await server.call("PATCH", `/v1/policies/${id}`, { opens_at });

  await shop.shows(".press:not([aria-disabled])");
  assert.ok(Date.now() >= Date.parse(opens_at), "the button came before the opening");
  await shop.reads(".pill", "Open now");
  await shop.page.keyboard.press("Enter");
  await shop.shows(".coupon");
  const [claim] = await held(id, "minji");
  await shop.reads(".ticket-code", claim.code);
  await shop.reads(".ticket-place", "Number 1");
  await shop.reads(".ticket-until", /^Valid until .* at \d+:\d\d [AP]M GMT\+9$/);
  await shop.reads('[aria-live="assertive"]', `It is yours. Number 1. Your code ${claim.code}`);
  await shop.reads(".stock-words", "2 of 3 left");
  await shop.page.locator(".copy").click();
  await shop.reads(".copy", "Copied");
  assert.equal(await shop.page.evaluate(() => navigator.clipboard.readText()), claim.code);
  await shop.isAccessible();
  await shop.fits();
  await shop.shot("drop-coupon");

  await shop.page.reload();
  await shop.reads(".ticket-code", claim.code);
  assert.equal((await held(id, "minji")).length, 1);
  await server.call("POST", `/v1/coupons/${claim.code}/redeem`, { order_id: "o1" });
  await shop.page.reload();
  await shop.reads(".ticket-title", "Used");
});

browsing("sold out while somebody looks", async (visit) => {
  const { id } = await server.policy({ total: 1, discount: { type: "fixed", value: 1e12 } });
  const shop = await shopper(visit, id);
  await shop.reads(".press", "Get my coupon");
  await shop.fits(); // whatever is taken off
  await server.claim(id, "quick");
  await shop.reads(".view-message h2", "Sold out");
  await shop.reads(".view-message p", /^All of them are gone/);
  await shop.reads(".stock-words", "0 of 1 left");
  await shop.isAccessible();
});

browsing("a press that came too late says by how much, also after a reload", async (visit) => {
  const { id } = await server.policy({ total: 1 });
  // A connection on which the live numbers never arrive: the page cannot know.
  const shop = await shopper(visit, id, {
    user: "late",
    allowed: [`409 /v1/policies/${id}/claims`],
    routes: { "**/events": () => {} },
  });
  await shop.reads(".press", "Get my coupon");
  await server.claim(id, "quick");
  const { sold_out_at } = await server.get(`/v1/policies/${id}/claims/nobody`);
  await shop.page.waitForTimeout(Math.max(0, Date.parse(sold_out_at) + 700 - Date.now()));
  await shop.page.locator(".press").click();
  const words = await shop.reads(".view-message p", /^Sold out [\d.]+ s before you pressed\.$/);
  await shop.reads(".view-message p:nth-child(2)", /^The last one went at \d.* GMT\+9\.$/);
  await shop.reads(".view-message p:nth-child(3)", /^At least one person pressed before you\.$/);
  const seconds = Number(/[\d.]+/.exec(words)[0]);
  const most_s = (Date.now() - Date.parse(sold_out_at)) / 1000;
  assert.ok(seconds >= 0.7 && seconds <= most_s + 0.1, `${words} It was at most ${most_s} s.`);
  await shop.shot("drop-sold-out");
  await shop.isAccessible();
  await shop.page.reload();
  await shop.reads(".view-message p", words);
  assert.deepEqual(await held(id, "late"), []);
});

browsing("an answer that is lost is asked for again, and counts once", async (visit) => {
  const { id } = await server.policy({ total: 10, per_user_limit: 5 });
  const shop = await shopper(visit, id, { user: "tunnel" });
  await shop.reads(".press", "Get my coupon");
  const keys = [];
  await shop.page.route(`**/v1/policies/${id}/claims`, async (route) => {
    keys.push(route.request().headers()["idempotency-key"]);
    if (keys.length > 2) return route.continue();
    await route.fetch(); // The server has it, the page never hears of it.
    return route.abort();
  });
  await shop.page.locator(".press").click();
  await shop.reads(".press-note", /No answer yet/);
  await shop.shows(".coupon");
  assert.equal(keys.length, 3);
  assert.ok(keys[0] && new Set(keys).size === 1, `keys ${keys}`);
  assert.equal((await held(id, "tunnel")).length, 1);

  // Another press is another wish.
  await shop.page.locator(".another").click();
  await shop.reads(".ticket-place", "Number 2");
  assert.equal((await held(id, "tunnel")).length, 2);
  assert.notEqual(keys[3], keys[0]);
});

browsing("a refusal without words of its own is told in the server's", async (visit) => {
  const { id } = await server.policy({ total: 10 });
  const shop = await shopper(visit, id, {
    user: "odd",
    allowed: [`400 /v1/policies/${id}/claims`],
  });
  await shop.reads(".press", "Get my coupon");
  await shop.page.route(`**/v1/policies/${id}/claims`, (route) =>
    route.continue({ postData: JSON.stringify({ user: ".." }) }),
  );
  await shop.page.locator(".press").click();
  await shop.reads(".view-message h2", "Invalid request");
  await shop.reads(".view-message p", /user/);
  assert.deepEqual(await held(id, "odd"), []);
});

browsing("a press that never got through survives a reload", async (visit) => {
  const { id } = await server.policy({ total: 10, per_user_limit: 5 });
  const shop = await shopper(visit, id, { user: "reload" });
  await shop.reads(".press", "Get my coupon");
  let isAway = true;
  const keys = [];
  await shop.page.route(`**/v1/policies/${id}/claims`, (route) => {
    keys.push(route.request().headers()["idempotency-key"]);
    return isAway ? route.abort() : route.continue();
  });
  await shop.page.locator(".press").click();
  await shop.reads(".press-note", /No answer yet/);
  // Nobody has it yet: nothing on the page may say so.
  await shop.reads(".press", "Sending…");
  await shop.reads('[aria-live="assertive"]', /^Sending… No answer yet/);
  await shop.page.reload();
  await shop.reads(".press-note", /No answer yet/);
  isAway = false;
  await shop.shows(".coupon");
  assert.equal(new Set(keys).size, 1);
  assert.equal((await held(id, "reload")).length, 1);
});

browsing("paused, then open again, then closed, by itself", async (visit) => {
  const { id } = await server.policy({ total: 3 });
  const shop = await shopper(visit, id);
  await shop.reads(".press", "Get my coupon");
  await server.call("PATCH", `/v1/policies/${id}`, { paused: true });
  await shop.reads(".view-message h2", "Paused");
  await shop.shot("drop-paused");
  await server.call("PATCH", `/v1/policies/${id}`, { paused: false });
  await shop.page.locator(".view-press[data-shown]").waitFor();
  await server.call("DELETE", `/v1/policies/${id}`);
  await shop.reads(".view-message h2", "It is over");
  await shop.page.goto(`${server.url}/drop/987654321`);
  shop.allowed.push("404 /v1/policies/987654321");
  await shop.reads(".view-message h2", "There is nothing here");
  await shop.isAccessible();
});

browsing("stock that comes back brings the button back", async (visit) => {
  const { id } = await server.policy({ total: 1 });
  const { body: claim } = await server.claim(id, "undecided");
  const shop = await shopper(visit, id, { user: "patient" });
  await shop.reads(".view-message h2", "Sold out");
  await server.call("POST", `/v1/coupons/${claim.code}/cancel`);
  await shop.page.locator(".view-press[data-shown]").waitFor();
  await shop.page.locator(".press").click();
  await shop.shows(".coupon");
  assert.equal((await held(id, "patient")).length, 1);
});

browsing("Korean by the browser's language, English by the switch, kept", async (visit) => {
  const { id } = await server.policy({ name: "오픈 기념", total: 50 });
  const shop = await shopper(visit, id, { locale: "ko-KR" });
  await shop.reads(".press", "쿠폰 받기");
  await shop.reads(".stock-words", "50장 중 50장 남음");
  assert.equal(await shop.page.evaluate(() => document.documentElement.lang), "ko");
  await shop.isAccessible();
  await shop.fits();
  await shop.shot("drop-korean");
  await shop.page.getByRole("button", { name: "English" }).click();
  await shop.reads(".press", "Get my coupon");
  await shop.page.reload();
  await shop.reads(".press", "Get my coupon");
  assert.equal(await shop.page.evaluate(() => document.documentElement.lang), "en");
});

test("both languages say the same things", () => {
  const shape = (words) =>
    Object.entries(words).map(([key, value]) => [
      key,
      typeof value === "object" ? Object.keys(value) : typeof value,
    ]);
  assert.deepEqual(shape(ko), shape(en));
});

browsing("a person whom the shop names by a token", async (visit) => {
  const key = "a-key-of-at-least-thirty-two-bytes-for-tests";
  const own = await Server.start({
    secrets: { user_key_file: key, admin_token_file: "t".repeat(32) },
  });
  const admin = { Authorization: `Bearer ${"t".repeat(32)}` };
  const piece = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const token = (sub, lasts_s = 600) => {
    const text =
      `${piece({ alg: "HS256", typ: "JWT" })}.` +
      piece({ sub, exp: Math.floor(Date.now() / 1000) + lasts_s });
    return `${text}.${createHmac("sha256", key).update(text).digest("base64url")}`;
  };
  try {
    const {
      body: { id },
    } = await own.call(
      "POST",
      "/v1/policies",
      { name: "Members", discount: { type: "percent", value: 5 }, total: 2 },
      admin,
    );
    const nobody = await shopper(visit, id, { at: own, user: "minji" });
    await nobody.reads(".view-message h2", "Who are you?");
    await nobody.isAccessible();

    const member = await visit({
      url: `${own.url}/drop/${id}#token=${token("soo@shop")}`,
      size: PHONE,
      allowed: [`404 /v1/policies/${id}/claims/*`],
    });
    await member.reads(".drop-foot span", "You are soo@shop");
    assert.ok(!member.page.url().includes("token"), "the token stays in the address");
    await member.page.locator(".press").click();
    await member.shows(".coupon");
    await member.page.reload();
    await member.shows(".coupon");
    const { claims } = await own.get(`/v1/policies/${id}/claims/soo@shop`, admin);
    assert.equal(claims.length, 1);

    const late = await visit({
      url: `${own.url}/drop/${id}#token=${token("late", -60)}`,
      size: PHONE,
      allowed: [`401 /v1/policies/${id}/claims/*`],
    });
    await late.reads(".view-message h2", "This link has expired");
  } finally {
    await own.stop();
  }
});

browsing("a shop that claims for its people says so", async (visit) => {
  const secrets = { service_token_file: "s".repeat(32), admin_token_file: "t".repeat(32) };
  const own = await Server.start({ secrets });
  const body = { name: "Inside", discount: { type: "fixed", value: 500 }, total: 2 };
  const admin = { Authorization: `Bearer ${secrets.admin_token_file}` };
  try {
    const { body: made } = await own.call("POST", "/v1/policies", body, admin);
    const shop = await visit({ url: `${own.url}/drop/${made.id}`, size: PHONE });
    await shop.reads(".view-message h2", "Through the shop's own site");
    await shop.reads(".off", "500off");
  } finally {
    await own.stop();
  }
});

browsing("a server that goes away while somebody looks", async (visit) => {
  const own = await Server.start();
  try {
    const { id } = await own.policy({ total: 5 });
    const shop = await shopper(visit, id, { at: own, user: "stays" });
    await shop.shows(".press:not([aria-disabled])");
    await own.halt("SIGKILL");
    await shop.reads(".trouble", /^Connection lost/);
    await shop.page.locator(".press").click();
    await shop.reads(".press-note", /No answer yet/);
    shop.troubles.length = 0;
    await own.run();
    await shop.shows(".coupon");
    await shop.reads(".trouble", "");
    assert.equal((await own.get(`/v1/policies/${id}`)).issued, 1);
  } finally {
    await own.stop();
  }
});

browsing("offline says offline, and the press goes out when the network is back", async (visit) => {
  const { id } = await server.policy({ total: 5 });
  const shop = await shopper(visit, id, { user: "train" });
  await shop.shows(".press:not([aria-disabled])");
  await shop.page.context().setOffline(true);
  await shop.reads(".trouble", "You are offline.");
  await shop.page.locator(".press").click();
  await shop.reads(".press", "Sending…");
  await shop.reads(".press-note", /^You are offline\. Your press is kept/);
  assert.equal((await held(id, "train")).length, 0);
  await shop.page.context().setOffline(false);
  await shop.shows(".coupon");
  await shop.reads(".trouble", "");
});

browsing("all coupons of a person are shown, and a cancelled one may be won again", async (visit) => {
  const { id } = await server.policy({ total: 9, per_user_limit: 2 });
  const { body: first } = await server.claim(id, "two");
  const shop = await shopper(visit, id, { user: "two" });
  await shop.reads(".ticket-code", first.code);
  await shop.page.locator(".another").click();
  await shop.reads(".others .ticket-code", first.code);
  const codes = await shop.page.locator(".ticket-code:visible").allTextContents();
  assert.equal(new Set(codes).size, 2);
  await shop.isAccessible();
  await shop.shot("drop-two-coupons");
  for (const code of codes) await server.call("POST", `/v1/coupons/${code}/cancel`, {});
  await shop.page.reload();
  await shop.reads(".ticket-title", "Cancelled");
  await shop.reads('[aria-live="assertive"]', "Cancelled. Number 2");
  await shop.reads(".another", "Get my coupon");
  await shop.page.locator(".another").click();
  await shop.reads(".ticket-place", "Number 3");
  // Where one is the limit, too.
  const { id: one } = await server.policy({ total: 9 });
  const { body: only } = await server.claim(one, "two");
  await server.call("POST", `/v1/coupons/${only.code}/cancel`, {});
  shop.allowed.push(`404 /v1/policies/${one}/claims/*`);
  await shop.page.goto(`${server.url}/drop/${one}?user=two`);
  await shop.page.locator(".another").click();
  await shop.reads(".ticket-title", "It is yours");
});

browsing("amounts are shown as their currency does, and a code stays on one line", async (visit) => {
  const won = await server.policy({ discount: { type: "fixed", value: 5000 }, currency: "KRW" });
  const cents = await server.policy({ discount: { type: "fixed", value: 500 }, currency: "USD" });
  const plain = await server.policy({ discount: { type: "fixed", value: 500 } });
  const shop = await shopper(visit, won.id, { locale: "ko-KR", user: "a b+c@x.com".replace(" ", "") });
  await shop.reads(".off b", "5,000원");
  shop.allowed.push("404 /v1/policies/*/claims/*");
  await shop.page.locator(".press").click();
  await shop.shows(".coupon");
  const lines = await shop.page
    .locator(".ticket-code")
    .first()
    .evaluate((node) => {
      const range = document.createRange();
      range.selectNodeContents(node);
      const tops = [...range.getClientRects()].map(({ top }) => Math.round(top));
      return [new Set(tops).size, node.scrollWidth <= node.clientWidth + 1];
    });
  assert.deepEqual(lines, [1, true]);
  await shop.fits();
  await shop.page.getByRole("button", { name: "English" }).click();
  await shop.reads(".off b", "₩5,000");
  await shop.page.goto(`${server.url}/drop/${cents.id}`);
  await shop.reads(".off b", "$5.00");
  await shop.page.goto(`${server.url}/drop/${plain.id}`);
  await shop.reads(".off b", "500");
});

browsing("the page paints before its script, and is small over the wire", async (visit) => {
  const { id } = await server.policy({ total: 5 });
  const waiting = [];
  let bytes = 0;
  const shop = await visit({
    url: `${server.url}/healthz`,
    size: PHONE,
    allowed: [`404 /v1/policies/${id}/claims/*`],
  });
  let isHeld = true;
  await shop.page.route("**/*.js", (route) => (isHeld ? waiting.push(route) : route.continue()));
  shop.page.on("response", async (answer) => {
    if (!/\/(drop|assets)\//.test(answer.url())) return;
    bytes += (await answer.request().sizes().catch(() => ({}))).responseBodySize ?? 0;
  });
  await shop.page.goto(`${server.url}/drop/${id}`, { waitUntil: "commit" });
  await shop.reads(".drop-top .brand", "dibs");
  await shop.page.waitForFunction(
    () => performance.getEntriesByName("first-contentful-paint").length > 0,
  );
  assert.ok(waiting.length > 0, "no script was asked for");
  isHeld = false;
  for (const route of waiting) await route.continue();
  await shop.reads(".press", "Get my coupon");
  assert.ok(bytes > 1000 && bytes <= 20480, `${bytes} bytes`);
});

browsing("a shop's own storefront: name, links, colour, and what becomes of the cancelled", async (visit) => {
  const own = await Server.start({
    secrets: {
      shop_file: JSON.stringify({
        name: "하늘상점",
        url: "https://shop.example/",
        terms_url: "https://shop.example/terms",
        colour: "#7a2f6d",
        coupons_come_back: true,
      }),
    },
  });
  try {
    const { id } = await own.policy({ total: 1 });
    const shop = await shopper(visit, id, { at: own });
    await shop.reads(".drop-top .brand", "하늘상점");
    await shop.reads(".shop-links a", "Back to 하늘상점");
    await shop.reads(".shop-links a:nth-child(2)", "Terms");
    // Grey until it can be pressed.
    await shop.page.waitForFunction(
      () =>
        getComputedStyle(document.querySelector(".press")).backgroundColor === "rgb(122, 47, 109)",
    );
    await shop.isAccessible();
    await own.claim(id, "quick");
    await shop.reads(".view-message p:last-child", /^Cancelled coupons come back/);
    await shop.shot("drop-shop");
  } finally {
    await own.stop();
  }
});

browsing("those who lost hear when to look again, where the shop says so, and nothing else", async (visit) => {
  const told = async (more, locale = "en-US") => {
    const own = await Server.start({
      secrets: { shop_file: JSON.stringify({ name: "Shop", ...more }) },
    });
    try {
      const { id } = await own.policy({ total: 1 });
      await own.claim(id, "quick");
      const shop = await shopper(visit, id, { at: own, locale });
      await shop.reads(".view-message p:nth-child(2)", locale === "ko-KR" ? /나갔습니다\.$/ : /^The last one went at/);
      shop.troubles.length = 0;
      return shop.page.locator(".view-message p").allTextContents();
    } finally {
      await own.stop();
    }
  };
  const look_again_at = "2031-01-02T03:00:00Z";
  const [plain, again, korean, past] = await Promise.all([
    told({}),
    told({ coupons_come_back: true, look_again_at }),
    told({ coupons_come_back: true, look_again_at }, "ko-KR"),
    told({ coupons_come_back: true, look_again_at: "2020-01-02T03:00:00Z" }),
  ]);
  assert.equal(plain.length, 2, "cancelled ones are spoken of though the shop does not allow it");
  assert.match(again[2], /^Cancelled coupons come back: look again Thu, January 2 at 12:00 PM GMT\+9\.$/);
  assert.match(korean[2], /1월 2일.*12:00 GMT\+9/);
  assert.equal(past[2], en.comesBack);
});
