// Servers with their control, the lints, and any table that the process has.

import { h, reconcile, setAttr, setText } from "./dom.js";
import { DataTable, prose } from "./table.js";
import { serverLink } from "./view_overview.js";
import { count, lasted, plural, shown } from "./words.js";

const list = (value) => (Array.isArray(value) ? value.filter((one) => one !== null && typeof one === "object") : []);
const problem = (error) => [error.message, ...(error.tries ?? [])].map((one) => shown(one)).join(" — ");

// Ask now, then again and again while the view is there and the page is in sight.
function repeated(app, every, ask, wrong) {
  let busy = false;
  const once = async () => {
    if (busy || !app.link.live || document.hidden) return;
    busy = true;
    try {
      await ask();
      setText(wrong, "");
    } catch (error) {
      if (error.code !== "away") setText(wrong, problem(error));
    } finally {
      busy = false;
    }
  };
  const timer = setInterval(once, every);
  app.link.addEventListener("state", once);
  once();
  return {
    once,
    close() {
      clearInterval(timer);
      app.link.removeEventListener("state", once);
    },
  };
}

export function serversView(app) {
  const wrong = h("p", { class: "wrong", role: "alert" });
  const total = h("span", { class: "total" });
  let columnsNow = [];
  const facts = (name) => () => {
    const one = (app.overview?.servers ?? []).find((server) => server?.server === name);
    return { state: one?.state, keys: one?.actors, "in flight": one?.in_flight, waiting: one?.waiting };
  };
  const nameOf = (row, columns) =>
    String(
      row[
        Math.max(
          0,
          columns.findIndex((column) => column.name === "server"),
        )
      ],
    );
  const table = new DataTable({
    label: "Servers",
    keyOf: nameOf,
    linked: serverLink,
    extra: (row, columns) => {
      const name = nameOf(row, columns);
      return app.control.buttons(
        ["pause", "resume", "drain"],
        { kind: "server", name },
        facts(name),
        () => asks.once(),
        true,
      );
    },
  });
  let operates = app.link.operates;
  const asks = repeated(
    app,
    2000,
    async () => {
      const found = await app.link.ask(["show", "servers"]);
      if (operates !== app.link.operates) {
        operates = app.link.operates;
        table.shape = "";
      }
      columnsNow = found.columns;
      table.show({ columns: columnsNow, rows: found.rows });
      setText(total, plural(found.total ?? found.rows.length, "server"));
    },
    wrong,
  );
  const node = h(
    "div",
    { class: "view" },
    h("div", { class: "view-head" }, h("h1", { tabIndex: -1 }, "Servers"), total),
    wrong,
    table.node,
  );
  return { node, title: "Servers", close: () => asks.close() };
}

const LEVELS = { bad: "Bad", warn: "Look at", ok: "Fine" };

export function checksView(app) {
  const wrong = h("p", { class: "wrong", role: "alert" });
  const total = h("span", { class: "total" });
  const rows = h("ul", { class: "checks" });
  const make = (one) =>
    h(
      "li",
      { class: `check ${["bad", "warn", "ok"].includes(one.level) ? one.level : ""}` },
      h("span", { class: "check-level" }, LEVELS[one.level] ?? shown(one.level, 20)),
      h(
        "div",
        {},
        h("p", { class: "check-what" }, prose(one.what, 300)),
        one.detail ? h("p", {}, prose(one.detail, 1000)) : null,
        one.advice ? h("p", { class: "note" }, prose(one.advice, 600)) : null,
        one.try?.length
          ? h(
              "p",
              { class: "note" },
              "Try: ",
              [one.try].flat().map((line, i) => [i ? ", " : null, h("code", {}, shown(line, 300))]),
            )
          : null,
      ),
    );
  const asks = repeated(
    app,
    5000,
    async () => {
      const found = await app.link.ask(["check"]);
      const checks = (Array.isArray(found.found) ? found.found : []).filter(
        (one) => one !== null && typeof one === "object",
      );
      const order = ["bad", "warn", "ok"];
      checks.sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level));
      reconcile(rows, checks, (one) => JSON.stringify(one), make);
      const open = checks.filter((one) => one.level !== "ok").length;
      setText(
        total,
        open ? `${count(open)} of ${count(checks.length)} to look at` : `${plural(checks.length, "check")}, all fine`,
      );
    },
    wrong,
  );
  const again = h("button", { type: "button", onclick: () => asks.once() }, "Check now");
  const node = h(
    "div",
    { class: "view" },
    h("div", { class: "view-head" }, h("h1", { tabIndex: -1 }, "Checks"), total, again),
    wrong,
    rows,
  );
  return { node, title: "Checks", close: () => asks.close() };
}

