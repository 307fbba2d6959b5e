// format.js: numbers, times and discounts as people read them.
import { chosenLanguage } from "./language.js";

const WHOLE = new Intl.NumberFormat("en");
const SHARE = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 1 });

export const whole = (n) => WHOLE.format(Math.round(n ?? 0));

/* 12,345 as 12.3k, where there is little room. */
export function short(n) {
  if (n >= 1e6) return `${+(n / 1e6).toFixed(1)}M`;
  return n >= 10000 ? `${+(n / 1000).toFixed(1)}k` : whole(n);
}

export const share = (part, all) => (all > 0 ? SHARE.format(part / all) : "–");

export function milliseconds(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms >= 10000) return `${(ms / 1000).toFixed(0)} s`;
  if (ms >= 1000) return `${(ms / 1000).toFixed(2)} s`;
  if (ms < 0.1) return `${(ms * 1000).toFixed(0)} µs`;
  return `${ms.toFixed(ms >= 100 ? 0 : ms >= 10 ? 1 : 2)} ms`;
}

const two = (n) => String(n).padStart(2, "0");

/* Time left as its parts; the last second is 0 only when nothing is left. */
export function parts(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  return {
    days: Math.floor(seconds / 86400),
    hours: Math.floor(seconds / 3600) % 24,
    minutes: Math.floor(seconds / 60) % 60,
    seconds: seconds % 60,
  };
}

const UNITS = { en: { s: " s", min: " min", h: " h", d: " d" }, ko: { s: "초", min: "분", h: "시간", d: "일" } };
const units = () => UNITS[chosenLanguage()];

/* 2 d 03:04:05, 03:04:05 or 04:05. */
export function left(ms) {
  const { days, hours, minutes, seconds } = parts(ms);
  const clock = `${two(minutes)}:${two(seconds)}`;
  if (days > 0) return `${days}${units().d} ${two(hours)}:${clock}`;
  return hours > 0 ? `${two(hours)}:${clock}` : clock;
}

/* 3 s, 4 min, 5 h, 6 d: how long something has lasted, roughly. */
export function lasted(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const { s, min, h, d } = units();
  if (seconds < 60) return `${seconds}${s}`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)}${min}`;
  return seconds < 86400 ? `${Math.floor(seconds / 3600)}${h}` : `${Math.floor(seconds / 86400)}${d}`;
}

/* The time of day with seconds, of this browser's zone. */
export function clockTime(when, digits = 0) {
  const date = new Date(when);
  const text = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  const thousandths = String(date.getMilliseconds()).padStart(3, "0");
  return digits ? `${text}.${thousandths.slice(0, digits)}` : text;
}

/* The day, when it is not today, and the time. */
export function moment(when, now) {
  const date = new Date(when);
  const day =
    date.toDateString() === new Date(now).toDateString()
      ? ""
      : `${date.toLocaleDateString(chosenLanguage(), { month: "short", day: "numeric" })}, `;
  return `${day}${clockTime(when)}`;
}
