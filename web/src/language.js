// language.js: which language a page speaks: the one chosen, else the browser's, else English.
import { recall, keep } from "./storage.js";

const KNOWN = ["ko", "en"];
const KEY = "dibs.language";

export function chosenLanguage() {
  // Tests read the words without a browser.
  if (typeof localStorage === "undefined") return "en";
  const wishes = [recall(localStorage, KEY), ...navigator.languages];
  return wishes.map((wish) => wish?.slice(0, 2)).find((wish) => KNOWN.includes(wish)) ?? "en";
}

export const keepLanguage = (language) => keep(localStorage, KEY, language);
