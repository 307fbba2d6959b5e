// board.test.mjs: operators watch: numbers, health, best sellers, and a stream that comes back.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { browsing, PHONE, useBrowser } from "./browser.mjs";
import { Server } from "./server.mjs";

const number = (n) => n.toLocaleString("en");
const button = (visitor, name) => visitor.page.getByRole("button", { name, exact: true });
let server;
useBrowser();
before(async () => {
  server = await Server.start();
});
after(() => server.stop());

browsing("two pages watch a drop of 500 with 1,000 visitors", async (visit) => {
  const { id } = await server.policy({ name: "Rush hour", total: 500, opens_in_s: 3600 });
  const board = await visit({ url: `${server.url}/` });
  const policy = await visit({
    url: `${server.url}/#/policies/${id}`,
    size: { width: 1280, height: 1500 },
    scheme: "dark",
  });
  await board.reads(".now-name", "Rush hour");
  await board.reads(".now-words", "until 500 can be claimed");
  await policy.reads(".kpis .is-remaining dd", "500");
  await policy.reads(".preflight-verdict", /^(Ready|Not ready)/);

  await server.call("PATCH", `/v1/policies/${id}`, { opens_at: new Date().toISOString() });
  await policy.reads(".policy-name .pill", "Open");
  const answers = await server.crowd(id, 1000);
  assert.equal(answers.filter(({ status }) => status === 201).length, 500);
  const now = await server.get(`/v1/policies/${id}`);
  assert.deepEqual([now.state, now.remaining, now.issued], ["SOLD_OUT", 0, 500]);

  const row = `.policies a[href="#/policies/${id}"]`;
  await board.reads(`${row} .row-number`, now.remaining);
  await board.reads(`${row} .row-counts`, `${now.issued} issued · ${now.pending} pending`);
  await board.reads(`${row} .pill`, "Sold out");
  await board.reads(".now-facts dd", now.issued);
  await policy.reads(".kpis .is-remaining dd", now.remaining);
  await policy.reads(".kpis .is-issued dd", now.issued);
  await policy.reads(".kpis .is-pending dd", now.pending);
  await policy.reads(".policy-name .pill", "Sold out");
  await policy.reads(".funnel .is-received b", number(answers.length));
  await policy.reads(".funnel .is-won b", number(500));
  await policy.reads(".funnel .is-issued b", number(500));
  await policy.reads(".latency li b", /\d (µs|ms|s)$/);
  await policy.reads('figure[aria-labelledby="first-title"] .soft', /sold out after \d+\.\d\d s$/);
  await policy.reads('figure[aria-labelledby="first-title"] .legend', /Won 500.*Sold out 500/);
  await policy.reads(".log li", /The last of 500 went/);

  await policy.reads(".feed li .feed-user", /^vi•••x$/);
  const text = await policy.page.locator("body").innerText();
  assert.ok(
    !answers.some(({ body }) => body.user && text.includes(body.user)),
    "a user is not masked",
  );
  await policy.isLookedAtAgain();
  await policy.reads(".opening .soft", "1,000 claims, of all servers together");
  assert.ok(await isDrawn(policy.page, ".plot canvas"), "the plots are drawn");
  await board.shot("board-light");
  await policy.shot("policy-dark");
});

/* Something other than the axes: more than two colours that are not transparent. */
function isDrawn(page, selector) {
  return page.locator(selector).evaluateAll((canvases) =>
    canvases.every((canvas) => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const colours = new Set();
      for (let i = 0; i < data.length; i += 4) {
        if (data[i + 3] === 255) colours.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
      }
      return colours.size > 2;
    }),
  );
}

browsing("best sellers move", async (visit) => {
  const order = (order_id, product_id, quantity, days_ago = 0) =>
    server.call("POST", "/v1/orders", {
      order_id,
      items: [{ product_id, quantity }],
      ...(days_ago ? { paid_at: new Date(Date.now() - days_ago * 86400000).toISOString() } : {}),
    });
  await server.call("PUT", "/v1/products/mug", { name: "Mug", price: 900 });
  await server.call("PUT", "/v1/products/pot", { name: "Pot", price: 4900 });
  await order("b1", "mug", 9, 1);
  await order("b2", "pot", 5, 1);
  const board = await visit({ url: `${server.url}/` });
  await board.reads(".sellers li:nth-child(1) .seller-name", "Mug");
  await board.reads(".sellers li:nth-child(1) .seller-change", "–");
  await order("b3", "pot", 20);
  await order("b4", "cup", 1);
  await board.reads(".sellers li:nth-child(1) .seller-name", "Pot");
  await board.reads(".sellers li:nth-child(1) .seller-sold", "25");
  await board.reads(".sellers li:nth-child(1) .seller-change", "▲ 1");
  await board.reads(".sellers li:nth-child(2) .seller-change", "▼ 1");
  await board.reads(".sellers li:nth-child(3) .seller-change", "new");
});

