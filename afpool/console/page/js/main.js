// The page: one connection, a few things that are always followed, and the view that the address names.

import { Control } from "./control.js";
import { Fallen } from "./feed.js";
import { Keys } from "./keys.js";
import { Link } from "./link.js";
import { PLACES, Shell } from "./shell.js";
import { History } from "./spark.js";
import { SingleKeys, Theme } from "./theme.js";
import { actorView } from "./view_actor.js";
import { actorsView } from "./view_actors.js";
import { callView } from "./view_call.js";
import { liveView } from "./view_live.js";
import { NUMBERS, overviewView } from "./view_overview.js";
import { checksView, serversView, tablesView } from "./view_rest.js";
import { shown } from "./words.js";

class App extends EventTarget {
  constructor() {
    super();
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    this.link = new Link(`${scheme}//${location.host}/console`);
    this.overview = null;
    this.histories = new Map(NUMBERS.map((number) => [number.id, new History()]));
    this.refusals = new Fallen();
    this.view = null;
    this.theme = new Theme(() => this.dispatchEvent(new Event("theme")));
    this.shell = new Shell(this, this.theme.button, () => this.keys.show());
    this.control = new Control(this.link);
    this.keys = new Keys(this.commands(), new SingleKeys());
    this.follow();
    addEventListener("hashchange", () => location.hash === this.at || this.route());
    this.link.addEventListener("state", () => this.changed());
    this.link.start();
  }

  // At once, so that the next key that somebody presses meets the view that they asked for.
  go(where) {
    location.hash = where;
    this.route();
  }

  commands() {
    return [
      ...PLACES.map(({ title, where }, i) => ({ keys: [String(i + 1)], words: title, run: () => this.go(where) })),
      { keys: ["/"], words: "find", run: () => this.find() },
      { keys: ["p"], words: "hold what falls still, or go on", run: () => this.view?.pause?.() },
      { keys: ["t"], words: "light, dark, or as the system", run: () => this.theme.next() },
      { keys: ["?"], words: "this list", run: () => this.keys.show() },
    ];
  }

  find() {
    if (this.view?.search) this.view.search.focus();
    else this.go("#/actors");
  }

  follow() {
    this.link.stream(["watch", "overview"], { every: 1 }, (frame) => {
      if (frame.restart && this.link.other) {
        for (const history of this.histories.values()) history.clear();
        this.overview = null;
      }
      if (frame.overview === null || typeof frame.overview !== "object") return;
      this.overview = frame.overview;
      for (const number of NUMBERS) this.remember(number, frame.overview);
      this.dispatchEvent(new Event("overview"));
    });
    this.link.stream(["tail", "refusals"], { last: 100 }, (frame) => {
      if (frame.restart && this.link.other) this.refusals.clear();
      else this.refusals.take(frame);
    });
  }

  // What counts from the start on is drawn as how many there were in each second.
  remember(number, overview) {
    const value = number.read(overview);
    const history = this.histories.get(number.id);
    if (!number.each) {
      history.add(value);
      return;
    }
    const before = history.last ?? value;
    history.last = value;
    history.add(Math.max(0, value - before));
  }

  changed() {
    const { link } = this;
    if (link.state === "signed-out") {
      this.leave();
      this.overview = null;
      this.refusals.clear();
      for (const history of this.histories.values()) history.clear();
    } else if (link.live && this.view === null) {
      this.route(link.byHand === true); // the form that had the focus is gone
      link.byHand = false;
    }
  }

  leave() {
    this.view?.close();
    this.view = null;
    this.shell.main.replaceChildren();
  }

  route(focus = true) {
    if (this.link.hello === null) return;
    this.leave();
    this.at = location.hash;
    const parts = location.hash
      .replace(/^#\/?/, "")
      .split("/")
      .map((part) => {
        try {
          return decodeURIComponent(part);
        } catch {
          return part;
        }
      });
    const [name, one = "", two = ""] = parts;
    const views = {
      actors: () => actorsView(this, one),
      actor: () => actorView(this, parts.slice(1).join("/")),
      call: () => callView(this, parts.slice(1).join("/")),
      live: () => liveView(this, one || "refusals", two),
      servers: () => serversView(this),
      checks: () => checksView(this),
      tables: () => tablesView(this, one),
    };
    const known = Object.hasOwn(views, name);
    this.view = known ? views[name]() : overviewView(this);
    this.shell.main.replaceChildren(this.view.node);
    this.shell.at({ actor: "actors", call: "live" }[name] ?? (known ? name : "overview"));
    document.title = `${this.view.title} – ${shown(this.link.hello.name, 60)} – afpool console`;
    for (const current of this.shell.main.querySelectorAll(".subnav [aria-current]")) {
      current.parentElement.scrollLeft = Math.max(0, current.offsetLeft - 120);
    }
    scrollTo(0, 0);
    if (focus) (this.shell.main.querySelector("h1") ?? this.shell.main).focus({ preventScroll: true });
  }
}

new App();
