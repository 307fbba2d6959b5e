"""What a shop does with a generated client: create, list, claim, look, redeem, cancel, be refused.

usage: use_python_client.py URL
"""

import sys

from dibs_client import Client
from dibs_client.api.claims import claim, get_claim
from dibs_client.api.coupons import cancel_coupon, redeem_coupon
from dibs_client.api.policies import create_policy, list_policies
from dibs_client.models import ClaimInput, PolicyInput, Redemption

client = Client(base_url=sys.argv[1])
policy = create_policy.sync(client=client, body=PolicyInput.from_dict(
    {"name": "x", "discount": {"type": "percent", "value": 20}, "total": 2}))
print(policy.state, len(list_policies.sync(client=client).items))
won = claim.sync(policy.id, client=client, body=ClaimInput(user="u1"))
print(won.result, get_claim.sync(policy.id, "u1", client=client).state)
print(redeem_coupon.sync(won.code, client=client, body=Redemption(order_id="o1")).state)
won = claim.sync(policy.id, client=client, body=ClaimInput(user="u2"))
print(cancel_coupon.sync(won.code, client=client).state)
print(get_claim.sync(policy.id, "nobody", client=client).code)
