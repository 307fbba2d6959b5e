// languages.js: the storefront's language, as words, numbers and days, and the switch between them.
import { h, mark } from "./dom.js";
import { money } from "./money.js";
import { LANGUAGES } from "./i18n.js";
import { chosenLanguage, keepLanguage } from "./language.js";

const CLOCK = { hour: "numeric", minute: "2-digit", timeZoneName: "short" };
const MOMENT = { month: "long", day: "numeric", ...CLOCK };

/* The switch; `changed()` is called when another language was chosen. */
export function languageSwitch(changed) {
  let language;
  const button = ([code, words]) =>
    h(
      "button",
      { type: "button", lang: code, "data-language": code, onclick: () => choose(code) },
      words.name,
    );
  const node = h(
    "div",
    { class: "languages", role: "group" },
    Object.entries(LANGUAGES).map(button),
  );

  function speak(code) {
    language = code;
    document.documentElement.lang = code;
    mark(node, "aria-label", LANGUAGES[code].language);
    for (const each of node.children) {
      mark(each, "aria-pressed", String(each.dataset.language === code));
    }
  }
  function choose(code) {
    keepLanguage(code);
    speak(code);
    changed();
  }
  speak(chosenLanguage());

  const on = (iso, options) => new Intl.DateTimeFormat(language, options).format(new Date(iso));
  return {
    node,
    get words() {
      return LANGUAGES[language];
    },
    number: (n) => n.toLocaleString(language),
    tenths: (n) =>
      n.toLocaleString(language, { minimumFractionDigits: 1, maximumFractionDigits: 1 }),
    /* With the zone: people are elsewhere, and so are shops. */
    date: (iso) => on(iso, { ...MOMENT, year: "numeric" }),
    day: (iso) => on(iso, { ...MOMENT, weekday: "short" }),
    clock: (iso) => on(iso, { ...CLOCK, second: "2-digit", fractionalSecondDigits: 2 }),
    money: (amount, currency) => money(amount, currency, language),
  };
}
