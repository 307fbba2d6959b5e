// countdown.js: the time that is left, in large digits.
import { h, mark, put } from "./dom.js";
import { parts } from "./format.js";

const two = (n) => String(n).padStart(2, "0");

/* Days, hours, minutes, seconds; `show(left_ms, units)` names them in a language. */
export function countdown() {
  const boxes = [0, 1, 2, 3].map(() => {
    const number = h("b", {}, "00"),
      unit = h("span");
    return { node: h("div", {}, number, unit), number, unit };
  });
  return {
    node: h(
      "div",
      { class: "countdown", role: "timer", "aria-live": "off" },
      boxes.map(({ node }) => node),
    ),
    show(left_ms, units) {
      const { days, hours, minutes, seconds } = parts(left_ms);
      [days, hours, minutes, seconds].forEach((n, i) => {
        put(boxes[i].number, two(n));
        put(boxes[i].unit, units[i]);
      });
      mark(boxes[0].node, "hidden", days === 0);
    },
  };
}
