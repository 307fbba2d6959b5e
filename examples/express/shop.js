// A shop's backend beside dibs: it sends people to the storefront, redeems at checkout, and hears of
// every coupon. Start it with: npm install && npm start
import express from "express";
import { readFileSync } from "node:fs";
import jwt from "jsonwebtoken";
import { Webhook } from "standardwebhooks";

const { DIBS_URL = "http://127.0.0.1:8080", PORT = "8000", USER_KEY_FILE, WEBHOOK_SECRET } = process.env;
const userKey = readFileSync(USER_KEY_FILE, "utf8").trim(); // dibs has the same
const hooks = new Webhook(WEBHOOK_SECRET);
const app = express();

// Of a shop: tables, seen with a unique key, in one transaction.
const seen = new Set();
const coupons = new Map();

// Who is logged in, the shop knows from its session; here they say it themselves.
app.get("/drops/:policy", (request, response) => {
  const token = jwt.sign({ sub: request.query.user }, userKey, { algorithm: "HS256", expiresIn: "1h" });
  response.redirect(`${DIBS_URL}/drop/${Number(request.params.policy)}#token=${token}`);
});

// Safe to repeat: an order that has redeemed the coupon is told so again.
app.post("/checkout", express.json(), async (request, response) => {
  const { order_id, code } = request.body;
  let answer;
  try {
    answer = await fetch(`${DIBS_URL}/v1/coupons/${encodeURIComponent(code)}/redeem`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ order_id }),
      signal: AbortSignal.timeout(5000),
    });
  } catch {
    // Nobody knows whether it was redeemed: the same checkout has to be tried again.
    return response.status(503).json({ error: "UNAVAILABLE", words: "try again" });
  }
  const said = await answer.json();
  if (!answer.ok) return response.status(answer.status).json({ error: said.code, words: said.detail });
  response.json({ order_id, coupon_id: said.coupon_id, state: said.state });
});

// The signature is of the bytes that came, so they are kept as they are.
app.post("/hooks", express.raw({ type: "*/*" }), (request, response) => {
  let event;
  try {
    event = hooks.verify(request.body.toString(), request.headers);
  } catch (error) {
    return response.status(401).json({ error: error.message });
  }
  if (!seen.has(event.id)) { // an event may come twice
    seen.add(event.id);
    if (event.data.coupon_id) coupons.set(event.data.coupon_id, event.data); // a test event has none
  }
  response.sendStatus(204);
});

app.get("/coupons", (request, response) => {
  const items = [...coupons.values()].filter((coupon) => coupon.user === request.query.user);
  response.json({ events: seen.size, items });
});

app.listen(Number(PORT), "127.0.0.1");
