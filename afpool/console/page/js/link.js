// The one connection to the process.
//
// Rules:
// * The token goes out as the first frame and nowhere else: never in an address, and at most in this tab's
//   `sessionStorage`. A token that was refused is forgotten at once.
// * What is asked is answered or fails: when the connection ends, every open question fails with it.
// * Streams are wanted for longer than connections live: after a reconnect each is asked for again, and told
//   `restart` first, so that it forgets what it knew.
// * A refusal of the token is final until somebody gives another; anything else is tried again, less and less often.

const KEPT = "afpool.console.token";
const PROTOCOL = "afpool.console.1";
const PAUSES = [0.5, 1, 2, 4, 8, 15];
const HELLO_WITHIN = 10;

export class Refused extends Error {
  constructor(error) {
    super(typeof error?.message === "string" ? error.message : "the process did not say why");
    this.code = typeof error?.code === "string" ? error.code : "failed";
    this.tries = Array.isArray(error?.try) ? error.try.filter((one) => typeof one === "string") : [];
  }
}

export class Link extends EventTarget {
  constructor(address) {
    super();
    this.address = address;
    this.state = "signed-out"; // signed-out | connecting | live | away
    this.hello = null;
    this.dropped = 0;
    this.token = null;
    this.said = ""; // why the token was refused
    this.since = 0; // when the process went away
    this.nextTry = 0;
    this.failures = 0;
    this.asked = new Map();
    this.wanted = new Set();
    this.streams = new Map();
    this.stopped = new Set();
    this.early = new Map(); // frames of a stream whose number is not known yet
    this.lastId = 0;
    this.skew = 0;
    this.heard = 0; // when the last frame came
    try {
      this.token = sessionStorage.getItem(KEPT);
    } catch {
      // no storage for this page: the token is asked for at every load
    }
    addEventListener("online", () => this.hurry());
    document.addEventListener("visibilitychange", () => document.hidden || this.hurry());
  }

  start() {
    if (this.token) this.connect();
    else this.say("signed-out");
  }

  signIn(token, keep) {
    this.byHand = true;
    this.token = token;
    this.said = "";
    this.failures = 0;
    try {
      if (keep) sessionStorage.setItem(KEPT, token);
      else sessionStorage.removeItem(KEPT);
    } catch {
      // not kept, then
    }
    this.connect();
  }

  signOut(said = "") {
    this.token = null;
    this.said = said;
    try {
      sessionStorage.removeItem(KEPT);
    } catch {
      // nothing was kept
    }
    this.hello = null;
    this.leave();
    this.say("signed-out");
  }

  get live() {
    return this.state === "live";
  }

  get operates() {
    return this.live && this.hello?.level === "operate";
  }

  offers(word) {
    return (this.hello?.commands ?? []).some((one) => String(one?.words?.[0] ?? "") === word);
  }

  // For how long a process that should speak every second has said nothing.
  get silent() {
    return this.live ? (performance.now() - this.heard) / 1000 : 0;
  }

  // The process's unix time now, by its own clock.
  now() {
    return Date.now() / 1000 + this.skew;
  }

  connect() {
    this.leave();
    this.say(this.since ? "away" : "connecting");
    const socket = new WebSocket(this.address, [PROTOCOL]);
    this.socket = socket;
    this.helloTimer = setTimeout(() => socket.close(), HELLO_WITHIN * 1000);
    socket.onopen = () => socket.send(JSON.stringify({ token: this.token }));
    socket.onmessage = (event) => {
      if (socket !== this.socket || typeof event.data !== "string") return;
      this.heard = performance.now();
      let frame;
      try {
        frame = JSON.parse(event.data);
      } catch {
        return;
      }
      if (frame !== null && typeof frame === "object") this.take(frame);
    };
    socket.onclose = (event) => {
      if (socket === this.socket) this.lost(event);
    };
  }

  leave() {
    clearTimeout(this.helloTimer);
    clearTimeout(this.retryTimer);
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    const asked = [...this.asked.values()];
    this.asked.clear();
    this.streams.clear();
    this.stopped.clear();
    this.early.clear();
    for (const { no } of asked)
      no(new Refused({ code: "away", message: "the connection ended before the answer came" }));
  }

