// policy.test.mjs: operators act: pause, resume, change the total, close, clone, take the winners
// away; and see how a drop went.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before } from "node:test";
import { browsing, useBrowser } from "./browser.mjs";
import { Server } from "./server.mjs";

let server;
useBrowser();
before(async () => {
  server = await Server.start();
});
after(() => server.stop());

const button = (visitor, name) => visitor.page.getByRole("button", { name, exact: true });

browsing("pause, resume and close ask first", async (visit) => {
  const { id } = await server.policy({ total: 5 });
  const state = async () => (await server.get(`/v1/policies/${id}`)).state;
  const page = await visit({ url: `${server.url}/#/policies/${id}` });
  await page.reads(".policy-name .pill", "Open");

  await button(page, "Pause").click();
  await page.reads("dialog h2", /^Pause/);
  await page.page.keyboard.press("Escape");
  await page.page.locator("dialog").waitFor({ state: "detached" });
  assert.equal(await state(), "OPEN");

  await button(page, "Pause").focus();
  await page.page.keyboard.press("Enter");
  await page.shows("dialog");
  await page.shot("dialog-pause");
  await page.page.keyboard.press("Enter");
  await page.reads(".policy-name .pill", "Paused");
  assert.equal(await state(), "PAUSED");
  await page.reads(".log li", /[Pp]aused/);

  await button(page, "Resume").click();
  await page.page.locator("dialog .primary").click();
  await page.reads(".policy-name .pill", "Open");

  await button(page, "Close").click();
  // What cannot be undone is not what Enter does.
  await page.page.keyboard.press("Enter");
  await page.page.locator("dialog").waitFor({ state: "detached" });
  assert.equal(await state(), "OPEN");
  await button(page, "Close").click();
  await page.page.locator("dialog .danger").click();
  await page.reads(".policy-name .pill", "Closed");
  assert.equal(await state(), "CLOSED");
  assert.ok(await page.page.locator(".toggle").isDisabled());
});

browsing("the total changes, and what is refused says why", async (visit) => {
  const { id } = await server.policy({ total: 10 });
  await server.crowd(id, 4);
  const page = await visit({
    url: `${server.url}/#/policies/${id}`,
    allowed: [`409 /v1/policies/${id}`],
  });
  await page.reads(".kpis .is-issued dd", "4");
  await button(page, "Change total").click();
  await page.page.getByLabel("Coupons in all").fill("none");
  await page.page.keyboard.press("Enter");
  await page.reads("dialog .field-error", /^A whole number/);
  await page.page.getByLabel("Coupons in all").fill("3");
  await page.page.keyboard.press("Enter");
  await page.reads("dialog .field-error", /4|given/);
  await page.page.getByLabel("Coupons in all").fill("1,200");
  await page.page.keyboard.press("Enter");
  await page.reads(".kpis .is-remaining dd", "1,196");
  await page.reads(".kpis .is-remaining .soft", "of 1,200");
  assert.equal((await server.get(`/v1/policies/${id}`)).total, 1200);
});

browsing("winners come as CSV, and a clone begins with the same", async (visit) => {
  const { id } = await server.policy({
    name: "Spring",
    total: 5,
    per_user_limit: 2,
    discount: { type: "fixed", value: 3000 },
  });
  await server.crowd(id, 3, "ann");
  const page = await visit({ url: `${server.url}/#/policies/${id}` });
  await page.reads(".kpis .is-issued dd", "3");
  const [download] = await Promise.all([
    page.page.waitForEvent("download"),
    page.page.getByRole("link", { name: "Winners as CSV" }).click(),
  ]);
  const lines = (await readFile(await download.path(), "utf8")).trim().split(/\r?\n/);
  assert.equal(lines[0], "seq,user,nth,coupon_id,code,state,requested_at,issued_at");
  assert.equal(lines.length, 4);
  assert.match(lines[1], new RegExp(`^1,ann-\\d-x,1,${id}-1,${id}-1-\\w{13},ISSUED,`));

  await page.page.getByRole("link", { name: "Clone" }).click();
  await page.reads("h1", "New drop, like “Spring”");
  // It has no time of its own yet: a copy never opens by itself at once.
  await page.reads(
    ".preview-sentence",
    /^5 coupons, 3,000 off, up to 2 each, opens tomorrow \d\d:\d\d Seoul time\.$/,
  );
  await page.page.getByRole("button", { name: "Make the drop" }).click();
  await page.reads("h1", "Spring");
  await page.reads(".policy-name .pill", "Scheduled");
  const { items } = await server.get("/v1/policies");
  const copies = items.filter(({ name }) => name === "Spring");
  assert.equal(copies.length, 2);
  assert.deepEqual(copies[0].discount, copies[1].discount);
});

