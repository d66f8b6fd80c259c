// Light, dark, or what the system says. Painted things are told, since they can't inherit a colour.

import { h, setAttr, setText } from "./dom.js";

const KEPT = "afpool.console.theme";
const NEXT = { system: "light", light: "dark", dark: "system" };
const WORDS = { system: "System", light: "Light", dark: "Dark" };

function kept(name, otherwise) {
  try {
    return localStorage.getItem(name) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // it then holds for this page only
  }
}

export class Theme {
  constructor(told) {
    this.told = told;
    this.choice = kept(KEPT, "system");
    if (!(this.choice in NEXT)) this.choice = "system";
    this.word = h("span", { class: "theme-word" });
    this.button = h(
      "button",
      { type: "button", class: "quiet", onclick: () => this.next() },
      h("span", { class: "theme-mark", "aria-hidden": "true" }),
      this.word,
    );
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.told());
    this.apply();
  }

  next() {
    this.choice = NEXT[this.choice];
    keep(KEPT, this.choice);
    this.apply();
    this.told();
  }

  apply() {
    setAttr(document.documentElement, "data-theme", this.choice === "system" ? null : this.choice);
    setText(this.word, WORDS[this.choice]);
    setAttr(this.button, "aria-label", `Colours: ${WORDS[this.choice]}. Change to ${WORDS[NEXT[this.choice]]}`);
  }
}

// Whether single keys are shortcuts: off for those who speak to their computer.
export class SingleKeys {
  constructor() {
    this.on = kept("afpool.console.keys", "on") === "on";
  }

  set(on) {
    this.on = on;
    keep("afpool.console.keys", on ? "on" : "off");
  }
}
