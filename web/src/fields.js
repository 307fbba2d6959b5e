// fields.js: the form's fields: each with its label, its hint and, where it is wrong, why.
import { h, mark, put } from "./dom.js";
import { language, t } from "./words.js";

/* A labelled input called `name`; `say(words)` shows a mistake in place, null takes it away. */
export function field(name, label, input, hint) {
  const id = `field-${name.replace(".", "-")}`;
  const error = h("p", { class: "field-error", id: `${id}-error` });
  const hinted = h("p", { class: "hint", id: `${id}-hint` }, hint ?? "");
  input.id = id;
  input.name = name;
  input.setAttribute("aria-describedby", `${id}-error ${id}-hint`);
  return {
    name,
    input,
    node: h(
      "div",
      { class: "field" },
      h("label", { for: id }, label),
      input,
      hinted,
      error,
    ),
    hint: (words) => put(hinted, words),
    say(words) {
      put(error, words ?? "");
      mark(input, "aria-invalid", words ? "true" : null);
    },
  };
}

export const textInput = (props) => h("input", { type: "text", autocomplete: "off", ...props });
export const numberInput = (props) =>
  textInput({ inputmode: "numeric", class: "number", ...props });
export const timeInput = (props) => h("input", { type: "datetime-local", step: "60", ...props });

/* A choice of a few, as buttons in a row; `value` is the one chosen. */
export function choice(name, title, options, changed) {
  const radios = options.map(([value, words], i) =>
    h(
      "label",
      {},
      h("input", { type: "radio", name, value, checked: i === 0, onchange: changed }),
      h("span", {}, words),
    ),
  );
  const node = h(
    "fieldset",
    { class: "field" },
    h("legend", {}, title),
    h("div", { class: "segments" }, radios),
  );
  return {
    node,
    get value() {
      return node.querySelector("input:checked").value;
    },
    set value(wanted) {
      node.querySelector(`input[value="${wanted}"]`).checked = true;
    },
  };
}

/* Currencies: those a shop most likely means, then all that the browser knows. */
export function currencyInput() {
  const names = new Intl.DisplayNames([language], { type: "currency" });
  const option = (code) => h("option", { value: code }, `${code} – ${names.of(code)}`);
  const near = ["KRW", "USD", "EUR", "JPY"];
  return h(
    "select",
    {},
    h("option", { value: "" }, "–"),
    h("optgroup", { label: t("Near") }, near.map(option)),
    h(
      "optgroup",
      { label: t("All") },
      Intl.supportedValuesOf("currency").filter((code) => !near.includes(code)).map(option),
    ),
  );
}

/* Time zones: those a shop most likely means, then all. */
export function zoneInput(own) {
  const option = (zone) =>
    h("option", { value: zone, selected: zone === own }, zone.replaceAll("_", " "));
  const near = [...new Set([own, "Asia/Seoul", "UTC"])];
  const rest = Intl.supportedValuesOf("timeZone").filter((zone) => !near.includes(zone));
  return h(
    "select",
    {},
    h("optgroup", { label: t("Near") }, near.map(option)),
    h("optgroup", { label: t("All") }, rest.map(option)),
  );
}
