// report.test.mjs: the page that `dibs rush --report` writes, opened from a file.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import { after, before } from "node:test";
import { browsing, PHONE, useBrowser } from "./browser.mjs";
import { BINARY, cleanEnvironment, Server } from "./server.mjs";

let server;
useBrowser();
before(async () => {
  server = await Server.start();
});
after(() => server.stop());

browsing("a report draws its pictures and loads nothing", async (visit) => {
  const file = path.join(server.folder, "report.html");
  await promisify(execFile)(
    BINARY,
    [
      "rush",
      "--url",
      server.url,
      "--total",
      "100",
      "--users",
      "400",
      "--connections",
      "16",
      "--report",
      file,
    ],
    { env: cleanEnvironment(), timeout: 60000 },
  );
  const visitor = await visit({ url: `file://${file}`, size: PHONE });
  await visitor.reads("#title", /\w/);
  const pictures = await visitor.page
    .locator("#pictures svg")
    .evaluateAll((all) => all.map((svg) => svg.querySelectorAll("rect, path, circle").length));
  assert.ok(pictures.length >= 2 && pictures.every((shapes) => shapes > 0), `shapes: ${pictures}`);
  assert.ok((await visitor.page.locator("#checks tr").count()) >= 5);
  const unreadable = await visitor.page.locator("#pictures svg text").evaluateAll((all) =>
    all
      .map((text) => [text.textContent, text.getBoundingClientRect(), text.ownerSVGElement])
      .filter(([, box, svg]) => {
        const room = svg.getBoundingClientRect();
        return box.height < 9 || box.left < room.left - 1 || box.right > room.right + 1;
      })
      .map(([words, box]) => `${words}: ${box.height} px high`),
  );
  assert.deepEqual(unreadable, []);
  await visitor.isAccessible();
  await visitor.fits();
  await visitor.shot("rush-report");
});
