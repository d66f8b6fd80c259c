// Tables as the process describes them: columns with kinds, rows of values. Whatever table somebody registers there
// can be shown here.

import { h, reconcile, setAttr, setText } from "./dom.js";
import { cell, clock, isNumber, isNumeric, lasted, pretty, shown } from "./words.js";

const TITLES = { maxwait: "oldest wait" };
const LINKS = { key: "actor", call: "call", call_id: "call", actor: "actor" };

function linkOf(column, value) {
  if (typeof value !== "string" || value === "") return null;
  if (column.kind === "key" && value.startsWith("k:")) return `#/actor/${encodeURIComponent(value)}`;
  if (column.kind === "id" && column.name in LINKS) return `#/${LINKS[column.name]}/${encodeURIComponent(value)}`;
  return null;
}

export class DataTable {
  // `sorted(name)` asks for another order; `extra(row, columns)` gives the content of a last cell.
  constructor({ label, sorted = null, extra = null, keyOf = null, linked = linkOf }) {
    Object.assign(this, { sorted, extra, keyOf, linked });
    this.head = h("tr");
    this.body = h("tbody");
    this.node = h(
      "div",
      { class: "table-scroll", tabIndex: 0, role: "region", "aria-label": label },
      h("table", { class: "data" }, h("thead", {}, this.head), this.body),
    );
    this.shape = "";
  }

  show({ columns = [], rows = [] }, sort = "") {
    const shape = JSON.stringify([columns, this.extra !== null]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.heads = columns.map((column) => this.headOf(column));
      const head = this.heads.slice();
      if (this.extra) head.splice(1, 0, h("th", { scope: "col" }, h("span", { class: "unseen" }, "Control")));
      this.head.replaceChildren(...head);
      reconcile(
        this.body,
        [],
        () => "",
        () => null,
      );
    }
    columns.forEach((column, i) => {
      const way = sort === column.name ? "ascending" : sort === `-${column.name}` ? "descending" : null;
      setAttr(this.heads[i], "aria-sort", way);
    });
    const seen = new Map();
    const items = rows.filter(Array.isArray).map((row, i) => {
      let key = this.keyOf ? String(this.keyOf(row, columns)) : String(i);
      seen.set(key, (seen.get(key) ?? 0) + 1);
      if (seen.get(key) > 1) key = `${key} ${seen.get(key)}`;
      return { key, row };
    });
    reconcile(
      this.body,
      items,
      (item) => item.key,
      (item) => this.make(item.row, columns),
      (node, item) => this.update(node, item.row, columns),
    );
  }

  headOf(column) {
    const name = TITLES[column.name] ?? shown(column.name, 60).replace(/_s$/, "/s").replaceAll("_", " ");
    const inside = this.sorted
      ? h("button", { type: "button", onclick: () => this.sorted(column.name) }, name)
      : name;
    return h(
      "th",
      {
        scope: "col",
        class: isNumeric(column.kind) ? "number" : "",
        title: column.help ? shown(column.help, 200) : null,
      },
      inside,
    );
  }

  make(row, columns) {
    const cells = columns.map((column) =>
      h("td", {
        class: `${isNumeric(column.kind) ? "number" : ""} ${["key", "id"].includes(column.kind) ? "id" : ""}`,
      }),
    );
    if (this.extra) cells.splice(1, 0, h("td", { class: "table-extra" }, this.extra(row, columns)));
    return h("tr", {}, cells);
  }

  update(node, row, columns) {
    columns.forEach((column, i) => {
      const td = node.children[this.extra && i > 0 ? i + 1 : i];
      const text = cell(row[i], column.kind);
      const where = this.linked(column, row[i]);
      const inside = td.firstElementChild;
      if (where === null) setText(td, text);
      else if (inside?.tagName === "A") {
        setAttr(inside, "href", where);
        setText(inside, text);
      } else td.replaceChildren(h("a", { href: where }, text));
    });
  }
}

// A text of the process in which `names` stand between backticks.
export function prose(text, longest = 2000) {
  return shown(text, longest)
    .split("`")
    .map((part, i, all) => (i % 2 === 1 && i < all.length - 1 ? h("code", {}, part) : part));
}

// Names and values of anything, for facts that no table has a column for.
export function factList(facts, { skip = [], depth = 0 } = {}) {
  const entries = Object.entries(facts ?? {}).filter(
    ([name, value]) => !skip.includes(name) && value !== null && value !== undefined && value !== "",
  );
  return h(
    "dl",
    { class: "facts" },
    entries.map(([name, value]) => [
      h("dt", {}, shown(name, 60).replaceAll("_", " ")),
      h("dd", {}, factValue(name, value, depth)),
    ]),
  );
}

const LASTING = new Set(["took", "age", "ends_in", "expires_in", "left", "waited", "since", "whole", "budget"]);
const INSTANTS = new Set(["at", "began", "until"]);
const CALLS = new Set(["call_id", "parent", "repeated_of", "held_by", "for", "call"]);

function factValue(name, value, depth) {
  if (Array.isArray(value) && value.every((one) => one === null || typeof one !== "object")) {
    return value.map((one, i) => [i ? ", " : null, factValue(name, one, depth)]).flat();
  }
  if (typeof value === "object" && value !== null) {
    return depth < 2 && !Array.isArray(value)
      ? factList(value, { depth: depth + 1 })
      : h("pre", {}, pretty(value, 4000));
  }
  if (typeof value === "string" && CALLS.has(name))
    return h("a", { class: "id", href: `#/call/${encodeURIComponent(value)}` }, shown(value, 120));
  if (typeof value === "string" && name === "key")
    return h("a", { class: "id", href: `#/actor/${encodeURIComponent(value)}` }, shown(value, 120));
  if (isNumber(value) && LASTING.has(name)) return lasted(value);
  if (isNumber(value) && INSTANTS.has(name)) return clock(value, true);
  if (isNumber(value) && !Number.isInteger(value)) return String(Number(value.toPrecision(6)));
  if (typeof value === "boolean") return value ? "yes" : "no";
  return h("span", { class: "fact" }, shown(value, 2000));
}
