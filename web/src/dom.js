// dom.js: makes elements, and touches the document only where something changed.

const SVG = "http://www.w3.org/2000/svg";

/* An element: `props` are attributes, but functions (`onclick`) are listeners; null, undefined and
   false leave an attribute out. */
export function h(name, props, ...children) {
  return fill(document.createElement(name), props, children);
}

/* The same for a picture's elements. */
export function svg(name, props, ...children) {
  return fill(document.createElementNS(SVG, name), props, children);
}

function fill(node, props, children) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (typeof value === "function") node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(key, value === true ? "" : value);
    }
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/* Sets the text when it is another. */
export function put(node, text) {
  const words = String(text);
  if (node.textContent !== words) node.textContent = words;
}

/* Sets or, with null, takes away an attribute when it is another. */
export function mark(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, value);
  }
}

/* Sets a custom property, which the style sheet turns into a length or a place. */
export function vary(node, name, value) {
  if (node.style.getPropertyValue(name) !== String(value)) node.style.setProperty(name, value);
}

/* A small picture, drawn with the colour of the text around it. */
export function icon(path) {
  return svg(
    "svg",
    { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" },
    svg("path", { d: path }),
  );
}
