// What stands around every view: where one is, whether it is live, and the form that asks for the token.

import { h, setAttr, setClass, setText } from "./dom.js";
import { count, lasted, plural, shown } from "./words.js";

export const PLACES = [
  { name: "overview", title: "Overview", where: "#/" },
  { name: "actors", title: "Actors", where: "#/actors" },
  { name: "live", title: "Refusals", where: "#/live/refusals" },
  { name: "servers", title: "Servers", where: "#/servers" },
  { name: "checks", title: "Checks", where: "#/checks" },
  { name: "tables", title: "Tables", where: "#/tables" },
];

const SILENT = 4; // seconds without a word from a process that speaks every second

export class Shell {
  constructor(app, themeButton, help) {
    this.app = app;
    const { link } = app;
    this.process = h("span", { class: "process" });
    this.level = h("span", { class: "level" });
    this.state = h("span", { class: "state", role: "status" });
    this.dropped = h("span", {
      class: "dropped",
      hidden: true,
      title: "Events that this page was too slow for. Nothing was delayed for them.",
    });
    this.out = h("button", { type: "button", class: "quiet", onclick: () => link.signOut() }, "Sign out");
    this.links = new Map(PLACES.map(({ name, title, where }) => [name, h("a", { href: where }, title)]));
    this.nav = h("nav", { class: "places", "aria-label": "Views" }, [...this.links.values()]);
    this.main = h("main", { id: "content", tabIndex: -1 });
    this.bannerText = h("span", {});
    this.bannerTry = h("button", { type: "button", onclick: () => link.connect() }, "Try now");
    this.banner = h("div", { class: "banner", hidden: true }, this.bannerText, this.bannerTry);
    this.loud = h("div", { class: "unseen", role: "alert" });
    this.top = h(
      "header",
      { class: "top" },
      h(
        "div",
        { class: "top-line" },
        h("a", { class: "brand", href: "#/" }, "afpool"),
        this.process,
        this.level,
        this.state,
        this.dropped,
        h("span", { class: "grow" }),
        themeButton,
        h("button", { type: "button", class: "quiet", "aria-label": "Keys", onclick: help }, "?"),
        this.out,
      ),
      this.nav,
    );
    this.door = this.makeDoor();
    const skip = h(
      "a",
      {
        class: "skip",
        href: "#content",
        onclick: (event) => {
          event.preventDefault();
          (this.main.querySelector("h1") ?? this.main).focus();
        },
      },
      "Skip to the content",
    );
    document.body.append(skip, this.top, this.banner, this.main, this.door, this.loud);
    link.addEventListener("state", () => this.show());
    link.addEventListener("dropped", () => this.show());
    setInterval(() => (link.state === "away" || link.silent > SILENT || this.silent) && this.show(), 1000);
  }

  get link() {
    return this.app.link;
  }

  makeDoor() {
    this.token = h("input", {
      type: "password",
      id: "token",
      autocomplete: "off",
      required: true,
      "aria-describedby": "token-said",
    });
    this.kept = h("input", { type: "checkbox", checked: true });
    this.doorSaid = h("p", { class: "wrong", id: "token-said", role: "alert" });
    this.enter = h("button", { type: "submit", class: "primary" }, "Look inside");
    const form = h(
      "form",
      {
        class: "door-form",
        onsubmit: (event) => {
          event.preventDefault();
          const token = this.token.value.trim();
          this.token.value = "";
          if (token) this.link.signIn(token, this.kept.checked);
        },
      },
      h("h1", {}, "afpool console"),
      h(
        "p",
        { class: "note" },
        "A token for reading shows everything here; one for operating may also pause, drain and kill. Whoever started the process has them, or its configuration names them.",
      ),
      h("label", { for: "token" }, "Token"),
      this.token,
      this.doorSaid,
      h("label", { class: "check-field" }, this.kept, " Keep it until this tab is closed"),
      this.enter,
    );
    return h("main", { class: "door", hidden: true }, form);
  }

  show() {
    const { link } = this;
    const { hello, state } = link;
    const signedOut = state === "signed-out" || (state === "connecting" && hello === null);
    this.door.hidden = !signedOut;
    this.top.hidden = this.main.hidden = this.banner.hidden = signedOut;
    if (signedOut) {
      setText(this.doorSaid, link.said ? shown(link.said, 300) : "");
      this.enter.disabled = state === "connecting";
      setText(this.enter, state === "connecting" ? "Connecting…" : "Look inside");
      if (state === "signed-out" && this.shown !== state) this.token.focus();
    } else {
      setText(this.process, hello ? `${shown(hello.name, 60)} · pid ${shown(hello.pid, 12)}` : "");
      setAttr(this.process, "title", hello ? `version ${shown(hello.version, 40)}` : null);
      setText(this.level, hello ? shown(hello.level, 20) : "");
      setText(this.state, state === "live" ? "live" : state === "connecting" ? "connecting" : "away");
      setClass(this.state, `state ${state}`);
      this.dropped.hidden = link.dropped === 0;
      setText(this.dropped, `${count(link.dropped)} dropped`);
      const away = state === "away";
      this.silent = link.silent > SILENT;
      this.banner.hidden = !away && !this.silent;
      this.bannerTry.hidden = !away;
      this.main.classList.toggle("stale", away);
      if (away) {
        const ago = lasted(Math.round((Date.now() - link.since) / 1000) || 0);
        const next = Math.max(0, Math.ceil((link.nextTry - Date.now()) / 1000));
        const why = link.reason ? ` It said: ${shown(link.reason, 200)}.` : "";
        setText(
          this.bannerText,
          `The process went away ${ago === "0" ? "just now" : `${ago} ago`}.${why} What stands here is from then. ${next ? `Next try in ${plural(next, "second")}.` : "Trying now…"}`,
        );
        if (this.shown !== "away") setText(this.loud, "The process went away. It is tried again.");
      } else if (this.silent) {
        setText(this.state, "silent");
        setClass(this.state, "state away");
        setText(
          this.bannerText,
          `The process has said nothing for ${lasted(Math.round(link.silent))}, though it should every second: its event loop may hang. \`afpool console\` on that machine shows the stacks of its threads all the same.`,
        );
      } else if (this.shown === "away" && state === "live") {
        setText(
          this.loud,
          link.other ? `Live again: another process answers now, pid ${shown(hello.pid, 12)}.` : "Live again.",
        );
      }
    }
    this.shown = state;
  }

  at(name) {
    for (const [one, node] of this.links) setAttr(node, "aria-current", one === name ? "page" : null);
    const link = this.links.get(name);
    if (link) this.nav.scrollLeft = Math.max(0, link.offsetLeft - this.nav.clientWidth / 3);
  }
}
