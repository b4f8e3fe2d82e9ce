/** Curves over time: the selected series with its bands, what was logged, update ratio and moved share. */
import { element } from "../elements";
import { cut, legible, ROOT } from "../names";
import { slotAt, type Series, type WatchData } from "./data";
import { figure, linear, percent, scaleFor, steps, type Scale } from "./figures";
import type { Hooks, Moment, Part, WatchContext } from "./part";
import { hatch, type Drawing } from "./pen";
import { drawScale, MARGIN, Strip, type Figures } from "./strip";
import { xOf, type Plot } from "./time-axis";
import { clipped, placed, Trace, type Reading } from "./trace";

type Plotted = Drawing & { plot: Plot };

/** What a scale must hold: the extremes, the least magnitude above zero, and the size of what is common. */
interface Extent {
  low: number;
  high: number;
  least: number;
  core: number;
}

/** Of all slots, so that the axis stays while time goes on; of the visible ones where one has zoomed. */
function extentOf(reading: Reading, moment: Moment, inner = false): Extent {
  let [low, high, least] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];
  const sizes: number[] = [];
  const begin = moment.from > 0 ? Math.max(0, slotAt(reading.first, moment.from)) : 0;
  for (let slot = begin; slot < reading.slots && (reading.first[slot] as number) < moment.to; slot += 1) {
    const value = reading.mid(slot);
    const [down, up] = [reading.low?.(slot) ?? value, reading.high?.(slot) ?? value];
    if (down < low) low = down;
    if (up > high) high = up;
    if (value > 0 && value < least) least = value;
    if (inner) sizes.push(Math.max(Math.abs(reading.under?.(slot) ?? value), Math.abs(reading.over?.(slot) ?? value)));
  }
  const known = sizes.filter((size) => size > 0).sort((a, b) => a - b);
  return { low, high, least, core: known[known.length >> 1] ?? 0 };
}

/** Keeps what costs a pass over all slots until the data or the series change. */
class Kept<T> {
  #key = "";
  #value: T | null = null;

  of(key: string, make: () => T): T {
    if (key !== this.#key || this.#value === null) this.#value = make();
    this.#key = key;
    return this.#value;
  }
}

/** A column of one series of the history. */
function reader(data: WatchData, column: Parameters<WatchData["value"]>[0], row: number): (slot: number) => number {
  const [values, width] = [data.column(column), data.payload.series.length];
  return (slot) => values[slot * width + row] ?? Number.NaN;
}

/** Mean ± std inside of min – max, of the selected series. */
export class SeriesCurve implements Part {
  readonly element: HTMLElement;
  readonly #strip: Strip;
  readonly #trace = new Trace();
  readonly #scale = new Kept<Scale>();

  constructor(context: WatchContext, hooks: Hooks) {
    this.#strip = new Strip(context, hooks, 96, "series");
    this.element = this.#strip.element;
  }

  draw(moment: Moment): void {
    const { data, row } = moment;
    const series = data.payload.series[row];
    this.element.hidden = !series || !data.slots;
    if (!series || !data.slots) return;
    const slot = data.slotOf(moment.step);
    this.#strip.title(series.role, shownPath(series), [series.shape, series.note].filter(Boolean).join(", "));
    this.#strip.figures(figuresOf(data, slot, row), `${series.role} of ${shownPath(series)} at step ${moment.step}`);
    const drawing = this.#strip.begin(moment);
    if (!drawing) return;
    const reading = readingOf(data, row);
    const scale = this.#scale.of(`${data.revision} ${row} ${moment.from} ${moment.to}`, () => {
      const { low, high, core } = extentOf(reading, moment, true);
      return scaleFor(low, high, 0, core);
    });
    const bottom = this.#strip.height - MARGIN;
    drawScale(drawing, scale, MARGIN, bottom);
    this.#trace.gather(reading, moment, drawing.plot);
    clipped(drawing, drawing.plot, () => {
      const { pen, palette } = drawing;
      const y = placed(scale, MARGIN, bottom);
      pen.fillStyle = palette.linear;
      pen.globalAlpha = 0.12;
      this.#trace.band(pen, "low", "high", y);
      pen.globalAlpha = 0.2;
      this.#trace.band(pen, "under", "over", y);
      pen.globalAlpha = 1;
      pen.strokeStyle = palette.linear;
      pen.lineWidth = 1.4;
      this.#trace.line(pen, y);
      drawBad(drawing, moment, row);
    });
    this.#strip.end(drawing, moment);
  }
}

function readingOf(data: WatchData, row: number): Reading {
  const [mean, std] = [reader(data, "mean", row), reader(data, "std", row)];
  return {
    first: data.first, last: data.last, slots: data.slots, mid: mean, low: reader(data, "low", row), high: reader(data, "high", row),
    under: (slot) => mean(slot) - std(slot), over: (slot) => mean(slot) + std(slot),
  };
}

