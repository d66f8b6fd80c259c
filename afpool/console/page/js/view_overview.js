// The numbers that people look for first. One frame a second; what doesn't differ isn't written.

import { h, reconcile, setClass, setText } from "./dom.js";
import { Feed } from "./feed.js";
import { Spark } from "./spark.js";
import { DataTable } from "./table.js";
import { count, isNumber, lasted, plural, rate, shown } from "./words.js";

const sum = (list, name) =>
  Array.isArray(list) ? list.reduce((all, one) => all + (isNumber(one?.[name]) ? one[name] : 0), 0) : NaN;

export const NUMBERS = [
  {
    id: "calls",
    label: "Calls",
    unit: "/s",
    read: (o) => o.calls,
    show: rate,
    below: (o) =>
      `${count(
        sum(
          Object.values(o.outcomes ?? {}).map((n) => ({ n })),
          "n",
        ),
      )} so far`,
  },
  {
    id: "in_flight",
    label: "In flight",
    read: (o) => o.in_flight,
    show: count,
    below: (o) => (isNumber(o.outcomes?.failed) ? `${count(o.outcomes.failed)} failed so far` : ""),
  },
  {
    id: "waiting",
    label: "Waiting",
    read: (o) => o.waiting,
    show: count,
    below: (o) => (isNumber(o.oldest_wait) ? `oldest ${lasted(o.oldest_wait)}` : "nobody waits"),
    look: (o) => (o.oldest_wait > 10 ? "bad" : o.oldest_wait > 1 ? "warn" : ""),
  },
  {
    id: "refused",
    label: "Refusals",
    unit: "/s",
    read: (o) => sum(o.refusals, "rate"),
    show: rate,
    below: (o) => `${count(o.outcomes?.refused)} so far`,
  },
  {
    id: "clients",
    label: "Open clients",
    read: (o) => o.clients,
    show: count,
    below: (o) => (isNumber(o.actors) ? `of ${plural(o.actors, "key")}` : ""),
  },
  {
    id: "opens",
    label: "Opens",
    unit: "/s",
    read: (o) => o.opens,
    show: rate,
    below: (o) => (isNumber(o.opened) ? `${count(o.opened)} so far` : ""),
  },
  {
    id: "evictions",
    label: "Evictions",
    read: (o) => o.evictions,
    show: count,
    below: () => "since the start",
    each: true,
  },
  {
    id: "lag",
    label: "Event-loop lag",
    read: (o) => o.lag?.now,
    show: lasted,
    below: (o) => (isNumber(o.lag?.max) ? `most ${lasted(o.lag.max)}` : ""),
    look: (o) => (o.lag?.now > 0.25 ? "bad" : o.lag?.now > 0.05 ? "warn" : ""),
  },
];

function tile(number, history) {
  const value = h("span", { class: "tile-value" }, "–");
  const below = h("span", { class: "tile-below" });
  const spark = new Spark(history);
  const node = h(
    "div",
    { class: "tile", id: `tile-${number.id}` },
    h("dt", {}, number.label),
    h(
      "dd",
      {},
      h("span", { class: "tile-main" }, value, number.unit ? h("span", { class: "tile-unit" }, number.unit) : null),
      below,
    ),
    spark.node,
  );
  return {
    node,
    show(overview) {
      setText(value, number.show(number.read(overview)));
      setText(below, number.below(overview));
      setClass(node, `tile ${number.look?.(overview) ?? ""}`);
      spark.draw();
    },
  };
}

// From p50 to p99 on one scale that all rows share, in powers of ten.
const SCALE = [1e-5, 1e2];
const onScale = (value) =>
  `${Math.min(100, Math.max(0, ((Math.log10(value) - Math.log10(SCALE[0])) / (Math.log10(SCALE[1]) - Math.log10(SCALE[0]))) * 100)).toFixed(2)}%`;

