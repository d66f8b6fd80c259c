// One actor's last minute: its calls as bars, its turns as ticks, events as marks, all on one axis that ends now.

import { s } from "./dom.js";
import { isNumber, lasted, plural, shown } from "./words.js";

const WINDOW = 60;
const LANE = 14;
const MOST_LANES = 8;
const LEFT = 58;

export class Timeline {
  // `opened(id)` hears which call's bar was clicked; the list below has the same calls as links.
  constructor(opened) {
    this.opened = opened;
    this.node = s("svg", { class: "timeline", role: "img", "aria-label": "Timeline" });
    this.width = 600;
    this.watch = new ResizeObserver(([entry]) => {
      this.width = entry.contentRect.width;
    });
    this.watch.observe(this.node);
  }

  close() {
    this.watch.disconnect();
  }

  // `calls` have began and took (null while they run), `turns` at and took, `events` at and kind.
  draw(now, { calls, turns, events }) {
    const start = now - WINDOW;
    const scale = (this.width - LEFT - 4) / WINDOW;
    const x = (at) => LEFT + Math.max(0, at - start) * scale;
    const parts = [];
    const ends = [];
    const drawn = calls
      .filter((call) => isNumber(call.began) && (call.took === null || call.began + call.took > start))
      .sort((a, b) => a.began - b.began);
    for (const call of drawn) {
      let lane = ends.findIndex((end) => end <= call.began);
      if (lane < 0) lane = ends.length;
      if (lane >= MOST_LANES) lane = MOST_LANES - 1;
      const end = call.took === null ? now : call.began + call.took;
      ends[lane] = Math.max(ends[lane] ?? 0, end);
      const look =
        call.took === null ? "run" : call.outcome === "ok" ? "ok" : call.outcome === "refused" ? "warn" : "bad";
      const bar = s(
        "rect",
        {
          class: `time-call ${look}`,
          x: x(call.began).toFixed(1),
          y: lane * LANE + 4,
          width: Math.max(2, x(end) - x(call.began)).toFixed(1),
          height: LANE - 4,
          rx: 1,
        },
        s(
          "title",
          {},
          `${shown(call.call_id, 80)} ${shown(call.tool, 60)}: ${shown(call.code ?? call.outcome ?? `waits for ${call.waits_for ?? "–"}`, 60)}, ${lasted(end - call.began)}`,
        ),
      );
      if (call.call_id) bar.addEventListener("click", () => this.opened(call.call_id));
      parts.push(bar);
    }
    const callLanes = Math.max(1, Math.min(ends.length, MOST_LANES));
    const turnTop = callLanes * LANE + 12;
    const longest = Math.max(1e-6, ...turns.map((turn) => turn.took ?? 0));
    for (const turn of turns) {
      if (!isNumber(turn.at) || turn.at < start) continue;
      const high = 4 + 16 * Math.sqrt((turn.took ?? 0) / longest);
      parts.push(
        s(
          "rect",
          {
            class: "time-turn",
            x: x(turn.at).toFixed(1),
            y: (turnTop + 20 - high).toFixed(1),
            width: 1.5,
            height: high.toFixed(1),
          },
          s("title", {}, `${shown(turn.message, 80)} ${lasted(turn.took)}`),
        ),
      );
    }
    const eventTop = turnTop + 30;
    for (const event of events) {
      if (!isNumber(event.at) || event.at < start) continue;
      const at = x(event.at);
      parts.push(
        s(
          "path",
          { class: "time-event", d: `M${at} ${eventTop}l5 6l-5 6l-5 -6z` },
          s("title", {}, `${shown(event.kind, 60)} ${shown(event.why, 80)}`),
        ),
      );
    }
    const bottom = eventTop + 22;
    const lines = [0, 15, 30, 45, 60].map((back) => {
      const at = x(now - back);
      return [
        s("line", { class: "time-line", x1: at, x2: at, y1: 0, y2: bottom }),
        s(
          "text",
          {
            class: "time-text",
            x: at,
            y: bottom + 14,
            "text-anchor": back === 0 ? "end" : back === WINDOW ? "start" : "middle",
          },
          back ? `−${back} s` : "now",
        ),
      ];
    });
    const names = [
      ["calls", LANE],
      ["turns", turnTop + 15],
      ["events", eventTop + 11],
    ].map(([name, y]) => s("text", { class: "time-text", x: 0, y }, name));
    this.node.setAttribute("height", bottom + 20);
    this.node.setAttribute(
      "aria-label",
      `The last minute: ${plural(drawn.length, "call")}, ${plural(turns.length, "turn")}, ${plural(events.length, "event")}. The tables below list them.`,
    );
    this.node.replaceChildren(...lines.flat(), ...names, ...parts);
  }
}
