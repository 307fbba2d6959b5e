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
  const coupon = ticket();
  const another = h("button", { type: "button", class: "another", onclick: () => press() });
  const title = h("h2"),
    text = h("p");
  const views = {
    press: pressing.node,
    won: h("div", { class: "view view-won" }, coupon.node, another),
    message: h("div", { class: "view view-message" }, title, text),
  };
  const turn = (name) => {
    for (const [key, node] of Object.entries(views)) {
      mark(node, "data-shown", key === name ? "" : null);
    }
  };
  return {
    node: h("div", { class: "stage" }, Object.values(views)),
    countdown: (left_ms) => pressing.clock.show(left_ms, speech.words.units),
    /* Room for a second coupon's button is there from the start, or never. */
    limit: (per_user_limit) => mark(another, "hidden", per_user_limit === 1),
    press(how) {
      turn("press");
      pressing.show(how);
    },
    won(claim, isMore) {
      const hadFocus = document.activeElement === pressing.button;
      turn("won");
      coupon.show(claim, speech.words, speech.date);
      put(another, speech.words.buttonMore);
      mark(another, "data-shown", isMore ? "" : null);
      if (hadFocus) coupon.node.querySelector("button:not([hidden])")?.focus();
    },
    message(heading, words) {
      turn("message");
      put(title, heading);
      put(text, words);
    },
  };
}
