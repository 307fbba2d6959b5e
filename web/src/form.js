// form.js: makes a drop without JSON, or changes one, and says in a sentence what it will be.
import { get, patch, post } from "./api.js";
import { serverNow, ticking } from "./clock.js";
import { ask } from "./dialog.js";
import { h, mark, put } from "./dom.js";
import { policyFields } from "./policy_fields.js";
import { previewCard } from "./preview_card.js";
import { changesOf, mistakesIn, policyOf } from "./rules.js";
import { keep, recall } from "./storage.js";
import { told } from "./told.js";
import { t } from "./words.js";

const CHECK_MS = 5000;
const DRAFT = "dibs.draft";

export function formPage(root, { id, query }) {
  const touched = new Set();
  const fields = policyFields(() => check());
  const preview = previewCard();
  const refusal = h("p", { class: "field-error", role: "alert" });
  const submit = h("button", { class: "primary", type: "submit" }, id ? t("Save") : t("Make the drop"));
  const title = h("h1", {}, id ? t("Edit drop {id}", { id }) : t("New drop"));
  const note = h("p", { class: "draft soft", hidden: true });
  let edited = null;

  /* Says what is wrong with the fields that were left; returns what is wrong with all of them. */
  function check() {
    const typed = fields.typed();
    const mistakes = mistakesIn(typed, serverNow(), edited);
    for (const { name, say, input } of fields.all)
      say(touched.has(name) && !input.disabled ? mistakes[name] : null);
    preview.show(typed, mistakes);
    return mistakes;
  }
  const makesDrafts = !id && !query.get("from");
  function typedOn() {
    check();
    if (makesDrafts) keep(localStorage, DRAFT, fields.typed());
  }

  async function save(event) {
    event.preventDefault();
    put(refusal, "");
    for (const { name } of fields.all) touched.add(name);
    const mistakes = check();
    const wrong = fields.all.find(({ name, input }) => mistakes[name] && !input.disabled);
    if (wrong) return reveal(wrong);
    const typed = fields.typed();
    submit.disabled = true;
    try {
      if (id) await change(typed);
      else await make(typed);
    } catch (problem) {
      refuse(problem);
    } finally {
      submit.disabled = false;
    }
  }

  async function make(typed) {
    let made = null;
    const create = async () => {
      made = await post("/v1/policies", policyOf(typed));
    };
    // Nothing is opened by a slip of the hand.
    if (typed.timing === "at") await create();
    else
      await ask({
        title: t("Open “{name}” now?", { name: typed.name.trim() }),
        verb: t("Open it now"),
        words: t("It can be claimed the moment you press, by everybody who has its address."),
        act: create,
      });
    if (!made) return;
    if (makesDrafts) keep(localStorage, DRAFT, null);
    location.hash = `#/policies/${made.id}`;
  }

  async function change(typed) {
    const body = changesOf(typed, edited);
    if (Object.keys(body).length) await patch(`/v1/policies/${id}`, body);
    location.hash = `#/policies/${id}`;
  }

  /* All that the server found, each at the field it is about. */
  function refuse(problem) {
    const errors = problem.body.errors ?? [{ field: problem.field, message: problem.message }];
    const places = errors.map(({ field }) => placeOf(field));
    places.forEach((place, i) => place?.say(told(errors[i].message).replace(`${problem.field}: `, "")));
    const first = places.find(Boolean);
    if (first) reveal(first);
    if (places.includes(undefined)) put(refusal, told(problem.message));
  }

  const placeOf = (field) =>
    fields.all.find(({ name }) => name === field) ??
    fields.all.find(({ name }) => field && name.startsWith(`${field}.`));

  function left({ target }) {
    if (target.name && target.value !== "") touched.add(target.name);
    check();
  }

  const back = id ? `#/policies/${id}` : "#/";
  const cancel = h("a", { class: "button", href: back }, t("Cancel"));
  const form = h(
    "form",
    {
      class: "card policy-form",
      novalidate: true,
      onsubmit: save,
      oninput: typedOn,
      onfocusout: left,
    },
    note,
    fields.rows,
    refusal,
    h("div", { class: "form-actions" }, submit, cancel),
  );
  function open() {
    root.append(h("div", { class: "form-columns" }, form, preview.node));
    check();
    reveal(fields.all.find(({ input }) => !input.disabled) ?? fields.all[0]);
  }

  function offerDraft() {
    const draft = makesDrafts ? recall(localStorage, DRAFT) : null;
    if (!draft) return;
    fields.restore(draft);
    mark(note, "hidden", null);
    const restart = () => {
      keep(localStorage, DRAFT, null);
      location.reload();
    };
    note.replaceChildren(
      t("Your draft is kept in this browser."),
      " ",
      h("button", { type: "button", class: "quiet", onclick: restart }, t("Start over")),
    );
  }

  function take(policy) {
    if (id) {
      edited = policy;
      put(title, t("Edit “{name}”", policy));
      if (fields.edit(policy, serverNow())) {
        mark(note, "hidden", null);
        put(note, t("What people were promised stays as it is."));
      }
    } else {
      put(title, t("New drop, like “{name}”", policy));
      fields.clone(policy, serverNow());
    }
    open();
  }

  root.append(title);
  const from = id ?? query.get("from") ?? "";
  if (/^\d+$/.test(from)) {
    get(`/v1/policies/${from}`).then(take, (problem) => {
      put(refusal, t("The drop could not be read: {why}", { why: told(problem.message) }));
      root.append(refusal);
    });
  } else {
    offerDraft();
    open();
  }
  return ticking(CHECK_MS, check);
}

function reveal({ input }) {
  input.closest("details")?.setAttribute("open", "");
  input.focus();
}
