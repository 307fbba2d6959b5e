// shop.js: whose storefront it is: name, logo, colour and links, by the operator's shop file.
import { h, mark, put } from "./dom.js";

/* The name in the corner and the links at the foot; `show(shop)` takes what /v1/shop says. */
export function shopFront(speech) {
  const logo = h("img", { class: "logo", alt: "", hidden: true });
  const name = h("span", {}, "dibs");
  const brand = h("a", { class: "brand" }, logo, name);
  const back = h("a", { class: "shop-link", hidden: true });
  const terms = h("a", { class: "shop-link", hidden: true });
  const link = (node, href, words) => {
    mark(node, "hidden", !href);
    mark(node, "href", href);
    put(node, words);
  };
  return {
    brand,
    links: h("span", { class: "shop-links" }, back, terms),
    show(shop) {
      const { words } = speech;
      put(name, shop?.name ?? "dibs");
      mark(brand, "data-shop", shop?.name ? "" : null);
      mark(brand, "href", shop?.url);
      mark(logo, "hidden", !shop?.logo);
      mark(logo, "src", shop?.logo);
      link(back, shop?.url, words.back(shop?.name ?? ""));
      link(terms, shop?.terms_url, words.terms);
      if (shop?.colour) document.documentElement.style.setProperty("--shop", shop.colour);
      mark(document.documentElement, "data-coloured", shop?.colour ? "" : null);
    },
  };
}

const stamp = (ms) => new Date(ms).toISOString().replace(/[-:]|\.\d+/g, "");
const escaped = (text) => text.replace(/[\\;,]/g, "\\$&").replace(/\n/g, "\\n");

/* A file for the calendar of whoever waits for the opening. */
export function calendarLink() {
  const node = h("a", { class: "calendar", download: "drop.ics" }, "\u00a0");
  let made = null;
  return {
    node,
    show(policy, words) {
      mark(node, "data-shown", policy.state === "SCHEDULED" ? "" : null);
      put(node, words.calendar);
      if (policy.state !== "SCHEDULED" || made === policy.opens_at + words.name) return;
      made = policy.opens_at + words.name;
      const at = Date.parse(policy.opens_at);
      const file = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        "PRODID:-//dibs//drop//EN",
        "BEGIN:VEVENT",
        `UID:${policy.id}@${location.host}`,
        `DTSTAMP:${stamp(at)}`,
        `DTSTART:${stamp(at)}`,
        `DTEND:${stamp(at + 600000)}`,
        `SUMMARY:${escaped(words.calendarOpens(policy.name))}`,
        `URL:${location.origin}${location.pathname}`,
        "BEGIN:VALARM",
        "TRIGGER:-PT10M",
        "ACTION:DISPLAY",
        `DESCRIPTION:${escaped(policy.name)}`,
        "END:VALARM",
        "END:VEVENT",
        "END:VCALENDAR",
        "",
      ].join("\r\n");
      URL.revokeObjectURL(node.href);
      node.href = URL.createObjectURL(new Blob([file], { type: "text/calendar" }));
    },
  };
}
