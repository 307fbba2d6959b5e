// login.js: trades the admin token for a session, which the browser keeps and no script can read.
import { post } from "./api.js";
import { h, mark, put } from "./dom.js";
import { told } from "./told.js";
import { t } from "./words.js";

export function loginPage(root, { query }) {
  const token = h("input", {
    id: "token",
    type: "password",
    name: "token",
    required: true,
    autocomplete: "current-password",
    autofocus: true,
    "aria-describedby": "token-error token-hint",
  });
  const error = h("p", { class: "field-error", id: "token-error", role: "alert" });
  const submit = h("button", { class: "primary", type: "submit" }, t("Sign in"));

  async function signIn(event) {
    event.preventDefault();
    submit.disabled = true;
    put(error, "");
    mark(token, "aria-invalid", null);
    try {
      await post("/v1/session", { token: token.value });
      const next = query.get("next");
      location.hash = next?.startsWith("/") && !next.startsWith("/login") ? `#${next}` : "#/";
    } catch (problem) {
      put(
        error,
        problem.status === 401
          ? t("That is not the admin token.")
          : problem.status === 400
            ? t("A token is needed.")
            : problem.status === 429
              ? t("Too many tries. Wait a moment.")
              : told(problem.message),
      );
      mark(token, "aria-invalid", "true");
      token.select();
    } finally {
      submit.disabled = false;
    }
  }

  root.append(
    h(
      "form",
      { class: "login card", onsubmit: signIn, novalidate: true },
      h("h1", {}, t("Sign in")),
      h("p", { class: "soft" }, t("For whoever runs the drops.")),
      h(
        "div",
        { class: "field" },
        h("label", { for: "token" }, t("Admin token")),
        token,
        h(
          "p",
          { class: "hint", id: "token-hint" },
          t("It is in this file of the server:") + " ",
          h("code", {}, "admin_token_file"),
        ),
        error,
      ),
      submit,
    ),
  );
  token.focus();
}
