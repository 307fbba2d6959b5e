// browser.mjs: pages in Debian's Chromium, which must be clean: no error, no request elsewhere, no
// jump.
import assert from "node:assert/strict";
import { mkdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

const AXE = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const SHOTS = path.resolve(process.env.DIBS_BUILD_DIR ?? "build", "screenshots");
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const WAIT_MS = 20000;
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
export const PHONE = { width: 360, height: 740 };

let browser;

/* Every file of tests has one browser. */
export function useBrowser() {
  before(async () => {
    await mkdir(path.join(SHOTS, "all"), { recursive: true });
    browser = await chromium.launch({
      executablePath: CHROMIUM,
      args: process.getuid() === 0 ? ["--no-sandbox"] : [],
    });
  });
  after(() => browser.close());
}

/* A test called `name` with visitors: `visit(options)` opens a new one, a browser without memory of
   the others. What every page must keep is checked in the end. */
export function browsing(name, act) {
  test(name, { timeout: 90000 }, async () => {
    const visitors = [];
    const visit = async (options) => {
      const visitor = await Visitor.open(options);
      visitors.push(visitor);
      return visitor;
    };
    try {
      await act(visit);
      for (const visitor of visitors) await visitor.check();
    } catch (error) {
      for (const [i, visitor] of visitors.entries()) {
        await visitor.shot(`failed-${name.replaceAll(/\W+/g, "-")}-${i}`).catch(() => {});
        if (visitor.troubles.length) error.message += `\nthe page: ${visitor.troubles.join("\n")}`;
      }
      throw error;
    } finally {
      await Promise.all(visitors.map((visitor) => visitor.context.close()));
    }
  });
}

export class Visitor {
  static async open({
    url,
    scheme = "light",
    size = { width: 1280, height: 900 },
    locale = "en-US",
    zone = "Asia/Seoul",
    before: prepare,
    allowed = [],
    clipboard = false,
    routes = {},
  } = {}) {
    const visitor = new Visitor();
    visitor.allowed = allowed;
    visitor.troubles = [];
    visitor.context = await browser.newContext({
      viewport: size,
      colorScheme: scheme,
      locale,
      timezoneId: zone,
      permissions: clipboard ? ["clipboard-read", "clipboard-write"] : [],
    });
    visitor.page = await visitor.context.newPage();
    visitor.page.setDefaultTimeout(WAIT_MS);
    visitor.listen(url);
    await visitor.page.addInitScript(watchShifts);
    for (const [pattern, act] of Object.entries(routes)) await visitor.page.route(pattern, act);
    if (prepare) await visitor.page.addInitScript(prepare);
    await visitor.page.goto(url);
    return visitor;
  }

  /* Writes down what no page may do. Refusals are in `allowed` as "STATUS path", where * is
     anything. */
  listen(url) {
    const { page, troubles } = this;
    const origin = new URL(url).origin;
    page.on("console", (message) => {
      // What a refusal prints is judged below, by its address.
      if (message.type() !== "error" && message.type() !== "warning") return;
      if (!message.text().startsWith("Failed to load resource")) troubles.push(message.text());
    });
    page.on("pageerror", (error) => troubles.push(`${error.message}\n${error.stack}`));
    page.on("request", (request) => {
      const to = new URL(request.url());
      if (to.origin !== origin && !["data:", "blob:"].includes(to.protocol))
        troubles.push(`asks ${to}`);
    });
    page.on("response", (response) => {
      if (response.status() < 400) return;
      const what = `${response.status()} ${new URL(response.url()).pathname}`;
      if (!this.allowed.some((each) => matches(each, what))) troubles.push(`is refused: ${what}`);
    });
  }

  /* Waits until the element's text is or matches `wanted`. */
  async reads(selector, wanted) {
    let text;
    const end = Date.now() + WAIT_MS;
    do {
      text = (await this.page.locator(selector).first().textContent({ timeout: WAIT_MS })).trim();
      if (wanted instanceof RegExp ? wanted.test(text) : text === String(wanted)) return text;
      await new Promise((resolve) => {
        setTimeout(resolve, 50);
      });
    } while (Date.now() < end);
    return assert.fail(`${selector} reads “${text}”, not “${wanted}”`);
  }

  shows(selector) {
    return this.page.locator(selector).first().waitFor({ state: "visible" });
  }

  /* What a browser says when its window is in front again. */
  isLookedAtAgain() {
    return this.page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  }

  async shot(name) {
    await this.page.screenshot({ path: path.join(SHOTS, `${name}.png`) });
  }

  /* No violation that axe knows of, in light and in dark. */
  async isAccessible() {
    if (!(await this.page.evaluate(() => "axe" in globalThis))) await this.page.evaluate(AXE);
    for (const colorScheme of ["dark", "light"]) {
      await this.page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      const { violations } = await this.page.evaluate(
        (rules) =>
          globalThis.axe.run({ include: document, exclude: "option" }, { runOnly: rules }),
        RULES,
      );
      const words = violations.map(
        ({ id, help, nodes }) =>
          `${id}: ${help}\n  ` +
          nodes
            .slice(0, 3)
            .map(({ html, failureSummary }) => `${html}\n  ${failureSummary}`)
            .join("\n  "),
      );
      assert.deepEqual(words, [], `axe in ${colorScheme} at ${this.page.url()}`);
    }
  }

  async fits() {
    const [wide, room] = await this.page.evaluate(() => [
      document.documentElement.scrollWidth,
      document.documentElement.clientWidth,
    ]);
    assert.ok(wide <= room, `${this.page.url()} is ${wide} px wide in ${room}`);
  }

  async check() {
    if (this.page.isClosed()) return assert.deepEqual(this.troubles, []);
    const shifts = await this.page.evaluate(() => globalThis.shifts ?? []);
    const score = shifts.reduce((sum, { value }) => sum + value, 0);
    // As it is told: to three digits.
    assert.equal(score.toFixed(3), "0.000", JSON.stringify(shifts));
    return assert.deepEqual(this.troubles, []);
  }
}

function matches(pattern, what) {
  const parts = pattern.split("*").map((part) => part.replaceAll(/[.+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`).test(what);
}

/* Runs in the page: keeps what moved although nobody touched anything. */
function watchShifts() {
  globalThis.shifts = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (entry.hadRecentInput) continue;
      globalThis.shifts.push({
        value: entry.value,
        what: entry.sources.map(
          ({ node, previousRect: from, currentRect: to }) =>
            `${node?.className || node?.nodeName}: ${from.x},${from.y} ` +
            `${from.width}x${from.height} to ${to.x},${to.y} ${to.width}x${to.height}`,
        ),
      });
    }
  }).observe({ type: "layout-shift", buffered: true });
}
