// A sparkline: the last minutes of one number, one point a second. It says how it went, not how much; the number
// itself stands beside it.

import { s } from "./dom.js";

const KEPT = 120;

export class History {
  constructor() {
    this.values = [];
  }

  add(value) {
    this.values.push(Number.isFinite(value) ? value : 0);
    if (this.values.length > KEPT) this.values.shift();
  }

  clear() {
    this.values = [];
  }
}

export class Spark {
  constructor(history) {
    this.history = history;
    this.area = s("path", { class: "spark-area" });
    this.line = s("path", { class: "spark-line" });
    this.node = s(
      "svg",
      {
        class: "spark",
        viewBox: `0 0 ${KEPT - 1} 20`,
        preserveAspectRatio: "none",
        "aria-hidden": "true",
        focusable: "false",
      },
      this.area,
      this.line,
    );
  }

  draw() {
    const { values } = this.history;
    if (values.length < 2) {
      this.line.setAttribute("d", "");
      this.area.setAttribute("d", "");
      return;
    }
    const most = Math.max(...values, 1e-9);
    const from = KEPT - values.length;
    const points = values.map((value, i) => `${from + i} ${(19 - (value / most) * 17).toFixed(1)}`);
    const path = `M${points.join("L")}`;
    this.line.setAttribute("d", path);
    this.area.setAttribute("d", `${path}L${KEPT - 1} 20L${from} 20Z`);
  }
}
