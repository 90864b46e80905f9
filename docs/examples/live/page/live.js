// The page: two streams of server-sent events for each chain, one after the other (its list, then its new points),
// its line in the chart, and its row in the table.

import { Chart, dateOf } from "./chart.js";

const MOST = 4; // browsers open six connections to a server of HTTP/1.1
const DAY = 86_400; // seconds

const find = (id) => document.getElementById(id);
const number = (value) => value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

let waitsUntil = 0; // end of the wait for the quota, which all chains share, on the clock of `performance`

/** Return the seconds until the server may send requests again. */
function waitLeft() {
  return Math.max(0, waitsUntil - performance.now()) / 1000;
}

/** A chain: its stream, its points, and its row in the table. */
class Series {
  points = new Map(); // Unix time in seconds: TPS
  restarts = 0;
  #state = "connecting";
  #text = "";
  #source = null;
  #changed;

  constructor(chain, name, hue, changed) {
    Object.assign(this, { chain, name, hue });
    this.#changed = changed;
    this.row = this.#makeRow();
  }

  /** Whether a stream is open, or connects again. */
  get open() {
    return this.#source !== null;
  }

  /** State of the row, from which the banner follows. */
  get state() {
    return this.#state === "receiving" && waitLeft() > 0 ? "waiting" : this.#state;
  }

  /** Begin to read the list, from its first page. */
  start() {
    this.#read(`tps/${this.chain}`, "receiving");
    this.#enter("connecting", "connecting");
  }