function figuresOf(data: WatchData, slot: number, row: number): Figures {
  const at = (column: Parameters<WatchData["value"]>[0]): number => data.value(column, slot, row);
  const [bad, zeros] = [at("bad"), at("zeros")];
  const made: [string, string, string?][] = Number.isNaN(at("mean")) && !(bad > 0) ? [["", "not sampled here"]] : [["mean", figure(at("mean"))], ["std", figure(at("std"))], ["min", figure(at("low"))], ["max", figure(at("high"))]];
  if (bad > 0) made.push(["NaN, Inf", steps(bad), "missing"]);
  else if (zeros > 0) made.push(["zeros", percent(zeros)]);
  return made;
}

/** Where numbers were NaN or infinite: hatched from top to bottom. */
function drawBad(drawing: Plotted, moment: Moment, row: number): void {
  const { data } = moment;
  const bad = reader(data, "bad", row);
  let pattern: CanvasPattern | string | null = null;
  for (let slot = Math.max(0, slotAt(data.first, moment.from)); slot < data.slots; slot += 1) {
    const first = data.first[slot] as number;
    if (first >= moment.to) break;
    if (!(bad(slot) > 0)) continue;
    pattern ??= hatch(drawing);
    const x = xOf(moment, first, drawing.plot);
    const width = xOf(moment, data.first[slot + 1] ?? (data.last[slot] as number) + 1, drawing.plot) - x;
    drawing.pen.fillStyle = pattern;
    drawing.pen.globalAlpha = 0.35;
    drawing.pen.fillRect(x, 0, Math.max(2, width), drawing.height);
    drawing.pen.globalAlpha = 1;
  }
}

const LONGEST = 120;

/** A path as it is shown: unseen characters made visible, of a very long one the end. */
export function shownPath({ path }: Pick<Series, "path">): string {
  return path.length > LONGEST ? `…${legible(path.slice(-LONGEST))}` : legible(path) || ROOT;
}

const SHOWN = 6;

/** What was logged: the loss first, each with the range that was seen in a slot. */
export class ScalarCurves implements Part {
  readonly element = element("div", { class: "scalars" });
  readonly #context: WatchContext;
  readonly #hooks: Hooks;
  readonly #curves: ScalarCurve[] = [];
  readonly #left = element("p", { class: "left" });

  constructor(context: WatchContext, hooks: Hooks) {
    this.#context = context;
    this.#hooks = hooks;
  }

  draw(moment: Moment): void {
    const { scalars } = moment.data.payload;
    const order = scalars.map((_, index) => index).sort((a, b) => Number(isLoss(scalars[b]?.name)) - Number(isLoss(scalars[a]?.name)));
    const shown = order.slice(0, SHOWN);
    while (this.#curves.length < shown.length) {
      const made = new ScalarCurve(this.#context, this.#hooks, this.#curves.length === 0);
      this.#curves.push(made);
      this.element.append(made.element);
    }
    this.#curves.forEach((curve, place) => curve.draw(moment, shown[place] ?? -1));
    const rest = order.slice(SHOWN).map((index) => cut(legible(scalars[index]?.name ?? ""), 40));
    this.#left.textContent = rest.length ? `and ${rest.join(", ")}: w.history has them` : "";
    if (rest.length) this.element.append(this.#left);
  }
}

function isLoss(name = ""): boolean {
  return /loss/i.test(name);
}

class ScalarCurve {
  readonly element: HTMLElement;
  readonly #strip: Strip;
  readonly #trace = new Trace();
  readonly #scale = new Kept<Scale>();

  constructor(context: WatchContext, hooks: Hooks, main: boolean) {
    this.#strip = new Strip(context, hooks, main ? 76 : 48, "scalar");
    this.element = this.#strip.element;
  }

  draw(moment: Moment, index: number): void {
    const { data } = moment;
    const facts = data.payload.scalars[index];
    this.element.hidden = !facts;
    if (!facts) return;
    const { first, last, mean, low, high } = data.scalar(index);
    const slot = slotAt(first, moment.step);
    const value = mean[slot] ?? Number.NaN;
    const spread = (high[slot] ?? 0) > (low[slot] ?? 0) && this.#strip.height > 60;
    const range: Figures = spread ? [["min", figure(low[slot] ?? Number.NaN)], ["max", figure(high[slot] ?? Number.NaN)]] : [];
    this.#strip.title("", facts.name, `${facts.count.toLocaleString("en")} values, the last one ${facts.final}`);
    this.#strip.figures([[spread ? "mean" : "", figure(value), Number.isFinite(value) ? undefined : "missing"], ...range], `${facts.name} at step ${moment.step}`);
    const drawing = this.#strip.begin(moment);
    if (!drawing) return;
    const reading: Reading = { first, last, slots: first.length, mid: (at) => mean[at] ?? Number.NaN, low: (at) => low[at] ?? Number.NaN, high: (at) => high[at] ?? Number.NaN };
    const scale = this.#scale.of(`${data.revision} ${index} ${moment.from} ${moment.to}`, () => {
      const extent = extentOf(reading, moment);
      return scaleFor(extent.low, extent.high, extent.least, 0, 25);
    });
    drawCurve(drawing, this.#trace, reading, moment, scale, this.#strip.height, drawing.palette.linear);
    this.#strip.end(drawing, moment);
  }
}

function drawCurve(drawing: Plotted, trace: Trace, reading: Reading, moment: Moment, scale: Scale, height: number, colour: string, write?: (value: number) => string): void {
  const bottom = height - MARGIN;
  drawScale(drawing, scale, MARGIN, bottom, write);
  trace.gather(reading, moment, drawing.plot);
  clipped(drawing, drawing.plot, () => {
    const { pen } = drawing;
    const y = placed(scale, MARGIN, bottom);
    pen.fillStyle = colour;
    pen.globalAlpha = 0.16;
    trace.band(pen, "low", "high", y);
    pen.globalAlpha = 1;
    pen.strokeStyle = colour;
    pen.lineWidth = 1.4;
    trace.line(pen, y);
  });
}

/** ‖update‖ / ‖weight‖ of one parameter, and the share of its elements that moved although they had a gradient. */
export class MovementCurves implements Part {
  readonly element = element("div", { class: "movement" });
  readonly #ratio: Strip;
  readonly #moved: Strip;
  readonly #traces = [new Trace(), new Trace()] as const;
  readonly #scale = new Kept<Scale>();

