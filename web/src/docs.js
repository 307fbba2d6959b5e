// docs.js: the API as /openapi.json describes it: every call, what it takes and what it answers.
import { get } from "./api.js";
import { h, mark, put } from "./dom.js";

const METHODS = ["get", "post", "put", "patch", "delete"];
const DEPTH = 6;
const main = document.getElementById("docs");
let root;

/* What a reference leads to, with what stands beside it. */
function resolve(node) {
  if (!node?.$ref) return node ?? {};
  const { $ref, ...beside } = node;
  const target = $ref
    .slice(2)
    .split("/")
    .reduce((at, name) => at[name.replaceAll("~1", "/").replaceAll("~0", "~")], root);
  return { ...resolve(target), ...beside };
}

const nameOf = (node) => node?.$ref?.split("/").pop();

/* "integer from 1 to 100", "one of ISSUED, VOID" */
function typeOf(node) {
  const schema = resolve(node);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return `one of ${schema.enum.map((value) => value ?? "null").join(", ")}`;
  if (schema.oneOf ?? schema.anyOf) return (schema.oneOf ?? schema.anyOf).map(typeOf).join(" or ");
  if (schema.type === "array") return `list of ${nameOf(schema.items) ?? typeOf(schema.items)}`;
  const type = [schema.type ?? "object"].flat().join(" or ");
  const from = schema.minimum === undefined ? "" : ` from ${schema.minimum}`;
  const to = schema.maximum === undefined ? "" : ` to ${schema.maximum}`;
  return `${type}${schema.format ? ` (${schema.format})` : ""}${from}${to}`;
}

/* A row for each field of a schema, those within it indented behind it. */
function fieldRows(node, prefix = "", depth = 0) {
  const schema = resolve(node);
  const inner = schema.type === "array" ? resolve(schema.items) : schema;
  const parts = (inner.oneOf ?? inner.anyOf ?? inner.allOf ?? []).flatMap((part) =>
    depth < DEPTH ? fieldRows(part, prefix, depth + 1) : [],
  );
  const own = Object.entries(inner.properties ?? {}).flatMap(([name, value]) => [
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("code", {}, `${prefix}${name}`)),
      h("td", {}, typeOf(value), inner.required?.includes(name) ? h("b", {}, " required") : null),
      h("td", {}, resolve(value).description ?? ""),
    ),
    ...(depth < DEPTH ? fieldRows(value, `${prefix}${name}.`, depth + 1) : []),
  ]);
  return [...parts, ...own];
}

function table(title, heads, rows) {
  return h(
    "div",
    { class: "docs-table", tabindex: "0", role: "region", "aria-label": title },
    h(
      "table",
      {},
      h("caption", {}, title),
      h("thead", {}, h("tr", {}, heads.map((words) => h("th", { scope: "col" }, words)))),
      h("tbody", {}, rows),
    ),
  );
}

function code(title, text) {
  return h("pre", { tabindex: "0", role: "region", "aria-label": title }, h("code", {}, text));
}

function exampleOf(media) {
  const schema = resolve(media.schema);
  const named = Object.values(media.examples ?? {})[0];
  return media.example ?? named?.value ?? schema.example ?? schema.examples?.[0];
}

/* What a body is made of, and one as it may be. */
function bodyParts(title, content) {
  return Object.entries(content ?? {}).flatMap(([type, media]) => {
    const rows = fieldRows(media.schema);
    const example = exampleOf(media);
    return [
      rows.length ? table(`${title} (${type})`, ["Field", "Is", "Means"], rows) : null,
      example === undefined ? null : code(`${title}: example`, JSON.stringify(example, null, 2)),
    ];
  });
}

function curlOf(method, path, body) {
  const data = body === undefined ? "" : ` \\\n  -H 'Content-Type: application/json' -d '${JSON.stringify(body)}'`;
  const verb = method === "get" ? "" : `-X ${method.toUpperCase()} `;
  return `curl -s ${verb}'${location.origin}${path}'${data}`;
}

function whoMay(security) {
  if (!security || security.some((one) => !Object.keys(one).length)) return "anybody";
  return security.flatMap((one) => Object.keys(one)).join(", ").replaceAll("_", " ");
}