  /** Read the points that the list gains after a checkpoint. */
  #follow(checkpoint) {
    this.#read(`tps/${this.chain}/new?${new URLSearchParams({ resume: checkpoint })}`, "complete");
    this.#enter("complete");
  }

  /** Open a stream; `state` is the state of the chain while it is read. */
  #read(address, state) {
    this.#source?.close();
    this.#source = new EventSource(address);
    const on = (name, listener) => this.#source.addEventListener(name, listener);
    on("open", () => this.#enter(state));
    on("rows", (event) => this.#add(JSON.parse(event.data), event.lastEventId, state));
    on("waiting", (event) => this.#wait(JSON.parse(event.data).seconds));
    on("problem", (event) => this.#fail(JSON.parse(event.data)));
    on("end", (event) => this.#follow(event.lastEventId));
    on("error", () => this.#disconnected());
  }

  /** Close the stream; the server then sends nothing more upstream for it. */
  stop(state = "stopped", text = state) {
    if (!this.open) return;
    this.#source.close();
    this.#source = null;
    this.#enter(state, text);
  }

  /** Add the rows of a page; the id of the event is the checkpoint behind it. */
  #add(rows, id, state) {
    for (const { timestamp, value } of rows) this.points.set(timestamp, value);
    this.restarts = JSON.parse(id).restarts ?? this.restarts;
    waitsUntil = 0;
    this.#enter(state);
  }

  #wait(seconds) {
    waitsUntil = performance.now() + seconds * 1000;
    this.#enter("receiving");
  }

  /** Leave the stream to the browser, which connects again after a known wait; else close it. */
  #fail({ detail, retry_after: wait }) {
    if (wait === undefined) this.stop("failed", `failed: ${detail}`);
    else this.#enter("fault", `${detail}; trying again`);
  }

  /** The browser connects again by itself, behind the last page, unless the server refused. */
  #disconnected() {
    if (this.#source?.readyState === EventSource.CLOSED) {
      this.stop("failed", "failed: the server answered with an error");
    } else if (this.open && this.#state !== "fault") this.#enter("fault", "connection lost; connecting again");
  }

  #enter(state, text = "") {
    this.#state = state;
    this.#text = text;
    this.#changed();
  }

  #makeRow() {
    const row = find("series").insertRow();
    row.dataset.chain = this.chain;
    const head = document.createElement("th");
    head.scope = "row";
    const swatch = document.createElement("span");
    swatch.className = `swatch hue-${this.hue}`;
    head.append(swatch, this.name);
    row.append(head);
    const labels = [...document.querySelectorAll("thead th")].map((cell) => cell.textContent);
    ["state", "number days", "newest", "oldest", "number value", "number mean"].forEach((name, place) => {
      const cell = row.insertCell();
      cell.className = name;
      cell.dataset.label = labels[place + 1]; // shown where the head of the table is not
    });
    row.addEventListener("mouseenter", () => this.#pick(true));
    row.addEventListener("mouseleave", () => this.#pick(false));
    return row;
  }

  #pick(picked) {
    find("chart").classList.toggle("picks", picked);
    find("chart").querySelector(`[data-chain="${this.chain}"]`)?.classList.toggle("picked", picked);
  }

  /** Fill the row with what is known. */
  fill() {
    const cell = (name) => this.row.querySelector(`.${name}`);
    const times = [...this.points.keys()];
    if (times.length) {
      const newest = Math.max(...times);
      const sum = [...this.points.values()].reduce((total, value) => total + value, 0);
      cell("days").textContent = times.length.toLocaleString("en");
      cell("newest").textContent = dateOf(newest);
      cell("oldest").textContent = dateOf(Math.min(...times));
      cell("value").textContent = number(this.points.get(newest));
      cell("mean").textContent = number(sum / times.length);
    }
    const text = this.#text || { waiting: "waiting for quota", complete: "up to date" }[this.state] || this.state;
    const restarts = this.restarts ? `, restarted ${this.restarts === 1 ? "once" : `${this.restarts} times`}` : "";
    if (cell("state").firstChild?.textContent === text + restarts) return; // the button keeps its focus
    cell("state").replaceChildren(text + restarts, ...(this.state === "failed" ? [this.#againButton()] : []));
  }

  #againButton() {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Try again";
    button.setAttribute("aria-label", `Try again: ${this.name}`);
    button.addEventListener("click", () => this.start());
    return button;
  }
}

const chart = new Chart(find("chart"));
let all = [];
let ticking = 0;

/** Return the state of the page, and the sentence about it. */
function summary() {
  const states = (state) => all.filter((series) => series.state === state).length;
  const points = all.reduce((sum, series) => sum + series.points.size, 0).toLocaleString("en");
  if (states("fault")) return ["fault", `Connecting again: ${points} points so far`];
  if (states("waiting")) return ["waiting", "Waiting for quota"];
  if (states("receiving") || states("connecting")) {
    return ["receiving", `Receiving pages: ${states("complete")} of ${all.length} chains up to date`];
  }
  if (states("failed")) return ["fault", `${states("failed")} of ${all.length} chains failed`];
  if (states("stopped")) return ["idle", `Stopped: ${points} points`];
  return ["complete", `Up to date: ${points} points of ${all.length} chains`];
}

/** Show what changed. Only a new sentence is announced: the countdown is outside of the live region. */
function show() {
  for (const series of all) series.fill();
  const [state, text] = summary();
  find("progress").dataset.state = state;
  if (find("status").textContent !== text) find("status").textContent = text;
  const waits = state === "waiting";
  find("countdown").textContent = waits ? `: ${Math.ceil(waitLeft())} s` : "";
  find("stop").disabled = !all.some((series) => series.open);
  if (waits) ticking ||= setInterval(show, 200);
  else ticking = clearInterval(ticking) ?? 0;
  chart.draw();
}

// --- the choice of chains, which is in the address of the page ----------------------------------

/** Offer the chains; those in the address are chosen. */
function offer(chains, chosen) {
  const boxes = chains.map(({ id, name }) => {
    const label = document.createElement("label");
    const box = Object.assign(document.createElement("input"), { type: "checkbox", name: "chain", value: id });
    box.checked = chosen.includes(String(id));
    label.append(box, ` ${name} (${id})`);
    return label;
  });
  find("chains").replaceChildren(...boxes);
  const limit = () => {
    const inputs = [...find("chains").querySelectorAll("input")];
    const full = inputs.filter((box) => box.checked).length >= MOST;
    for (const box of inputs) box.disabled = full && !box.checked;
  };
  find("chains").addEventListener("change", limit);
  limit();
}

function draw(chains, chosen) {
  const names = new Map(chains.map(({ id, name }) => [String(id), name]));
  const wanted = [...new Set(chosen)].slice(0, MOST);
  all = wanted.map((chain, place) => new Series(chain, names.get(chain) ?? `Chain ${chain}`, place + 1, show));
  chart.series = all;
  for (const series of all) series.start();
}

async function begin() {
  const chosen = new URLSearchParams(location.search).getAll("chain").filter((id) => /^\d+$/.test(id));
  const response = await fetch("chains").catch(() => null);
  if (!response?.ok) {
    find("progress").dataset.state = "fault";
    find("status").textContent = "The list of chains did not arrive: reload the page to try again";
    return;
  }
  const chains = await response.json();
  offer(chains, chosen);
  if (chosen.length) draw(chains, chosen);
  else find("choice").open = true;
}

// --- the cursor: a day, chosen with the pointer or the arrow keys --------------------------------

let day = null;

function mark(time) {
  const span = chart.span;
  if (span === null || time === null) return;
  day = Math.min(Math.max(time, span[0]), span[1]);
  chart.day = day;
  const values = all
    .filter((series) => series.points.has(day))
    .map((series) => `${series.name} ${number(series.points.get(day))}`);
  const text = `${dateOf(day)}: ${values.join(", ") || "no points"} (TPS)`;
  find("readout").textContent = text;
  const slider = { valuemin: span[0], valuemax: span[1], valuenow: day, valuetext: text, disabled: false };
  for (const [name, value] of Object.entries(slider)) find("cursor").setAttribute(`aria-${name}`, value);
}

const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30, Home: -Infinity, End: Infinity };

find("cursor").addEventListener("keydown", (event) => {
  const days = STEPS[event.key];
  if (days === undefined || chart.span === null) return;
  event.preventDefault();
  mark((day ?? chart.span[1]) + days * DAY);
});
find("chart").addEventListener("pointermove", (event) => {
  mark(chart.dayAt(event.clientX - find("chart").getBoundingClientRect().left));
});

find("stop").addEventListener("click", () => all.forEach((series) => series.stop()));
// A page that the browser keeps for "back" must not continue to read.
addEventListener("pagehide", () => all.forEach((series) => series.stop()));
begin();
