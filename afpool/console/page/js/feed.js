// Rows that fall in from above: refusals, calls, events. While somebody looks closely, that is while the pointer or
// the focus is in it, nothing moves; what came meanwhile is counted and comes when they leave.

import { calm, h, reconcile, setAttr, setClass, setText } from "./dom.js";
import { clock, count, lasted, plural, shown } from "./words.js";

const KEPT = 300;
const DRAWN = 60;
const EVERY = 250;

// What comes again after a reconnect is known by this.
export function idOf(event) {
  return event.kind === "call" ? `${event.call_id} ${event.at}` : `${event.kind} ${event.n ?? event.at}`;
}

// The one word for it: a tool that answered that it failed has no code, since nothing was refused.
export function codeOf(event) {
  const said = event.kind === "call" ? (event.code ?? (event.tool_error ? "tool-error" : event.outcome)) : event.kind;
  return shown(said ?? "running", 60);
}

// What came, newest first; bounded, and filtered by who looks.
export class Fallen {
  constructor() {
    this.items = [];
    this.total = 0;
    this.dropped = 0;
    this.codes = new Map();
    this.ids = new Set();
  }

  clear() {
    this.items = [];
    this.ids.clear();
    this.total = 0;
    this.dropped = 0;
    this.codes.clear();
  }

  take(frame) {
    if (typeof frame.dropped === "number") this.dropped += frame.dropped;
    for (const event of frame.events ?? []) {
      if (event === null || typeof event !== "object") continue;
      const id = idOf(event);
      if (this.ids.has(id)) continue;
      this.ids.add(id);
      this.total += 1;
      const code = codeOf(event);
      if (this.codes.size < 200 || this.codes.has(code)) this.codes.set(code, (this.codes.get(code) ?? 0) + 1);
      this.items.unshift({ id, code, event });
    }
    for (const old of this.items.splice(KEPT)) this.ids.delete(old.id);
  }
}

const PLAIN = new Set(["at", "n", "kind", "key", "server", "tool", "code", "call_id"]);

function factsOf(event) {
  return Object.entries(event)
    .filter(([name, value]) => !PLAIN.has(name) && value !== null && typeof value !== "object")
    .map(([name, value]) => `${name} ${shown(value, 80)}`)
    .join(" · ");
}

// A row that can be filled again: at a thousand a second rows are not made, only written anew.
export class FeedRow {
  constructor() {
    this.at = h("time", { class: "feed-at" });
    this.code = h("span", { class: "code" });
    this.what = h("a", { class: "feed-what" });
    this.key = h("a", { class: "id" });
    this.took = h("span", { class: "feed-took number" });
    this.delivery = h("span", { class: "feed-delivery" });
    this.node = h("li", { class: "feed-row" }, this.at, this.code, this.what, this.key, this.took, this.delivery);
    this.node.row = this;
  }

  fill({ code, event }) {
    const isCall = event.kind === "call";
    setText(this.at, clock(event.at, true));
    setText(this.code, code);
    setClass(
      this.code,
      `code ${event.outcome === "failed" ? "bad" : event.outcome === "refused" || event.tool_error ? "warn" : ""}`,
    );
    setText(
      this.what,
      isCall
        ? `${shown(event.server || "host", 60)} / ${shown(event.tool || event.method, 60)}`
        : [shown(event.server, 60), factsOf(event)].filter(Boolean).join(" · "),
    );
    setAttr(this.what, "href", isCall ? `#/call/${encodeURIComponent(event.call_id)}` : null);
    setText(this.key, shown(event.key, 40));
    setAttr(this.key, "href", event.key ? `#/actor/${encodeURIComponent(event.key)}` : null);
    setText(this.took, isCall ? lasted(event.took) : "");
    setText(this.delivery, shown(event.delivery, 30));
    return this.node;
  }
}

// Show these items, newest first, in the rows that are there already as far as they go.
export function showRows(list, items) {
  const wanted = new Set(items.map((item) => item.id));
  // the topmost is taken first: where all are new, each row stays where it is and none is moved
  const spare = [...(list.keptRows ?? [])]
    .filter(([id]) => !wanted.has(id))
    .map(([, node]) => node.row)
    .reverse();
  reconcile(
    list,
    items,
    (item) => item.id,
    (item) => (spare.pop() ?? new FeedRow()).fill(item),
  );
}

export class Feed {
  // `fits(item)` says whether an item is shown.
  constructor(fallen, label, fits = () => true) {
    this.fallen = fallen;
    this.fits = fits;
    this.held = 0; // how many had come when it stopped
    this.stopped = false; // by the button
    this.hovered = this.focused = false;
    this.list = h("ol", { class: "feed-rows", "aria-label": label });
    this.said = h("span", { class: "feed-said", role: "status" });
    this.button = h(
      "button",
      { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => this.toggle() },
      "Pause",
    );
    this.empty = h("p", { class: "nothing" }, "None so far.");
    this.node = h(
      "div",
      { class: "feed" },
      h("div", { class: "feed-bar" }, this.said, this.button),
      this.list,
      this.empty,
    );
    this.list.addEventListener(
      "pointerenter",
      (event) => event.pointerType === "mouse" && this.look({ hovered: true }),
    );
    this.list.addEventListener("pointerleave", () => this.look({ hovered: false }));
    this.list.addEventListener("focusin", () => this.look({ focused: true }));
    this.list.addEventListener("focusout", (event) =>
      this.look({ focused: this.list.contains(event.relatedTarget) }),
    );
    this.timer = setInterval(() => this.draw(), calm() ? 1000 : EVERY);
    this.drawn = -1;
    this.draw(true);
  }

  close() {
    clearInterval(this.timer);
  }

  get still() {
    return this.stopped || this.hovered || this.focused;
  }

  look(how) {
    const before = this.still;
    Object.assign(this, how);
    if (!before && this.still) this.held = this.fallen.total;
    this.draw();
  }

  toggle() {
    const before = this.still;
    this.stopped = !this.stopped;
    setAttr(this.button, "aria-pressed", String(this.stopped));
    setText(this.button, this.stopped ? "Go on" : "Pause");
    if (!before && this.still) this.held = this.fallen.total;
    this.draw();
  }

  draw(anyway = false) {
    const { fallen } = this;
    if (this.still && !anyway) {
      const more = fallen.total - this.held;
      setText(this.said, more ? `Held still while you look; ${count(more)} more came` : "Held still while you look");
      return;
    }
    const dropped = fallen.dropped ? `, ${count(fallen.dropped)} dropped on the way here` : "";
    setText(this.said, `${plural(fallen.total, "entry", "entries")}${dropped}`);
    if (!anyway && this.drawn === fallen.total) return;
    this.drawn = fallen.total;
    const items = fallen.items.filter(this.fits).slice(0, DRAWN);
    showRows(this.list, items);
    this.empty.hidden = items.length > 0;
  }
}
