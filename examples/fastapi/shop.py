"""A shop's backend beside dibs: it sends people to the storefront, redeems at checkout, and hears of
every coupon. Start it with: uvicorn shop:app --port 8000"""

import os
import pathlib
import time
from urllib.parse import quote

import httpx
import jwt
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, RedirectResponse
from pydantic import BaseModel
from standardwebhooks import Webhook, WebhookVerificationError

DIBS = os.environ.get("DIBS_URL", "http://127.0.0.1:8080")
USER_KEY = pathlib.Path(os.environ["USER_KEY_FILE"]).read_text().strip()  # dibs has the same
hooks = Webhook(os.environ["WEBHOOK_SECRET"])
dibs = httpx.AsyncClient(base_url=DIBS, timeout=5)
app = FastAPI()

# Of a shop: tables, seen with a unique key, in one transaction.
seen: set[str] = set()
coupons: dict[str, dict] = {}


# Who is logged in, the shop knows from its session; here they say it themselves.
@app.get("/drops/{policy}")
async def visit(policy: int, user: str):
    token = jwt.encode({"sub": user, "exp": int(time.time()) + 3600}, USER_KEY, algorithm="HS256")
    return RedirectResponse(f"{DIBS}/drop/{policy}#token={token}", status_code=302)


class Checkout(BaseModel):
    order_id: str
    code: str


# Safe to repeat: an order that has redeemed the coupon is told so again.
@app.post("/checkout")
async def checkout(order: Checkout):
    try:
        answer = await dibs.post(f"/v1/coupons/{quote(order.code, safe='')}/redeem",
                                 json={"order_id": order.order_id})
    except httpx.TransportError as error:
        # Nobody knows whether it was redeemed: the same checkout has to be tried again.
        raise HTTPException(503, "try again") from error
    said = answer.json()
    if answer.status_code != 200:
        return JSONResponse({"error": said["code"], "words": said["detail"]}, answer.status_code)
    return {"order_id": order.order_id, "coupon_id": said["coupon_id"], "state": said["state"]}


@app.post("/hooks", status_code=204)
async def hook(request: Request):
    body = await request.body()
    try:
        event = hooks.verify(body, dict(request.headers))
    except WebhookVerificationError as error:
        raise HTTPException(401, str(error)) from error
    if event["id"] in seen:  # an event may come twice
        return
    seen.add(event["id"])
    coupon = event["data"]
    if "coupon_id" in coupon:  # a test event has none
        coupons[coupon["coupon_id"]] = coupon


@app.get("/coupons")
async def mine(user: str):
    return {"events": len(seen), "items": [one for one in coupons.values() if one["user"] == user]}
