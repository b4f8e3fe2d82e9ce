/** Depth × time: one statistic of every module or parameter, depth downwards, steps to the right. */
import { css, magnitude, signed, type Rgb } from "../colour";
import { element } from "../elements";
import { fillLegend } from "../legend";
import { cut } from "../names";
import { PALETTES } from "../palette";
import { ROLES, slotAt, type Column, type Role, type WatchData } from "./data";
import { figure, linear, percent, placeName, roundUp, signedLog, steps, type Scale } from "./figures";
import { choice, options } from "./choice";
import type { Hooks, Moment, Part, WatchContext } from "./part";
import { bytesOf, drawingOn, fitted, hairline, painted, type Drawing } from "./pen";
import { drawCursor, followTime, hatchSlots, plotOf, xOf, type Plot } from "./time-axis";

/** What can be shown of a series in a slot. */
interface Statistic {
  name: string;
  column: Column | "norm" | "ratio";
  signed?: true;
  share?: true;
  roles?: readonly Role[];
  /** For a tooltip. */
  about?: string;
}

const STATISTICS: readonly Statistic[] = [
  { name: "std", column: "std" },
  { name: "mean", column: "mean", signed: true },
  { name: "min", column: "low", signed: true },
  { name: "max", column: "high", signed: true },
  { name: "L2 norm", column: "norm" },
  { name: "zeros", column: "zeros", share: true, about: "share of exact zeros" },
  { name: "NaN, Inf", column: "bad", about: "how many are NaN or infinite" },
  { name: "stuck", column: "stuck", share: true, roles: ["update"], about: "share of elements that have a gradient and did not move" },
  { name: "update ratio", column: "ratio", roles: ["parameter", "update", "parameter gradient"], about: "‖update‖ / ‖weight‖" },
];

const ROLE_NAMES: Record<Role, string> = {
  activation: "activations", gradient: "gradients of outputs", parameter: "parameters", "parameter gradient": "gradients of parameters", update: "updates",
};

type Reader = (slot: number, row: number) => number;

function readerOf(data: WatchData, { column }: Statistic): Reader {
  if (column === "norm" || column === "ratio") return (slot, row) => data[column](slot, row);
  const [values, width] = [data.column(column), data.payload.series.length];
  return (slot, row) => values[slot * width + row] ?? Number.NaN;
}

/** What the colours mean: shares from 0 to 1 of a table of 256, and the values at its ends. */
interface Colours {
  scale: Scale;
  signed: boolean;
}

