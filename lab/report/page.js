// What a report does with scripts: figures under the pointer, zoom, sorting, and
// saving the raw data. Without them everything can still be read.
"use strict";
(() => {
  document.documentElement.classList.add("js");
  const SVG = "http://www.w3.org/2000/svg";
  const rawText = document.getElementById("raw").textContent;
  let parsed;
  const raw = () => {
    if (!parsed) {
      try { parsed = JSON.parse(rawText); } catch { parsed = {}; }
    }
    return parsed;
  };

  // Figures as the page's other figures are written.
  const prefixes = {
    ns: [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]],
    s: [[1e-9, "ns"], [1e-6, "µs"], [1e-3, "ms"], [1, "s"]],
    bytes: [[1, "B"], [1e3, "KB"], [1e6, "MB"], [1e9, "GB"], [1e12, "TB"]],
    "bytes/s": [[1, "B/s"], [1e3, "KB/s"], [1e6, "MB/s"], [1e9, "GB/s"]],
    KiB: [[1, "KiB"], [1024, "MiB"], [1048576, "GiB"]],
    "1/s": [[1, "/s"], [1e3, "k/s"], [1e6, "M/s"]],
    "": [[1, ""], [1e3, "k"], [1e6, "M"], [1e9, "G"]],
  };
  const prefixFor = (unit, v) => {
    const known = prefixes[unit];
    if (!known) return [1, unit];
    const a = Math.abs(v);
    if (!(a > 0)) return known.find((p) => p[0] === 1);
    return known.reduce((best, p) => (a >= p[0] * (1 - 1e-9) ? p : best), known[0]);
  };
  const figure = (v, unit) => {
    if (!Number.isFinite(v)) return "–";
    const p = prefixFor(unit, v);
    const text = String(Number((v / p[0]).toPrecision(4))).replace("-", "−");
    return p[1].startsWith("/") || !p[1] ? text + p[1] : text + " " + p[1];
  };

  // Ticks at 1, 2 or 5 times a power of ten.
  const ticksOf = (min, max, log, n) => {
    if (log && max / min > 8) {
      const lo = Math.floor(Math.log10(min)), hi = Math.ceil(Math.log10(max));
      for (const digits of [[1, 2, 5], [1]]) {
        const t = [];
        for (let e = lo; e <= hi; e++) for (const d of digits) t.push(d * 10 ** e);
        const within = t.filter((v) => v >= min && v <= max);
        if (within.length <= n * 1.5) return within;
      }
    }
    const rough = (max - min) / Math.max(n, 1), p = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((d) => d * p).find((s) => s >= rough * (1 - 1e-9));
    const t = [];
    for (let i = Math.ceil(min / step); i * step <= max && t.length < 40; i++) t.push(Number((i * step).toPrecision(10)));
    return t;
  };

  const make = (name, attributes, text) => {
    const e = document.createElementNS(SVG, name);
    for (const k in attributes) e.setAttribute(k, attributes[k]);
    if (text !== undefined) e.textContent = text;
    return e;
  };

  class Chart {
    constructor(figure, svg, data) {
      Object.assign(this, { figure, svg, data });
      const d = svg.dataset;
      [this.left, this.top, this.width, this.height] = d.plot.split(" ").map(Number);
      const [x0, x1, xKind] = d.x.split(" "), [y0, y1, yKind] = d.y.split(" ");
      this.full = [Number(x0), Number(x1)];
      this.x = this.full;
      this.y = [Number(y0), Number(y1)];
      this.xLog = xKind === "log";
      this.yLog = yKind === "log";
      this.groups = [...svg.querySelectorAll(".chart-series")];
      this.colour = this.groups.map((g) => (g.querySelector("path") || {}).getAttribute?.("stroke") || "");
      this.series = this.groups.map((_, i) => data.series[i]).filter(Boolean);
      this.kept = new Map(); // what was drawn before zooming
      this.cursor = make("path", { fill: "none", stroke: "var(--chart-muted)", "stroke-width": 1 });
      this.marked = make("path", { fill: "var(--chart-muted)", "fill-opacity": 0.14 });
      svg.append(this.marked, this.cursor);
      this.tip = document.createElement("div");
      this.tip.className = "tip";
      this.tip.hidden = true;
      figure.append(this.tip);
      svg.tabIndex = 0;
      svg.addEventListener("pointermove", (e) => this.move(e));
      svg.addEventListener("pointerdown", (e) => this.down(e));
      svg.addEventListener("pointerup", (e) => this.up(e));
      svg.addEventListener("pointerleave", () => this.leave());
      svg.addEventListener("pointercancel", () => { this.from = undefined; this.leave(); });
      svg.addEventListener("dblclick", () => this.zoom(this.full));
      svg.addEventListener("keydown", (e) => this.key(e));
      svg.addEventListener("blur", () => this.leave());
      // The page's own bubble instead of the browser's.
      for (const t of svg.querySelectorAll(".chart-series title, .chart-marks title")) t.remove();
    }
    share(v, [lo, hi], log) {
      return log ? Math.log(v / lo) / Math.log(hi / lo) : (v - lo) / (hi - lo);
    }
    px(v) { return this.left + this.share(v, this.x, this.xLog) * this.width; }
    py(v) { return this.top + (1 - this.share(v, this.y, this.yLog)) * this.height; }
    value(px) {
      const share = Math.min(Math.max((px - this.left) / this.width, 0), 1), [lo, hi] = this.x;
      return this.xLog ? lo * (hi / lo) ** share : lo + share * (hi - lo);
    }
    at(e) {
      const box = this.svg.getBoundingClientRect();
      return (e.clientX - box.left) * this.svg.viewBox.baseVal.width / box.width;
    }
    nearest(points, x) {
      let lo = 0, hi = points.length - 1;
      while (hi - lo > 1) {
        const mid = (lo + hi) >> 1;
        if (points[mid][0] < x) lo = mid; else hi = mid;
      }
      if (hi < 0) return undefined;
      return Math.abs(points[lo][0] - x) <= Math.abs(points[hi][0] - x) ? points[lo] : points[hi];
    }
    down(e) {
      if (e.button !== 0) return;
      this.from = this.at(e);
      this.svg.setPointerCapture(e.pointerId);
    }
    move(e) {
      const px = this.at(e);
      if (this.from !== undefined && Math.abs(px - this.from) > 4) {
        const clamp = (v) => Math.min(Math.max(v, this.left), this.left + this.width);
        const a = clamp(Math.min(px, this.from)), b = clamp(Math.max(px, this.from));
        this.marked.setAttribute("d", `M${a} ${this.top}H${b}V${this.top + this.height}H${a}Z`);
      }
      this.show(this.value(px));
    }
    up(e) {
      const from = this.from, to = this.at(e);
      this.from = undefined;
      this.marked.removeAttribute("d");
      if (from === undefined || Math.abs(to - from) < 8) return;
      const range = [this.value(Math.min(from, to)), this.value(Math.max(from, to))];
      if (range[1] - range[0] > (this.full[1] - this.full[0]) * 1e-5) this.zoom(range);
    }
    leave() {
      if (this.from !== undefined) return;
      this.tip.hidden = true;
      this.cursor.removeAttribute("d");
    }
    key(e) {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (e.key === "Escape") this.zoom(this.full);
      if (!step) return;
      e.preventDefault();
      const at = this.current === undefined ? this.x[0] : this.current;
      const px = Math.min(Math.max(this.px(at) + step * this.width / 60, this.left), this.left + this.width);
      this.show(this.value(px));
    }
    // show puts the figures nearest to x beside the pointer.
    show(x) {
      const rows = [];
      let at;
      this.series.forEach((s, i) => {
        const p = this.nearest(s.points || [], x);
        if (!p) return;
        if (at === undefined || Math.abs(p[0] - x) < Math.abs(at - x)) at = p[0];
        rows.push([i, s.name, p]);
      });
      if (at === undefined || at < this.x[0] || at > this.x[1]) return this.leave();
      this.current = at;
      const px = this.px(at), scale = this.svg.getBoundingClientRect().width / this.svg.viewBox.baseVal.width;
      this.cursor.setAttribute("d", `M${px} ${this.top}V${this.top + this.height}`);
      const head = document.createElement("b");
      head.textContent = figure(at, this.svg.dataset.xUnit);
      this.tip.replaceChildren(head);
      const near = (this.x[1] - this.x[0]) / 20;
      for (const [i, name, p] of rows.slice(0, 14)) {
        const row = document.createElement("div"), label = document.createElement("span"), value = document.createElement("span"), swatch = document.createElement("i");
        swatch.style.background = this.colour[i];
        label.append(swatch, name);
        value.textContent = this.xLog || Math.abs(p[0] - at) <= near ? figure(p[1], this.svg.dataset.yUnit) : "–";
        row.append(label, value);
        this.tip.append(row);
      }
      this.tip.hidden = false;
      const box = this.svg.getBoundingClientRect(), outer = this.figure.getBoundingClientRect();
      let left = px * scale + 14;
      if (left + this.tip.offsetWidth > outer.width) left = px * scale - this.tip.offsetWidth - 14;
      this.tip.style.left = Math.max(left, 0) + "px";
      this.tip.style.top = box.top - outer.top + this.top * scale + "px";
    }
    keep(e) {
      if (e && !this.kept.has(e)) this.kept.set(e, [...e.childNodes]);
    }
    // zoom draws the lines anew over a part of the x axis.
    zoom(range) {
      this.x = range;
      this.leave();
      const ends = this.svg.querySelector(".chart-ends"), marks = this.svg.querySelector(".chart-marks");
      if (range === this.full) {
        for (const [e, nodes] of this.kept) e.replaceChildren(...nodes);
        for (const e of [ends, marks]) if (e) e.removeAttribute("display");
        if (this.button) this.button.remove();
        this.button = undefined;
        return;
      }
      for (const e of this.svg.querySelectorAll(".chart-ends, .chart-marks")) e.setAttribute("display", "none");
      this.groups.forEach((g, i) => {
        this.keep(g);
        const path = this.kept.get(g).find((n) => n.nodeName === "path"), d = this.path(this.series[i]?.points || []);
        if (!path) return;
        const zoomed = path.cloneNode();
        zoomed.setAttribute("d", d);
        g.replaceChildren(zoomed);
      });
      this.axis();
      if (!this.button) {
        this.button = document.createElement("button");
        this.button.type = "button";
        this.button.textContent = "whole chart";
        this.button.addEventListener("click", () => this.zoom(this.full));
        this.figure.append(this.button);
      }
    }
    // path is the line through what is within the range and its neighbours, cut
    // at the edges, the least and greatest of each pixel.
    path(points) {
      const [lo, hi] = this.x;
      let first = points.findIndex((p) => p[0] >= lo), last = points.findLastIndex((p) => p[0] <= hi);
      if (first < 0 || last < 0) return "";
      first = Math.max(first - 1, 0);
      last = Math.min(last + 1, points.length - 1);
      const edge = (p, q, x) => [x, p[1] + (q[1] - p[1]) * (x - p[0]) / (q[0] - p[0])];
      let part = points.slice(first, last + 1);
      if (part.length > 1 && part[0][0] < lo) part[0] = edge(part[0], part[1], lo);
      const n = part.length - 1;
      if (n > 0 && part[n][0] > hi) part[n] = edge(part[n - 1], part[n], hi);
      if (part.length > 800) {
        const each = Math.ceil(part.length / 400), thin = [];
        for (let i = 0; i < part.length; i += each) {
          const cut = part.slice(i, i + each);
          const least = cut.reduce((a, b) => (b[1] < a[1] ? b : a)), most = cut.reduce((a, b) => (b[1] > a[1] ? b : a));
          thin.push(...(least[0] <= most[0] ? [least, most] : [most, least]));
        }
        part = thin;
      }
      part = part.filter((p) => (!this.xLog || p[0] > 0) && (!this.yLog || p[1] > 0));
      return part.map((p, i) => (i ? "L" : "M") + this.px(p[0]).toFixed(1) + " " + this.py(p[1]).toFixed(1)).join("");
    }
    axis() {
      const axis = this.svg.querySelector(".chart-x"), unit = this.svg.dataset.xUnit, y = this.top + this.height;
      this.keep(axis);
      axis.replaceChildren();
      const whole = prefixFor(unit, Math.max(...this.full.map(Math.abs)));
      let free = -Infinity;
      for (const t of ticksOf(this.x[0], this.x[1], this.xLog, this.width / 80)) {
        const px = this.px(t), text = this.xLog ? figure(t, unit) : String(Number((t / whole[0]).toPrecision(8))).replace("-", "−");
        axis.append(make("path", { d: `M${px} ${y}v4`, stroke: "var(--chart-muted)", "stroke-width": 1 }));
        const half = text.length * 3.4;
        if (px - half < free) continue;
        free = px + half + 6;
        axis.append(make("text", { x: px, y: y + 16, "font-size": 11, fill: "var(--chart-muted)", "text-anchor": "middle" }, text));
      }
    }
  }
  // A chart becomes alive with the first pointer or focus on it.
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    for (const svg of figure.querySelectorAll("svg.chart-line")) {
      svg.tabIndex = 0;
      const wake = () => {
        svg.removeEventListener("pointerenter", wake);
        svg.removeEventListener("focus", wake);
        const data = (raw().charts || [])[Number(figure.dataset.chart)];
        if (data && data.series) new Chart(figure, svg, data);
      };
      svg.addEventListener("pointerenter", wake);
      svg.addEventListener("focus", wake);
    }
  }

  // Tables sort by the figure a cell begins with, in the size its unit says.
  const sizes = { ns: 1e-9, "µs": 1e-6, us: 1e-6, ms: 1e-3, s: 1, m: 60, min: 60, k: 1e3, "k/s": 1e3, M: 1e6, "M/s": 1e6, G: 1e9, KB: 1e3, MB: 1e6, GB: 1e9, "MB/s": 1e6, "GB/s": 1e9, KiB: 1024, MiB: 1048576, GiB: 1073741824 };
  const worth = (cell) => {
    if (cell === undefined) return -Infinity;
    if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
    const text = cell.textContent.trim().replace(/[,\u202f\u00a0]/g, "").replace("−", "-").replace(/^[×±<>≤≥~≈]\s*/, "");
    const found = /^[+]?(-?\d[\d.]*(?:e[+-]?\d+)?)\s*([^\s\d([]*)/.exec(text);
    return found ? Number(found[1]) * (sizes[found[2]] || 1) : text.toLowerCase();
  };
  const compare = (a, b) => {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
    return typeof a === "number" ? -1 : 1;
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
    if (body.rows.length < 3) continue;
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const h of heads) h.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].map((row) => [worth(row.cells[column]), row]);
        rows.sort((a, b) => (down ? compare(b[0], a[0]) : compare(a[0], b[0])));
        body.append(...rows.map((r) => r[1]));
      });
    });
  }

  const save = document.getElementById("save");
  save.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([rawText], { type: "application/json" }));
    link.download = save.dataset.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
})();