browsing("a clone keeps its times relative", async (visit) => {
  const at = (days, hours) => new Date(Date.now() + days * 86400000 + hours * 3600000).toISOString();
  const { id } = await server.policy({
    name: "Weekly",
    opens_at: at(-3, 0),
    closes_at: at(-3, 2),
    coupon_expires_at: at(-3, 5),
  });
  const page = await visit({ url: `${server.url}/#/new?from=${id}` });
  await page.reads("h1", "New drop, like “Weekly”");
  await page.page.getByRole("button", { name: "Make the drop" }).click();
  await page.reads(".policy-name .pill", "Scheduled");
  const { items } = await server.get("/v1/policies");
  const copy = items.find((item) => item.name === "Weekly" && item.id !== id);
  const minutes = (from, to) => Math.round((Date.parse(copy[to]) - Date.parse(copy[from])) / 60000);
  assert.deepEqual([minutes("opens_at", "closes_at"), minutes("opens_at", "coupon_expires_at")], [
    120, 300,
  ]);
  assert.ok(Date.parse(copy.opens_at) > Date.now());
});

browsing("the help desk finds a person and a code, cancels, blocks and gives anew", async (visit) => {
  const { id } = await server.policy({ total: 5, name: "Desk" });
  const user = "김하늘+1@x.com";
  const { body: won } = await server.claim(id, user);
  const page = await visit({ url: `${server.url}/#/customers` });
  await page.reads("h1", "Customers");
  await page.page.keyboard.type(won.code);
  await page.page.keyboard.press("Enter");
  await page.reads(".found h2", user);
  await page.reads(".coupons code", won.code);
  await page.isAccessible();
  await page.shot("customers");
  await button(page, "Give anew").click();
  await page.page.locator("dialog .danger").click();
  await page.reads(".coupons li:nth-child(2) .pill", "Issued");
  await page.reads(".coupons li:nth-child(1) .pill", "Cancelled");
  const { items } = await server.get(`/v1/users/${encodeURIComponent(user)}/coupons`);
  assert.deepEqual(
    items.map(({ state }) => state),
    ["CANCELLED", "ISSUED"],
  );
  await button(page, "Cancel it").click();
  await page.page.locator("dialog .danger").click();
  await page.reads(".coupons li:nth-child(2) .pill", "Cancelled");
  await button(page, "Block").click();
  await page.page.locator("dialog .danger").click();
  await page.page.locator("dialog").waitFor({ state: "detached" });
  assert.equal((await server.claim(id, user)).body.code, "BLOCKED");
});

const OPENING = 'figure[aria-labelledby="opening-title"]';
browsing("how a drop went since its opening is told and drawn", async (visit) => {
  const { id } = await server.policy({ total: 3 });
  const page = await visit({
    url: `${server.url}/#/policies/${id}`,
    size: { width: 1280, height: 1500 },
  });
  await page.reads(`${OPENING} .soft`, "Nobody has claimed yet.");
  await page.reads(`${OPENING} .legend`, /Won 0.*Refused 0in all$/);
  await page.shot("opening-empty");

  for (const user of ["a", "b", "c", "a", "d", "e", "d", "e"]) await server.claim(id, user);
  await server.call("PUT", "/v1/users/bad", { blocked: true });
  await server.claim(id, "bad");
  await server.call("PATCH", `/v1/policies/${id}`, { paused: true });
  await server.claim(id, "g");
  await server.claim(id, "g");
  // A server counts its answers together a few times a second.
  while ((await server.get(`/v1/policies/${id}/stats`)).asked < 11) {
    await new Promise((resolve) => {
      setTimeout(resolve, 50);
    });
  }
  await page.isLookedAtAgain();
  await page.reads(`${OPENING} .soft`, "11 claims, of all servers together");
  await page.reads(`${OPENING} .legend`, /^Won 3Asked again 1Sold out 4Refused 3in all$/);
  await page.reads(`${OPENING} .fact`, "Refused: paused 2, blocked 1");
  await page.isAccessible();
});

