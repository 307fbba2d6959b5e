// form.test.mjs: making a policy without JSON, by keyboard, with mistakes.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { browsing, PHONE, useBrowser } from "./browser.mjs";
import { Server } from "./server.mjs";

let server;
useBrowser();
before(async () => {
  server = await Server.start();
});
after(() => server.stop());

browsing("a policy is made with the keyboard only", async (visit) => {
  const visitor = await visit({ url: `${server.url}/#/new` });
  const { page } = visitor;
  await visitor.reads("h1", "New drop");
  const type = async (label, text) => {
    for (let presses = 0; presses < 40; presses++) {
      const here = await page.evaluate(() => document.activeElement.labels?.[0]?.textContent);
      if (here === label) break;
      await page.keyboard.press("Tab");
    }
    await page.keyboard.press("Control+A");
    await page.keyboard.type(text);
  };
  await type("Name", "Friday drop");
  await type("How much off", "30");
  await type("Coupons", "1,500");
  await type("For each person", "2");
  await visitor.reads(".preview-sentence", "1,500 coupons, 30% off, up to 2 each, opens at once.");
  await page.keyboard.press("Enter");
  await visitor.reads("dialog h2", "Open “Friday drop” now?");
  assert.equal((await server.get("/v1/policies")).items.length, 0, "opened without a question");
  await page.keyboard.press("Enter");
  await visitor.reads("h1", "Friday drop");
  await visitor.reads(".kpis .is-remaining dd", "1,500");
  const made = (await server.get("/v1/policies")).items.find(({ name }) => name === "Friday drop");
  assert.deepEqual([made.total, made.per_user_limit, made.discount.value], [1500, 2, 30]);
});

browsing("the preview says when it opens, in the zone that was chosen", async (visit) => {
  const visitor = await visit({ url: `${server.url}/#/new`, zone: "Europe/Paris" });
  const { page } = visitor;
  await page.getByLabel("Name", { exact: true }).fill("Seoul drop");
  await page.getByLabel("At a time").check();
  const noon = new Date(Date.now() + 10 * 86400000).toISOString().slice(0, 10);
  await page.getByLabel("Time zone").selectOption("Asia/Seoul");
  await page.getByLabel("Opens at").fill(`${noon}T12:00`);
  await visitor.reads(
    ".preview-sentence",
    /^1,000 coupons, 10% off, one each, opens \d+ \w+( \d+)? 12:00 Seoul time\.$/,
  );
  await visitor.shot("form-light");
  await page.getByRole("button", { name: "Make the drop" }).click();
  await visitor.reads(".policy-name .pill", "Scheduled");
  const made = (await server.get("/v1/policies")).items.find(({ name }) => name === "Seoul drop");
  assert.equal(made.opens_at, `${noon}T03:00:00.000Z`);
});

browsing("mistakes are told where they are, the server's too", async (visit) => {
  const taken = await server.policy();
  const visitor = await visit({ url: `${server.url}/#/new`, allowed: ["409 /v1/policies"] });
  const { page } = visitor;
  const error = (name) => `#field-${name}-error`;
  await page.getByLabel("How much off").fill("101");
  await page.getByLabel("Coupons", { exact: true }).fill("0");
  await page.getByRole("button", { name: "Make the drop" }).click();
  await visitor.reads(error("name"), /^A name is needed/);
  await visitor.reads(error("discount-value"), "A whole number from 1 to 100.");
  await visitor.reads(error("total"), /from 1 to 100,000,000/);
  assert.equal(await page.evaluate(() => document.activeElement.name), "name");
  await visitor.isAccessible();
  await visitor.shot("form-mistakes");

  await page.getByLabel("Name", { exact: true }).fill("Twice");
  await page.getByLabel("Amount").check();
  await visitor.reads(error("discount-value"), "");
  await page.getByLabel("Coupons", { exact: true }).fill("10");
  await page.getByLabel("Closes at").fill("2020-01-01T12:00");
  await page.getByRole("button", { name: "Make the drop" }).click();
  await visitor.reads(error("closes_at"), "It must close after it opens.");
  await page.getByLabel("Closes at").fill("");
  await page.getByText("More", { exact: true }).click();
  await page.getByLabel("Id", { exact: true }).fill(String(taken.id));
  await page.getByRole("button", { name: "Make the drop" }).click();
  await page.locator("dialog .primary").click();
  await visitor.reads("dialog .field-error", /\w/);
  await page.keyboard.press("Escape");
  assert.ok(!(await server.get("/v1/policies")).items.some(({ name }) => name === "Twice"));
});

browsing("the form is accessible and fits a phone", async (visit) => {
  const visitor = await visit({ url: `${server.url}/#/new`, size: PHONE });
  await visitor.page.getByLabel("At a time").check();
  await visitor.page.getByText("More", { exact: true }).click();
  await visitor.isAccessible();
  await visitor.fits();
  await visitor.shot("form-phone");
});