  constructor(context: WatchContext, hooks: Hooks) {
    this.#ratio = new Strip(context, hooks, 58, "ratio");
    this.#moved = new Strip(context, hooks, 48, "moved");
    this.element.append(this.#ratio.element, this.#moved.element);
  }

  draw(moment: Moment): void {
    const { data } = moment;
    const row = updateRow(data, moment.row);
    this.element.hidden = row < 0 || !data.slots;
    if (this.element.hidden) return;
    const path = data.payload.series[row]?.path ?? "";
    const slot = data.slotOf(moment.step);
    const where = `of ${path} at step ${moment.step}`;
    const [ratio, moved] = [data.ratio(slot, row), 1 - data.value("stuck", slot, row)];
    this.#ratio.title("update ratio", path, "‖update‖ / ‖weight‖ of one step");
    this.#ratio.figures([["", Number.isNaN(ratio) ? "not sampled here" : figure(ratio)]], `update ratio ${where}`);
    this.#moved.title("moved", path, "of its elements with a gradient, the share that a step changed");
    this.#moved.figures([["", Number.isNaN(moved) ? "not sampled here" : percent(moved), moved < 0.5 ? "careful" : undefined]], `moved share ${where}`);
    this.#drawRatio(moment, row);
    this.#drawMoved(moment, row);
  }

  #drawRatio(moment: Moment, row: number): void {
    const { data } = moment;
    const drawing = this.#ratio.begin(moment);
    if (!drawing) return;
    const reading: Reading = { first: data.first, last: data.last, slots: data.slots, mid: (slot) => data.ratio(slot, row) };
    const scale = this.#scale.of(`${data.revision} ${row} ${moment.from} ${moment.to}`, () => {
      const { low, high, least } = extentOf(reading, moment);
      return scaleFor(low, high, least, 0, 8);
    });
    drawCurve(drawing, this.#traces[0], reading, moment, scale, this.#ratio.height, drawing.palette.conv);
    this.#ratio.end(drawing, moment);
  }

  #drawMoved(moment: Moment, row: number): void {
    const { data } = moment;
    const drawing = this.#moved.begin(moment);
    if (!drawing) return;
    const stuck = reader(data, "stuck", row);
    const reading: Reading = { first: data.first, last: data.last, slots: data.slots, mid: (slot) => 1 - stuck(slot) };
    drawCurve(drawing, this.#traces[1], reading, moment, SHARE, this.#moved.height, drawing.palette.fine, percent);
    this.#moved.end(drawing, moment);
  }
}

const SHARE: Scale = { ...linear(0, 1), ticks: () => [0, 1] };

/** The update that belongs to a series: of the parameter, or of the module's first parameter, or of the first one after it. */
export function updateRow(data: WatchData, row: number): number {
  const series = data.payload.series[row];
  if (!series) return -1;
  const own = data.row(series.path, "update");
  if (own >= 0) return own;
  const within = series.path ? `${series.path}.` : "";
  return data.payload.series.findIndex((one) => one.role === "update" && one.path.startsWith(within));
}
