// storage.js: what a page keeps in the browser. One that may keep nothing works until it is
// reloaded.

/* What was kept under `key`, or null. `storage` is localStorage or sessionStorage. */
export function recall(storage, key) {
  try {
    return JSON.parse(storage.getItem(key));
  } catch {
    return null;
  }
}

/* Keeps a value; null forgets it. */
export function keep(storage, key, value) {
  try {
    if (value === null) storage.removeItem(key);
    else storage.setItem(key, JSON.stringify(value));
  } catch {
    // A browser that forbids it, or is full: the page goes on without.
  }
}

/* Unguessable, also where crypto.randomUUID is not to be had: pages over plain HTTP. */
export function randomName(bytes = 16) {
  const numbers = crypto.getRandomValues(new Uint8Array(bytes));
  return Array.from(numbers, (n) => n.toString(16).padStart(2, "0")).join("");
}