// Hours cannot be waited for: what the server would say of them is said in its place.
browsing("the totals are drawn by minute, then by hour, and kept fresh", async (visit) => {
  const { id } = await server.policy({ total: 3 });
  const opened_ms = Date.parse("2026-11-16T03:00:20Z");
  const row = (minutes, won, sold_out, refused) => ({
    at: new Date(opened_ms - 20000 + minutes * 60000).toISOString(),
    asked: won + sold_out + refused + 1,
    won,
    asked_again: 1,
    sold_out,
    refused,
  });
  const sums = { ...row(0, 900, 1640, 60), asked_again: 5, asked: 2605 };
  let status = 200,
    asks = 0;
  const page = await visit({
    url: `${server.url}/#/customers`,
    size: { width: 390, height: 2600 },
    allowed: [`503 /v1/policies/${id}/stats`, `401 /v1/policies/${id}/stats`],
    routes: {
      "**/stats": (route) => {
        asks += 1;
        return status !== 200
          ? route.fulfill({ status, json: {} })
          : route.fulfill({
              json: {
                ...sums,
                policy_id: id,
                opened_at: new Date(opened_ms).toISOString(),
                refused_by: { not_open: 40, limit_reached: 20 },
                minutes: [row(0, 700, 0, 30), row(1, 200, 600, 10), row(30, 0, 800, 0)],
                hours: [row(-60, 0, 0, 20), row(120, 0, 240, 0)],
              },
            });
      },
    },
  });
  await page.reads("h1", "Customers");
  await page.page.clock.install();
  await page.page.goto(`${server.url}/#/policies/${id}`);
  await page.reads(`${OPENING} .soft`, "2,605 claims, of all servers together");
  await page.reads(`${OPENING} .fact`, "Refused: too early 40, limit reached 20");
  const at = (share) => async () => {
    const box = await page.page.locator(`${OPENING} .u-over`).boundingBox();
    await page.page.mouse.move(box.x + box.width * share, box.y + 40);
  };
  await at(0.004)();
  await page.reads(`${OPENING} .legend`, "Won 700Asked again 1Sold out 0Refused 3012:00:00");
  await at(0.503)();
  await page.reads(`${OPENING} .legend`, "Won 0Asked again 1Sold out 800Refused 012:30:00");
  await page.page.locator(OPENING).getByRole("radio", { name: "By hour" }).check();
  // From the hour before the opening to the twelfth: the first hour is one bar.
  await at(1.1 / 13)();
  await page.reads(`${OPENING} .legend`, /^Won 900Asked again 3Sold out 1,400Refused 40.*12:00:00$/);
  await at(3.1 / 13)();
  await page.reads(`${OPENING} .legend`, /^Won 0Asked again 1Sold out 240Refused 0.*14:00:00$/);
  await page.isAccessible();
  await page.fits();
  await page.shot("opening-phone");

  status = 503;
  await page.isLookedAtAgain();
  await page.reads(`${OPENING} .soft`, /^Cannot be read since \d\d:\d\d:\d\d, trying/);
  await page.reads(`${OPENING} .fact`, "Refused: too early 40, limit reached 20");
  status = 200;
  await page.page.clock.fastForward(10000);
  await page.reads(`${OPENING} .soft`, "2,605 claims, of all servers together");

  // Nobody looks at a page that is hidden.
  const before = asks;
  const hide = (isHidden) =>
    page.page.evaluate((value) => {
      Object.defineProperty(document, "hidden", { value, configurable: true });
    }, isHidden);
  await hide(true);
  await page.page.clock.fastForward(30000);
  await hide(false);
  await Promise.all([
    page.page.waitForResponse((answer) => answer.url().endsWith("/stats")),
    page.isLookedAtAgain(),
  ]);
  assert.equal(asks, before + 1);

  status = 401;
  await page.isLookedAtAgain();
  await page.reads("h1", "Sign in");
});
