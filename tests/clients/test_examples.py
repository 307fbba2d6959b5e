"""The shops of examples/, each beside a server: visit, claim, webhook, checkout. They come with the
network: `make clients`."""

import base64
import hashlib
import hmac
import json
import shutil
import socket
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from harness import ROOT, wait_until, write_secret
from programs import maven, python_in, run, running

EXAMPLES = ROOT / "examples"
KEY = "a key of the shop and dibs, 32 bytes and more"
SECRET = "whsec_" + base64.b64encode(b"what signs the webhooks of a shop").decode()


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):  # pylint: disable=arguments-differ
        return None


class Shop:
    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"
        self.opener = urllib.request.build_opener(NoRedirect)

    def ask(self, path, body=None, headers=None):
        """(status, headers, body)"""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {
            "Content-Type": "application/json", **(headers or {})})
        try:
            answer = self.opener.open(request, timeout=30)
        except urllib.error.HTTPError as refused:
            answer = refused
        with answer:
            text = answer.read()
            return answer.status, answer.headers, json.loads(text) if text[:1] == b"{" else None

    def listens(self):
        try:
            return self.ask("/coupons?user=nobody")[0] == 200
        except OSError:
            return False

    def coupons(self, user):
        return self.ask(f"/coupons?user={user}")[2]


def fastapi(folder):
    python = python_in(folder / "venv", "-r", EXAMPLES / "fastapi/requirements.txt")
    return [python, "-m", "uvicorn", "shop:app"], EXAMPLES / "fastapi"


def express(folder):
    shutil.copytree(EXAMPLES / "express", folder / "express")
    run("npm", "install", "--silent", cwd=folder / "express")
    return ["node", "shop.js"], folder / "express"


def spring_boot(folder):
    shutil.copytree(EXAMPLES / "spring-boot", folder / "spring")
    maven("package", cwd=folder / "spring")
    return ["java", "-jar", "target/shop.jar"], folder / "spring"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.mark.parametrize("kind", [fastapi, express, spring_boot], ids=lambda kind: kind.__name__)
def test_example__does_all_that_a_shop_does(kind, serve, tmp_path):
    command, folder = kind(tmp_path)
    port = free_port()
    server = serve(config={"user_key_file": str(write_secret(tmp_path, "user_key", KEY)),
                           "webhook": f"http://127.0.0.1:{port}/hooks", "webhook_secret": SECRET,
                           "webhook_retry_max": "50ms"})
    env = {"DIBS_URL": "http://{}:{}".format(*server.address),
           "PORT": str(port), "UVICORN_PORT": str(port), "SERVER_PORT": str(port),
           "USER_KEY_FILE": str(tmp_path / "user_key"), "WEBHOOK_SECRET": SECRET}
    shop = Shop(port)
    with running(*command, cwd=folder, env=env, log=tmp_path / "shop.log") as process:
        wait_until(lambda: shop.listens() or process.poll() is not None, "a shop", 120)
        assert process.poll() is None
        buys(shop, server)


def buys(shop, server):
    policy = server.create(total=5)["id"]
    status, headers, _ = shop.ask(f"/drops/{policy}?user=ann")
    place = urllib.parse.urlsplit(headers["Location"])
    assert status == 302 and place.path == f"/drop/{policy}"
    # What the storefront does with the token that it was given.
    token = place.fragment.removeprefix("token=")
    won = server.request("POST", f"/v1/policies/{policy}/claims", {},
                         headers={"Authorization": f"Bearer {token}"}).json
    assert won["result"] == "ISSUED" and won["user"] == "ann"
    wait_until(lambda: shop.coupons("ann")["items"], "the event of a coupon")
    assert shop.coupons("ann")["items"][0]["coupon_id"] == won["coupon_id"]
    assert shop.coupons("bob")["items"] == []

    order = {"order_id": "order-1", "code": won["code"]}
    for _ in range(2):
        status, _, said = shop.ask("/checkout", order)
        assert (status, said["state"], said["coupon_id"]) == (200, "REDEEMED", won["coupon_id"])
    status, _, said = shop.ask("/checkout", {**order, "order_id": "order-2"})
    assert (status, said["error"]) == (409, "CONFLICT")
    assert shop.ask("/checkout", {"order_id": "o", "code": "x/../../policies"})[0] in (400, 404)
    wait_until(lambda: shop.coupons("ann")["items"][0]["state"] == "REDEEMED", "the event of a redeem")

    # Twice the same event counts once, and what is not signed, or long ago, not at all.
    assert shop.coupons("ann")["events"] == 2
    event = json.dumps({"id": "1-9-issued", "data": {"coupon_id": "1-9", "user": "bob"}}).encode()
    now = int(time.time())
    for headers, status in (({}, (400, 401)), (signed(event + b" ", now), (401,)),
                            (signed(event, now - 3600), (401,)),
                            (signed(event, now), (204,)), (signed(event, now), (204,))):
        assert shop.ask("/hooks", event, headers)[0] in status, headers
    assert shop.coupons("ann")["events"] == 3
    assert len(shop.coupons("bob")["items"]) == 1


def signed(body, at):
    """As Standard Webhooks has it."""
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    mac = hmac.new(key, f"1-9-issued.{at}.".encode() + body, hashlib.sha256).digest()
    return {"webhook-id": "1-9-issued", "webhook-timestamp": str(at),
            "webhook-signature": "v1," + base64.b64encode(mac).decode()}
