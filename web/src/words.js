// words.js: what the operators' pages say, in the language of whoever reads them.
//
// A sentence stands in English where it is said; its Korean is looked up by it, and a test holds that
// every sentence has one.
import ko from "./i18n/board_ko.js";
import { chosenLanguage, keepLanguage } from "./language.js";

export const language = chosenLanguage();
if (typeof document !== "undefined") document.documentElement.lang = language;

/* The sentence, with the values in the places that {name} them. */
export function t(text, values = {}) {
  const said = language === "ko" ? (ko[text] ?? text) : text;
  return said.replaceAll(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

/* Shows the page in the other language from here on. */
export function speak(code) {
  keepLanguage(code);
  location.reload();
}