function rangeOf() {
  const line = h("span", { class: "range-line" });
  const dots = ["p50", "p95", "p99"].map((name) => h("span", { class: `range-dot ${name}` }));
  const node = h("div", { class: "range", "aria-hidden": "true" }, line, dots);
  return {
    node,
    show(one) {
      const values = [one.p50, one.p95, one.p99].map((value) =>
        Math.max(isNumber(value) ? value : SCALE[0], SCALE[0]),
      );
      line.style.left = onScale(values[0]);
      line.style.right = `calc(100% - ${onScale(values[2])})`;
      dots.forEach((dot, i) => {
        dot.style.left = onScale(values[i]);
      });
    },
  };
}

// Stages as a call goes through them; what isn't named here comes last.
const ORDER = [
  "listing",
  "hooks",
  "schema",
  "fill",
  "arguments",
  "wants",
  "credential",
  "start",
  "plan",
  "share",
  "list",
  "admission",
  "runtime-admission",
  "leased",
  "open",
  "attempt",
  "sign",
  "connect",
  "write",
  "sent",
  "answered",
  "server",
  "run",
  "after",
  "limits",
  "whole",
];

function inOrder(stages) {
  const place = (one) => (ORDER.indexOf(one.stage) + ORDER.length + 1) % (ORDER.length + 1);
  return (Array.isArray(stages) ? stages : [])
    .filter((one) => typeof one?.stage === "string")
    .sort((a, b) => place(a) - place(b));
}

function stageTable() {
  const body = h("tbody");
  const axis = h("div", { class: "range range-axis", "aria-hidden": "true" });
  for (const [at, text] of [
    [1e-4, "100 µs"],
    [1e-2, "10 ms"],
    [1, "1 s"],
    [100, "100 s"],
  ]) {
    const tick = h("span", {}, text);
    if (at === 100) tick.style.right = "0";
    else tick.style.left = onScale(at);
    axis.append(tick);
  }
  const head = ["stage", "count", "p50", "p95", "p99"].map((name, i) =>
    h("th", { scope: "col", class: i ? "number" : "" }, name),
  );
  const node = h(
    "div",
    { class: "table-scroll", tabIndex: 0, role: "region", "aria-label": "Durations by stage" },
    h(
      "table",
      { class: "data stages" },
      h("thead", {}, h("tr", {}, head, h("td", { class: "range-cell" }, axis))),
      body,
    ),
  );
  const make = () => {
    const range = rangeOf();
    const row = h(
      "tr",
      {},
      h("th", { scope: "row" }),
      [1, 2, 3, 4].map(() => h("td", { class: "number" })),
      h("td", { class: "range-cell" }, range.node),
    );
    row.range = range;
    return row;
  };
  const update = (row, one) => {
    const texts = [shown(one.stage, 40), count(one.count), lasted(one.p50), lasted(one.p95), lasted(one.p99)];
    texts.forEach((text, i) => setText(row.children[i], text));
    row.range.show(one);
  };
  return { node, show: (stages) => reconcile(body, stages, (one) => one.stage, make, update) };
}

function refusalTable() {
  const body = h("tbody");
  const none = h("p", { class: "nothing" }, "No call was refused so far.");
  const table = h(
    "table",
    { class: "data codes" },
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "code"),
        h("th", { scope: "col", class: "number" }, "now"),
        h("th", { scope: "col", class: "number" }, "so far"),
        h("td", { class: "bar-cell" }),
      ),
    ),
    body,
  );
  const make = (one) => {
    const bar = h("span", { class: "bar-fill" });
    const link = h("a", { href: `#/live/refusals/${encodeURIComponent(one.code)}`, class: "code warn" });
    const row = h(
      "tr",
      {},
      h("th", { scope: "row" }, link),
      h("td", { class: "number" }),
      h("td", { class: "number" }),
      h("td", { class: "bar-cell", "aria-hidden": "true" }, h("div", { class: "bar" }, bar)),
    );
    Object.assign(row, { bar, link });
    return row;
  };
  let most = 1;
  const update = (row, one) => {
    setText(row.link, shown(one.code, 60));
    setText(row.children[1], `${rate(one.rate)}/s`);
    setText(row.children[2], count(one.total));
    row.bar.style.width = `${Math.max(1, (one.total / most) * 100).toFixed(1)}%`;
  };
  const show = (refusals) => {
    const sorted = refusals
      .filter((one) => isNumber(one?.total))
      .sort((a, b) => b.total - a.total)
      .slice(0, 12);
    most = Math.max(1, ...sorted.map((one) => one.total));
    none.hidden = sorted.length > 0;
    table.hidden = sorted.length === 0;
    reconcile(body, sorted, (one) => one.code, make, update);
  };
  return { node: h("div", {}, table, none), show };
}

