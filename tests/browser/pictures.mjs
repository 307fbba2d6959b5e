// pictures.mjs: takes the pictures in docs/images from the demo, as a newcomer sees it.
//
// usage: DIBS_BINARY=build/dibs node tests/browser/pictures.mjs
import path from "node:path";
import process from "node:process";
import { chromium } from "playwright-core";
import { ROOT, Server } from "./server.mjs";

const FOLDER = path.join(ROOT, "docs/images");
const DESK = { width: 1240, height: 800 };
const TALL = { width: 1240, height: 990 };
const PHONE = { width: 390, height: 720 };

const server = await Server.start({ flags: ["--demo"] });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: process.getuid() === 0 ? ["--no-sandbox"] : [],
});

async function look(where, { size = DESK, scheme = "light", locale = "en-GB" } = {}) {
  const context = await browser.newContext({
    viewport: size,
    colorScheme: scheme,
    locale,
    timezoneId: "Asia/Seoul",
    deviceScaleFactor: 1.25,
  });
  const page = await context.newPage();
  await page.goto(server.url + where);
  return page;
}

const shoot = (page, name) => page.screenshot({ path: path.join(FOLDER, `${name}.png`) });

/* Waits until some of the demo's coupons are given out and others are not, in whichever drop. */
const untilUnderWay = (page) =>
  page.waitForFunction(
    () => {
      const left = Number(document.querySelector(".now-number").textContent);
      const name = document.querySelector(".now-name").textContent;
      return name === "Demo drop" && left > 60 && left < 330;
    },
    null,
    { polling: 30, timeout: 150000 },
  );

try {
  const inDays = (days) => new Date(Date.now() + days * 86400000).toISOString();
  await server.policy({ name: "Friday drop", total: 1000, opens_at: inDays(3.2) });
  await server.policy({ name: "Newsletter", total: 5000, per_user_limit: 2 });
  const { id } = await server.policy({ name: "오픈 기념 쿠폰", total: 300 });
  await server.crowd(id, 117);

  const boards = [await look("/"), await look("/", { scheme: "dark" })];
  const names = ["board-light", "board-dark"];
  await Promise.all(
    boards.map(async (page, i) => {
      await untilUnderWay(page);
      await shoot(page, names[i]);
    }),
  );
  const href = await boards[0].locator(".now-name").getAttribute("href");
  const policies = [
    await look(`/${href}`, { size: TALL }),
    await look(`/${href}`, { size: TALL, scheme: "dark" }),
  ];
  await policies[0].locator(".policy-name .pill[data-state=SOLD_OUT]").waitFor();
  await policies[0].waitForTimeout(4000);
  await shoot(policies[0], "policy-light");
  await shoot(policies[1], "policy-dark");

  const shop = await look(`/drop/${id}`, { size: PHONE });
  await shop.locator(".press:not([aria-disabled])").click();
  await shop.locator(".coupon").waitFor();
  await shop.waitForTimeout(500);
  await shoot(shop, "drop-light");
  const korean = await look(`/drop/${id}`, { size: PHONE, scheme: "dark", locale: "ko-KR" });
  await korean.locator(".press:not([aria-disabled])").waitFor();
  await shoot(korean, "drop-dark");
} finally {
  await browser.close();
  await server.stop();
}