  lost(event) {
    const refused = event.code === 4401 || event.code === 4403 || this.refusal;
    const said = this.refusal || event.reason || "";
    this.refusal = "";
    if (refused) {
      this.since = 0;
      this.signOut(said || "This token is not one that the process accepts.");
      return;
    }
    this.leave();
    if (!this.since) this.since = Date.now();
    this.reason = event.reason || "";
    const base = PAUSES[Math.min(this.failures, PAUSES.length - 1)];
    this.failures += 1;
    const pause = base * (0.75 + Math.random() / 2);
    this.nextTry = Date.now() + pause * 1000;
    this.retryTimer = setTimeout(() => this.connect(), pause * 1000);
    this.say("away");
  }

  hurry() {
    if (this.state === "away" && this.nextTry > Date.now()) this.connect();
  }

  take(frame) {
    if (frame.hello !== null && typeof frame.hello === "object") this.greeted(frame.hello);
    else if (typeof frame.stream === "number") this.flow(frame);
    else if (this.asked.has(frame.id)) {
      const { yes, no } = this.asked.get(frame.id);
      this.asked.delete(frame.id);
      if (frame.error) no(new Refused(frame.error));
      else yes(frame.ok ?? {});
    } else if (frame.error && !this.hello) this.refusal = new Refused(frame.error).message;
    else if (frame.error && frame.error.code === "not-allowed" && !this.live)
      this.refusal = new Refused(frame.error).message;
  }

  greeted(hello) {
    clearTimeout(this.helloTimer);
    const before = this.hello;
    this.hello = hello;
    this.failures = 0;
    this.since = 0;
    this.refusal = "";
    if (typeof hello.unix === "number") this.skew = hello.unix - Date.now() / 1000;
    this.other = before !== null && before.pid !== hello.pid;
    this.say("live");
    for (const stream of this.wanted) this.begin(stream);
  }

  flow(frame) {
    const stream = this.streams.get(frame.stream);
    if (stream === undefined) {
      if (this.stopped.has(frame.stream)) return; // what was on its way when it was stopped
      const waiting = this.early.get(frame.stream) ?? [];
      if (waiting.length < 100) waiting.push(frame);
      this.early.set(frame.stream, waiting);
      return;
    }
    if (typeof frame.dropped === "number" && frame.dropped > 0) {
      this.dropped += frame.dropped;
      this.dispatchEvent(new Event("dropped"));
    }
    if ("end" in frame) {
      this.streams.delete(frame.stream);
      stream.number = null;
      stream.told({ end: String(frame.end) });
    } else stream.told(frame);
  }

  ask(words, options = {}) {
    if (!this.live)
      return Promise.reject(new Refused({ code: "away", message: "there is no connection to the process" }));
    const id = (this.lastId += 1);
    const given = Object.entries(options).filter(
      ([, value]) => value !== "" && value !== null && value !== undefined,
    );
    const frame = { id, do: words };
    if (given.length) frame.with = Object.fromEntries(given.map(([name, value]) => [name, String(value)]));
    return new Promise((yes, no) => {
      this.asked.set(id, { yes, no });
      this.socket.send(JSON.stringify(frame));
    });
  }

  // Returns what ends it. `told` gets frames, `{restart: true}` before the first of a connection, and `{error}`.
  stream(words, options, told) {
    const stream = { words, options, told, number: null };
    this.wanted.add(stream);
    if (this.live) this.begin(stream);
    return () => {
      this.wanted.delete(stream);
      if (stream.number !== null && this.live) this.stop(stream.number);
      stream.number = null;
    };
  }

  stop(number) {
    this.streams.delete(number);
    this.early.delete(number);
    this.stopped.add(number);
    this.socket.send(JSON.stringify({ id: (this.lastId += 1), stop: number }));
  }

  async begin(stream) {
    stream.told({ restart: true });
    const socket = this.socket;
    try {
      const answer = await this.ask(stream.words, stream.options);
      if (socket !== this.socket || typeof answer.stream !== "number") return;
      if (!this.wanted.has(stream)) {
        this.stop(answer.stream);
        return;
      }
      stream.number = answer.stream;
      this.streams.set(answer.stream, stream);
      const waiting = this.early.get(answer.stream) ?? [];
      this.early.delete(answer.stream);
      for (const frame of waiting) this.flow(frame);
    } catch (error) {
      if (error.code !== "away") stream.told({ error });
    }
  }

  say(state) {
    this.state = state;
    this.dispatchEvent(new Event("state"));
  }
}
