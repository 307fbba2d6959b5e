// drop.js: the storefront, one policy and one person.
import { getJson } from "./api.js";

const policyId = location.pathname.split("/").pop();
const policy = await getJson(`/v1/policies/${policyId}`);
document.querySelector("#drop").textContent = policy.name;
