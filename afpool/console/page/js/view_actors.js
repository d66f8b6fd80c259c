// All actors at once, as a map or as rows, and the one that is pointed at.

import { Actors, LOOK_NAMES, Wanted, arranged } from "./actors.js";
import { h, reconcile, setAttr, setClass, setText } from "./dom.js";
import { ActorList } from "./list.js";
import { ActorMap } from "./map.js";
import { count, plural, shown } from "./words.js";

const AGAIN = 400; // how often a selection is made anew while actors change
const LOOKS = ["waiting", "busy", "open", "opening", "held", "bad", "empty"];

function said(actor) {
  const places = actor.most
    ? `${count(actor.inFlight)} of ${count(actor.most)} in flight`
    : `${count(actor.inFlight)} in flight`;
  return `${actor.key}, ${actor.server}, ${actor.state}, ${places}, ${count(actor.waiting)} waiting`;
}

export function actorsView(app, only = "") {
  const actors = new Actors();
  const wanted = new Wanted();
  wanted.server = only;
  const open = (actor) => app.go(`#/actor/${encodeURIComponent(actor.key)}`);
  let pointed = null;
  const where = h("a", { class: "id", hidden: true });
  const which = h("span", { class: "map-which" }, "Point at a cell, or move with the arrow keys.");
  const loud = h("span", { id: "map-said", class: "unseen", role: "status" });
  const point = (actor, chosen) => {
    pointed = actor;
    tellPointed();
    if (chosen) setText(loud, actor ? said(actor) : "");
  };
  const tellPointed = () => {
    where.hidden = pointed === null;
    if (pointed === null) {
      setText(which, "Point at a cell, or move with the arrow keys.");
      return;
    }
    setText(where, pointed.key);
    setAttr(where, "href", `#/actor/${encodeURIComponent(pointed.key)}`);
    const client =
      pointed.client === null ? "no client" : `client ${pointed.client}, generation ${pointed.generation ?? "–"}`;
    setText(which, `${said(pointed).slice(pointed.key.length + 2)}, ${client}`);
  };
  let shape = "map";
  let body = new ActorMap(point, open);
  const total = h("span", { class: "total" }, "Waiting for the first actors…");
  const wrong = h("p", { class: "wrong", role: "alert" });
  const search = h("input", {
    type: "search",
    id: "actor-search",
    placeholder: "Digest or state",
    autocomplete: "off",
    oninput: () => pick({ text: search.value.trim().toLowerCase() }),
  });
  setAttr(search, "spellcheck", "false");
  const server = h(
    "select",
    { id: "actor-server", onchange: () => pick({ server: server.value }) },
    h("option", { value: "" }, "All servers"),
  );
  const chips = new Map(
    LOOKS.map((look) => {
      const number = h("span", { class: "number" }, "0");
      const button = h(
        "button",
        {
          type: "button",
          class: "chip",
          "aria-pressed": "false",
          onclick: () => pick({ look: wanted.look === look ? "" : look }),
        },
        h("span", { class: `dot ${look}` }),
        LOOK_NAMES[look],
        " ",
        number,
      );
      return [look, { button, number }];
    }),
  );
  const shapes = ["map", "list"].map((name) =>
    h(
      "label",
      {},
      h("input", {
        type: "radio",
        name: "shape",
        value: name,
        checked: name === shape,
        onchange: () => reshape(name),
      }),
      h("span", {}, name === "map" ? "Map" : "List"),
    ),
  );
  const frame = h("div", { class: "actors-body" }, body.node);
  const strip = h("div", { class: "map-strip" }, where, which);
  const node = h(
    "div",
    { class: "view actors" },
    h("div", { class: "view-head" }, h("h1", { tabIndex: -1 }, "Actors"), total),
    h(
      "div",
      { class: "filters" },
      h("label", { class: "field" }, h("span", { class: "unseen" }, "Find by digest or state"), search),
      h("label", { class: "field" }, h("span", { class: "unseen" }, "Server"), server),
      h("fieldset", { class: "switch" }, h("legend", { class: "unseen" }, "Shown as"), shapes),
    ),
    h(
      "div",
      { class: "chips", role: "group", "aria-label": "Only those in one state" },
      [...chips.values()].map((one) => one.button),
    ),
    wrong,
    frame,
    strip,
    loud,
  );

  let lastShape = -1;
  let arrangedAt = 0;
  let dirtyWanted = true;

  function pick(how) {
    Object.assign(wanted, how);
    for (const [look, { button }] of chips) setAttr(button, "aria-pressed", String(wanted.look === look));
    dirtyWanted = true;
    plan();
    clearTimeout(telling);
    telling = setTimeout(() => {
      summary();
      setText(loud, total.textContent);
    }, 600);
  }
  let telling;

  function reshape(name) {
    shape = name;
    body.close();
    body = name === "map" ? new ActorMap(point, open) : new ActorList(open);
    frame.replaceChildren(body.node);
    strip.hidden = name !== "map";
    dirtyWanted = true;
    plan();
  }

  let planned;
  function plan() {
    planned ??= requestAnimationFrame(() => {
      planned = undefined;
      refresh();
    });
  }

  let later;
  function refresh() {
    const { changed, left } = actors.taken();
    const now = performance.now();
    // a selection, and any order of rows, is made anew now and then: what is in it changes with every frame
    const loose = !wanted.all || shape === "list";
    const due = loose
      ? now - arrangedAt > AGAIN && (changed.size > 0 || left.length > 0)
      : actors.shape !== lastShape;
    if (dirtyWanted || due) {
      arrangedAt = now;
      lastShape = actors.shape;
      dirtyWanted = false;
      body.show(arranged(actors, wanted), !wanted.all);
    } else {
      body.changed(changed, left);
      if (loose && (changed.size || left.length)) {
        later ??= setTimeout(() => {
          later = undefined;
          dirtyWanted = true;
          plan();
        }, AGAIN);
      }
    }
    if (pointed !== null) {
      if (actors.byKey.get(pointed.key) === pointed) tellPointed();
      else point(null, false);
    }
  }

  function summary() {
    if (!actors.ready) return;
    let found = actors.size;
    if (!wanted.all) found = [...actors.byKey.values()].reduce((sum, actor) => sum + (wanted.has(actor) ? 1 : 0), 0);
    setText(total, wanted.all ? plural(found, "key") : `${count(found)} of ${plural(actors.size, "key")}`);
    for (const [look, { number, button }] of chips) {
      const many = actors.looks.get(look) ?? 0;
      setText(number, count(many));
      setClass(button, many || wanted.look === look ? "chip" : "chip none");
    }
    const names = actors.servers;
    if (names.length !== server.options.length - 1) {
      const options = [
        { value: "", text: "All servers" },
        ...names.map((name) => ({ value: name, text: shown(name, 60) })),
      ];
      reconcile(
        server,
        options,
        (one) => `=${one.value}`,
        (one) => h("option", { value: one.value }, one.text),
      );
      server.value = wanted.server;
    }
  }
  server.replaceChildren();
  reconcile(
    server,
    [{ value: "", text: "All servers" }],
    (one) => `=${one.value}`,
    (one) => h("option", { value: one.value }, one.text),
  );

  const stop = app.link.stream(["watch", "actors"], { every: 0.5 }, (frameOf) => {
    if (frameOf.restart) {
      actors.clear();
      setText(wrong, "");
      dirtyWanted = true;
    } else if (frameOf.error) setText(wrong, shown(frameOf.error.message));
    else if (frameOf.end) setText(wrong, `The process ended this stream: ${shown(frameOf.end)}`);
    else if (frameOf.actors !== null && typeof frameOf.actors === "object") actors.take(frameOf.actors);
    plan();
  });
  const ticking = setInterval(summary, 250);
  const recolour = () => body.recolour();
  app.addEventListener("theme", recolour);

  return {
    node,
    title: "Actors",
    search,
    close() {
      stop();
      clearInterval(ticking);
      clearTimeout(later);
      clearTimeout(telling);
      cancelAnimationFrame(planned);
      app.removeEventListener("theme", recolour);
      body.close();
    },
  };
}
