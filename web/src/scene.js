// scene.js: the storefront's parts, which stay where they are while their words change.
import { h, mark, put } from "./dom.js";
import { languageSwitch } from "./languages.js";
import { offer } from "./offer.js";
import { calendarLink, shopFront } from "./shop.js";
import { stage } from "./stage.js";

/* Everything on the page; `press()` is called for the button, `spoken()` for another language. */
export function scene(root, { press, spoken }) {
  const speech = languageSwitch(() => spoken());
  const goods = offer(speech);
  const play = stage(speech, press);
  const card = h("section", { class: "drop-card" }, goods.top, play.node, goods.bottom);
  const you = h("span", {}, "\u00a0");
  const shop = shopFront(speech);
  const calendar = calendarLink();
  const trouble = h("p", { class: "trouble", role: "status" });
  const live = h("p", { class: "sr", "aria-live": "assertive" });
  let said = "";

  root.replaceChildren(
    h("header", { class: "drop-top" }, shop.brand, speech.node),
    card,
    h("footer", { class: "drop-foot" }, you, calendar.node, shop.links, trouble),
    live,
  );
  return {
    speech,
    stage: play,
    offer(policy, front) {
      goods.show(policy);
      shop.show(front);
      calendar.show(policy, speech.words);
      play.limit(policy.per_user_limit);
      mark(card, "data-known", "");
    },
    nothing() {
      goods.nothing();
      mark(card, "data-nothing", "");
      mark(card, "data-known", "");
    },
    who: (user) => put(you, user ? speech.words.you(user) : "\u00a0"),
    trouble: (words) => put(trouble, words),
    /* Said once to whoever listens instead of survey. */
    announce(words) {
      if (words !== said) put(live, words);
      said = words;
    },
  };
}
