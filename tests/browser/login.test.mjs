// login.test.mjs: a server with an admin token: who has it sees the board, who has not does not.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { browsing, PHONE, useBrowser } from "./browser.mjs";
import { Server } from "./server.mjs";

const TOKEN = "correct-horse-battery-staple-0123456789";
let server;
useBrowser();
before(async () => {
  server = await Server.start({ secrets: { admin_token_file: TOKEN } });
});
after(() => server.stop());

browsing("a token opens the board, and signing out closes it", async (visit) => {
  const visitor = await visit({
    url: `${server.url}/#/new`,
    size: PHONE,
    allowed: ["401 /v1/session", "401 /v1/live"],
  });
  const { page } = visitor;
  await visitor.reads("h1", "Sign in");
  await visitor.isAccessible();
  await visitor.fits();
  await page.keyboard.type("wrong-horse");
  await page.keyboard.press("Enter");
  await visitor.reads("#token-error", "That is not the admin token.");
  await visitor.shot("login-phone");
  await page.getByLabel("Admin token").fill(TOKEN);
  await page.keyboard.press("Enter");
  // Where they wanted to go.
  await visitor.reads("h1", "New drop");
  assert.equal(await page.evaluate(() => document.cookie), "", "a script can read the session");

  await page.getByLabel("Name", { exact: true }).fill("Signed");
  await page.keyboard.press("Enter");
  await page.locator("dialog .primary").click();
  await visitor.reads(".policy-name .pill", "Open");
  await page.reload();
  await visitor.reads("h1", "Signed");
  await page.getByRole("button", { name: "Pause" }).click();
  await page.locator("dialog .primary").click();
  await visitor.reads(".policy-name .pill", "Paused");

  await page.getByRole("button", { name: "Sign out" }).click();
  await visitor.reads("h1", "Sign in");
  const answer = await page.evaluate(async () => (await fetch("/v1/live")).status);
  assert.equal(answer, 401);
});
