// One call: its stages as a waterfall, and beside it why it ended as it did, clause by clause, each from a filed fact.
// An artifact's reference leads to the same view, with the calls that made it.

import { h, setText } from "./dom.js";
import { factList, prose } from "./table.js";
import { waterfall } from "./waterfall.js";
import { clock, isNumber, lasted, pretty, shown } from "./words.js";

const SKIPPED = [
  "kind",
  "stages",
  "facts",
  "arguments",
  "happened",
  "began",
  "at",
  "took",
  "outcome",
  "code",
  "delivery",
  "call_id",
  "server",
  "tool",
  "tool_error",
  "key",
];
const SOURCES = {
  use: "the call",
  event: "an event",
  definition: "definitions",
  artifact: "an artifact",
  sibling: "another call",
};

function clauseRow(clause, number, marked) {
  const facts =
    clause.facts !== null && typeof clause.facts === "object" && Object.keys(clause.facts).length > 0
      ? clause.facts
      : null;
  return h(
    "li",
    { class: "clause", tabIndex: marked ? 0 : undefined },
    h("span", { class: `clause-number ${marked ? "marked" : ""}`, "aria-hidden": "true" }, String(number)),
    h(
      "div",
      {},
      h(
        "p",
        {},
        isNumber(clause.at)
          ? h("span", { class: "clause-at" }, clause.at < 0 ? `−${lasted(-clause.at)}` : `+${lasted(clause.at)}`)
          : null,
        prose(clause.text),
      ),
      h(
        "div",
        { class: "clause-from" },
        h("span", {}, `from ${SOURCES[clause.source] ?? shown(clause.source, 30)}`),
        facts ? h("details", {}, h("summary", {}, "facts"), factList(facts)) : null,
      ),
    ),
  );
}

export function callView(app, id) {
  const heading = h("h1", { tabIndex: -1 }, "Call ", h("span", { class: "id" }, shown(id, 120)));
  const headline = h("p", { class: "headline" });
  const wrong = h("p", { class: "wrong", role: "alert" });
  const summary = h("div", { class: "call-summary" });
  const fall = h("section", { class: "call-fall", "aria-labelledby": "h-fall" });
  const why = h("section", { class: "call-why", "aria-labelledby": "h-why" });
  const facts = h("section", { "aria-labelledby": "h-facts" });
  const node = h(
    "div",
    { class: "view call" },
    h("p", { class: "back" }, h("a", { href: "#/live/refusals" }, "Refusals and calls")),
    heading,
    summary,
    headline,
    wrong,
    h("div", { class: "call-halves" }, fall, why),
    facts,
  );
  let timer;
  let closed = false;

  async function ask() {
    clearTimeout(timer);
    if (!app.link.live) return;
    let found;
    try {
      found = await app.link.ask(["why", id]);
    } catch (error) {
      if (error.code !== "away")
        setText(wrong, [error.message, ...(error.tries ?? [])].map((one) => shown(one)).join(" — "));
      return;
    }
    if (closed) return;
    setText(wrong, "");
    const running = show(found);
    if (running) timer = setTimeout(ask, 1000);
  }

  function show(found) {
    const use = found.use !== null && typeof found.use === "object" ? found.use : null;
    const clauses = (Array.isArray(found.clauses) ? found.clauses : []).filter(
      (one) => one !== null && typeof one === "object",
    );
    headline.replaceChildren(...prose(found.headline));
    let drawn = null;
    if (use !== null && isNumber(use.began)) {
      drawn = waterfall(use, clauses, app.link.now());
      fall.replaceChildren(
        h(
          "h2",
          { id: "h-fall" },
          "Stages ",
          h(
            "span",
            { class: "note" },
            drawn.running
              ? `running for ${lasted(drawn.total)}`
              : `${lasted(use.took)} in all, began ${clock(use.began, true)}`,
          ),
        ),
        drawn.node,
      );
      const look = use.outcome === "ok" ? "ok" : use.outcome === "refused" ? "warn" : use.outcome ? "bad" : "";
      summary.replaceChildren(
        h("span", { class: `code ${look}` }, shown(use.code ?? use.outcome ?? "running", 60)),
        use.tool_error ? h("span", { class: "code warn" }, "tool-error") : "",
        h("span", {}, `${shown(use.server || "host", 60)} / ${shown(use.tool || use.method, 80)}`),
        use.key ? h("a", { class: "id", href: `#/actor/${encodeURIComponent(use.key)}` }, shown(use.key, 40)) : "",
        use.delivery ? h("span", { class: "note" }, `delivery: ${shown(use.delivery, 30)}`) : "",
        ...(drawn.running
          ? app.control.buttons(
              ["cancel"],
              { kind: "call", name: id, id },
              () => ({ "waits for": use.waits_for }),
              ask,
              true,
            )
          : []),
      );
      const given =
        use.arguments === undefined
          ? []
          : [h("h3", {}, "Arguments as they may be shown"), h("pre", { tabIndex: 0 }, pretty(use.arguments))];
      facts.replaceChildren(h("h2", { id: "h-facts" }, "Facts"), factList(use, { skip: SKIPPED }), ...given);
    } else {
      fall.replaceChildren();
      facts.replaceChildren();
      summary.replaceChildren();
    }
    fall.hidden = drawn === null;
    const rows = clauses.map((clause, i) => {
      const row = clauseRow(clause, i + 1, drawn?.marked.has(i + 1));
      const on = () => drawn?.point(i + 1);
      const off = () => drawn?.point(0);
      row.addEventListener("pointerenter", on);
      row.addEventListener("pointerleave", off);
      row.addEventListener("focusin", on);
      row.addEventListener("focusout", off);
      return row;
    });
    why.replaceChildren(h("h2", { id: "h-why" }, "Why"), h("ol", { class: "clauses" }, rows));
    return drawn?.running ?? false;
  }

  const again = () => app.link.live && ask();
  app.link.addEventListener("state", again);
  ask();
  return {
    node,
    title: `Call ${shown(id, 60)}`,
    close() {
      closed = true;
      clearTimeout(timer);
      app.link.removeEventListener("state", again);
    },
  };
}
