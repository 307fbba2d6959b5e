// missing.js: what stands where a page is not.
import { h } from "./dom.js";
import { t } from "./words.js";

export const missingPage = (title, words) =>
  h(
    "section",
    { class: "card missing" },
    h("p", { class: "missing-code", "aria-hidden": "true" }, "404"),
    h("h1", {}, title),
    h("p", { class: "soft" }, words),
    h("a", { class: "button", href: "#/" }, t("To the board")),
  );