function coloursOf(data: WatchData, rows: readonly number[], read: Reader, statistic: Statistic): Colours {
  const sizes: number[] = [];
  // The ends are of all numbers; what is common is seen in some thousand of them.
  const every = Math.max(1, Math.floor((data.slots * rows.length) / 8192));
  let [low, high, seen] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0];
  for (let slot = 0; slot < data.slots; slot += 1) {
    for (const row of rows) {
      const value = read(slot, row);
      if (!Number.isFinite(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
      if (value !== 0 && seen++ % every === 0) sizes.push(Math.abs(value));
    }
  }
  if (!(low <= high)) return { scale: linear(0, 1), signed: false };
  const known = Float64Array.from(sizes).sort();
  const at = (share: number): number => known[Math.floor(share * (known.length - 1))] ?? 0;
  const most = Math.max(-low, high);
  if (statistic.share) return { scale: ends(0, Math.max(high, 0.01)), signed: false };
  if (statistic.signed && low < 0) {
    const core = at(0.5);
    return { scale: core > 0 && most / core > 60 ? signedLog(-most, most, core) : ends(-round(most), round(most)), signed: true };
  }
  const least = at(0.005);
  if (least > 0 && most / least > 20) return { scale: decades(1 / roundUp(1 / least), roundUp(most)), signed: false };
  return { scale: ends(0, round(most)), signed: false };
}

/** By magnitude, between ends that are rounder than they are far. */
function decades(low: number, high: number): Scale {
  return { kind: "log", low, high, share: (value) => (value > 0 ? Math.log(value / low) / Math.log(high / low) : 0), ticks: () => [low, high] };
}

/** A round end, so that colours change seldom. */
function round(most: number): number {
  return most > 0 ? roundUp(most, [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8]) : 1;
}

function ends(low: number, high: number): Scale {
  return { kind: "linear", low, high, share: (value) => (value - low) / (high - low), ticks: () => [low, high] };
}

const tables = new Map<string, Uint32Array>();

function tableOf(isSigned: boolean, dark: boolean): Uint32Array {
  const key = `${isSigned} ${dark && isSigned}`;
  const made = tables.get(key) ?? bytesOf((share) => colourAt(share, isSigned, dark));
  tables.set(key, made);
  return made;
}

function colourAt(share: number, isSigned: boolean, dark: boolean): Rgb {
  return isSigned ? signed(2 * share - 1, dark ? PALETTES.dark : PALETTES.light) : magnitude(share);
}

const HIGHEST = 384;

export class DepthMap implements Part {
  readonly element: HTMLElement;
  readonly #canvas: HTMLCanvasElement;
  /** The same statistic at the cursor, along depth. */
  readonly #now = element("canvas", { class: "now", "aria-hidden": "true" });
  readonly #roleChoice: HTMLSelectElement;
  readonly #choice: HTMLSelectElement;
  readonly #bar: HTMLElement;
  readonly #caption = element("span", { class: "caption" });
  readonly #legend = element("span", { class: "legend", role: "img" });
  /** The number under the pointer, or of the selected series at the cursor; it stands below the axis. */
  readonly reading = element("div", { class: "reading" });
  readonly #absent = element("p", { class: "absent" });
  readonly #context: WatchContext;
  readonly #hooks: Hooks;
  #moment: Moment | null = null;
  #statistic: Statistic = STATISTICS[0] as Statistic;
  /** Nobody has chosen one yet. */
  #unasked = true;
  #rows: number[] = [];
  /** The row that is pointed at. */
  #hovered = -1;
  #key = "";
  #colours: Colours = { scale: linear(0, 1), signed: false };
  readonly #tile = element("canvas");

  constructor(context: WatchContext, hooks: Hooks) {
    this.#context = context;
    this.#hooks = hooks;
    this.#canvas = element("canvas", { class: "over-time", role: "img" });
    this.#roleChoice = choice("what is measured", (role) => this.#pickRole(role as Role));
    this.#choice = choice("statistic", (name) => this.#pick(name));
    this.#bar = element("div", { class: "bar" }, element("span", { class: "choices" }, picked(this.#roleChoice), picked(this.#choice), this.#caption), this.#legend);
    this.element = element(
      "div",
      { class: "depth" },
      this.#bar,
      element("div", { class: "map" }, this.#canvas, this.#now),
      this.#absent,
    );
    followTime(this.#canvas, () => this.#moment, hooks);
    this.#followRows();
  }

  /** The series that are rows here, from the first module to the last. */
  get rows(): readonly number[] {
    return this.#rows;
  }

  /** What is shown of the selected series, over the visible steps. */
  values({ data, row, from, to }: Moment): Float32Array {
    const read = readerOf(data, this.#statistic);
    const made: number[] = [];
    for (let slot = Math.max(0, slotAt(data.first, from)); slot < data.slots && (data.first[slot] as number) < to; slot += 1) made.push(read(slot, row));
    return Float32Array.from(made);
  }

  draw(moment: Moment): void {
    // Who moves the cursor or chooses a row wants its number, wherever the pointer rests.
    if (moment.step !== this.#moment?.step || moment.row !== this.#moment.row) this.#hovered = -1;
    this.#moment = moment;
    const { data } = moment;
    const { series } = data.payload;
    const role = series[moment.row]?.role ?? series[0]?.role ?? "activation";
    this.#rows = series.flatMap((one, index) => (one.role === role ? [index] : []));
    this.#offer(data, role);
    const empty = !data.slots || !this.#rows.length;
    this.#bar.hidden = this.#canvas.hidden = this.#now.hidden = this.reading.hidden = empty;
    this.#absent.hidden = !empty;
    if (empty) {
      this.#absent.textContent = data.payload.state === "waiting" || data.payload.live ? "no sample yet: the picture begins with the first step of the optimizer" : "no sample was taken";
      return;
    }
    const read = readerOf(data, this.#statistic);
    const key = `${data.revision} ${role} ${this.#statistic.name}`;
    if (key !== this.#key) this.#colours = coloursOf(data, this.#rows, read, this.#statistic);
    this.#key = key;
    this.#drawLegend();
    this.#say(moment, read);
    const height = this.#rowHeight() * this.#rows.length;
    const drawing = drawingOn(this.#canvas, height, this.#context);
    if (drawing) this.#paint(drawing, moment, read);
    const now = drawingOn(this.#now, height, this.#context);
    if (now) this.#paintNow(now, moment, read);
  }

  /** So high that names can be read while there are few rows; of many, only so high as fits. */
  #rowHeight(): number {
    const count = this.#rows.length;
    return count > HIGHEST / 2 ? Math.max(1, 400 / count) : Math.max(2, Math.min(20, Math.floor(HIGHEST / count)));
  }

  #paint(drawing: Drawing, moment: Moment, read: Reader): void {
    const { pen, palette, width, ratio } = drawing;
    const plot = plotOf(width);
    const high = this.#rowHeight();
    const columns = Math.round(plot.width * ratio);
    const image = this.#image(moment, read, plot, columns, ratio);
    pen.imageSmoothingEnabled = false;
    pen.fillStyle = palette.sunk;
    pen.fillRect(plot.left, 0, Math.max(0, Math.min(plot.width, xOf(moment, moment.data.end, plot) - plot.left)), drawing.height);
    if (image) pen.drawImage(image, 0, 0, columns, this.#rows.length, plot.left, 0, plot.width, drawing.height);
    this.#rows.forEach((row, line) => hatchSlots(drawing, moment, plot, moment.data, (slot) => moment.data.value("bad", slot, row) > 0, line * high, high));
    if (high >= 8) for (let i = 1; i < this.#rows.length; i += 1) hairline(drawing, plot.left, i * high - 0.25, plot.left + plot.width, i * high - 0.25, palette.panel);
    this.#names(drawing, moment, plot, high);
    const selected = this.#rows.indexOf(moment.row);
    if (selected >= 0) {
      pen.strokeStyle = palette.ink;
      pen.lineWidth = 1;
      pen.strokeRect(plot.left - 0.5, selected * high - (high < 5 ? 1 : 0) + 0.5, plot.width + 1, Math.max(3, high) - 1);
    }
    drawCursor(drawing, moment, plot, 0, drawing.height);
  }

  /** A bar and, where there is room, the number of each row. */
  #paintNow(drawing: Drawing, moment: Moment, read: Reader): void {
    const { pen, palette, width } = drawing;
    const high = this.#rowHeight();
    const written = high >= 10;
    const { scale, signed: both } = this.#colours;
    const dark = this.#context.isDark();
    const [left, room] = [4, width - 18 - (written ? 54 : 0)];
    const zero = both ? left + room / 2 : left;
    hairline(drawing, zero, 0, zero, drawing.height, palette.faint);
    this.#rows.forEach((row, line) => {
      const slot = moment.data.seenAt(moment.step, row, (at) => read(at, row));
      const value = read(slot, row);
      const bad = moment.data.value("bad", slot, row) > 0;
      const y = line * high;
      if (Number.isFinite(value)) {
        const share = Math.max(0, Math.min(1, scale.share(value)));
        const to = left + room * share;
        pen.fillStyle = css(colourAt(share, both, dark));
        pen.fillRect(Math.min(zero, to), y + (high > 4 ? 2 : 0), Math.max(1, Math.abs(to - zero)), high > 4 ? high - 4 : high);
      }
      if (!written) return;
      pen.textAlign = "right";
      pen.fillStyle = bad ? palette.missing : row === moment.row ? palette.ink : palette.quiet;
      const text = bad ? "NaN, Inf" : Number.isNaN(value) ? "–" : this.#statistic.share ? percent(value) : figure(value, 2);
      pen.fillText(text, width - 14, y + high / 2 + 0.5);
    });
    pen.textAlign = "left";
  }

  /** One pixel of the screen a column and one a row, stretched afterwards; each column shows the slot that holds its middle. */
  #image(moment: Moment, read: Reader, plot: Plot, columns: number, ratio: number): HTMLCanvasElement | null {
    const { scale } = this.#colours;
    const table = tableOf(this.#colours.signed, this.#context.isDark());
    const { data } = moment;
    // Behind the last sample of a row nothing is known; that one is a pixel wide at least.
    const ends = this.#rows.map((row) => {
      let at = data.slots - 1;
      while (at > 0 && !Number.isFinite(read(at, row))) at -= 1;
      return xOf(moment, (data.last[at] ?? 0) + 1, plot) + 1;
    });
    return painted(this.#tile, columns, this.#rows.length, (pixels) => {
      let slot = Math.max(0, slotAt(data.first, moment.from));
      let drawn = -1;
      for (let column = 0; column < columns; column += 1) {
        const x = plot.left + (column + 0.5) / ratio;
        const step = moment.from + ((x - plot.left) / plot.width) * (moment.to - moment.from);
        while (slot + 1 < data.slots && (data.first[slot + 1] as number) <= step) slot += 1;
        this.#rows.forEach((row, line) => {
          if (x > (ends[line] as number)) return;
          const at = line * columns + column;
          if (slot === drawn) pixels[at] = pixels[at - 1] as number;
          else {
            const value = read(slot, row);
            if (Number.isFinite(value)) pixels[at] = table[Math.max(0, Math.min(255, Math.round(scale.share(value) * 255)))] as number;
          }
        });
        drawn = slot;
      }
    });
  }

  /** Every name where rows are high enough; else as many as there is room for, the selected one first. */
  #names(drawing: Drawing, moment: Moment, plot: Plot, high: number): void {
    const { pen, palette } = drawing;
    const selected = this.#rows.indexOf(moment.row);
    const every = Math.ceil(12 / high);
    const yOf = (line: number): number => Math.max(6, Math.min(drawing.height - 6, (line + 0.5) * high + 0.5));
    pen.textAlign = "right";
    const font = pen.font;
    let before = Number.NEGATIVE_INFINITY;
    this.#rows.forEach((row, line) => {
      const own = line === selected;
      if (!own && (line % every || yOf(line) - before < 11 || (selected >= 0 && Math.abs(yOf(line) - yOf(selected)) < 11))) return;
      before = yOf(line);
      pen.fillStyle = own ? palette.ink : palette.soft;
      pen.font = own ? `bold ${font}` : font;
      pen.fillText(fitted(pen, placeName(moment.data.payload.series[row]?.path ?? ""), plot.left - 18), plot.left - 6, yOf(line));
    });
    pen.font = font;
    pen.textAlign = "left";
  }

  #drawLegend(): void {
    const { scale, signed: both } = this.#colours;
    const write = (value: number): string => (this.#statistic.share ? percent(value) : figure(value, 2));
    const dark = this.#context.isDark();
    const said = `${scale.low} ${scale.high} ${scale.kind} ${both} ${dark} ${this.#statistic.name}`;
    if (this.#legend.dataset.said === said) return;
    this.#legend.dataset.said = said;
    const [low, high] = [write(scale.low), write(scale.high)];
    this.#legend.setAttribute("aria-label", `colours from ${low} to ${high}${scale.kind === "linear" ? "" : ", logarithmic"}`);
    fillLegend(this.#legend, low, scale.kind === "linear" ? high : `${high} log`, (share) => colourAt(share, both, dark));
  }

  /** The number under the pointer, or else of the selected series at the cursor. */
  #say(moment: Moment, read: Reader): void {
    const { data, seen } = moment;
    const row = this.#rows.includes(this.#hovered) ? this.#hovered : moment.row;
    const series = data.payload.series[row];
    const slot = data.seenAt(seen, row, (at) => read(at, row));
    if (!series || slot < 0) return;
    const value = read(slot, row);
    const bad = data.value("bad", slot, row);
    const text = bad > 0 ? `${steps(bad)} NaN or Inf` : Number.isNaN(value) ? "not sampled here" : this.#statistic.share ? percent(value) : figure(value);
    const [first = 0, last = 0] = [data.first[slot], data.last[slot]];
    const when = first === last ? `step ${steps(first)}` : `steps ${steps(first)} – ${steps(last)}`;
    const said = `${placeName(series.path)}  ${bad > 0 ? "" : `${this.#statistic.name} `}${text}  ${when}${series.shape ? `  shape ${cut(series.shape, 60)}` : ""}${series.note ? `  ${cut(series.note)}` : ""}`;
    if (this.reading.textContent === said) return;
    this.reading.textContent = said;
    this.#canvas.setAttribute("aria-label", `${ROLE_NAMES[series.role]}${data.ofPart}, depth by time, ${this.#rows.length} rows; ${said}`);
  }

  #followRows(): void {
    const rowAt = (event: MouseEvent): number => {
      const box = this.#canvas.getBoundingClientRect();
      return this.#rows[Math.max(0, Math.min(this.#rows.length - 1, Math.floor(((event.clientY - box.top) / box.height) * this.#rows.length)))] ?? -1;
    };
    this.#canvas.addEventListener("pointerdown", (event) => {
      if (event.button === 0 && !event.shiftKey) this.#hooks.onSelect(rowAt(event));
    });
    this.#canvas.addEventListener("pointermove", (event) => {
      this.#hovered = rowAt(event);
      if (this.#moment) this.#say(this.#moment, readerOf(this.#moment.data, this.#statistic));
    });
    this.#canvas.addEventListener("pointerleave", () => (this.#hovered = -1));
  }

  /** The roles that were measured, and the statistics that there are of this one. */
  #offer(data: WatchData, role: Role): void {
    const there = ROLES.filter((one) => data.payload.series.some((series) => series.role === one));
    this.#caption.textContent = `depth × time${data.ofPart}`;
    options(this.#roleChoice, there.map((one) => [one, ROLE_NAMES[one]]), role);
    const fitting = STATISTICS.filter((one) => !one.roles || one.roles.includes(role));
    // A single number does not spread.
    const single = this.#rows.filter((row) => (data.payload.series[row]?.count ?? 0) < 2).length > this.#rows.length / 2;
    if (this.#unasked) this.#statistic = STATISTICS.find(({ column }) => column === (single ? "norm" : "std")) as Statistic;
    if (!fitting.includes(this.#statistic)) this.#statistic = fitting[0] as Statistic;
    options(this.#choice, fitting.map((one) => [one.name, one.name]), this.#statistic.name);
    this.#choice.title = this.#statistic.about ?? "";
  }

  /** The same module in another role, or a parameter of it. */
  #pickRole(role: Role): void {
    if (!this.#moment) return;
    this.#hooks.onSelect(sameIn(this.#moment.data, this.#moment.row, role));
  }

  #pick(name: string): void {
    this.#unasked = false;
    this.#statistic = STATISTICS.find((one) => one.name === name) ?? this.#statistic;
    if (this.#moment) this.draw(this.#moment);
  }
}

/** The series of another role that is nearest to one: of the same path, of a part of it, of what holds it, or the first. */
export function sameIn(data: WatchData, row: number, role: Role): number {
  const { series } = data.payload;
  const path = series[row]?.path ?? "";
  const own = data.row(path, role);
  if (own >= 0) return own;
  const below = series.findIndex((one) => one.role === role && one.path.startsWith(`${path}.`));
  if (below >= 0) return below;
  const above = data.row(path.split(".").slice(0, -1).join("."), role);
  return above >= 0 ? above : series.findIndex((one) => one.role === role);
}

function picked(select: HTMLSelectElement): HTMLElement {
  return element("span", { class: "pick" }, select);
}
