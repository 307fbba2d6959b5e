// dead.js: claims that were accepted and came to nothing, and what to do with them.
import { get, post, remove } from "./api.js";
import { h, mark, put } from "./dom.js";
import { moment } from "./format.js";
import { serverNow } from "./clock.js";
import { told } from "./told.js";
import { t } from "./words.js";

const SHOWN = 20;

/* The list; `show(count)` takes the stream's count, and reads the letters when it changed. */
export function deadLetters() {
  const count = h("span", { class: "count" }, "0");
  const list = h("ul", { class: "letters", hidden: true });
  const note = h("p", { class: "empty" }, t("None. Every accepted claim became a coupon."));
  const node = h(
    "section",
    { class: "card", "aria-labelledby": "letters-title" },
    h("h2", { id: "letters-title" }, t("Dead letters") + " ", count),
    note,
    list,
  );
  let known = 0;

  async function read() {
    const { items } = await get(`/v1/dead?limit=${SHOWN}`);
    list.replaceChildren(...items.map(letter));
    mark(list, "hidden", items.length === 0);
    mark(note, "hidden", items.length > 0);
    put(count, known);
  }

  function letter(item) {
    const answer = h("p", { class: "field-error", role: "alert" });
    const does = (act) => async () => {
      try {
        await act();
        await read();
      } catch (problem) {
        put(answer, told(problem.message));
      }
    };
    return h(
      "li",
      {},
      h(
        "div",
        {},
        h("b", {}, item.id),
        h("span", { class: "soft" }, ` ${moment(item.died_at, serverNow())}`),
        h("p", {}, item.reason),
        answer,
      ),
      h(
        "div",
        { class: "row-actions" },
        h(
          "button",
          {
            type: "button",
            class: "quiet",
            onclick: does(() => post(`/v1/dead/${encodeURIComponent(item.id)}/retry`)),
          },
          t("Retry"),
        ),
        h(
          "button",
          {
            type: "button",
            class: "quiet",
            onclick: does(() => remove(`/v1/dead/${encodeURIComponent(item.id)}`)),
          },
          t("Put away"),
        ),
      ),
    );
  }

  return {
    node,
    show(now) {
      if (now === known) return;
      known = now;
      mark(count, "data-state", now > 0 ? "some" : null);
      read().catch(() => put(count, now));
    },
  };
}
