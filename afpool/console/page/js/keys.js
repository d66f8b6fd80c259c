// Shortcuts, and the list of them under `?`. A key that somebody types into a field is text, and a key with Ctrl, Alt
// or Meta belongs to the browser.

import { h } from "./dom.js";

const IN_MAP = [
  ["← → ↑ ↓", "move among actors, in the map and in the list"],
  ["Home End", "first and last actor"],
  ["Page ↑ ↓", "a screen further"],
  ["Enter", "open the actor"],
];

export class Keys {
  // `commands` are {keys, words, run}.
  constructor(commands, single) {
    this.commands = commands;
    this.single = single;
    const toggle = h("input", { type: "checkbox", checked: single.on, onchange: () => single.set(toggle.checked) });
    const rows = [
      ...commands.map(({ keys, words }) => [keys.join(" or "), words]),
      ...IN_MAP,
      ["Esc", "close a dialog; leave a field"],
    ];
    this.dialog = h(
      "dialog",
      { class: "dialog", "aria-labelledby": "keys-title" },
      h("h2", { id: "keys-title" }, "Keys"),
      h(
        "dl",
        { class: "keys" },
        rows.map(([keys, words]) =>
          h(
            "div",
            {},
            h(
              "dt",
              {},
              keys
                .split(" or ")
                .map((key, i) => [i ? " or " : null, h("kbd", {}, key)])
                .flat(),
            ),
            h("dd", {}, words),
          ),
        ),
      ),
      h("label", { class: "check-field" }, toggle, " Single keys are shortcuts"),
      h(
        "div",
        { class: "dialog-buttons" },
        h("button", { type: "button", class: "primary", onclick: () => this.dialog.close() }, "Close"),
      ),
    );
    document.body.append(this.dialog);
    document.addEventListener("keydown", (event) => this.take(event));
  }

  show() {
    if (!this.dialog.open) this.dialog.showModal();
  }

  take(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const target = event.target;
    const types = target.closest?.("input, select, textarea, [contenteditable]");
    if (event.key === "Escape" && types && !target.closest("dialog")) {
      target.blur();
      return;
    }
    if (types || document.querySelector("dialog[open]") || !this.single.on) return;
    const command = this.commands.find(({ keys }) => keys.includes(event.key));
    if (command === undefined) return;
    event.preventDefault();
    command.run();
  }
}
