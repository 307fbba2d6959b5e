// api.js: calls to the server that served the page.
export async function getJson(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  return answer.json();
}
