// told.js: what the server says in sentences of its own, in the language of whoever reads it.
import ko, { values } from "./i18n/server_ko.js";
import { language } from "./words.js";

const PLACE = /\{(\d?)\}/g;

const escaped = (text) => text.replaceAll(/[.*+?^$()|[\]\\]/g, "\\$&");
const sentences = Object.entries(ko).map(([said, korean]) => [
  new RegExp(`^${escaped(said).replaceAll("{}", "(.+)")}$`, "s"),
  korean,
]);

function valueIn(text) {
  const known = values.find(([pattern]) => pattern.test(text));
  return known ? text.replace(...known) : inKorean(text);
}

/* A sentence that nobody has put into Korean stays as it is. */
export function inKorean(text) {
  for (const [pattern, korean] of sentences) {
    const found = pattern.exec(text)?.slice(1).map(valueIn);
    let next = 0;
    if (found) return korean.replaceAll(PLACE, (_, at) => found[at === "" ? next++ : at]);
  }
  return text;
}

export const told = (text) => (language === "ko" ? inKorean(text) : text);
