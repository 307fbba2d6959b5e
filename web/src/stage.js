// stage.js: the middle of the storefront: the button, the coupon or a message, always in one place.
import { countdown } from "./countdown.js";
import { h, mark, put } from "./dom.js";
import { ticket } from "./ticket.js";

/* The button with a countdown or words above it and a line below. */
function pressView(press) {
  const clock = countdown();
  const head = h("p", { class: "press-title" }),
    note = h("p", { class: "press-note" });
  const button = h(
    "button",
    {
      type: "button",
      class: "press",
      "aria-disabled": "true",
      onclick: () => button.getAttribute("aria-disabled") !== "true" && press(),
    },
    "\u00a0",
  );
  return {
    clock,
    button,
    node: h(
      "div",
      { class: "view view-press" },
      h("div", { class: "press-figure" }, clock.node, head),
      button,
      note,
    ),
    show({ isCounting, words, label, line, isReady, isBusy }) {
      mark(clock.node, "hidden", !isCounting);
      mark(head, "hidden", isCounting);
      put(head, words ?? "");
      put(button, label);
      put(note, line);
      mark(button, "aria-disabled", isReady ? null : "true");
      mark(button, "data-busy", isBusy ? "" : null);
    },
  };
}

/* One of three views is shown; all of them keep their room. `press()` is called for the button. */
export function stage(speech, press) {
  const pressing = pressView(press);
  const tickets = [ticket()];
  const others = h("div", { class: "others" });
  const another = h("button", { type: "button", class: "another", onclick: () => press() });
  const title = h("h2"),
    lines = h("div", { class: "message-lines" });
  const views = {
    press: pressing.node,
    won: h("div", { class: "view view-won" }, tickets[0].node, others, another),
    message: h("div", { class: "view view-message" }, title, lines),
  };
  const turn = (name) => {
    for (const [key, node] of Object.entries(views)) {
      mark(node, "data-shown", key === name ? "" : null);
    }
  };
  return {
    node: h("div", { class: "stage" }, Object.values(views)),
    countdown: (left_ms) => pressing.clock.show(left_ms, speech.words.units),
    /* Room for a second coupon's button is there from the start, or when it is needed. */
    limit: (per_user_limit) =>
      mark(another, "hidden", per_user_limit === 1 && !another.hasAttribute("data-shown")),
    press(how) {
      turn("press");
      pressing.show(how);
    },
    /* All coupons of this person, the newest first; `more` is on the button for another, or null. */
    won(claims, more) {
      const hadFocus = document.activeElement === pressing.button;
      while (tickets.length < claims.length) {
        tickets.push(ticket());
        others.append(tickets.at(-1).node);
      }
      tickets.forEach(({ node, show }, i) => {
        mark(node, "hidden", i >= claims.length);
        if (claims[i]) show(claims[i], speech.words, speech.date);
      });
      put(another, more ?? "\u00a0");
      mark(another, "data-shown", more ? "" : null);
      if (more) mark(another, "hidden", null);
      turn("won");
      if (hadFocus) tickets[0].node.querySelector("button:not([hidden])")?.focus();
    },
    message(heading, words) {
      turn("message");
      put(title, heading);
      words.forEach((line, i) => put(lines.children[i] ?? lines.appendChild(h("p")), line));
      while (lines.children.length > words.length) lines.lastChild.remove();
    },
  };
}
