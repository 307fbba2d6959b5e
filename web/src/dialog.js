// dialog.js: asks before something is done, and stays open when it could not be done.
import { h, put } from "./dom.js";
import { told } from "./told.js";
import { t } from "./words.js";

let count = 0;

/* Opens a dialog with `words` and, perhaps, `fields`; `act()` runs on the button called `verb`, and
   what it throws is shown in place. Resolves to whether it was done. */
export function ask({ title, words, verb, isDanger = false, fields = [], act }) {
  const id = `dialog-${++count}`;
  const error = h("p", { class: "field-error", role: "alert" });
  const go = h("button", { type: "submit", class: isDanger ? "danger" : "primary" }, verb);
  const cancel = h("button", { type: "button", onclick: () => dialog.close() }, t("Cancel"));
  let isDone = false;

  async function submit(event) {
    event.preventDefault();
    go.disabled = true;
    put(error, "");
    try {
      await act();
      isDone = true;
      dialog.close();
    } catch (problem) {
      put(error, told(problem.message));
    } finally {
      go.disabled = false;
    }
  }

  const dialog = h(
    "dialog",
    { "aria-labelledby": id },
    h(
      "form",
      { onsubmit: submit, novalidate: true },
      h("h2", { id }, title),
      [words].flat().map((text) => h("p", {}, text)),
      fields,
      error,
      h("div", { class: "dialog-actions" }, cancel, go),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  // What cannot be taken back is not what Enter does first.
  if (!fields.length) (isDanger ? cancel : go).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(isDone);
    });
  });
}