browsing("a new policy appears by itself, and its page opens by keyboard", async (visit) => {
  const board = await visit({ url: `${server.url}/` });
  await board.shows(".list .count");
  const { id } = await server.policy({ name: "Later", opens_in_s: 3600 });
  await board.shows(`.policies a[href="#/policies/${id}"]`);
  await board.page.locator(`.policies a[href="#/policies/${id}"]`).focus();
  await board.page.keyboard.press("Enter");
  await board.reads("h1", "Later");
  await board.reads(".kpis .is-next dd", /^(01:00:00|59:\d\d)$/);
  await board.page.keyboard.press("Tab");
  assert.equal(await board.page.evaluate(() => document.activeElement.className), "back");
});

browsing("the board and a policy's page are accessible and fit a phone", async (visit) => {
  const { id } = await server.policy({ name: "Accessible to everybody", total: 3 });
  await server.crowd(id, 6);
  const phone = await visit({ url: `${server.url}/`, size: PHONE });
  await phone.reads(".now-number", /\d/);
  await phone.reads(".lights li", /^Gate/);
  await phone.isAccessible();
  await phone.fits();
  await phone.shot("board-phone");
  await phone.page.goto(`${server.url}/#/policies/${id}`);
  await phone.reads(".kpis .is-issued dd", "3");
  await phone.page.getByRole("button", { name: "Check now" }).click();
  await phone.shows(".checks li");
  await phone.isAccessible();
  await phone.fits();
  await phone.shot("policy-phone");
  await phone.page.getByRole("button", { name: "Close" }).click();
  await phone.shows("dialog h2");
  await phone.isAccessible();
  await phone.page.keyboard.press("Escape");
  phone.allowed.push("404 /v1/policies/123456789/live");
  await phone.page.goto(`${server.url}/#/policies/123456789`);
  await phone.reads("h1", "There is no drop 123456789");
  assert.equal(await phone.page.locator(".plot, .kpis").count(), 0, "empty numbers of nothing");
  await phone.isAccessible();
  await phone.page.goto(`${server.url}/#/nowhere`);
  await phone.reads("h1", "There is no such page");
});

browsing("a stream that breaks is said and comes back", async (visit) => {
  const own = await Server.start();
  try {
    const { id } = await own.policy({ total: 10 });
    const board = await visit({ url: `${own.url}/` });
    await board.reads("#connection", "Live");
    await own.claim(id, "first");
    await board.reads(".now-number", "9");
    await own.halt("SIGKILL");
    await board.reads("#connection", "Connection lost, trying again");
    // What stands there is of the past, and looks like it.
    assert.match(
      await board.page.locator("main").evaluate((node) => getComputedStyle(node).filter),
      /grayscale/,
    );
    await board.shot("board-reconnecting");
    // Whatever fails while the server is away is no fault of the page.
    board.troubles.length = 0;
    await own.run();
    await own.claim(id, "second");
    await board.reads("#connection", "Live");
    await board.reads(".now-number", "8");
    assert.equal(
      await board.page.locator("main").evaluate((node) => getComputedStyle(node).filter),
      "none",
    );
  } finally {
    await own.stop();
  }
});

browsing("drops are searched and filtered, and what is over is in the archive", async (visit) => {
  const { id: over } = await server.policy({ name: "Needle of old" });
  await server.policy({ name: "Needle of today" });
  await server.call("DELETE", `/v1/policies/${over}`);
  const board = await visit({ url: `${server.url}/` });
  const names = () => board.page.locator(".policies .row-name").allTextContents();
  await board.page.getByLabel("Search the drops").fill("needle");
  await board.reads(".policies .row-name", "Needle of today");
  assert.deepEqual(await names(), ["Needle of today"]);
  await board.page.getByLabel("Archive").check();
  await board.reads(".policies .row-name", "Needle of old");
  assert.deepEqual(await names(), ["Needle of old"]);
  await board.page.getByLabel("Search the drops").fill("nothing like it");
  await board.shows(".list .empty:not([hidden])");
  await board.isAccessible();
});

