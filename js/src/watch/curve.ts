/** Curves over time: the selected series with its bands, what was logged, update ratio and moved share. */
import { button, element, words } from "../elements";
import type { Palette } from "../palette";
import { slotAt, type Column, type Reading, type WatchData } from "./data";
import { counted, figure, linear, percent, placeWords, scaleFor, steps, type Scale } from "./figures";
import type { Hooks, Moment, Part, WatchContext } from "./part";
import { drawScale, MARGIN, Strip, type Figures } from "./strip";
import { hatchSlots } from "./time-axis";
import { clipped, placed, Trace } from "./trace";

/** What a scale must hold: the extremes, the least magnitude above zero, and the size of what is common. */
interface Extent {
  low: number;
  high: number;
  least: number;
  core: number;
}

/** Of all slots, so that the axis stays while time goes on; of the visible ones where one has zoomed. */
export function extentOf(reading: Reading, moment: Moment): Extent {
  let [low, high, least] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];
  const sizes: number[] = [];
  const begin = moment.from > 0 ? Math.max(0, slotAt(reading.first, moment.from)) : 0;
  for (let slot = begin; slot < reading.first.length && (reading.first[slot] as number) < moment.to; slot += 1) {
    const value = reading.mid(slot);
    const [down, up] = [reading.low?.(slot) ?? value, reading.high?.(slot) ?? value];
    if (down < low) low = down;
    if (up > high) high = up;
    if (value > 0 && value < least) least = value;
    if (reading.under) sizes.push(Math.max(Math.abs(reading.under(slot)), Math.abs(reading.over?.(slot) ?? value)));
  }
  const known = sizes.filter((size) => size > 0).sort((a, b) => a - b);
  return { low, high, least, core: known[known.length >> 1] ?? 0 };
}

interface Line {
  /** What it is of: while that and the data stay, so does the scale. */
  key: unknown;
  reading: Reading;
  colour: keyof Palette;
  scale(extent: Extent): Scale;
  write?: (value: number) => string;
  /** Whether what was measured in a slot is NaN. */
  bad?(slot: number): boolean;
}

/** One curve with its bands in a strip. */
class Curve {
  readonly strip: Strip;
  readonly #trace = new Trace();
  #key = "";
  #scale: Scale = linear(0, 1);

  constructor(context: WatchContext, hooks: Hooks, height: number, name: string) {
    this.strip = new Strip(context, hooks, height, name);
  }