browsing("what is typed is kept as a draft, until it is made or started over", async (visit) => {
  const visitor = await visit({ url: `${server.url}/#/new` });
  const { page } = visitor;
  await page.getByLabel("Name", { exact: true }).fill("Half done");
  await page.getByLabel("Currency").selectOption("KRW");
  await page.getByLabel("Amount").check();
  await page.getByLabel("How much off").fill("5000");
  await visitor.reads(".preview-sentence", "1,000 coupons, ₩5,000 off, one each, opens at once.");
  await page.reload();
  await visitor.reads(".draft", /^Your draft is kept/);
  assert.equal(await page.getByLabel("Name", { exact: true }).inputValue(), "Half done");
  await visitor.reads(".preview-sentence", /₩5,000 off/);
  await page.getByRole("button", { name: "Start over" }).click();
  await page.waitForFunction(() => document.querySelector("#field-name")?.value === "");
});

browsing("everything may be edited before the opening, and promises stay after it", async (visit) => {
  const { id } = await server.policy({ name: "Wrong name", opens_in_s: 7200, total: 10 });
  const visitor = await visit({ url: `${server.url}/#/policies/${id}/edit` });
  const { page } = visitor;
  await visitor.reads("h1", "Edit “Wrong name”");
  await page.getByLabel("Name", { exact: true }).fill("Right name");
  await page.getByLabel("Amount").check();
  await page.getByLabel("Currency").selectOption("USD");
  await page.getByLabel("How much off").fill("500");
  await page.getByLabel("For each person").fill("2");
  await page.getByLabel("Valid for days").fill("30");
  await visitor.isAccessible();
  await page.getByRole("button", { name: "Save" }).click();
  await visitor.reads("h1", "Right name");
  await visitor.reads(".sentence", /10 coupons, \$5\.00 off, up to 2 each, .* valid for 30 days$/);
  const now = await server.get(`/v1/policies/${id}`);
  assert.deepEqual(
    [now.discount, now.currency, now.per_user_limit, now.coupon_valid_days],
    [{ type: "fixed", value: 500 }, "USD", 2, 30],
  );
  await server.call("PATCH", `/v1/policies/${id}`, { opens_at: null });
  await server.claim(id, "first");
  await page.goto(`${server.url}/#/policies/${id}/edit`);
  await page.reload();
  await visitor.reads(".draft", "What people were promised stays as it is.");
  assert.ok(await page.getByLabel("How much off").isDisabled());
  await page.getByLabel("Coupons", { exact: true }).fill("12");
  await page.getByRole("button", { name: "Save" }).click();
  await visitor.reads(".kpis .is-remaining .soft", "of 12");
  await page.goto(`${server.url}/#/policies/${id}/edit`);
  await page.getByText("More", { exact: true }).click();
  await page.getByLabel("Reserve").fill("4");
  await page.getByRole("button", { name: "Save" }).click();
  await visitor.reads("h1", "Right name");
  assert.equal((await server.get(`/v1/policies/${id}`)).reserve, 4);
});

browsing("the keyboard alone makes, watches, edits and closes a drop", async (visit) => {
  const visitor = await visit({ url: `${server.url}/` });
  const { page } = visitor;
  await visitor.reads("#connection", "Live");
  /* Goes on with Tab until the element that has the focus is called that. */
  const go = async (name) => {
    const names = [];
    for (let presses = 0; presses < 90; presses++) {
      await page.keyboard.press("Tab");
      const here = await page.evaluate(() => {
        const { labels, textContent } = document.activeElement;
        return (labels?.[0]?.textContent ?? textContent).trim();
      });
      if (here === name) return;
      names.push(here.slice(0, 30));
    }
    assert.fail(`Tab never comes to ${name}: ${names}`);
  };
  const type = async (name, text) => {
    await go(name);
    await page.keyboard.press("Control+A");
    await page.keyboard.type(text);
  };
  await go("New drop");
  await page.keyboard.press("Enter");
  await visitor.reads("h1", "New drop");
  await type("Name", "By hand");
  await type("Coupons", "7");
  await page.keyboard.press("Enter");
  await visitor.shows("dialog");
  await page.keyboard.press("Enter");
  await visitor.reads("h1", "By hand");
  const { id } = (await server.get("/v1/policies")).items.find(({ name }) => name === "By hand");
  await server.claim(id, "somebody");
  await visitor.reads(".kpis .is-remaining dd", "6");
  await visitor.reads(".feed li .feed-result", "issued");

  await go("Edit");
  await page.keyboard.press("Enter");
  await visitor.reads("h1", "Edit “By hand”");
  await type("Coupons", "9");
  await page.keyboard.press("Enter");
  await visitor.reads(".kpis .is-remaining .soft", "of 9");

  await go("Close");
  await page.keyboard.press("Enter");
  await visitor.reads("dialog h2", /^Close/);
  await go("Close it");
  await page.keyboard.press("Enter");
  await visitor.reads(".policy-name .pill", "Closed");
  assert.equal((await server.get(`/v1/policies/${id}`)).state, "CLOSED");
});
