// policy.test.mjs: operators act: pause, resume, change the total, close, clone, take the winners
// away.
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
  await page.reads("h1", "New policy, like “Spring”");
  await page.reads(".preview-sentence", "5 coupons, 3,000 off, up to 2 each, opens at once.");
  await page.page.getByRole("button", { name: "Make the policy" }).click();
  await page.reads("h1", "Spring");
  await page.reads(".kpis .is-remaining dd", "5");
  const { items } = await server.get("/v1/policies");
  const copies = items.filter(({ name }) => name === "Spring");
  assert.equal(copies.length, 2);
  assert.deepEqual(copies[0].discount, copies[1].discount);
});