  draw(moment: Moment, { key, reading, colour, scale, write, bad }: Line): void {
    const { strip } = this;
    const drawing = strip.begin(moment);
    if (!drawing) return;
    // A pass over all slots is made when the data or the series change.
    const now = [moment.data.revision, key, moment.from, moment.to].join(" ");
    if (now !== this.#key) this.#scale = scale(extentOf(reading, moment));
    this.#key = now;
    const bottom = strip.height - MARGIN;
    drawScale(drawing, this.#scale, MARGIN, bottom, write);
    this.#trace.gather(reading, moment, drawing.plot);
    clipped(drawing, drawing.plot, () => {
      const { pen, palette } = drawing;
      const y = placed(this.#scale, MARGIN, bottom);
      pen.fillStyle = pen.strokeStyle = palette[colour];
      pen.globalAlpha = reading.under ? 0.12 : 0.16;
      this.#trace.band(pen, "low", "high", y);
      pen.globalAlpha = 0.2;
      if (reading.under) this.#trace.band(pen, "under", "over", y);
      pen.globalAlpha = 1;
      pen.lineWidth = 1.4;
      this.#trace.line(pen, y);
      pen.globalAlpha = 0.35;
      if (bad) hatchSlots(drawing, moment, drawing.plot, reading, bad, 0, drawing.height);
      pen.globalAlpha = 1;
    });
    strip.end(drawing, moment);
  }
}

/** A column of one series of the history. */
function reader(data: WatchData, column: Column, row: number): (slot: number) => number {
  const [values, width] = [data.column(column), data.payload.series.length];
  return (slot) => values[slot * width + row] ?? Number.NaN;
}

/** The figures of a slot; where it is not the cursor's own, when that was. */
function dated(data: WatchData, slot: number, step: number, figures: Figures): Figures {
  return slot >= 0 && slot !== data.slotOf(step) ? [...figures, ["at step", steps(data.last[slot] as number), "then"]] : figures;
}

const UNSEEN: Figures = [["", "not sampled here"]];

/** Mean ± std inside of min – max, of the selected series. */
export class SeriesCurve implements Part {
  readonly element: HTMLElement;
  readonly #curve: Curve;

  constructor(context: WatchContext, hooks: Hooks) {
    this.#curve = new Curve(context, hooks, 96, "series");
    this.element = this.#curve.strip.element;
  }

  draw(moment: Moment): void {
    const { data, row, seen } = moment;
    const series = data.payload.series[row];
    this.element.hidden = !series || !data.slots;
    if (!series || !data.slots) return;
    this.#curve.strip.title(`${series.role}${data.ofPart}`, series.path || "(root)", [series.shape, series.note].filter(Boolean).join(", "));
    this.#curve.strip.figures(figuresOf(data, seen, row), `${series.role} of ${placeWords(series.path)}${data.ofPart} at step ${seen}: mean ± std within min – max`);
    const [mean, std, bad] = [reader(data, "mean", row), reader(data, "std", row), reader(data, "bad", row)];
    const reading: Reading = {
      first: data.first, last: data.last, mid: mean, low: reader(data, "low", row), high: reader(data, "high", row),
      under: (slot) => mean(slot) - std(slot), over: (slot) => mean(slot) + std(slot),
    };
    this.#curve.draw(moment, { key: row, reading, colour: "linear", scale: ({ low, high, core }) => scaleFor(low, high, 0, core), bad: (slot) => bad(slot) > 0 });
  }
}

function figuresOf(data: WatchData, step: number, row: number): Figures {
  const slot = data.seenAt(step, row);
  const at = (column: Column): number => data.value(column, slot, row);
  const [bad, zeros] = [at("bad"), at("zeros")];
  if (Number.isNaN(at("mean")) && !(bad > 0)) return UNSEEN;
  const made: Figures = [["mean", figure(at("mean"))], ["std", figure(at("std"))], ["min", figure(at("low"))], ["max", figure(at("high"))]];
  return dated(data, slot, step, bad > 0 ? [...made, ["NaN, Inf", steps(bad), "missing"]] : zeros > 0 ? [...made, ["zeros", percent(zeros)]] : made);
}

const SHOWN = 6;

/** Numbers over time: the loss first, each with the range that was seen in a slot; of many, those that are chosen. */
export class ScalarCurves implements Part {
  readonly element = element("div", { class: "scalars" });
  readonly #context: WatchContext;
  readonly #hooks: Hooks;
  readonly #curves: Curve[] = [];
  readonly #chips = element("div", { class: "chips", role: "toolbar", "aria-label": "curves that are drawn" });
  /** By name: whether to draw it, where that was said. */
  readonly #chosen = new Map<string, boolean>();
  #offered = "";
  #moment: Moment | null = null;

  constructor(context: WatchContext, hooks: Hooks) {
    this.#context = context;
    this.#hooks = hooks;
    this.element.append(this.#chips);
    this.#chips.addEventListener("keydown", (event) => this.#key(event));
  }

  draw(moment: Moment): void {
    this.#moment = moment;
    const { scalars } = moment.data.payload;
    const order = scalars.map((_, index) => index).sort((a, b) => Number(scalars[b]?.loss) - Number(scalars[a]?.loss));
    const shown = order.filter((index, place) => this.#chosen.get(scalars[index]?.name as string) ?? place < SHOWN);
    this.#offer(moment, order, shown);
    while (this.#curves.length < shown.length) {
      const made = new Curve(this.#context, this.#hooks, this.#curves.length ? 48 : 76, "scalar");
      this.#curves.push(made);
      this.element.append(made.strip.element);
    }
    this.#curves.forEach((curve, place) => {
      const index = shown[place];
      curve.strip.element.hidden = index === undefined;
      if (index !== undefined) drawScalar(curve, moment, index);
    });
  }

  /** One chip a curve, where there are more than are drawn unasked. */
  #offer({ data: { payload: { scalars } } }: Moment, order: readonly number[], shown: readonly number[]): void {
    this.#chips.hidden = order.length <= SHOWN;
    const said = JSON.stringify([this.#chips.hidden || order.map((index) => scalars[index]?.name), shown]);
    if (said === this.#offered) return;
    this.#offered = said;
    const chips = [...this.#chips.children] as HTMLElement[];
    order.forEach((index, place) => {
      const { name } = scalars[index] as { name: string };
      let chip = chips.find((one) => one.dataset.name === name);
      chip ??= button("", { class: "chip", "data-name": name, tabindex: place ? -1 : 0 }, () => {
        this.#chosen.set(name, chip?.getAttribute("aria-pressed") !== "true");
        if (this.#moment) this.draw(this.#moment);
      });
      if (!chip.firstChild) chip.append(words(name, "", 40));
      chip.setAttribute("aria-pressed", String(shown.includes(index)));
      if (chip !== this.#chips.children[place]) this.#chips.insertBefore(chip, this.#chips.children[place] ?? null);
    });
    while (this.#chips.children.length > order.length) this.#chips.lastChild?.remove();
  }

  /** Arrows go from chip to chip: of all, Tab reaches one. */
  #key(event: KeyboardEvent): void {
    const chips = [...this.#chips.children] as HTMLElement[];
    const at = chips.indexOf(event.target as HTMLElement);
    const to = { ArrowLeft: at - 1, ArrowUp: at - 1, ArrowRight: at + 1, ArrowDown: at + 1, Home: 0, End: chips.length - 1 }[event.key];
    if (at < 0 || to === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    const next = chips[(to + chips.length) % chips.length];
    for (const chip of chips) chip.tabIndex = chip === next ? 0 : -1;
    next?.focus();
    event.preventDefault();
  }
}

function drawScalar(curve: Curve, moment: Moment, index: number): void {
  const { data, seen } = moment;
  const { name, count, final } = data.payload.scalars[index] as { name: string; count: number; final: string };
  const reading = data.scalar(index);
  const slot = slotAt(reading.first, seen);
  const [value, low, high] = [reading.mid(slot), reading.low?.(slot) ?? Number.NaN, reading.high?.(slot) ?? Number.NaN];
  const spread = high > low && curve.strip.height > 60;
  const range: Figures = spread ? [["min", figure(low)], ["max", figure(high)]] : [];
  curve.strip.title("", name, `${counted(count, "value")}, the last one ${final}`);
  curve.strip.figures([[spread ? "mean" : "", figure(value), Number.isFinite(value) ? undefined : "missing"], ...range], `${name} at step ${seen}`);
  curve.draw(moment, { key: index, reading, colour: "linear", scale: (extent) => scaleFor(extent.low, extent.high, extent.least, 0, 25), bad: (at) => Number.isNaN(reading.mid(at)) });
}

/** ‖update‖ / ‖weight‖ of one parameter, and the share of its elements that moved although they had a gradient. */
export class MovementCurves implements Part {
  readonly element = element("div", { class: "movement" });
  readonly #ratio: Curve;
  readonly #moved: Curve;

  constructor(context: WatchContext, hooks: Hooks) {
    this.#ratio = new Curve(context, hooks, 58, "ratio");
    this.#moved = new Curve(context, hooks, 48, "moved");
    this.element.append(this.#ratio.strip.element, this.#moved.strip.element);
  }

  draw(moment: Moment): void {
    const { data } = moment;
    const row = updateRow(data, moment.row);
    this.element.hidden = row < 0 || !data.slots;
    if (this.element.hidden) return;
    const stuck = reader(data, "stuck", row);
    drawShare(this.#ratio, moment, row, "update ratio", "‖update‖ / ‖weight‖ of one step", (slot) => data.ratio(slot, row), {
      colour: "conv", scale: ({ low, high, least }) => (high > 0 ? scaleFor(low, high, least, 0, 8) : NONE),
    });
    drawShare(this.#moved, moment, row, "moved", "of its elements with a gradient, the share that a step changed", (slot) => 1 - stuck(slot), {
      colour: "fine", scale: () => SHARE, write: percent,
    });
  }
}

const SHARE: Scale = { ...linear(0, 1), ticks: () => [0, 1] };
const NONE: Scale = { ...SHARE, ticks: () => [0] };

function drawShare(curve: Curve, moment: Moment, row: number, caption: string, about: string, mid: (slot: number) => number, line: Pick<Line, "colour" | "scale" | "write">): void {
  const { data, seen } = moment;
  const path = data.payload.series[row]?.path ?? "";
  const slot = data.seenAt(seen, row, mid);
  const value = mid(slot);
  const { write = figure } = line;
  curve.strip.title(caption, path, about);
  const given: Figures = Number.isNaN(value) ? UNSEEN : dated(data, slot, seen, [["", write(value), line.write && value < 0.5 ? "careful" : undefined]]);
  curve.strip.figures(given, `${caption} of ${placeWords(path)} at step ${seen}`);
  curve.draw(moment, { ...line, key: row, reading: { first: data.first, last: data.last, mid } });
}

/** The update that belongs to a series: of the parameter, or of the module's first parameter, or of the first one after it. */
export function updateRow(data: WatchData, row: number): number {
  const series = data.payload.series[row];
  if (!series) return -1;
  const own = data.row(series.path, "update");
  if (own >= 0) return own;
  const within = series.path ? `${series.path}.` : "";
  return data.payload.series.findIndex((one) => one.role === "update" && one.path.startsWith(within));
}
