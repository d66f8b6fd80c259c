// The map: one cell for each actor, painted. It fills from below with what is in flight; a bar on top says that
// somebody waits; shapes tell what colours tell, for eyes that don't see these.
//
// Rules:
// * Between two frames changes are only collected. A frame paints the cells that changed; all of them only when the
//   places, the size, the scroll position or the colours are others.
// * Sizes are read when the browser says that they changed, never while painting.

import { keysOf } from "./actors.js";
import { colour, h } from "./dom.js";
import { plural } from "./words.js";

const PITCHES = [28, 24, 20, 17, 14, 12, 10, 8, 7, 6];
const FINGER = 10; // the smallest where fingers point
const HEADER = 24;
const BETWEEN = 8;
const EDGE = 5; // left and right, so that the ring of the focus covers nothing

export class ActorMap {
  // `told(actor | null, chosen)` hears which actor is pointed at or chosen; `opened(actor)`, that it is to be opened.
  constructor(told, opened) {
    this.told = told;
    this.opened = opened;
    this.groups = [];
    this.tops = [];
    this.indexes = null; // actor: [group, index], where the groups hold a selection
    this.chosen = null;
    this.columns = 1;
    this.pitch = PITCHES[0];
    this.width = this.height = this.total = this.top = 0;
    this.all = true;
    this.dirty = new Set();
    this.canvas = h("canvas", {
      class: "map-canvas",
      tabIndex: 0,
      role: "application",
      "aria-label": "Map of actors. Arrow keys move, Enter opens one.",
      "aria-describedby": "map-said",
    });
    this.space = h("div", { class: "map-space" }, this.canvas);
    this.node = h("div", { class: "map", tabIndex: -1 }, this.space);
    this.pen = this.canvas.getContext("2d");
    this.node.addEventListener("scroll", () => this.again(), { passive: true });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("pointermove", (event) => this.told(this.under(event) ?? this.chosen, false));
    this.canvas.addEventListener("pointerleave", () => this.told(this.chosen, false));
    this.canvas.addEventListener("click", (event) => this.choose(this.under(event)));
    this.canvas.addEventListener("dblclick", (event) => {
      const actor = this.under(event);
      if (actor) this.opened(actor);
    });
    this.canvas.addEventListener("focus", () => this.chosen ?? this.choose(this.first()));
    this.watch = new ResizeObserver(([entry]) => {
      this.width = Math.floor(entry.contentRect.width);
      this.height = Math.floor(entry.contentRect.height);
      this.lay();
    });
    this.watch.observe(this.node);
    this.recolour();
  }

  close() {
    this.watch.disconnect();
    cancelAnimationFrame(this.frame);
  }

  recolour() {
    this.colours = Object.fromEntries(
      ["cell", "cell-empty", "accent", "warn-fill", "bad-fill", "held", "ink", "dim", "panel"].map((name) => [
        name,
        colour(name),
      ]),
    );
    this.font = getComputedStyle(document.body).fontFamily;
    this.again();
  }

  // ------------------------------------------------------------------ what is shown

  show(groups, selection) {
    this.groups = groups;
    this.indexes = null;
    if (selection) {
      this.indexes = new Map();
      groups.forEach((group, g) => group.places.forEach((actor, index) => this.indexes.set(actor, [g, index])));
    } else this.byServer = new Map(groups.map((group, g) => [group.server, g]));
    this.lay();
  }

  lay() {
    const fits = (pitch) => {
      const columns = Math.max(1, Math.floor((this.width - 2 * EDGE) / pitch));
      const rows = this.groups.reduce((sum, group) => sum + Math.ceil(group.places.length / columns), 0);
      return { pitch, columns, total: rows * pitch + this.groups.length * (HEADER + BETWEEN) };
    };
    const coarse = matchMedia("(pointer: coarse)").matches || this.width < 480;
    const tried = PITCHES.filter((pitch) => !coarse || pitch >= FINGER).map(fits);
    const taken = tried.find((one) => one.total <= this.height) ?? tried.at(-1);
    Object.assign(this, taken);
    let top = 0;
    this.tops = this.groups.map((group) => {
      const mine = top + HEADER;
      top = mine + Math.ceil(group.places.length / this.columns) * this.pitch + BETWEEN;
      return mine;
    });
    this.space.style.height = `${Math.max(this.total, this.height)}px`;
    const scale = devicePixelRatio || 1;
    const [wide, high] = [Math.round(this.width * scale), Math.round(this.height * scale)];
    if (this.canvas.width !== wide || this.canvas.height !== high) {
      this.canvas.width = wide;
      this.canvas.height = high;
      this.canvas.style.width = `${this.width}px`;
      this.canvas.style.height = `${this.height}px`;
    }
    this.scale = scale;
    this.again();
  }

