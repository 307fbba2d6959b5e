// form.js: makes a policy without JSON, and says in a sentence what it will be.
import { get, post } from "./api.js";
import { serverNow, ticking } from "./clock.js";
import { h, put } from "./dom.js";
import { policyFields } from "./policy_fields.js";
import { previewCard } from "./preview_card.js";
import { mistakesIn, policyOf } from "./rules.js";

const CHECK_MS = 5000;

export function formPage(root, { query }) {
  const touched = new Set();
  const fields = policyFields(() => check());
  const preview = previewCard();
  const refusal = h("p", { class: "field-error", role: "alert" });
  const submit = h("button", { class: "primary", type: "submit" }, "Make the policy");
  const title = h("h1", {}, "New policy");

  /* Says what is wrong with the fields that were left; returns what is wrong with all of them. */
  function check() {
    const typed = fields.typed();
    const mistakes = mistakesIn(typed, serverNow());
    for (const { name, say } of fields.all) say(touched.has(name) ? mistakes[name] : null);
    preview.show(typed, mistakes);
    return mistakes;
  }

  async function make(event) {
    event.preventDefault();
    put(refusal, "");
    for (const { name } of fields.all) touched.add(name);
    const mistakes = check();
    const wrong = fields.all.find(({ name }) => mistakes[name]);
    if (wrong) return reveal(wrong);
    submit.disabled = true;
    try {
      const { id } = await post("/v1/policies", policyOf(fields.typed()));
      location.hash = `#/policies/${id}`;
    } catch (problem) {
      refuse(problem);
    } finally {
      submit.disabled = false;
    }
  }

  /* What the server found, at the field it is about. */
  function refuse(problem) {
    const where =
      fields.all.find(({ name }) => name === problem.field) ??
      fields.all.find(({ name }) => problem.field && name.startsWith(`${problem.field}.`));
    if (!where) return put(refusal, problem.message);
    where.say(problem.message.replace(`${problem.field}: `, ""));
    reveal(where);
  }

  function left({ target }) {
    if (target.name && target.value !== "") touched.add(target.name);
    check();
  }

  const cancel = h("a", { class: "button", href: "#/" }, "Cancel");
  const form = h(
    "form",
    {
      class: "card policy-form",
      novalidate: true,
      onsubmit: make,
      oninput: () => check(),
      onfocusout: left,
    },
    fields.rows,
    refusal,
    h("div", { class: "form-actions" }, submit, cancel),
  );
  root.append(title, h("div", { class: "form-columns" }, form, preview.node));
  reveal(fields.all[0]);

  const from = query.get("from") ?? "";
  if (/^\d+$/.test(from)) {
    get(`/v1/policies/${from}`).then(
      (policy) => {
        put(title, `New policy, like “${policy.name}”`);
        fields.fill(policy);
        check();
      },
      (problem) => put(refusal, `The policy to clone could not be read: ${problem.message}`),
    );
  }
  return ticking(CHECK_MS, check);
}

function reveal({ input }) {
  input.closest("details")?.setAttribute("open", "");
  input.focus();
}
