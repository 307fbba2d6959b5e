// scene.js: the storefront's parts, which stay where they are while their words change.
import { h, mark, put, vary } from "./dom.js";
import { parts } from "./format.js";
import { chosenLanguage, keepLanguage, LANGUAGES } from "./i18n.js";
import { ticket } from "./ticket.js";

const two = (n) => String(n).padStart(2, "0");

/* Everything on the page; `press()` is called for the button, `spoken()` when the language changed.
   */
export function scene(root, { press, spoken }) {
  let language = chosenLanguage(),
    said = "";
  const pill = h("span", { class: "pill" }, h("i", { class: "dot" }), h("span", {}, "\u00a0"));
  const title = h("h1", {}, "\u00a0");
  const off = h("b"),
    offWord = h("span");
  const facts = h("p", { class: "facts" }, "\u00a0");
  const digits = [0, 1, 2, 3].map(() => ({ number: h("b", {}, "00"), unit: h("span") }));
  const countdown = h(
    "div",
    { class: "countdown", role: "timer", "aria-live": "off" },
    digits.map(({ number, unit }) => h("div", {}, number, unit)),
  );
  const head = h("p", { class: "press-title" }),
    note = h("p", { class: "press-note" });
  const button = h(
    "button",
    {
      type: "button",
      class: "press",
      "aria-disabled": "true",
      onclick: () => button.getAttribute("aria-disabled") !== "true" && press(),
    },
    "\u00a0",
  );
  const coupon = ticket();
  const another = h("button", { type: "button", class: "another", onclick: () => press() });
  const messageTitle = h("h2"),
    messageWords = h("p");
  const views = {
    press: h(
      "div",
      { class: "view view-press" },
      h("div", { class: "press-figure" }, countdown, head),
      button,
      note,
    ),
    won: h("div", { class: "view view-won" }, coupon.node, another),
    message: h("div", { class: "view view-message" }, messageTitle, messageWords),
  };
  const bar = h("div", { class: "stock", "aria-hidden": "true" }, h("i", { class: "stock-left" }));
  const stockWords = h("p", { class: "stock-words" }, "\u00a0");
  const live = h("p", { class: "sr", "aria-live": "assertive" });
  const trouble = h("p", { class: "trouble", role: "status" });
  const you = h("span", {}, "\u00a0");
  const languages = h(
    "div",
    { class: "languages", role: "group" },
    Object.entries(LANGUAGES).map(([code, words]) =>
      h(
        "button",
        {
          type: "button",
          lang: code,
          "data-language": code,
          onclick: () => {
            keepLanguage(code);
            speak(code);
            spoken();
          },
        },
        words.name,
      ),
    ),
  );

  function speak(code) {
    language = code;
    document.documentElement.lang = code;
    mark(languages, "aria-label", LANGUAGES[code].language);
    for (const each of languages.children) {
      mark(each, "aria-pressed", String(each.dataset.language === code));
    }
    LANGUAGES[code].units.forEach((unit, i) => put(digits[i].unit, unit));
  }
  speak(language);
  const card = h(
    "section",
    { class: "drop-card" },
    h("div", { class: "offer" }, pill, title, h("p", { class: "off" }, off, offWord), facts),
    h("div", { class: "stage" }, Object.values(views)),
    h("div", { class: "stock-box" }, bar, stockWords),
  );
  root.append(
    h("header", { class: "drop-top" }, h("span", { class: "brand" }, "dibs"), languages),
    card,
    h("footer", { class: "drop-foot" }, you, trouble),
    live,
  );

  return {
    get words() {
      return LANGUAGES[language];
    },
    get language() {
      return language;
    },
    number: (n) => n.toLocaleString(language),
    tenths: (n) =>
      n.toLocaleString(language, { minimumFractionDigits: 1, maximumFractionDigits: 1 }),
    day: (iso) =>
      new Intl.DateTimeFormat(language, {
        month: "long",
        day: "numeric",
        weekday: "short",
        hour: "numeric",
        minute: "2-digit",
      }).format(new Date(iso)),
    date: (iso) =>
      new Intl.DateTimeFormat(language, {
        year: "numeric",
        month: "long",
        day: "numeric",
      }).format(new Date(iso)),

    offer(policy) {
      const words = LANGUAGES[language],
        { type, value } = policy.discount;
      document.title = policy.name;
      put(title, policy.name);
      put(off, type === "percent" ? `${value}%` : value.toLocaleString(language));
      put(offWord, words.off);
      put(facts, words.facts(policy.total.toLocaleString(language), policy.per_user_limit));
      // Room for a second coupon's button is there from the start, or never.
      mark(another, "hidden", policy.per_user_limit === 1);
      mark(card, "data-known", "");
    },
    /* There is no offer to show. */
    nothing() {
      put(title, "dibs");
      mark(card, "data-known", "");
    },
    stock(policy) {
      const words = LANGUAGES[language];
      mark(pill, "data-state", policy.state);
      put(pill.lastChild, words.states[policy.state] ?? policy.state);
      vary(bar, "--left", policy.total ? policy.remaining / policy.total : 0);
      put(
        stockWords,
        words.stock(
          policy.remaining.toLocaleString(language),
          policy.total.toLocaleString(language),
        ),
      );
    },
    countdown(left_ms) {
      const { days, hours, minutes, seconds } = parts(left_ms);
      [days, hours, minutes, seconds].forEach((n, i) => put(digits[i].number, two(n)));
      mark(digits[0].number.parentNode, "hidden", days === 0);
    },
    view(name) {
      for (const [key, node] of Object.entries(views))
        mark(node, "data-shown", key === name ? "" : null);
    },
    /* The button's view: a countdown or words above, the button, a line below. */
    press({ isCounting, words, label, line, isReady, isBusy }) {
      this.view("press");
      mark(countdown, "hidden", !isCounting);
      mark(head, "hidden", isCounting);
      put(head, words ?? "");
      put(button, label);
      put(note, line);
      mark(button, "aria-disabled", isReady ? null : "true");
      mark(button, "data-busy", isBusy ? "" : null);
    },
    won(claim, more) {
      const hadFocus = document.activeElement === button;
      this.view("won");
      coupon.show(claim, LANGUAGES[language], this.date);
      put(another, LANGUAGES[language].buttonMore);
      mark(another, "data-shown", more ? "" : null);
      if (hadFocus) coupon.node.querySelector("button:not([hidden])")?.focus();
    },
    message(heading, words) {
      this.view("message");
      put(messageTitle, heading);
      put(messageWords, words);
    },
    who: (user) => put(you, user ? LANGUAGES[language].you(user) : "\u00a0"),
    trouble: (words) => put(trouble, words),
    /* Said once to whoever listens instead of looking. */
    announce(words) {
      if (words !== said) put(live, words);
      said = words;
    },
  };
}