export function tablesView(app, name = "") {
  const tables = (app.link.hello?.tables ?? []).filter((one) => typeof one?.name === "string");
  if (app.link.offers("tree"))
    tables.push({ name: "tree", help: "The tasks of the process, and what each waits for." });
  const described = tables.find((one) => one.name === name) ?? tables[0];
  const current = described?.name ?? "";
  const helps = new Map(list(described?.columns).map((column) => [column.name, column.help]));
  let sort = "";
  let limit = 100;
  let asks = null;
  const wrong = h("p", { class: "wrong", role: "alert" });
  const total = h("span", { class: "total" });
  const table = new DataTable({
    label: current || "Table",
    sorted: (column) => {
      sort = sort === `-${column}` ? column : `-${column}`;
      asks.once();
    },
  });
  const more = h(
    "button",
    {
      type: "button",
      hidden: true,
      onclick: () => {
        limit = Math.min(limit * 4, 1600);
        asks.once();
      },
    },
    "Show more",
  );
  const filter = h("input", {
    type: "search",
    id: "table-filter",
    placeholder: "server=desk state=open",
    autocomplete: "off",
    onchange: () => asks.once(),
  });
  setAttr(filter, "spellcheck", "false");
  const tree = current === "tree";
  const options = () =>
    Object.fromEntries(
      filter.value
        .trim()
        .split(/\s+/)
        .filter((one) => one.includes("="))
        .map((one) => [one.slice(0, one.indexOf("=")), one.slice(one.indexOf("=") + 1)]),
    );
  const lines = h("ol", { class: "tree", hidden: !tree, tabIndex: 0, "aria-label": "Tasks" });
  table.node.hidden = tree;
  function showTree(found) {
    const items = list(found.lines).map((line, i) => ({ key: `${i} ${line.depth} ${line.name}`, line }));
    reconcile(
      lines,
      items,
      (item) => item.key,
      ({ line }) => {
        const node = h(
          "li",
          {},
          h("span", { class: "tree-name" }, shown(line.name, 200)),
          h("span", { class: "note" }),
        );
        node.style.paddingLeft = `${Math.min(24, Number(line.depth) || 0) * 1.25}rem`;
        return node;
      },
      (node, { line }) => setText(node.lastElementChild, line.waits ? shown(line.waits, 200) : ""),
    );
    setText(total, `${count(items.length)} of ${plural(found.total ?? items.length, "task")}`);
  }
  asks = repeated(
    app,
    2000,
    async () => {
      if (!current) return;
      if (tree) {
        showTree(await app.link.ask(["tree"], { limit: 500 }));
        return;
      }
      const began = performance.now();
      const found = await app.link.ask(["show", current], { ...options(), sort, limit });
      if (!Array.isArray(found.rows)) {
        setText(total, "");
        table.show({
          columns: [{ name: "line", kind: "text" }],
          rows: (found.lines ?? []).map((line) => [typeof line === "string" ? line : JSON.stringify(line)]),
        });
        return;
      }
      table.show(
        { columns: found.columns.map((column) => ({ ...column, help: helps.get(column.name) })), rows: found.rows },
        sort,
      );
      const all = found.total ?? found.rows.length;
      setText(total, `${count(found.rows.length)} of ${plural(all, "row")}`);
      setAttr(total, "title", `answered in ${lasted((performance.now() - began) / 1000)}`);
      more.hidden = found.rows.length >= all || limit >= 1600;
    },
    wrong,
  );
  const node = h(
    "div",
    { class: "view tables" },
    h("div", { class: "view-head" }, h("h1", { tabIndex: -1 }, "Tables"), total),
    h(
      "nav",
      { class: "subnav wraps", "aria-label": "Tables" },
      tables.map((one) =>
        h(
          "a",
          { href: `#/tables/${encodeURIComponent(one.name)}`, "aria-current": one.name === current ? "page" : null },
          shown(one.name, 40),
        ),
      ),
    ),
    h(
      "div",
      { class: "filters" },
      h("p", { class: "note grow" }, shown(described?.help, 300)),
      h("label", { class: "field", hidden: tree }, h("span", { class: "unseen" }, "Filter by column"), filter),
    ),
    wrong,
    table.node,
    lines,
    more,
  );
  return { node, title: `Table ${current}`, search: filter, close: () => asks.close() };
}
