// The same actors as rows: only those in sight are in the document, however many there are.
//
// The rows are moved, not made: a frame writes the text that differs and nothing else.

import { h, setAttr, setClass, setText } from "./dom.js";
import { LOOK_NAMES } from "./actors.js";
import { count } from "./words.js";

const ROW = 32;
const COLUMNS = [
  ["key", "key", (one) => one.key, "id"],
  ["server", "server", (one) => one.server, "text"],
  ["state", "state", (one) => one.state, "text"],
  [
    "inFlight",
    "in flight",
    (one) => (one.most ? `${count(one.inFlight)} / ${count(one.most)}` : count(one.inFlight)),
    "number",
  ],
  ["waiting", "waiting", (one) => count(one.waiting), "number"],
  ["client", "client", (one) => (one.client === null ? "–" : String(one.client)), "number minor"],
  ["generation", "generation", (one) => (one.generation === null ? "–" : String(one.generation)), "number minor"],
];

export class ActorList {
  constructor(opened) {
    this.opened = opened;
    this.rows = [];
    this.order = [];
    this.sort = { by: "waiting", down: true };
    this.at = 0;
    this.height = 0;
    this.heads = COLUMNS.map(([name, title, , kind]) => {
      const button = h("button", { type: "button", onclick: () => this.sortBy(name) }, title);
      return h("div", { class: `list-head ${kind}`, role: "columnheader" }, button);
    });
    this.body = h("div", { class: "list-body", role: "rowgroup" });
    this.node = h(
      "div",
      { class: "list", tabIndex: 0, role: "grid", "aria-label": "Actors" },
      h("div", { class: "list-row list-heads", role: "row" }, this.heads),
      this.body,
    );
    this.node.addEventListener("scroll", () => this.plan(), { passive: true });
    this.node.addEventListener("keydown", (event) => this.key(event));
    this.watch = new ResizeObserver(([entry]) => {
      this.height = entry.contentRect.height;
      this.plan();
    });
    this.watch.observe(this.node);
  }

  close() {
    this.watch.disconnect();
    cancelAnimationFrame(this.frame);
  }

  recolour() {}

  sortBy(name) {
    this.sort = {
      by: name,
      down: this.sort.by === name ? !this.sort.down : !["key", "server", "state"].includes(name),
    };
    this.arrange();
  }

  show(groups) {
    this.all = groups.flatMap((group) => group.places.filter((actor) => actor !== null));
    this.arrange();
  }

  arrange() {
    const { by, down } = this.sort;
    const sign = down ? -1 : 1;
    const value = (one) => one[by] ?? -1;
    const chosen = this.order[this.at];
    this.order = (this.all ?? []).slice().sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x !== y) return (x < y ? -1 : 1) * sign;
      return a.key < b.key ? -1 : 1;
    });
    const place = chosen ? this.order.indexOf(chosen) : 0;
    this.at = Math.max(0, place);
    this.heads.forEach((head, i) =>
      setAttr(head, "aria-sort", COLUMNS[i][0] === by ? (down ? "descending" : "ascending") : "none"),
    );
    setAttr(this.node, "aria-rowcount", this.order.length + 1);
    this.body.style.height = `${this.order.length * ROW}px`;
    this.plan();
  }

  changed() {
    this.plan();
  }

  plan() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.paint();
    });
  }

  paint() {
    const first = Math.max(0, Math.floor(this.node.scrollTop / ROW) - 3);
    const many = Math.min(this.order.length - first, Math.ceil(this.height / ROW) + 6);
    while (this.rows.length < many) this.rows.push(this.row());
    this.rows.forEach((row, i) => {
      const actor = i < many ? this.order[first + i] : undefined;
      row.node.hidden = actor === undefined;
      if (actor === undefined) return;
      row.index = first + i;
      row.node.style.transform = `translateY(${row.index * ROW}px)`;
      setAttr(row.node, "aria-rowindex", row.index + 2);
      setAttr(row.node, "aria-selected", row.index === this.at ? "true" : "false");
      setClass(row.look, `dot ${actor.look}`);
      setAttr(row.look, "title", LOOK_NAMES[actor.look] ?? actor.look);
      COLUMNS.forEach(([, , read], c) => setText(row.texts[c], read(actor)));
    });
    const chosen = this.rows.find((row) => !row.node.hidden && row.index === this.at);
    setAttr(this.node, "aria-activedescendant", chosen ? chosen.node.id : null);
  }

  row() {
    const texts = COLUMNS.map(([, , , kind]) => h("span", { class: kind === "id" ? "id" : "" }));
    const look = h("span", { class: "dot" });
    const cells = COLUMNS.map(([name, , , kind], c) => {
      const node = h("div", { class: `list-cell ${kind}`, role: "gridcell" }, name === "key" ? look : null, texts[c]);
      return node;
    });
    const node = h("div", { class: "list-row", role: "row", id: `actor-row-${this.rows.length}` }, cells);
    const row = { node, look, texts, index: 0 };
    node.addEventListener("click", () => {
      this.at = row.index;
      this.opened(this.order[row.index]);
    });
    this.body.append(node);
    return row;
  }

  key(event) {
    if (event.target !== this.node || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.height / ROW) - 2);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && this.order[this.at]) this.opened(this.order[this.at]);
    else if (event.key in moves) {
      this.at = Math.min(this.order.length - 1, Math.max(0, this.at + moves[event.key]));
      const top = this.at * ROW;
      if (top < this.node.scrollTop) this.node.scrollTop = top;
      else if (top + 3 * ROW > this.node.scrollTop + this.height) this.node.scrollTop = top + 3 * ROW - this.height;
      this.plan();
    } else return;
    event.preventDefault();
  }
}
