// demo.test.mjs: what a newcomer sees within the first minute.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { browsing, useBrowser } from "./browser.mjs";
import { Server } from "./server.mjs";

let server;
useBrowser();
before(async () => {
  server = await Server.start({ flags: ["--demo"] });
});
after(() => server.stop());

browsing("a demo drop counts down, opens, and is given out", async (visit) => {
  const board = await visit({ url: `${server.url}/`, scheme: "dark" });
  await board.reads(".now-name", "Demo drop");
  // On a busy machine the page may come when the drop is over.
  await board.reads(".now-head .pill", /^(Open|Sold out)$/);
  await board.shows(".sellers li:nth-child(5)");
  const { items } = await server.get("/v1/policies");
  const demo = items.find(({ name }) => name === "Demo drop");
  const shop = await visit({
    url: `${server.url}/drop/${demo.id}`,
    allowed: [`404 /v1/policies/${demo.id}/claims/*`],
  });
  await shop.reads(".off", /%/);
  await board.reads(".now-head .pill", "Sold out");
  await board.shot("demo-dark");
  await shop.reads(".view-message h2", "Sold out");
  assert.equal((await server.get(`/v1/policies/${demo.id}`)).issued, demo.total);
});
