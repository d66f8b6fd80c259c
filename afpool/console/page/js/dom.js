// Elements and their text. Whatever is shown becomes text through `textContent` here; nothing else in the page
// turns a string into markup, and the policy that the page is served with would refuse it.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (name in node && name !== "list" && !(node instanceof SVGElement)) node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function h(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function s(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

// Written only where it differs: an equal text written again would still cost a layout.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttr(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else {
    const text = value === true ? "" : String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
}

export function setClass(node, text) {
  if (node.getAttribute("class") !== text) node.setAttribute("class", text);
}

// Bring the children of `parent` to what `items` say. A child whose key stays is kept, with its focus, and only
// told what changed.
export function reconcile(parent, items, keyOf, make, update) {
  const had = parent.keptRows ?? new Map();
  const has = new Map();
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    if (has.has(key)) continue;
    let node = had.get(key);
    if (node === undefined) node = make(item);
    if (update) update(node, item);
    has.set(key, node);
    if (node === next) next = next.nextElementSibling;
    else parent.insertBefore(node, next);
  }
  const used = new Set(has.values());
  for (const node of had.values()) if (!used.has(node)) node.remove();
  parent.keptRows = has;
}

// What the style sheet makes of a colour in the theme that is on now, for what is painted by hand.
export function colour(name) {
  const probe = h("span", { hidden: true });
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

export function calm() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
