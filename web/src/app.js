// app.js: the board for operators.
import { getJson } from "./api.js";

const session = await getJson("/v1/policies");
document.querySelector("#app").textContent = `${session.items.length} policies`;
