// docs.test.mjs: the API in the browser, from the document that the server gives.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { browsing, PHONE, useBrowser } from "./browser.mjs";
import { Server } from "./server.mjs";

let server;
useBrowser();
before(async () => {
  server = await Server.start({});
});
after(() => server.stop());

const operations = (spec) =>
  Object.values(spec.paths).flatMap((item) =>
    Object.values(item).flatMap((one) => one.operationId ?? []),
  );

browsing("every call of the document is there, with what it takes and answers", async (visit) => {
  const visitor = await visit({ url: `${server.url}/docs` });
  const { page } = visitor;
  await visitor.reads("h1", "The API of dibs");
  const shown = await page.locator("details").evaluateAll((all) => all.map(({ id }) => id));
  const wanted = operations(await server.get("/openapi.json"));
  assert.deepEqual(shown.sort(), wanted.sort());
  // By keyboard alone.
  await page.locator("#createPolicy summary").focus();
  await page.keyboard.press("Enter");
  const call = page.locator("#createPolicy");
  assert.ok(await call.evaluate((node) => node.open));
  const words = await call.innerText();
  for (const part of ["POST", "/v1/policies", "discount.value", "integer from 1", "required", "409"])
    assert.ok(words.includes(part), `${part} is not in ${words}`);
  assert.ok(words.includes(`curl -s -X POST '${server.url}/v1/policies'`));
  await visitor.isAccessible();
});

browsing("a call is found by its words, or by its address", async (visit) => {
  const visitor = await visit({ url: `${server.url}/docs#eraseUser` });
  const { page } = visitor;
  await visitor.reads("#eraseUser h3", "Answers");
  assert.ok(await page.locator("#eraseUser").evaluate((node) => node.open));
  await page.getByLabel("Find a call").focus();
  await page.keyboard.type("winners.csv");
  await page.locator("#eraseUser").waitFor({ state: "hidden" });
  await page.locator("details:not([hidden])", { hasText: "winners.csv" }).first().waitFor();
  await page.keyboard.type(" and no such words");
  await visitor.reads("[role=status]", "No call has these words.");
});

browsing("the calls fit a phone", async (visit) => {
  const visitor = await visit({ url: `${server.url}/docs#createPolicy`, size: PHONE });
  await visitor.reads("#createPolicy h3", "Answers");
  await visitor.fits();
  await visitor.isAccessible();
});
