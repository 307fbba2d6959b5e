// api.js: one call to the server, and what it refused as an error that says so.

const TIMEOUT_MS = 15000;

/* A refusal (RFC 9457), or with status 0 an answer that never came. */
export class Problem extends Error {
  constructor(status, body, retry_after_ms) {
    super(body.detail ?? body.title ?? "The server did not answer.");
    Object.assign(this, {
      status,
      code: body.code ?? "NO_ANSWER",
      field: body.field,
      body,
      retry_after_ms,
    });
  }

  /* Nobody knows what came of it: the same call, with the same key, finds out. */
  get isOpen() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/* What the server answers, or throws a Problem. */
export async function call(method, path, { body, headers, timeout_ms = TIMEOUT_MS } = {}) {
  const request = {
    method,
    headers: { Accept: "application/json", ...headers },
    signal: AbortSignal.timeout(timeout_ms),
    credentials: "same-origin",
    cache: "no-store",
  };
  if (body !== undefined) {
    request.headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  let answer, text;
  try {
    answer = await fetch(path, request);
    text = await answer.text();
  } catch {
    throw new Problem(0, {});
  }
  const value = parsed(text);
  if (answer.ok) return value;
  const seconds = Number(answer.headers.get("Retry-After"));
  throw new Problem(answer.status, value ?? {}, seconds > 0 ? seconds * 1000 : undefined);
}

function parsed(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

export const get = (path, options) => call("GET", path, options);
export const post = (path, body, options) => call("POST", path, { ...options, body });
export const patch = (path, body) => call("PATCH", path, { body });
export const remove = (path) => call("DELETE", path);
