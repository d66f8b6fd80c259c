// One call as a waterfall: each stage from where the one before it ended to where it ended itself, and the clauses of
// the explanation as numbered marks on the same axis.

import { h } from "./dom.js";
import { isNumber, lasted, shown } from "./words.js";

const STAGE_WORDS = {
  start: "checks at the beginning",
  listing: "finding the tool",
  schema: "compiling the schema, once",
  arguments: "checking the arguments",
  attempt: "gate before an attempt",
  write: "gate before the first byte",
  answered: "the server",
  server: "the server",
  admission: "a place on the key's client",
  "runtime-admission": "a place among all keys",
  leased: "the place taken",
  list: "the tool list",
  plan: "the plan",
  share: "the share",
  credential: "the credential",
  sign: "the signature",
  signature: "the signature",
  connect: "connecting",
  sent: "handed to the kernel",
  open: "opening a client",
  hooks: "the host's hooks",
  fill: "host-filled arguments",
  wants: "artifacts",
  run: "the run",
  after: "after the run",
  limits: "limits of results",
  renegotiation: "another protocol version",
};

// From marks, which say where a stage ended, to stretches with a beginning and a length.
export function stretches(use, now) {
  const stages = (Array.isArray(use.stages) ? use.stages : []).filter(
    (one) => Array.isArray(one) && isNumber(one[1]),
  );
  const running = !isNumber(use.took);
  const last = stages.length ? stages.at(-1)[1] : 0;
  const total = Math.max(running ? now - use.began : use.took, last, 1e-6);
  let from = 0;
  const found = stages.map(([name, at]) => {
    const one = { name: shown(name, 60), from, took: Math.max(0, at - from), open: false };
    from = Math.max(from, at);
    return one;
  });
  if (running) found.push({ name: shown(use.waits_for ?? "running", 60), from, took: total - from, open: true });
  else if (total - from > Math.max(0.0005, total * 0.005))
    found.push({ name: "end", from, took: total - from, open: false });
  return { total, found, running };
}

function steps(total) {
  const raw = total / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= raw);
  const at = [];
  for (let one = 0; one <= total * 1.0001; one += step) at.push(one);
  return at;
}

// Marks that stand too close to each other go into lanes below.
function lanes(marks, total) {
  const ends = [];
  return marks.map((mark) => {
    const x = mark.at / total;
    let lane = ends.findIndex((end) => x - end > 0.045);
    if (lane < 0) lane = ends.length;
    ends[lane] = x;
    return { ...mark, x, lane };
  });
}

const share = (part, total) => `${Math.min(100, Math.max(0, (part / total) * 100)).toFixed(3)}%`;

export function waterfall(use, clauses, now) {
  const { total, found, running } = stretches(use, now);
  const failed = use.outcome === "refused" || use.outcome === "failed" || use.outcome === "cancelled";
  const marks = lanes(
    clauses
      .map((clause, i) => ({ at: clause.at, number: i + 1 }))
      .filter((mark) => isNumber(mark.at) && mark.at >= 0 && mark.at <= total * 1.001),
    total,
  );
  const axis = h("div", { class: "fall-track fall-axis", "aria-hidden": "true" });
  for (const at of steps(total)) {
    const tick = h("span", { class: "fall-tick" }, at > total * 0.9 ? "" : lasted(at));
    tick.style.left = share(at, total);
    axis.append(tick);
  }
  const depth = marks.reduce((most, mark) => Math.max(most, mark.lane + 1), 0);
  const numbers = h("div", { class: "fall-track fall-marks", "aria-hidden": "true" });
  numbers.style.height = `${depth * 1.375}rem`;
  for (const mark of marks) {
    const node = h("span", { class: "fall-mark" }, String(mark.number));
    node.style.left = share(mark.at, total);
    node.style.top = `${mark.lane * 1.375}rem`;
    numbers.append(node);
  }
  const hair = h("div", { class: "fall-hair", hidden: true });
  const rows = found.map((one, i) => {
    const instant = one.took < total * 0.002;
    const ended = failed && i === found.length - 1;
    const kind = ended
      ? use.outcome === "failed"
        ? "bad"
        : "warn"
      : one.name === "answered" || one.name === "server"
        ? "server"
        : "wait";
    const bar = h("span", { class: `fall-bar ${instant ? "instant" : ""} ${kind} ${one.open ? "open" : ""}` });
    bar.style.left = share(one.from, total);
    bar.style.width = instant ? "" : share(one.took, total);
    return h(
      "tr",
      { class: instant ? "fall-small" : "" },
      h("th", { scope: "row" }, one.name, h("span", { class: "fall-word" }, STAGE_WORDS[one.name] ?? "")),
      h("td", { class: "fall-cell" }, h("div", { class: "fall-track" }, bar)),
      h("td", { class: "number" }, lasted(one.took)),
      h("td", { class: "number fall-at" }, `+${lasted(one.from)}`),
    );
  });
  const table = h(
    "table",
    { class: "fall" },
    h("caption", { class: "unseen" }, "Stages of the call in order"),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "stage"),
        h(
          "th",
          { scope: "col", class: "fall-cell" },
          h("span", { class: "unseen" }, "when"),
          axis,
          depth ? numbers : null,
        ),
        h("th", { scope: "col", class: "number" }, "took"),
        h("th", { scope: "col", class: "number fall-at" }, "from"),
      ),
    ),
    h("tbody", {}, rows),
  );
  const point = (number) => {
    for (const node of numbers.children) node.classList.toggle("on", node.textContent === String(number));
    const mark = marks.find((one) => one.number === number);
    hair.hidden = mark === undefined;
    if (mark === undefined) return;
    const [track, frame] = [axis.getBoundingClientRect(), node.getBoundingClientRect()];
    hair.style.left = `${track.left - frame.left + track.width * mark.x}px`;
  };
  const node = h("div", { class: "fall-frame" }, table, hair);
  return { node, point, running, total, marked: new Set(marks.map((mark) => mark.number)) };
}
