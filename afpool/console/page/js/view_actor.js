// One actor: where each of its operations waits now, who is in its queue, what it did in the last minute.

import { h, setText } from "./dom.js";
import { codeOf, idOf, showRows } from "./feed.js";
import { DataTable, factList } from "./table.js";
import { Timeline } from "./timeline.js";
import { isNumber, lasted, plural, shown } from "./words.js";

const KEPT = 200;
const list = (value) => (Array.isArray(value) ? value.filter((one) => one !== null && typeof one === "object") : []);

const RUNNING = [
  { name: "call_id", kind: "id" },
  { name: "tool", kind: "text" },
  { name: "waits_for", kind: "text" },
  { name: "since", kind: "seconds" },
];
const QUEUE = [
  { name: "call_id", kind: "id" },
  { name: "tool", kind: "text" },
  { name: "waited", kind: "seconds" },
];
const TURNS = [
  { name: "at", kind: "unix" },
  { name: "message", kind: "text" },
  { name: "verdict", kind: "text" },
  { name: "took", kind: "seconds" },
];
const SHOWN = [
  ["server", "server"],
  ["state", "state"],
  ["in flight", "in_flight"],
  ["waiting", "waiting"],
  ["client", "client"],
  ["generation", "generation"],
  ["epoch", "epoch"],
];

const PARTS = { held_since: "Held since", backoff: "Back-off", connection: "Connection", list: "Tool list" };

function section(id, title, content) {
  const extra = h("span", { class: "note" });
  const node = h("section", { "aria-labelledby": id }, h("h2", { id }, title, " ", extra), content);
  return { node, extra };
}

function part(label, columns) {
  const table = new DataTable({ label });
  const none = h("p", { class: "nothing" }, "None now.");
  const rowsOf = (items) => items.map((item) => columns.map((column) => item[column.name]));
  return {
    node: h("div", {}, table.node, none),
    show(items) {
      none.hidden = items.length > 0;
      table.node.hidden = items.length === 0;
      table.show({ columns, rows: rowsOf(items) });
    },
  };
}