browsing("a colour means one thing on every chart, and pills are as wide as their words", async (visit) => {
  const { id } = await server.policy({ total: 3 });
  const page = await visit({ url: `${server.url}/#/policies/${id}` });
  await page.reads(".policy-name .pill", "Open");
  const meanings = await page.page.locator(".legend-item, .kpis dt").evaluateAll((items) =>
    items
      .filter((item) => item.querySelector(".swatch"))
      .map((item) => [
        item.textContent.replace(/[\d,]+$/, "").trim(),
        getComputedStyle(item.querySelector(".swatch")).backgroundColor,
      ]),
  );
  assert.ok(meanings.length >= 8, JSON.stringify(meanings));
  const colours = new Map();
  for (const [words, colour] of meanings) {
    const meaning = words === "Issued" ? "Won" : words; // a coupon is what was won
    assert.ok(!colours.has(colour) || colours.get(colour) === meaning, `${words}: ${colour}`);
    colours.set(colour, meaning);
  }
  assert.equal(new Set(colours.values()).size, colours.size);
  const checks = page.page.locator(".checks li");
  await button(page, "Check now").click();
  await checks.first().waitFor();
  const ranks = { fail: 0, warn: 1, ok: 2 };
  const states = await checks.evaluateAll((items) => items.map((item) => item.dataset.state));
  assert.deepEqual(states, [...states].sort((a, b) => ranks[a] - ranks[b]));
  await page.page.goto(`${server.url}/#/`);
  await page.shows(".policies .pill");
  for (const pill of await page.page.locator(".pill:visible").all()) {
    const { width, height } = await pill.boundingBox();
    assert.ok(width < 120 && height < 30, `a pill of ${width} x ${height}`);
  }
  // It has the focus, and no frame around all of it.
  const outline = await page.page
    .locator("main")
    .evaluate((node) => (node.focus(), getComputedStyle(node).outlineStyle));
  assert.equal(outline, "none");
});

browsing("a drop that is about to open keeps its countdown in the hero", async (visit) => {
  const own = await Server.start();
  try {
    await own.policy({ name: "Open all day", total: 100 });
    await own.policy({ name: "Next drop", total: 10, opens_in_s: 60 });
    const board = await visit({ url: `${own.url}/` });
    await board.reads(".now-name", "Next drop");
    await board.reads(".now-number", /^(01:00|00:\d\d)$/);
  } finally {
    await own.stop();
  }
});

browsing("the board speaks Korean, and English by the switch", async (visit) => {
  const { id } = await server.policy({ name: "한국어", total: 3 });
  const board = await visit({ url: `${server.url}/`, locale: "ko-KR" });
  await board.reads("nav a", "현황판");
  await board.reads("#connection", "실시간");
  await board.isAccessible();
  await board.page.goto(`${server.url}/#/policies/${id}`);
  await board.reads(".policy-name .pill", "진행 중");
  await board.page.goto(`${server.url}/#/new`);
  await board.reads("h1", "새 이벤트");
  await board.page.getByRole("button", { name: "English" }).click();
  await board.reads("h1", "New drop");
});

browsing("while a board or a drop's page is read, nothing is said of it", async (visit) => {
  const { id } = await server.policy({ total: 3 });
  const page = await visit({ url: `${server.url}/#/customers`, routes: { "**/live": () => {} } });
  for (const [where, bar] of [
    ["/#/", ".now .stock"],
    [`/#/policies/${id}`, ".kpis .stock"],
  ]) {
    await page.page.goto(server.url + where);
    await page.page.locator(bar).first().waitFor({ state: "attached" });
    const widths = await page.page
      .locator(`${bar} i`)
      .evaluateAll((parts) => parts.map((part) => part.getBoundingClientRect().width));
    assert.deepEqual(widths, [0, 0], "a bar of what nobody knows yet");
  }
});

/* Whatever a page asks for comes after it was drawn without it, as on a slow line. */
browsing("what is read late moves nothing that is there already", async (visit) => {
  const untilDrawn = () =>
    new Promise((resolve) => {
      requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    });
  const late = async (route) => {
    await route.request().frame().evaluate(untilDrawn);
    await route.continue();
  };
  const name = "A name of more words than one line of a phone has room for, and then some";
  const { id } = await server.policy({ name, total: 3 });
  await server.claim(id, "early");
  const { id: over } = await server.policy({ name, total: 3 });
  await server.call("DELETE", `/v1/policies/${over}`);
  const { id: short } = await server.policy({ total: 3 });
  const items = [{ product_id: "jar", quantity: 2 }];
  await server.call("POST", "/v1/orders", { order_id: "late", items });
  const read = ".opening[data-read]";
  for (const [where, wanted] of [
    ["#/", ".sellers li"],
    [`#/policies/${id}`, read],
    [`#/policies/${over}`, read],
    [`drop/${short}`, ".press:not([aria-disabled])"],
  ]) {
    const { page } = await visit({
      url: `${server.url}/${where}`,
      size: { ...PHONE, height: 3200 },
      routes: { "**/v1/**": late },
      allowed: ["404 /v1/policies/*/claims/*"],
    });
    await page.locator(wanted).first().waitFor();
    await page.evaluate(untilDrawn);
    await page.unrouteAll({ behavior: "ignoreErrors" });
  }
});
