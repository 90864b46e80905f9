// Line chart of daily values, as SVG: newest day at the right, a line for each series.

const SVG = "http://www.w3.org/2000/svg";
const DAY = 86_400; // seconds
const MARGIN = { top: 28, right: 16, bottom: 44, left: 48 }; // pixels
const TICK_WIDTH = 96; // pixels for the label of a date
const TICK_HEIGHT = 56; // pixels between two labels of values
const MONTHS = [1, 2, 3, 6, 12, 24, 60, 120]; // possible steps between dates

/** Return the ISO date of a Unix time in seconds, in UTC. */
export function dateOf(timestamp) {
  return new Date(timestamp * 1000).toISOString().slice(0, 10);
}

/** Return the smallest step of 1, 2 or 5 times a power of ten that is at least `least`. */
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.999);
}

/** Return the values from 0 to at least `top`, with their step. */
function valueTicks(top, height) {
  const step = roundStep(Math.max(top, 1e-9) / Math.max(2, Math.floor(height / TICK_HEIGHT)));
  const count = Math.ceil(top / step - 1e-9) || 1;
  return { step, values: Array.from({ length: count + 1 }, (_, number) => number * step) };
}

/** Return the first days of months between two times, not more than fit into a width. */
function dateTicks(from, to, width) {
  const most = Math.max(2, Math.floor(width / TICK_WIDTH));
  const step = MONTHS.find((months) => (to - from) / (months * 30.4 * DAY) <= most) ?? MONTHS.at(-1);
  const first = new Date(from * 1000);
  const ticks = [];
  for (let month = 0; ; month += step) {
    const time = Date.UTC(first.getUTCFullYear(), month) / 1000;
    if (time > to) return ticks.length ? ticks : [from];
    if (time >= from) ticks.push(time);
  }
}

/** Return the text of a date below the axis. */
function dateLabel(time) {
  return new Date(time * 1000).toLocaleDateString("en", { year: "numeric", month: "short", timeZone: "UTC" });
}

function element(name, attributes, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

/**
 * Chart of series `{ chain, hue, points }`, where `points` maps Unix times in seconds to values.
 * Call `draw` after a change; it draws once for each frame of the screen.
 */
export class Chart {
  #svg;
  #series = [];
  #frame = 0;
  #scale = null;
  #day = null;

  constructor(svg) {
    this.#svg = svg;
    new ResizeObserver(() => this.draw()).observe(svg);
  }

  set series(all) {
    this.#series = all;
    this.#day = null;
    this.draw();
  }

  /** First and last day that have a point, as Unix times; null without points. */
  get span() {
    const times = this.#series.flatMap(({ points }) => [...points.keys()]);
    if (!times.length) return null;
    return times.reduce(([low, high], time) => [Math.min(low, time), Math.max(high, time)], [Infinity, -Infinity]);
  }

  /** Mark a day; null removes the mark. */
  set day(time) {
    this.#day = time;
    this.draw();
  }

  /** Return the day at a horizontal place in pixels; null without points. */
  dayAt(x) {
    if (this.#scale === null) return null;
    const { from, to, left, width } = this.#scale;
    const time = from + (Math.min(Math.max(x - left, 0), width) / width) * (to - from);
    return Math.round(time / DAY) * DAY;
  }

  draw() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#render();
    });
  }

  #render() {
    const { width, height } = this.#svg.getBoundingClientRect();
    const span = this.span;
    this.#scale = span && this.#scaled(span, width, height);
    this.#svg.setAttribute("viewBox", `0 0 ${Math.round(width)} ${Math.round(height)}`);
    this.#svg.replaceChildren(...(span ? [...this.#axes(), ...this.#lines(), ...this.#marks()] : []));
  }

  #scaled([first, to], width, height) {
    const from = Math.min(first, to - 30 * DAY);
    const plot = { left: MARGIN.left, width: width - MARGIN.left - MARGIN.right };
    const tall = height - MARGIN.top - MARGIN.bottom;
    let top = 0;
    for (const { points } of this.#series) for (const value of points.values()) top = Math.max(top, value);
    const { step, values } = valueTicks(top, tall);
    return {
      ...plot,
      from,
      to,
      step,
      values,
      bottom: MARGIN.top + tall,
      x: (time) => plot.left + ((time - from) / (to - from)) * plot.width,
      y: (value) => MARGIN.top + (1 - value / values.at(-1)) * tall,
    };
  }

  #axes() {
    const { from, to, left, width, step, values, bottom, x, y } = this.#scale;
    const drawn = [element("text", { x: 4, y: 12 }, "Transactions per second, daily average")];
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    for (const value of values) {
      const place = { x1: left, x2: left + width, y1: y(value), y2: y(value), class: "grid" };
      const label = value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
      drawn.push(element("line", place));
      drawn.push(element("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, label));
    }
    for (const time of dateTicks(from, to, width)) {
      drawn.push(element("line", { x1: x(time), x2: x(time), y1: bottom, y2: bottom + 5, class: "grid" }));
      const edge = x(time) - left < 28 ? "start" : left + width - x(time) < 28 ? "end" : "middle";
      drawn.push(element("text", { x: x(time), y: bottom + 19, "text-anchor": edge }, dateLabel(time)));
    }
    drawn.push(element("text", { x: left + width, y: bottom + 38, "text-anchor": "end" }, "Date (UTC)"));
    return drawn;
  }

  #lines() {
    return this.#series.map(({ chain, hue, points }) => {
      const path = element("path", { d: this.#path(points), class: `series hue-${hue}` });
      Object.assign(path.dataset, { chain, points: points.size });
      return path;
    });
  }

  /** Return the path of a series; a missing day interrupts the line. */
  #path(points) {
    const { x, y } = this.#scale;
    let before = -Infinity;
    return [...points]
      .sort(([one], [other]) => one - other)
      .map(([time, value]) => {
        const command = time - before > 1.5 * DAY ? "M" : "L";
        before = time;
        return `${command}${x(time).toFixed(1)} ${y(value).toFixed(1)}`;
      })
      .join("");
  }

  #marks() {
    if (this.#day === null) return [];
    const { bottom, x, y } = this.#scale;
    const place = x(this.#day);
    const marks = [element("line", { x1: place, x2: place, y1: MARGIN.top, y2: bottom, class: "marker" })];
    for (const { hue, points } of this.#series) {
      const value = points.get(this.#day);
      if (value === undefined) continue;
      marks.push(element("circle", { cx: place, cy: y(value), r: 4, class: `dot hue-${hue}` }));
    }
    return marks;
  }
}
