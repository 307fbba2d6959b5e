// What a shop does with the client that openapi-generator makes for TypeScript.
import { ClaimsApi, Configuration, CouponsApi, PoliciesApi, ProblemFromJSON, ResponseError } from "./index";

declare const process: { argv: string[] };

async function main() {
  const settings = new Configuration({ basePath: process.argv[2] });
  const [policies, claims, coupons] = [new PoliciesApi(settings), new ClaimsApi(settings), new CouponsApi(settings)];
  const policy = await policies.createPolicy({
    policyInput: { name: "x", discount: { type: "percent", value: 20 }, total: 2 },
  });
  console.log(policy.state, (await policies.listPolicies()).items.length);
  let won = await claims.claim({ policyId: policy.id, claimInput: { user: "u1" } });
  console.log(won.result, (await claims.getClaim({ policyId: policy.id, user: "u1" })).state);
  console.log((await coupons.redeemCoupon({ coupon: won.code!, redemption: { orderId: "o1" } })).state);
  won = await claims.claim({ policyId: policy.id, claimInput: { user: "u2" } });
  console.log((await coupons.cancelCoupon({ coupon: won.code! })).state);
  try {
    await claims.getClaim({ policyId: policy.id, user: "nobody" });
  } catch (refused) {
    if (refused instanceof ResponseError) console.log(ProblemFromJSON(await refused.response.json()).code);
  }
}

main();
