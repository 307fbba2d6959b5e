// words.test.mjs: what the pages work out without a browser: times, sentences, mistakes, streams.
import assert from "node:assert/strict";
import { test } from "node:test";
import { left, milliseconds } from "../../web/src/format.js";
import { policySentence } from "../../web/src/preview.js";
import { changesOf, mistakesIn, policyOf } from "../../web/src/rules.js";
import { parser } from "../../web/src/stream.js";
import { inKorean } from "../../web/src/told.js";
import { instantOf, wallOf, whenWords } from "../../web/src/zones.js";

const iso = (ms) => new Date(ms).toISOString();

test("a wall clock is an instant, also around a change of clocks", () => {
  assert.equal(iso(instantOf("2026-11-20T12:00", "Asia/Seoul")), "2026-11-20T03:00:00.000Z");
  assert.equal(iso(instantOf("2026-07-01T12:00", "America/New_York")), "2026-07-01T16:00:00.000Z");
  assert.equal(iso(instantOf("2026-11-01T08:00", "America/New_York")), "2026-11-01T13:00:00.000Z");
  assert.equal(iso(instantOf("2026-03-29T04:00", "Europe/Paris")), "2026-03-29T02:00:00.000Z");
  assert.equal(wallOf(Date.UTC(2026, 2, 29, 2), "Europe/Paris"), "2026-03-29T04:00");
  assert.ok(Number.isNaN(instantOf("", "UTC")));
});

test("a moment is said as people say it", () => {
  const now = Date.UTC(2026, 10, 16, 3); // Monday noon in Seoul.
  const say = (wall) => whenWords(instantOf(wall, "Asia/Seoul"), "Asia/Seoul", now);
  assert.equal(say("2026-11-16T20:30"), "today 20:30");
  assert.equal(say("2026-11-17T00:00"), "tomorrow 00:00");
  assert.equal(say("2026-11-20T12:00"), "Friday 12:00");
  assert.equal(say("2026-12-24T12:00"), "24 December 12:00");
  assert.equal(say("2027-01-02T12:00"), "2 January 2027 12:00");
});

test("a policy is one sentence", () => {
  const now_ms = Date.UTC(2026, 10, 16, 3);
  const policy = {
    total: 1000,
    discount: { type: "percent", value: 10 },
    per_user_limit: 1,
    opens_ms: instantOf("2026-11-20T12:00", "Asia/Seoul"),
    closes_ms: null,
    coupon_valid_days: null,
  };
  const say = (change) => policySentence({ ...policy, ...change }, { zone: "Asia/Seoul", now_ms });
  assert.equal(say({}), "1,000 coupons, 10% off, one each, opens Friday 12:00 Seoul time");
  assert.equal(
    say({ total: 1, opens_ms: null, per_user_limit: 3, coupon_valid_days: 1 }),
    "1 coupon, 10% off, up to 3 each, valid for 1 day",
  );
});

test("what is typed is a policy, or says what is wrong", () => {
  const typed = {
    name: " Friday ",
    "discount.type": "percent",
    "discount.value": "10",
    total: "1,000",
    per_user_limit: "1",
    timing: "now",
    zone: "UTC",
    opens_at: "",
    closes_at: "",
    coupon_valid_days: "",
    coupon_expires_at: "",
    currency: "",
    reserve: "",
    id: "",
  };
  const wrong = (change) => Object.keys(mistakesIn({ ...typed, ...change }, Date.now()));
  assert.deepEqual(wrong({}), []);
  assert.deepEqual(policyOf(typed), {
    name: "Friday",
    discount: { type: "percent", value: 10 },
    total: 1000,
    per_user_limit: 1,
  });
  assert.deepEqual(wrong({ total: "1e3" }), ["total"]);
  assert.deepEqual(wrong({ total: "100000001" }), ["total"]);
  assert.deepEqual(wrong({ "discount.value": "101" }), ["discount.value"]);
  assert.deepEqual(wrong({ "discount.type": "fixed", "discount.value": "101" }), []);
  assert.deepEqual(wrong({ reserve: "1001" }), ["reserve"]);
  assert.deepEqual(wrong({ timing: "at", opens_at: "2020-01-01T00:00" }), ["opens_at"]);
  assert.deepEqual(wrong({ name: "x".repeat(201) }), ["name"]);
  const made = { ...policyOf({ ...typed, reserve: "5" }), opens_at: null, closes_at: null, coupon_expires_at: null };
  const changed = (reserve) => changesOf({ ...typed, reserve }, { ...made, coupon_valid_days: null, currency: null });
  assert.deepEqual([changed("5"), changed("7"), changed("")], [{}, { reserve: 7 }, { reserve: 0 }]);
});

