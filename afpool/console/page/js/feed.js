// Rows that fall in from above: refusals, calls, events. While somebody looks closely, that is while the pointer or
// the focus is in it, nothing moves; what came meanwhile is counted and comes when they leave.

import { calm, h, reconcile, setAttr, setText } from "./dom.js";
import { clock, count, lasted, plural, shown } from "./words.js";

const KEPT = 300;
const DRAWN = 100;
const EVERY = 250;

let lastNumber = 0;

// What came, newest first; bounded, and filtered by who looks.
export class Fallen {
  constructor() {
    this.items = [];
    this.total = 0;
    this.dropped = 0;
    this.codes = new Map();
  }

  clear() {
    this.items = [];
    this.total = 0;
    this.dropped = 0;
    this.codes.clear();
  }

  take(frame) {
    if (typeof frame.dropped === "number") this.dropped += frame.dropped;
    for (const event of frame.events ?? []) {
      if (event === null || typeof event !== "object") continue;
      this.total += 1;
      const code = shown(event.code ?? event.kind, 60);
      if (this.codes.size < 200 || this.codes.has(code)) this.codes.set(code, (this.codes.get(code) ?? 0) + 1);
      this.items.unshift({ number: (lastNumber += 1), code, event });
    }
    if (this.items.length > KEPT) this.items.length = KEPT;
  }
}

function place(text, where, kind = "id") {
  const seen = shown(text, 80);
  return where ? h("a", { class: kind, href: where }, seen) : h("span", { class: kind }, seen);
}

const PLAIN = new Set(["at", "n", "kind", "key", "server", "tool", "code", "call_id"]);

function factsOf(event) {
  return Object.entries(event)
    .filter(([name, value]) => !PLAIN.has(name) && value !== null && typeof value !== "object")
    .map(([name, value]) => `${name} ${shown(value, 80)}`)
    .join(" · ");
}

export function feedRow({ code, event }) {
  const isCall = event.kind === "call";
  const at = shown(event.key, 40);
  const bad = event.outcome === "failed" ? "bad" : event.outcome === "refused" ? "warn" : "";
  return h(
    "li",
    { class: `feed-row ${isCall ? "" : "feed-event"}` },
    h("time", { class: "feed-at" }, clock(event.at, true)),
    h("span", { class: `code ${bad}` }, isCall ? shown(event.code ?? event.outcome, 60) : code),
    isCall
      ? place(`${shown(event.server || "host", 60)} / ${shown(event.tool || event.method, 60)}`, `#/call/${encodeURIComponent(event.call_id)}`, "feed-what")
      : h("span", { class: "feed-what" }, [shown(event.server, 60), factsOf(event)].filter(Boolean).join(" · ")),
    event.key ? place(at, `#/actor/${encodeURIComponent(event.key)}`) : h("span"),
    h("span", { class: "feed-took number" }, isCall ? lasted(event.took) : ""),
    h("span", { class: "feed-delivery" }, shown(event.delivery, 30)),
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
    this.button = h("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => this.toggle() }, "Pause");
    this.empty = h("p", { class: "nothing" }, "None so far.");
    this.node = h("div", { class: "feed" }, h("div", { class: "feed-bar" }, this.said, this.button), this.list, this.empty);
    this.list.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && this.look({ hovered: true }));
    this.list.addEventListener("pointerleave", () => this.look({ hovered: false }));
    this.list.addEventListener("focusin", () => this.look({ focused: true }));
    this.list.addEventListener("focusout", (event) => this.look({ focused: this.list.contains(event.relatedTarget) }));
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
    setText(this.said, `${plural(fallen.total, "entry", "entries")} since this page is open${dropped}`);
    if (!anyway && this.drawn === fallen.total) return;
    this.drawn = fallen.total;
    const items = fallen.items.filter(this.fits).slice(0, DRAWN);
    reconcile(this.list, items, (item) => item.number, feedRow);
    this.empty.hidden = items.length > 0;
  }
}
