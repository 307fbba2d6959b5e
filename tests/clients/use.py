"""What a shop does with the client that openapi-generator makes for Python; use_python_client.py has
the words.

usage: use.py URL
"""

import sys

import dibs_client as dibs

client = dibs.ApiClient(dibs.Configuration(host=sys.argv[1]))
policies, claims, coupons = dibs.PoliciesApi(client), dibs.ClaimsApi(client), dibs.CouponsApi(client)
policy = policies.create_policy(dibs.PolicyInput(
    name="x", discount=dibs.Discount(type="percent", value=20), total=2))
print(policy.state.value, len(policies.list_policies().items))
won = claims.claim(policy.id, dibs.ClaimInput(user="u1"))
print(won.result, claims.get_claim(policy.id, "u1").state.value)
print(coupons.redeem_coupon(won.code, redemption=dibs.Redemption(order_id="o1")).state.value)
won = claims.claim(policy.id, dibs.ClaimInput(user="u2"))
print(coupons.cancel_coupon(won.code).state.value)
try:
    claims.get_claim(policy.id, "nobody")
except dibs.ApiException as error:
    print(error.data.code.value)
