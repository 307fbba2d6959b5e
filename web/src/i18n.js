// i18n.js: which language the storefront speaks: the one chosen, else the browser's, else English.
import en from "./i18n/en.js";
import ko from "./i18n/ko.js";
import { recall, keep } from "./storage.js";

export const LANGUAGES = { ko, en };
const KEY = "dibs.language";

export function chosenLanguage() {
  const wishes = [recall(localStorage, KEY), ...navigator.languages];
  const known = wishes.map((wish) => wish?.slice(0, 2)).find((wish) => wish in LANGUAGES);
  return known ?? "en";
}

export const keepLanguage = (language) => keep(localStorage, KEY, language);