export function actorView(app, key) {
  const name = shown(key, 80);
  const facts = h("dl", { class: "figures" });
  const values = new Map(
    SHOWN.map(([title, from]) => {
      const value = h("dd", {}, "–");
      facts.append(h("div", {}, h("dt", {}, title), value));
      return [from, value];
    }),
  );
  const control = h("div", { class: "control", role: "group", "aria-label": "Control of this actor" });
  const wrong = h("p", { class: "wrong", role: "alert" });
  const timeline = new Timeline((id) => app.go(`#/call/${encodeURIComponent(id)}`));
  const running = part("Running operations", RUNNING);
  const queue = part("Queue", QUEUE);
  const turns = part("Last turns", TURNS);
  const feed = h("ol", { class: "feed-rows", "aria-label": "Calls and events of this actor" });
  const last = h("div", { class: "last-refusal" });
  const more = h("div", { class: "halves" });
  const runningPart = section("h-running", "Running", running.node);
  const queuePart = section("h-queue", "Queue", queue.node);
  const node = h(
    "div",
    { class: "view actor" },
    h("p", { class: "back" }, h("a", { href: "#/actors" }, "All actors")),
    h("div", { class: "view-head" }, h("h1", { tabIndex: -1 }, "Actor ", h("span", { class: "id" }, name)), control),
    wrong,
    facts,
    last,
    section("h-timeline", "Timeline", h("div", { class: "timeline-frame" }, timeline.node)).node,
    h("div", { class: "halves" }, runningPart.node, queuePart.node),
    more,
    h(
      "div",
      { class: "halves" },
      section("h-turns", "Last turns", turns.node).node,
      section("h-happened", "Calls and events", feed).node,
    ),
  );

  let actor = null;
  let events = [];
  let tracing = null;
  let asking = false;
  const now = () => ({
    state: actor?.state,
    "in flight": actor?.in_flight,
    waiting: actor?.waiting,
    client: actor?.client ?? "none",
  });

  function buttons() {
    control.replaceChildren(
      ...app.control.buttons(
        ["pause", "resume", "drain", "refresh", "evict", "invalidate"],
        { kind: "key", name, id: key },
        now,
        poll,
      ),
      ...(isNumber(actor?.client) || typeof actor?.client === "string"
        ? app.control.buttons(["kill"], { kind: "client", name: String(actor.client), id: actor.client }, now, poll)
        : []),
      ...(app.link.operates && app.link.offers("trace")
        ? [
            h(
              "button",
              { type: "button", "aria-pressed": String(tracing !== null), onclick: trace },
              tracing ? "End trace" : "Trace",
            ),
          ]
        : []),
    );
  }

  async function poll() {
    if (asking || !app.link.live || document.hidden) return;
    asking = true;
    try {
      show(await app.link.ask(["show", "actor", key]));
      setText(wrong, "");
    } catch (error) {
      if (error.code !== "away")
        setText(wrong, [error.message, ...(error.tries ?? [])].map((one) => shown(one)).join(" — "));
    } finally {
      asking = false;
    }
  }

  function show(found) {
    const had = actor?.client;
    actor = found;
    for (const [from, value] of values) {
      let text = shown(found[from] ?? (from === "client" ? "none" : "–"), 80);
      if (from === "in_flight" && isNumber(found.max)) text = `${text} of ${found.max}`;
      setText(value, text);
    }
    if (had !== found.client || control.childElementCount === 0) buttons();
    running.show(list(found.running));
    queue.show(list(found.queue));
    turns.show(list(found.turns).slice(-20).reverse());
    setText(runningPart.extra, plural(list(found.running).length, "operation"));
    setText(
      queuePart.extra,
      list(found.queue).length
        ? `oldest ${lasted(Math.max(...list(found.queue).map((one) => one.waited ?? 0)))}`
        : "",
    );
    const refusal = found.last_refusal;
    last.replaceChildren(
      ...(refusal && typeof refusal === "object"
        ? [
            h(
              "p",
              { class: "note" },
              "Last refusal: ",
              h(
                "a",
                { href: `#/call/${encodeURIComponent(refusal.call_id)}` },
                h("span", { class: "code warn" }, shown(refusal.code, 60)),
              ),
              ` ${lasted(app.link.now() - refusal.at)} ago`,
            ),
          ]
        : []),
    );
    for (const event of list(found.events)) keep(event);
    more.replaceChildren(
      ...Object.entries(PARTS)
        .filter(([name]) => found[name])
        .map(([name, title]) => h("section", {}, h("h2", {}, title), factList(found[name]))),
    );
    draw();
  }

  function keep(event) {
    const id = idOf(event);
    if (events.some((one) => one.id === id)) return;
    events.push({ id, code: codeOf(event), event });
    if (events.length > KEPT) events = events.slice(-KEPT);
  }

  // Every message of the actor, as long as somebody asks for it.
  function trace() {
    if (tracing) {
      tracing();
      tracing = null;
    } else {
      tracing = app.link.stream(["trace", key, "on"], {}, (frame) => {
        for (const event of list(frame.events)) keep(event);
        if (frame.error) setText(wrong, shown(frame.error.message));
        if (frame.error || frame.end) tracing = null;
        buttons();
      });
    }
    buttons();
  }

  function draw() {
    const at = app.link.now();
    const recent = events.map((one) => one.event);
    const under = list(actor?.running).map((one) => ({
      ...one,
      took: null,
      began: at - (one.age ?? one.since ?? 0),
    }));
    timeline.draw(at, {
      calls: [...recent.filter((one) => one.kind === "call"), ...under],
      turns: [...list(actor?.turns), ...recent.filter((one) => one.kind === "turn")],
      events: recent.filter((one) => one.kind !== "call" && one.kind !== "turn"),
    });
    const newest = events
      .slice()
      .sort((a, b) => b.event.at - a.event.at)
      .slice(0, 40);
    showRows(feed, newest);
  }

  const stop = app.link.stream(["tail"], { key, last: 60 }, (frame) => {
    if (frame.restart) {
      buttons();
      poll();
    }
    for (const event of list(frame.events)) keep(event);
  });
  const ticking = setInterval(() => {
    draw();
    poll();
  }, 1000);
  poll();
  return {
    node,
    title: `Actor ${name}`,
    close() {
      stop();
      tracing?.();
      clearInterval(ticking);
      timeline.close();
    },
  };
}
