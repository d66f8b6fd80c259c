// All actors, as the stream of the grid tells them.
//
// Rules:
// * An actor keeps its place for as long as it lives; one that comes later takes the place of one that is gone.
//   Nothing jumps because something else changed: that is what makes a map of thousands readable.
// * A change costs a lookup and a write. Who paints asks for what has changed since it last did (`taken`), and
//   lays out anew only when `shape` has moved.
// * The counts by state and server are kept, not counted.

import { isNumber, shown } from "./words.js";

// What a state means for the eye. States that aren't named here are shown as open, under their own word.
const LOOKS = {
  paused: "held",
  pausing: "held",
  draining: "held",
  drained: "held",
  closing: "held",
  resting: "held",
  opening: "opening",
  connecting: "opening",
  replacing: "opening",
  backoff: "bad",
  "back-off": "bad",
  crashed: "bad",
  failed: "bad",
  lost: "bad",
  revoked: "bad",
  idle: "empty",
  closed: "empty",
  new: "empty",
  absent: "empty",
  none: "empty",
  asleep: "empty",
};

export function lookOf(actor) {
  const look = LOOKS[actor.state];
  if (look === "bad" || look === "held") return look;
  if (actor.waiting > 0) return "waiting";
  if (actor.inFlight > 0) return "busy";
  if (look) return look === "empty" && actor.client !== null ? "open" : look;
  return "open";
}

export const LOOK_NAMES = {
  waiting: "waiting",
  busy: "in flight",
  open: "open",
  empty: "no client",
  opening: "opening",
  held: "held",
  bad: "failing",
};

const amount = (value) => (isNumber(value) ? value : 0);

export class Actors {
  constructor() {
    this.byKey = new Map();
    this.groups = new Map(); // server: {server, places: [actor | null], free: [place], count}
    this.looks = new Map();
    this.changed = new Set();
    this.left = []; // places that became empty, as [server, place]
    this.shape = 0; // moves when a group has another number of places
    this.version = 0;
    this.ready = false;
  }

  clear() {
    this.byKey.clear();
    this.groups.clear();
    this.looks.clear();
    this.changed.clear();
    this.left = [];
    this.shape += 1;
    this.version += 1;
    this.ready = false;
  }

  get size() {
    return this.byKey.size;
  }

  // Rows are [key, server, state, in flight, most, waiting, client, generation].
  take({ set = [], gone = [] }) {
    for (const key of gone) this.drop(String(key));
    for (const row of set) if (Array.isArray(row)) this.put(row);
    this.ready = true;
    this.version += 1;
  }

  put(row) {
    const key = String(row[0]);
    let actor = this.byKey.get(key);
    if (actor === undefined) {
      actor = { key, server: shown(row[1], 80), look: "", place: 0 };
      this.byKey.set(key, actor);
      this.settle(actor);
    }
    actor.state = shown(row[2], 40);
    actor.inFlight = amount(row[3]);
    actor.most = amount(row[4]);
    actor.waiting = amount(row[5]);
    actor.client = row[6] ?? null;
    actor.generation = row[7] ?? null;
    this.see(actor, lookOf(actor));
    this.changed.add(actor);
  }

  settle(actor) {
    let group = this.groups.get(actor.server);
    if (group === undefined) {
      group = { server: actor.server, places: [], free: [], count: 0 };
      this.groups.set(actor.server, group);
    }
    if (group.free.length) actor.place = group.free.pop();
    else {
      actor.place = group.places.length;
      this.shape += 1;
    }
    group.places[actor.place] = actor;
    group.count += 1;
  }

  drop(key) {
    const actor = this.byKey.get(key);
    if (actor === undefined) return;
    this.byKey.delete(key);
    this.changed.delete(actor);
    this.see(actor, "");
    const group = this.groups.get(actor.server);
    group.places[actor.place] = null;
    group.free.push(actor.place);
    group.count -= 1;
    this.left.push([actor.server, actor.place]);
    if (group.count > 0) return;
    this.groups.delete(actor.server);
    this.shape += 1;
  }

  see(actor, look) {
    if (actor.look === look) return;
    if (actor.look) this.looks.set(actor.look, this.looks.get(actor.look) - 1);
    if (look) this.looks.set(look, (this.looks.get(look) ?? 0) + 1);
    actor.look = look;
  }

  taken() {
    const { changed, left } = this;
    this.changed = new Set();
    this.left = [];
    return { changed, left };
  }

  get servers() {
    return [...this.groups.keys()].sort();
  }
}

// Which actors are asked for: by a part of the digest, a server, a look.
export class Wanted {
  constructor() {
    this.text = "";
    this.server = "";
    this.look = "";
  }

  get all() {
    return !this.text && !this.server && !this.look;
  }

  has(actor) {
    if (this.server && actor.server !== this.server) return false;
    if (this.look && actor.look !== this.look) return false;
    return !this.text || actor.key.includes(this.text) || actor.state.includes(this.text);
  }
}

// How many keys a group that is shown has now; its empty places are nobody's.
export const keysOf = (group) => (group.of === null ? group.places.length : group.of.count);

// The actors that are shown, in groups, in the order of the map. Unasked each stands at its own place, and a place
// that is empty stays empty; where something is asked for, only what fits is there.
export function arranged(actors, wanted) {
  const groups = [];
  for (const server of actors.servers) {
    if (wanted.server && server !== wanted.server) continue;
    const group = actors.groups.get(server);
    const places = wanted.all ? group.places : group.places.filter((actor) => actor !== null && wanted.has(actor));
    if (places.length) groups.push({ server, places, of: wanted.all ? group : null });
  }
  return groups;
}
