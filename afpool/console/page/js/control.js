// What changes the process: each action says what it will do before it does, and what it did afterwards. Only offered
// where the process says that this token may operate, and that it knows the command.

import { h, setText } from "./dom.js";
import { clock, isNumber, lasted, shown } from "./words.js";

// What will happen, for a key or for a whole server. `strong` ones end something that is under way or held.
const ACTIONS = {
  pause: {
    title: "Pause",
    key: "Calls that come from now on wait for a place. They are not refused, but each still ends at its own deadline. Calls that have a place go on.",
    server:
      "Calls to every key of this server wait for a place from now on, also of keys that don't exist yet. They are not refused, but each still ends at its own deadline. Calls that have a place go on.",
    times: true,
  },
  resume: {
    title: "Resume",
    key: "Calls that wait get places again, oldest first. If the whole server is paused, they go on waiting for that.",
    server: "Calls that wait, for any key of this server, get places again, oldest first.",
  },
  drain: {
    title: "Drain",
    strong: true,
    key: "No new call gets a place until what runs now has settled; then the key's client is closed. This waits up to 30 seconds for it; what hasn't settled by then goes on draining.",
    server:
      "No new call to any key of this server gets a place until what runs on it has settled; then its client is closed. This waits up to 30 seconds for all; what hasn't settled by then goes on draining.",
  },
  evict: {
    title: "Evict",
    strong: true,
    key: "The key's client is closed if nobody uses it; else nothing is changed. The next call opens another one, and goes on only if that one lists the same definition.",
  },
  kill: {
    title: "Kill client",
    strong: true,
    client:
      "The client is closed at once. Calls whose request has left end in doubt: the server may have run them. Calls that were not sent are refused. The next call opens another client.",
  },
  refresh: {
    title: "Refresh list",
    key: "The key's tool list is asked for again now, and an opening that failed is tried again at once. Where the list differs, tools that were listed before are refused as stale.",
  },
  invalidate: {
    title: "Invalidate",
    strong: true,
    key: "Every tool that was listed for this key so far is refused as binding-changed, also in calls that wait now, and its credentials are dropped. Hosts have to list anew.",
  },
  cancel: {
    title: "Withdraw call",
    strong: true,
    call: "The call is withdrawn and its server is told. If its request has left, the call ends in doubt: the server may have run it.",
  },
};

// How long a pause holds. The process ends it by itself, unless it is asked not to.
const TIMES = [
  ["60", "one minute"],
  ["600", "ten minutes"],
  ["3600", "one hour"],
  ["hold", "until somebody resumes it"],
];

export class Control {
  constructor(link) {
    this.link = link;
    this.title = h("h2", { id: "ask-title" });
    this.what = h("p", { id: "ask-what" });
    this.facts = h("dl", { class: "facts" });
    this.time = h(
      "select",
      { id: "ask-time" },
      TIMES.map(([value, text]) => h("option", { value }, text)),
    );
    this.times = h("p", { class: "field" }, h("label", { for: "ask-time" }, "For "), this.time);
    this.wrong = h("p", { class: "wrong", role: "alert" });
    this.yes = h("button", { type: "button", class: "primary", onclick: () => this.go() });
    this.no = h("button", { type: "button", onclick: () => this.dialog.close() }, "Cancel");
    this.dialog = h(
      "dialog",
      { class: "dialog", "aria-labelledby": "ask-title", "aria-describedby": "ask-what" },
      this.title,
      this.what,
      this.facts,
      this.times,
      this.wrong,
      h(
        "p",
        { class: "note" },
        "What is done here is filed as an event, with who asked. A pause for a time also ends soon after this page has gone.",
      ),
      h("div", { class: "dialog-buttons" }, this.no, this.yes),
    );
    this.notice = h("div", { class: "notice", role: "status" });
    this.close = h(
      "button",
      { type: "button", class: "quiet", "aria-label": "Close this notice", onclick: () => this.tell("") },
      "×",
    );
    this.noticeFrame = h("div", { class: "notice-frame", hidden: true }, this.notice, this.close);
    document.body.append(this.dialog, this.noticeFrame);
    link.addEventListener("state", () => {
      if (!link.operates && this.dialog.open)
        setText(this.wrong, "The connection to the process has ended; nothing was asked for.");
    });
  }

  // Buttons for what may be done; `facts` is asked for when one is pressed.
  buttons(words, target, facts = () => ({}), done = () => {}, small = false) {
    if (!this.link.operates) return [];
    return words
      .filter((word) => this.link.offers(word))
      .filter((word) => target.kind in ACTIONS[word])
      .map((word) => {
        const action = ACTIONS[word];
        const name = `${action.title} ${shown(target.name, 60)}`;
        return h(
          "button",
          {
            type: "button",
            class: small ? "small" : "",
            "aria-label": small ? name : null,
            onclick: () => this.ask(word, target, facts(), done),
          },
          action.title,
        );
      });
  }

  ask(word, target, facts, done) {
    const action = ACTIONS[word];
    this.asked = { word, target, done };
    setText(this.title, `${action.title}: ${target.kind} ${shown(target.name, 120)}`);
    setText(this.what, action[target.kind]);
    this.facts.replaceChildren(
      ...Object.entries(facts)
        .filter(([, value]) => value !== null && value !== undefined)
        .flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, shown(value, 200))]),
    );
    this.times.hidden = !action.times;
    this.time.value = TIMES[0][0];
    setText(this.wrong, "");
    setText(this.yes, action.title);
    this.yes.className = action.strong ? "primary strong" : "primary";
    this.yes.disabled = false;
    this.dialog.showModal();
    (action.strong ? this.no : this.yes).focus();
  }

  async go() {
    const { word, target, done } = this.asked;
    this.yes.disabled = true;
    setText(this.wrong, "");
    const words = [word, String(target.id ?? target.name)];
    const options = {};
    if (ACTIONS[word].times && this.time.value === "hold") words.push("hold");
    else if (ACTIONS[word].times) options.for = `${this.time.value}s`;
    try {
      const result = await this.link.ask(words, options);
      this.dialog.close();
      this.tell(didWhat(word, target, result, this.link.now()));
      done(result);
    } catch (error) {
      setText(this.wrong, [error.message, ...(error.tries ?? [])].map((one) => shown(one)).join(" — "));
      this.yes.disabled = false;
    }
  }

  tell(text) {
    setText(this.notice, text);
    this.noticeFrame.hidden = text === "";
    clearTimeout(this.timer);
    if (text) this.timer = setTimeout(() => this.tell(""), 12000);
  }
}

function side(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "object") return shown(value, 200);
  return Object.entries(value)
    .map(([name, one]) => `${name.replaceAll("_", " ")} ${shown(one, 80)}`)
    .join(", ");
}

function didWhat(word, target, result, now) {
  const parts = [shown(result.what ?? `${ACTIONS[word].title}: ${target.name}`, 300)];
  const [before, after] = [side(result.before), side(result.after)];
  if (before || after) parts.push(`Before: ${before || "–"}`, `after: ${after || "–"}`);
  if (result.ends) parts.push(`ends ${shown(result.ends, 200)}`);
  else if (isNumber(result.until)) parts.push(`until ${clock(result.until)}, ${lasted(result.until - now)} from now`);
  if (result.note) parts.push(shown(result.note, 300));
  return `${parts.join("; ")}.`;
}