  changed(actors, left) {
    if (this.all) return;
    for (const actor of actors) {
      const at = this.placeOf(actor);
      if (at) this.dirty.add(at[0] * 1e7 + at[1]);
    }
    if (this.indexes === null) {
      for (const [server, place] of left) {
        const g = this.byServer.get(server);
        if (g !== undefined) this.dirty.add(g * 1e7 + place);
      }
    }
    if (this.dirty.size) this.plan();
  }

  placeOf(actor) {
    if (this.indexes !== null) return this.indexes.get(actor);
    const g = this.byServer?.get(actor.server);
    return g === undefined || this.groups[g].places[actor.place] !== actor ? undefined : [g, actor.place];
  }

  // ------------------------------------------------------------------ painting

  again() {
    this.all = true;
    this.plan();
  }

  plan() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.paint();
    });
  }

  paint() {
    const pen = this.pen;
    this.top = this.all ? this.node.scrollTop : this.top;
    pen.setTransform(this.scale, 0, 0, this.scale, EDGE * this.scale, 0);
    if (this.all) this.paintAll(pen);
    else {
      for (const number of this.dirty) {
        const g = Math.floor(number / 1e7);
        const index = number % 1e7;
        const [x, y] = this.corner(g, index);
        if (y > -this.pitch && y < this.height) {
          pen.clearRect(x, y, this.pitch, this.pitch);
          this.cell(pen, this.groups[g].places[index], x, y);
        }
      }
      this.headings(pen);
    }
    this.dirty.clear();
    this.all = false;
    const at = this.chosen && this.placeOf(this.chosen);
    if (at) this.ring(pen, ...this.corner(...at));
  }

  paintAll(pen) {
    pen.clearRect(-EDGE, 0, this.width, this.height);
    pen.textBaseline = "alphabetic";
    this.groups.forEach((group, g) => {
      const start = this.tops[g] - this.top;
      const rows = Math.ceil(group.places.length / this.columns);
      if (start - HEADER > this.height || start + rows * this.pitch < 0) return;
      this.heading(pen, g);
      const from = Math.max(0, Math.floor(-start / this.pitch)) * this.columns;
      const to = Math.min(group.places.length, Math.ceil((this.height - start) / this.pitch) * this.columns);
      for (let index = from; index < to; index += 1) {
        this.cell(
          pen,
          group.places[index],
          (index % this.columns) * this.pitch,
          start + Math.floor(index / this.columns) * this.pitch,
        );
      }
    });
  }

  heading(pen, g) {
    const group = this.groups[g];
    const start = this.tops[g] - this.top;
    group.told = keysOf(group);
    pen.font = `600 12px ${this.font}`;
    pen.fillStyle = this.colours.ink;
    pen.fillText(group.server, 0, start - 8, this.width * 0.7);
    const wide = Math.min(pen.measureText(group.server).width, this.width * 0.7);
    pen.font = `12px ${this.font}`;
    pen.fillStyle = this.colours.dim;
    pen.fillText(plural(group.told, "key"), wide + 8, start - 8);
  }

  // Keys come and go without another number of places: only what their heading says is another thing then.
  headings(pen) {
    this.groups.forEach((group, g) => {
      const start = this.tops[g] - this.top;
      if (group.told === keysOf(group) || start < 0 || start - HEADER > this.height) return;
      pen.clearRect(-EDGE, start - HEADER, this.width, HEADER);
      this.heading(pen, g);
    });
  }

  corner(g, index) {
    return [
      (index % this.columns) * this.pitch,
      this.tops[g] - this.top + Math.floor(index / this.columns) * this.pitch,
    ];
  }

  cell(pen, actor, x, y) {
    if (!actor) return;
    const size = this.pitch - (this.pitch > 10 ? 2 : 1);
    const { colours } = this;
    const { look } = actor;
    if (look === "bad") {
      pen.fillStyle = colours["bad-fill"];
      pen.fillRect(x, y, size, size);
      pen.fillStyle = colours.panel;
      pen.fillRect(x + size / 4, y + size / 2 - 0.5, size / 2, 1.5);
      return;
    }
    if (look === "held") {
      pen.fillStyle = colours.held;
      const bar = Math.max(2, Math.floor(size / 3));
      pen.fillRect(x, y, bar, size);
      pen.fillRect(x + size - bar, y, bar, size);
    } else if (look === "opening") {
      pen.strokeStyle = colours.accent;
      pen.lineWidth = 1;
      pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    } else {
      pen.fillStyle = look === "empty" ? colours["cell-empty"] : colours.cell;
      pen.fillRect(x, y, size, size);
    }
    if (actor.inFlight > 0) {
      const part = Math.min(1, actor.inFlight / (actor.most || actor.inFlight));
      const high = Math.max(2, Math.round(size * part));
      pen.fillStyle = colours.accent;
      pen.fillRect(x, y + size - high, size, high);
    }
    if (actor.waiting > 0) {
      pen.fillStyle = colours["warn-fill"];
      pen.fillRect(x, y, size, Math.max(2, Math.round(size * 0.3)));
    }
  }

  ring(pen, x, y) {
    const size = this.pitch - (this.pitch > 10 ? 2 : 1);
    pen.strokeStyle = this.colours.panel;
    pen.lineWidth = 1;
    pen.strokeRect(x - 0.5 + 1, y - 0.5 + 1, size - 1, size - 1);
    pen.strokeStyle = this.colours.ink;
    pen.lineWidth = 2;
    pen.strokeRect(x, y, size, size);
  }

  // ------------------------------------------------------------------ pointing and choosing

  under(event) {
    const column = Math.floor((event.offsetX - EDGE) / this.pitch);
    const y = event.offsetY + this.top;
    const g = this.tops.findLastIndex((top) => top <= y);
    if (g < 0 || column < 0 || column >= this.columns) return null;
    const index = Math.floor((y - this.tops[g]) / this.pitch) * this.columns + column;
    return this.groups[g].places[index] ?? null;
  }

  choose(actor) {
    this.chosen = actor;
    const at = actor && this.placeOf(actor);
    if (at) {
      const top = this.tops[at[0]] + Math.floor(at[1] / this.columns) * this.pitch;
      if (top - HEADER < this.top) this.node.scrollTop = top - HEADER;
      else if (top + this.pitch > this.top + this.height) this.node.scrollTop = top + this.pitch - this.height;
    }
    this.again();
    this.told(actor, true);
  }

  first() {
    return this.scan(0, -1, 1);
  }

  // The next actor in reading order, from a place on.
  scan(g, index, by) {
    for (let group = g; group >= 0 && group < this.groups.length; group += by) {
      const { places } = this.groups[group];
      for (
        let one = group === g ? index + by : by > 0 ? 0 : places.length - 1;
        one >= 0 && one < places.length;
        one += by
      ) {
        if (places[one]) return places[one];
      }
    }
    return null;
  }

  // The actor nearest to a column, some rows further.
  row(g, index, by) {
    const column = index % this.columns;
    let row = Math.floor(index / this.columns) + by;
    for (let group = g; ;) {
      const { places } = this.groups[group];
      const rows = Math.ceil(places.length / this.columns);
      while (row >= 0 && row < rows) {
        const from = row * this.columns;
        for (let off = 0; off < this.columns; off += 1) {
          for (const at of [column - off, column + off]) {
            if (at >= 0 && at < this.columns && places[from + at]) return places[from + at];
          }
        }
        row += Math.sign(by);
      }
      group += Math.sign(by);
      if (group < 0 || group >= this.groups.length) return null;
      row = by > 0 ? 0 : Math.ceil(this.groups[group].places.length / this.columns) - 1;
    }
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" && this.chosen) {
      event.preventDefault();
      this.opened(this.chosen);
      return;
    }
    const at = (this.chosen && this.placeOf(this.chosen)) ?? [0, -1];
    const page = Math.max(1, Math.floor(this.height / this.pitch) - 2);
    const moves = {
      ArrowRight: () => this.scan(...at, 1),
      ArrowLeft: () => this.scan(...at, -1),
      ArrowDown: () => this.row(...at, 1),
      ArrowUp: () => this.row(...at, -1),
      PageDown: () => this.row(...at, page) ?? this.last(),
      PageUp: () => this.row(...at, -page) ?? this.first(),
      Home: () => this.first(),
      End: () => this.last(),
    };
    const move = moves[event.key];
    if (move === undefined || this.groups.length === 0) return;
    event.preventDefault();
    const found = at[1] < 0 ? this.first() : move();
    if (found) this.choose(found);
  }

  last() {
    const g = this.groups.length - 1;
    return this.scan(g, this.groups[g].places.length, -1);
  }
}