test("a stream is read in whatever pieces it comes", () => {
  const text = ': beat\n\nevent: numbers\ndata: {"a":1}\n\ndata: x\r\ndata: y\r\n\r\n';
  for (let size = 1; size <= text.length; size++) {
    const heard = [];
    const read = parser((event, said) => heard.push([event, said]));
    for (let at = 0; at < text.length; at += size) read(text.slice(at, at + size));
    assert.deepEqual(heard, [
      ["numbers", '{"a":1}'],
      ["message", "x\ny"],
    ]);
  }
});

test("times are short", () => {
  assert.deepEqual([0.007, 3.3333, 53.24, 640, 1234].map(milliseconds), [
    "7 µs",
    "3.33 ms",
    "53.2 ms",
    "640 ms",
    "1.23 s",
  ]);
  assert.deepEqual([0, 1, 59001, 3600000, 90061000].map(left), [
    "00:00",
    "00:01",
    "01:00",
    "01:00:00",
    "1 d 01:01:01",
  ]);
});

test("every sentence of the operators' pages has its Korean", async () => {
  const { readdir, readFile } = await import("node:fs/promises");
  const { default: korean } = await import("../../web/src/i18n/board_ko.js");
  const folder = new URL("../../web/src/", import.meta.url);
  const wanted = new Set();
  for (const name of await readdir(folder)) {
    if (!name.endsWith(".js")) continue;
    const text = await readFile(new URL(name, folder), "utf8");
    if (!text.includes('"./words.js"')) continue;
    for (const [, said] of text.matchAll(/\bt\(\s*"((?:[^"\\]|\\.)*)"/g)) wanted.add(said);
    for (const [, a, b] of text.matchAll(/\bt\([^"()]*\? "([^"]*)" : "([^"]*)"/g))
      wanted.add(a).add(b);
  }
  assert.ok(wanted.size > 200, `${wanted.size} sentences`);
  const holes = (text) => (text.match(/\{\w+\}/g) ?? []).sort().join();
  for (const said of wanted) {
    assert.ok(korean[said], `“${said}” has no Korean`);
    assert.equal(holes(korean[said]), holes(said), said);
  }
});

test("what the server says of a drop's checks and in its log has its Korean", async () => {
  const { readFile } = await import("node:fs/promises");
  const sourceOf = (name) => readFile(new URL(`../../src/${name}.c`, import.meta.url), "utf8");
  const source = await sourceOf("claim/preflight");
  const noticed = (
    await Promise.all(["http/live/live", "claim/shared/sync", "claim/shared/fallback"].map(sourceOf))
  ).join("\n");
  const whole = (literals) =>
    [...literals.matchAll(/"((?:[^"\\]|\\.)*)"/g)].map(([, text]) => text).join("");
  const LITERALS = String.raw`((?:"(?:[^"\\]|\\.)*"\s*)+)`;
  const said = [
    ...source.matchAll(new RegExp(String.raw`check_of\(\s*"\w+",[^";]*?,\s*${LITERALS}`, "g")),
    ...source.matchAll(new RegExp(String.raw`"%lld? of %lld[^"]*"|[?:]\s*${LITERALS}[;:)]`, "g")),
    ...source.matchAll(new RegExp(String.raw`PREFLIGHT_OK,\s*${LITERALS}`, "g")),
    ...noticed.matchAll(new RegExp(String.raw`notices_add\([^;"]*"\w+",\s*${LITERALS}`, "g")),
    ...noticed.matchAll(/("(?:Claiming|Closed)[^"]*")/g),
    ...noticed.matchAll(/("The gate[^"]*\.")/g),
  ]
    .map(([, literals]) => whole(literals ?? ""))
    .filter((text) => text.replace(/%(lld|\.?\d*s|d)/, "").length > 10)
    .filter((text) => !["in process", "processes", "%s%s"].includes(text));
  assert.ok(new Set(said).size > 36, said.join("\n"));
  for (const format of said) {
    const filled = format.replaceAll(/%(lld|\.?\d*s|d)/g, "7");
    assert.notEqual(inKorean(filled), filled, `“${format}” has no Korean`);
    assert.match(inKorean(filled), /[가-힣]/);
    assert.doesNotMatch(inKorean(filled), /[{}]|undefined/);
  }
  assert.equal(inKorean("Opens in 2 d 3 h."), "2일 3시간 뒤에 시작합니다.");
  assert.equal(inKorean("5 of 10 coupons can be claimed."), "쿠폰 10장 중 5장을 받을 수 있습니다.");
  assert.equal(inKorean("Not known: the gate is away"), "알 수 없음: 게이트에 연결할 수 없습니다");
  assert.equal(inKorean("a disk that nobody has words for"), "a disk that nobody has words for");
});

test("pages speak of drops, not of policies", async () => {
  const { default: korean } = await import("../../web/src/i18n/board_ko.js");
  for (const said of Object.keys(korean)) assert.doesNotMatch(said, /polic|good for/i);
});