function callOf(method, path, item) {
  const operation = item[method];
  const parameters = [...(item.parameters ?? []), ...(operation.parameters ?? [])].map(resolve);
  const request = resolve(operation.requestBody);
  const body = exampleOf(Object.values(request.content ?? {})[0] ?? {});
  const answers = Object.entries(operation.responses).map(([status, node]) => {
    const answer = resolve(node);
    const isGood = status.startsWith("2");
    return h(
      "li",
      {},
      h("code", { class: isGood ? "status-good" : "status-other" }, status),
      ` ${answer.description}`,
      isGood ? bodyParts(`Answer ${status} of ${operation.operationId}`, answer.content) : null,
    );
  });
  return h(
    "details",
    { id: operation.operationId, class: "card docs-call" },
    h(
      "summary",
      {},
      h("span", { class: "method", "data-method": method }, method.toUpperCase()),
      h("code", {}, path),
      h("span", { class: "soft" }, operation.summary),
    ),
    operation.description ? h("p", {}, operation.description) : null,
    h("p", { class: "soft" }, `Who may: ${whoMay(operation.security ?? root.security)}`),
    code(`curl of ${operation.operationId}`, curlOf(method, path, body)),
    parameters.length
      ? table(
          `Parameters of ${operation.operationId}`,
          ["Parameter", "Is", "Means"],
          parameters.map((one) =>
            h(
              "tr",
              {},
              h("th", { scope: "row" }, h("code", {}, one.name)),
              h("td", {}, `${typeOf(one.schema)}, in the ${one.in}`, one.required ? h("b", {}, " required") : null),
              h("td", {}, one.description ?? ""),
            ),
          ),
        )
      : null,
    bodyParts(`Body of ${operation.operationId}`, request.content),
    h("h3", {}, "Answers"),
    h("ul", {}, answers),
  );
}

function callsByTag() {
  const tags = new Map((root.tags ?? []).map(({ name }) => [name, []]));
  for (const [path, item] of Object.entries(root.paths)) {
    for (const method of METHODS.filter((one) => item[one])) {
      const tag = item[method].tags?.[0] ?? "other";
      if (!tags.has(tag)) tags.set(tag, []);
      tags.get(tag).push(callOf(method, path, item));
    }
  }
  return [...tags].filter(([, calls]) => calls.length);
}

function show() {
  const groups = callsByTag();
  const search = h("input", { type: "search", id: "search", autocomplete: "off" });
  const nothing = h("p", { class: "soft", role: "status" });
  const sections = groups.map(([tag, calls]) =>
    h("section", { id: `tag-${tag}` }, h("h2", {}, tag), calls),
  );
  const find = () => {
    const wanted = search.value.trim().toLowerCase();
    const isFound = (call) => call.textContent.toLowerCase().includes(wanted);
    let count = 0;
    groups.forEach(([, calls], i) => {
      const found = calls.filter(isFound);
      calls.forEach((call) => mark(call, "hidden", !found.includes(call)));
      mark(sections[i], "hidden", !found.length);
      count += found.length;
    });
    put(nothing, count ? "" : "No call has these words.");
  };
  search.addEventListener("input", find);
  main.append(
    h("h1", {}, `The API of ${root.info.title}`),
    h("p", {}, root.info.summary),
    h("p", { class: "soft" }, root.info.description),
    h(
      "p",
      {},
      h("a", { href: "/openapi.json" }, "openapi.json"),
      " has all of this for programs. ",
      h("a", { href: "/" }, "To the board"),
    ),
    h("p", { class: "docs-search" }, h("label", { for: "search" }, "Find a call"), search),
    nothing,
    h(
      "nav",
      { "aria-label": "Calls" },
      groups.map(([tag]) => h("a", { href: `#tag-${tag}` }, tag)),
    ),
    ...sections,
  );
  open();
}

/* The call that the address names is open. */
function open() {
  const call = document.getElementById(location.hash.slice(1));
  if (!call) return;
  if (call.tagName === "DETAILS") call.open = true;
  call.scrollIntoView();
}

addEventListener("hashchange", open);
get("/openapi.json").then(
  (document_) => {
    root = document_;
    show();
  },
  (problem) => main.append(h("p", { role: "alert" }, `The API could not be read: ${problem.message}`)),
);
