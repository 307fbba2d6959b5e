// zones.js: wall clocks: from what a person types in a time zone to an instant, and back to words.

import { language, t } from "./words.js";

const DAY_MS = 86400000;

function wallParts(ms, zone) {
  const format = new Intl.DateTimeFormat("en-GB", {
    timeZone: zone,
    hourCycle: "h23",
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
  });
  return Object.fromEntries(format.formatToParts(ms).map(({ type, value }) => [type, value]));
}

/* The wall clock at an instant, as an input of type datetime-local takes it. */
export function wallOf(ms, zone) {
  const { year, month, day, hour, minute } = wallParts(ms, zone);
  return `${year}-${month}-${day}T${hour}:${minute}`;
}

/* The instant at which the zone's wall clock shows `wall`, in milliseconds; NaN when it is no time.
 */
export function instantOf(wall, zone) {
  const wanted = Date.parse(`${wall}Z`);
  if (Number.isNaN(wanted)) return NaN;
  const shown = (ms) => {
    const { year, month, day, hour, minute, second } = wallParts(ms, zone);
    return Date.UTC(year, month - 1, day, hour, minute, second);
  };
  // The offset may be another at the guess than at the answer, when clocks change between them.
  const guess = wanted - (shown(wanted) - wanted);
  return guess - (shown(guess) - wanted);
}

export const ownZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

/* "Seoul time", "UTC"; in Korean "(대한민국 시간)", which stands behind a time. */
export function zoneWords(zone) {
  if (/^(Etc\/)?(UTC|GMT|Zulu)$/.test(zone)) return "UTC";
  if (language !== "ko") return `${zone.split("/").at(-1).replaceAll("_", " ")} time`;
  const format = new Intl.DateTimeFormat("ko", { timeZone: zone, timeZoneName: "longGeneric" });
  return `(${format.formatToParts(0).find(({ type }) => type === "timeZoneName").value})`;
}

/* "today 12:00", "Friday 12:00", "20 November 12:00", as seen from `now_ms`. */
export function whenWords(ms, zone, now_ms) {
  const say = (options) =>
    new Intl.DateTimeFormat(language === "ko" ? "ko" : "en-GB", {
      timeZone: zone,
      ...options,
    }).format(ms);
  const time = say({ hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const day = (at) => wallOf(at, zone).slice(0, 10);
  if (day(ms) === day(now_ms)) return t("today {time}", { time });
  if (day(ms) === day(now_ms + DAY_MS)) return t("tomorrow {time}", { time });
  if (ms > now_ms && ms - now_ms < 6 * DAY_MS) return `${say({ weekday: "long" })} ${time}`;
  const isThisYear = day(ms).slice(0, 4) === day(now_ms).slice(0, 4);
  const year = isThisYear ? undefined : "numeric";
  return `${say({ day: "numeric", month: "long", year })} ${time}`;
}
