// screenshots.test.mjs: every page in every state, both languages, widths and themes, into one folder.
//
// Nobody can judge a look by a test: these are for people. What they show is awaited, so that a state
// that cannot be reached any more fails.
import { after, before, test } from "node:test";
import { useBrowser, Visitor } from "./browser.mjs";
import { Server } from "./server.mjs";

const SIZES = { phone: { width: 390, height: 800 }, desk: { width: 1280, height: 860 } };
const LOCALES = { ko: "ko-KR", en: "en-US" };

let server, empty;
const drops = {};
useBrowser();
before(async () => {
  [server, empty] = await Promise.all([Server.start(), Server.start()]);
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
});
after(() => Promise.all([server.stop(), empty.stop()]));

/* Each state: where it is, and what is there when it is reached. */
const shop = (name, wanted, act) => [`/drop/${drops[name]}`, wanted, act];
const STATES = () => ({
  "drop-countdown": shop("countdown", ".view-press[data-shown] .countdown:not([hidden])"),
  "drop-open": shop("open", ".press:not([aria-disabled])"),
  "drop-sending": shop("open", ".press[data-busy]", async (page) => {
    await page.locator(".press:not([aria-disabled])").waitFor();
    await page.route("**/claims", () => {});
    await page.locator(".press").click();
  }),
  "drop-coupon": [`/drop/${drops.open}?user=${encodeURIComponent("김하늘")}`, ".coupon:visible"],
  "drop-sold-out": shop("soldOut", ".view-message[data-shown]"),
  "drop-paused": shop("paused", ".view-message[data-shown]"),
  "drop-closed": shop("closed", ".view-message[data-shown]"),
  "drop-missing": ["/drop/987654321", ".view-message[data-shown]"],
  "drop-loading": shop("open", ".drop-card", async (page) => {
    await page.route("**/v1/**", () => {});
    await page.reload();
  }),
  board: ["/#/", ".policies li"],
  "drop-page": [`/#/policies/${drops.open}`, ".kpis"],
  edit: [`/#/policies/${drops.countdown}/edit`, ".policy-form"],
  new: ["/#/new", ".policy-form"],
  customers: [`/#/customers?q=${encodeURIComponent("김하늘")}`, ".coupons li"],
  missing: ["/#/policies/987654321", ".missing"],
});

async function shoot(visitor, name) {
  for (const colorScheme of ["light", "dark"]) {
    await visitor.page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    await visitor.shot(`all/${name}-${colorScheme}`);
  }
}

for (const [language, locale] of Object.entries(LOCALES)) {
  for (const [width, size] of Object.entries(SIZES)) {
    test(`screenshots: ${language}, ${width}`, { timeout: 120000 }, async () => {
      const visitor = await Visitor.open({ url: `${empty.url}/`, locale, size });
      const { page } = visitor;
      try {
        await page.locator(".list .empty:not([hidden])").first().waitFor();
        await shoot(visitor, `board-empty-${language}-${width}`);
        for (const [name, [where, wanted, act]] of Object.entries(STATES())) {
          await page.goto("about:blank");
          await page.goto(server.url + where);
          await act?.(page);
          await page.locator(wanted).first().waitFor();
          await shoot(visitor, `${name}-${language}-${width}`);
          await page.unrouteAll({ behavior: "ignoreErrors" });
        }
      } finally {
        await visitor.context.close();
      }
    });
  }
}

test("screenshots: the server is gone", { timeout: 60000 }, async () => {
  const own = await Server.start();
  const visitors = [];
  try {
    const { id } = await own.policy({ name: "오픈 기념 Launch day" });
    for (const [where, wanted] of [
      ["/", ".policies li"],
      [`/drop/${id}`, ".press:not([aria-disabled])"],
    ]) {
      const visitor = await Visitor.open({ url: own.url + where, size: SIZES.phone });
      visitors.push(visitor);
      await visitor.page.locator(wanted).first().waitFor();
    }
    await own.halt("SIGKILL");
    await visitors[0].page.locator("main[data-stale]").waitFor();
    await visitors[1].page.locator(".trouble:not(:empty)").waitFor();
    await shoot(visitors[0], "board-gone");
    await shoot(visitors[1], "drop-gone");
  } finally {
    await Promise.all(visitors.map(({ context }) => context.close()));
    await own.stop();
  }
});
