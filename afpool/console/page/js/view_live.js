// What falls: refusals, failures with them, every call, or events. Refusals are followed from the moment that the page
// is open; the others while they are looked at.

import { h, reconcile, setAttr, setText } from "./dom.js";
import { Fallen, Feed } from "./feed.js";
import { count, shown } from "./words.js";

const KINDS = [
  ["refusals", "Refusals and failures", null],
  ["calls", "Every call", "calls"],
  ["events", "Events", "events"],
];

export function liveView(app, kind = "refusals", code = "") {
  const [, label, what] = KINDS.find(([name]) => name === kind) ?? KINDS[0];
  const fallen = what === null ? app.refusals : new Fallen();
  let wanted = code;
  const wrong = h("p", { class: "wrong", role: "alert" });
  const feed = new Feed(fallen, `${label}, newest first`, (item) => !wanted || item.code === wanted);
  const codes = h("div", { class: "chips", role: "group", "aria-label": "Only one code" });
  const find = h("input", {
    type: "search",
    id: "call-search",
    placeholder: "Call id or artifact",
    autocomplete: "off",
  });
  setAttr(find, "spellcheck", "false");
  const form = h(
    "form",
    {
      class: "field",
      onsubmit: (event) => {
        event.preventDefault();
        if (find.value.trim()) app.go(`#/call/${encodeURIComponent(find.value.trim())}`);
      },
    },
    h("label", { class: "unseen", for: "call-search" }, "Explain a call by its id, or an artifact"),
    find,
    h("button", { type: "submit" }, "Why?"),
  );
  const tabs = h(
    "nav",
    { class: "subnav", "aria-label": "What falls" },
    KINDS.map(([name, title]) =>
      h("a", { href: `#/live/${name}`, "aria-current": name === kind ? "page" : null }, title),
    ),
  );
  const node = h(
    "div",
    { class: "view live" },
    h("h1", { tabIndex: -1, class: "unseen" }, label),
    h("div", { class: "tabs-line" }, tabs, form),
    codes,
    wrong,
    feed.node,
  );

  function chip({ name }) {
    const number = h("span", { class: "number" });
    const button = h(
      "button",
      { type: "button", class: "chip", onclick: () => pick(name) },
      shown(name, 60),
      " ",
      number,
    );
    button.number = number;
    return button;
  }

  function pick(name) {
    wanted = wanted === name ? "" : name;
    chips();
    feed.draw(true);
  }

  function chips() {
    // the most frequent ones, each where it stood when it first fell: nobody presses what has just moved away
    const all = [...fallen.codes].map(([name, many]) => ({ name, many }));
    const most = new Set([...all].sort((a, b) => b.many - a.many).slice(0, 24));
    const items = all.filter((one) => most.has(one));
    if (wanted && !items.some((one) => one.name === wanted))
      items.unshift({ name: wanted, many: fallen.codes.get(wanted) ?? 0 });
    reconcile(
      codes,
      items,
      (one) => one.name,
      chip,
      (button, one) => {
        setText(button.number, count(one.many));
        setAttr(button, "aria-pressed", String(one.name === wanted));
      },
    );
  }

  const stop =
    what === null
      ? () => {}
      : app.link.stream(["tail", what], { last: 100 }, (frame) => {
          if (frame.error) setText(wrong, shown(frame.error.message));
          else if (frame.end) setText(wrong, `The process ended this stream: ${shown(frame.end)}`);
          else if (frame.restart) setText(wrong, "");
          else fallen.take(frame);
        });
  const ticking = setInterval(() => feed.still || chips(), 500);
  chips();
  return {
    node,
    title: label,
    search: find,
    pause: () => feed.toggle(),
    close() {
      stop();
      clearInterval(ticking);
      feed.close();
    },
  };
}
