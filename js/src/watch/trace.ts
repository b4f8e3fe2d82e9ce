/** Curves and bands, about one point a pixel at most: means of means, the least of the least, the greatest of the greatest. */
import type { Scale } from "./figures";
import type { Moment } from "./part";
import type { Drawing } from "./pen";
import { xOf, type Plot } from "./time-axis";
import { slotAt, type Reading } from "./data";

/** Points that are nearer than this are one, in pixels. */
const NEAR = 0.75;

/** Fewer than one point in so many pixels are drawn as dots too. */
const SPARSE = 14;

const PARTS = ["mid", "low", "high", "under", "over"] as const;

/** Room for the points of one curve, kept from drawing to drawing. */
export class Trace {
  count = 0;
  #sparse = false;
  #x = new Float32Array(0);
  #values: Record<(typeof PARTS)[number], Float32Array> = { mid: this.#x, low: this.#x, high: this.#x, under: this.#x, over: this.#x };
  #merged = new Uint32Array(0);

  gather(reading: Reading, moment: Moment, plot: Plot): void {
    const size = Math.ceil(plot.width / NEAR) + 8;
    if (this.#x.length < size) {
      this.#x = new Float32Array(size);
      this.#merged = new Uint32Array(size);
      for (const part of PARTS) this.#values[part] = new Float32Array(size);
    }
    this.count = 0;
    const begin = Math.max(0, slotAt(reading.first, moment.from));
    for (let slot = begin; slot < reading.first.length; slot += 1) {
      const [first, last] = [reading.first[slot] as number, reading.last[slot] as number];
      const x = xOf(moment, (first + last + 1) / 2, plot);
      const past = first >= moment.to;
      this.#take(Math.max(-1e5, Math.min(1e5, x)), slot, reading, size);
      if (past) break;
    }
    this.#sparse = this.count < plot.width / SPARSE;
  }

  #take(x: number, slot: number, reading: Reading, size: number): void {
    const before = this.count - 1;
    const { mid, low, high, under, over } = this.#values;
    const value = reading.mid(slot);
    const [least, most] = [reading.low?.(slot) ?? value, reading.high?.(slot) ?? value];
    const [inner, outer] = [reading.under?.(slot) ?? value, reading.over?.(slot) ?? value];
    const near = before >= 0 && x - (this.#x[before] as number) < NEAR && !Number.isNaN(value) && !Number.isNaN(mid[before] as number);
    if (near || this.count >= size) {
      const at = Math.max(0, before);
      const merged = (this.#merged[at] as number) + 1;
      mid[at] = (mid[at] as number) + (value - (mid[at] as number)) / merged;
      low[at] = Math.min(low[at] as number, least);
      high[at] = Math.max(high[at] as number, most);
      under[at] = Math.min(under[at] as number, inner);
      over[at] = Math.max(over[at] as number, outer);
      this.#merged[at] = merged;
      return;
    }
    const at = this.count;
    this.#x[at] = x;
    this.#merged[at] = 1;
    mid[at] = value;
    low[at] = least;
    high[at] = most;
    under[at] = inner;
    over[at] = outer;
    this.count += 1;
  }

  /** The area between two parts; gaps where there is no number. */
  band(pen: CanvasRenderingContext2D, from: "low" | "under", to: "high" | "over", y: (value: number) => number): void {
    const [below, above] = [this.#values[from], this.#values[to]];
    for (let start = 0; start < this.count; ) {
      if (Number.isNaN(below[start] as number)) {
        start += 1;
        continue;
      }
      let end = start;
      while (end < this.count && !Number.isNaN(below[end] as number)) end += 1;
      pen.beginPath();
      for (let i = start; i < end; i += 1) pen.lineTo(this.#x[i] as number, y(above[i] as number));
      for (let i = end - 1; i >= start; i -= 1) pen.lineTo(this.#x[i] as number, y(below[i] as number));
      pen.fill();
      start = end;
    }
  }

  /** The curve; a point alone is a dot. */
  line(pen: CanvasRenderingContext2D, y: (value: number) => number): void {
    const { mid } = this.#values;
    pen.beginPath();
    let open = false;
    for (let i = 0; i < this.count; i += 1) {
      const value = mid[i] as number;
      if (Number.isNaN(value)) {
        open = false;
        continue;
      }
      const [x, at] = [this.#x[i] as number, y(value)];
      if (open) pen.lineTo(x, at);
      else pen.moveTo(x, at);
      open = true;
    }
    pen.stroke();
    this.#dots(pen, y);
  }

  /** Few points are seen as what they are, and one alone at all: what lies between them was not measured. */
  #dots(pen: CanvasRenderingContext2D, y: (value: number) => number): void {
    const { mid } = this.#values;
    const none = (i: number): boolean => i < 0 || i >= this.count || Number.isNaN(mid[i] as number);
    pen.fillStyle = pen.strokeStyle;
    for (let i = 0; i < this.count; i += 1) {
      if (none(i) || !(this.#sparse || (none(i - 1) && none(i + 1)))) continue;
      pen.beginPath();
      pen.arc(this.#x[i] as number, y(mid[i] as number), 1.8, 0, 7);
      pen.fill();
    }
  }
}

/** Draws inside of the plot alone. */
export function clipped({ pen, height }: Drawing, plot: Plot, draw: () => void): void {
  pen.save();
  pen.beginPath();
  pen.rect(plot.left, 0, plot.width, height);
  pen.clip();
  pen.lineJoin = "round";
  pen.lineCap = "round";
  draw();
  pen.restore();
}

/** Where a value lies; NaN lies nowhere. */
export function placed(scale: Scale, top: number, bottom: number): (value: number) => number {
  return (value) => bottom - Math.max(-0.05, Math.min(1.05, scale.share(value))) * (bottom - top);
}