const SERVER_COLUMNS = [
  { name: "server", kind: "text" },
  { name: "state", kind: "text" },
  { name: "keys", kind: "count", from: "actors" },
  { name: "clients", kind: "count" },
  { name: "in_flight", kind: "count" },
  { name: "waiting", kind: "count" },
  { name: "oldest", kind: "seconds", from: "maxwait" },
  { name: "calls/s", kind: "rate", from: "rate" },
  { name: "errors/s", kind: "rate", from: "errors" },
  { name: "p50", kind: "seconds" },
  { name: "p95", kind: "seconds" },
  { name: "p99", kind: "seconds" },
];

export function serverLink(column, value) {
  return column.name === "server" && typeof value === "string"
    ? `#/actors/${encodeURIComponent(shown(value, 80))}`
    : null;
}

export function overviewView(app) {
  const tiles = NUMBERS.map((number) => tile(number, app.histories.get(number.id)));
  const stages = stageTable();
  const refusals = refusalTable();
  const servers = new DataTable({ label: "Servers", keyOf: (row) => row[0], linked: serverLink });
  const feed = new Feed(app.refusals, "Refusals and failures, newest first");
  const sinks = h("p", { class: "note", hidden: true });
  const node = h(
    "div",
    { class: "view overview" },
    h("h1", { tabIndex: -1, class: "unseen" }, "Overview"),
    h(
      "dl",
      { class: "tiles" },
      tiles.map((one) => one.node),
    ),
    h(
      "div",
      { class: "halves" },
      h("section", { "aria-labelledby": "h-stages" }, h("h2", { id: "h-stages" }, "By stage"), stages.node),
      h(
        "div",
        { class: "column" },
        h("section", { "aria-labelledby": "h-codes" }, h("h2", { id: "h-codes" }, "Refused, by code"), refusals.node),
        h("section", { "aria-labelledby": "h-latest" }, h("h2", { id: "h-latest" }, "As they fall"), feed.node),
      ),
    ),
    h("section", { "aria-labelledby": "h-servers" }, h("h2", { id: "h-servers" }, "Servers"), servers.node),
    sinks,
  );
  const show = () => {
    const { overview } = app;
    if (overview === null) return;
    for (const one of tiles) one.show(overview);
    stages.show(inOrder(overview.stages));
    refusals.show(Array.isArray(overview.refusals) ? overview.refusals : []);
    const rows = (Array.isArray(overview.servers) ? overview.servers : []).map((one) =>
      SERVER_COLUMNS.map((column) => one?.[column.from ?? column.name]),
    );
    servers.show({ columns: SERVER_COLUMNS, rows });
    const lost = (Array.isArray(overview.sinks) ? overview.sinks : []).filter((one) => one?.dropped > 0);
    sinks.hidden = lost.length === 0;
    setText(
      sinks,
      lost.map((one) => `The sink ${shown(one.name, 60)} dropped ${plural(one.dropped, "record")}.`).join(" "),
    );
  };
  app.addEventListener("overview", show);
  show();
  return {
    node,
    title: "Overview",
    close() {
      app.removeEventListener("overview", show);
      feed.close();
    },
  };
}
