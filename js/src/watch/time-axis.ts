/** The one axis of steps that runs through all plots: where a step lies, how one scrubs, zooms and pans, and its ticks. */
import { element, OURS } from "../elements";
import { slotAt, type Reading } from "./data";
import { counted, roundUp, steps as named } from "./figures";
import { drawingOn, hairline, hatch, type Drawing } from "./pen";
import type { Hooks, Moment, Part, WatchContext } from "./part";

/** Where time runs in a plot that is `width` pixels wide: all plots of one width have the same, so that the cursor is one line. */
export interface Plot {
  left: number;
  width: number;
}

export const RIGHT = 12;

export function plotOf(width: number): Plot {
  const left = width < 480 ? 92 : 136;
  return { left, width: Math.max(1, width - left - RIGHT) };
}

/** Where a step begins; it ends where the next one begins. */
export function xOf(moment: Moment, step: number, plot: Plot): number {
  return plot.left + ((step - moment.from) / Math.max(1, moment.to - moment.from)) * plot.width;
}

/** The step at a place, within what was seen. */
export function stepAt(moment: Moment, x: number, plot: Plot): number {
  const step = Math.floor(moment.from + ((x - plot.left) / plot.width) * (moment.to - moment.from));
  return Math.max(0, Math.min(moment.data.end - 1, step));
}

/** One line through a plot, at the middle of the cursor's step; a dashed one where one points. */
export function drawCursor(drawing: Drawing, moment: Moment, plot: Plot, top: number, bottom: number): void {
  const { pen, palette } = drawing;
  for (const step of new Set([moment.step, moment.seen])) {
    const x = xOf(moment, step + 0.5, plot);
    if (!within(x, plot)) continue;
    pen.fillStyle = palette.panel;
    pen.globalAlpha = 0.6;
    pen.fillRect(x - 1.5, top, 3, bottom - top);
    pen.globalAlpha = 1;
    if (step !== moment.step) pen.setLineDash([3, 2]);
    hairline(drawing, x, top, x, bottom, step === moment.step ? palette.ink : palette.soft);
    pen.setLineDash([]);
  }
}

/** Where numbers were NaN or infinite in a slot. */
export function hatchSlots(drawing: Drawing, moment: Moment, plot: Plot, { first, last }: Slots, bad: (slot: number) => boolean, top: number, height: number): void {
  const { pen } = drawing;
  for (let slot = Math.max(0, slotAt(first, moment.from)); slot < first.length && (first[slot] as number) < moment.to; slot += 1) {
    if (!bad(slot)) continue;
    const from = Math.max(plot.left, xOf(moment, first[slot] as number, plot));
    const to = Math.min(plot.left + plot.width, xOf(moment, first[slot + 1] ?? (last[slot] as number) + 1, plot));
    pen.fillStyle = hatch(drawing);
    pen.fillRect(from, top, Math.max(1, to - from), height);
  }
}

type Slots = Pick<Reading, "first" | "last">;

function within(x: number, { left, width }: Plot): boolean {
  return x >= left - 1 && x <= left + width + 1;
}

/** Pointer: over it reads, press and drag scrubs, with shift it zooms to what is swept, wheel with ctrl zooms, a sideways wheel pans, twice shows all. */
export function followTime(canvas: HTMLElement, now: () => Moment | null, hooks: Hooks): void {
  let swept = -1;
  let pressed = false;
  const inside = (event: MouseEvent): boolean => {
    const box = canvas.getBoundingClientRect();
    return event.clientX - box.left >= plotOf(box.width).left - 6; // what is left of it are names
  };
  const at = (event: MouseEvent): number => {
    const moment = now();
    const box = canvas.getBoundingClientRect();
    return moment && box.width ? stepAt(moment, event.clientX - box.left, plotOf(box.width)) : -1;
  };
  canvas.addEventListener("pointerdown", (event) => {
    const step = at(event);
    if (event.button !== 0 || step < 0 || !inside(event)) return;
    pressed = true;
    canvas.setPointerCapture?.(event.pointerId);
    if (event.shiftKey) swept = step;
    else hooks.onStep(step);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!pressed) hooks.onHover(event.pointerType !== "touch" && inside(event) ? at(event) : -1);
    else if (event.buttons & 1 && swept < 0) hooks.onStep(at(event));
  });
  canvas.addEventListener("pointerleave", () => hooks.onHover(-1));
  canvas.addEventListener("pointerup", (event) => {
    const to = at(event);
    if (swept >= 0 && Math.abs(to - swept) > 1) hooks.onZoom(Math.min(swept, to), Math.max(swept, to) + 1);
    swept = -1;
    pressed = false;
  });
  canvas.addEventListener("dblclick", () => hooks.onZoom(0, Number.POSITIVE_INFINITY));
  canvas.addEventListener("wheel", (event) => wheel(event, now(), at(event), hooks), { passive: false });
}

function wheel(event: WheelEvent, moment: Moment | null, step: number, hooks: Hooks): void {
  if (!moment || step < 0) return;
  const span = moment.to - moment.from;
  if (event.ctrlKey) {
    event.preventDefault();
    const [from, to] = zoomed(moment, Math.exp(event.deltaY / 200), step);
    hooks.onZoom(from, to);
  } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    event.preventDefault();
    const shift = Math.round((event.deltaX / 600) * span);
    const from = Math.max(0, Math.min(Math.max(0, moment.data.end - span), moment.from + shift));
    hooks.onZoom(from, from + span);
  }
}

/** The visible steps after a zoom about a step, which keeps its place. */
export function zoomed(moment: Moment, factor: number, about: number): [from: number, to: number] {
  const span = Math.max(8, (moment.to - moment.from) * factor);
  const share = (about - moment.from) / Math.max(1, moment.to - moment.from);
  const from = Math.max(0, Math.round(about - share * span));
  return [from, Math.round(from + span)];
}

/** The end of an axis that is to grow seldom: a quarter at a time. */
export function roomFor(steps: number): number {
  return Math.round(roundUp(Math.max(20, steps), [1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.4, 8]));
}

/** Round steps for ticks, no closer than `least` pixels. */
export function ticksOf(moment: Moment, plot: Plot, least = 78): number[] {
  const by = roundUp(Math.max(1, ((moment.to - moment.from) / plot.width) * least));
  const made: number[] = [];
  for (let step = Math.ceil(moment.from / by) * by; step < moment.to; step += by) made.push(step);
  return made;
}

const HEIGHT = 38;
/** Where the line of the axis lies. */
const BASE = 11;

/** Ticks and steps, the places where samples were taken, the alerts, and the cursor's step: a slider for keys and readers. */
export class TimeAxis implements Part {
  readonly element: HTMLElement;
  readonly #canvas: HTMLCanvasElement;
  readonly #context: WatchContext;
  #moment: Moment | null = null;

  /** `reading` says what was measured there. */
  constructor(context: WatchContext, hooks: Hooks, readonly reading: HTMLElement) {
    this.#context = context;
    this.#canvas = element("canvas", { "aria-hidden": "true" });
    this.element = element("div", { class: "axis-track", role: "slider", tabindex: 0, "aria-label": "step", "aria-valuemin": 0, ...OURS }, this.#canvas);
    followTime(this.element, () => this.#moment, hooks);
  }

  draw(moment: Moment): void {
    this.#moment = moment;
    const { data, step } = moment;
    const set = (name: string, value: string | number): void => this.element.setAttribute(`aria-${name}`, String(value));
    set("valuemax", Math.max(0, data.end - 1));
    set("valuenow", step);
    set("valuetext", [cursorText(moment), moment.seen === step ? this.reading.textContent : ""].filter(Boolean).join("; "));
    const drawing = drawingOn(this.#canvas, HEIGHT, this.#context);
    if (drawing) this.#paint(drawing, moment);
  }

  #paint(drawing: Drawing, moment: Moment): void {
    const { pen, palette, width } = drawing;
    const plot = plotOf(width);
    drawSamples(drawing, moment, plot);
    hairline(drawing, plot.left, BASE, plot.left + plot.width, BASE, palette.line);
    const taken: [from: number, to: number][] = [];
    /** In the middle of its place, unless something stands there. */
    const write = (text: string, at: number, colour: string): void => {
      const wide = pen.measureText(text).width;
      const from = Math.max(plot.left, Math.min(width - wide - 2, at - wide / 2));
      if (taken.some(([begin, end]) => from < end + 8 && from + wide > begin - 8)) return;
      taken.push([from, from + wide]);
      pen.fillStyle = colour;
      pen.fillText(text, from, BASE + 19);
    };
    pen.textAlign = "right";
    pen.fillStyle = palette.quiet;
    pen.fillText("samples", plot.left - 6, 8);
    pen.textAlign = "left";
    drawAlerts(drawing, moment, plot);
    drawCursor(drawing, moment, plot, 0, BASE + 11);
    for (const step of [moment.seen, moment.step]) {
      const x = xOf(moment, step + 0.5, plot);
      if (within(x, plot)) write(`step ${named(step)}`, x, step === moment.step ? palette.ink : palette.soft);
    }
    for (const tick of ticksOf(moment, plot)) {
      const at = xOf(moment, tick, plot);
      hairline(drawing, at, BASE, at, BASE + 4, palette.faint);
      write(named(tick), at, palette.quiet);
    }
  }
}

/** A tick where a sample was taken; no more than one a pixel. */
function drawSamples({ pen, palette, ratio }: Drawing, moment: Moment, plot: Plot): void {
  const { sampled } = moment.data;
  pen.fillStyle = palette.soft;
  let before = -1;
  for (let i = Math.max(0, slotAt(sampled, moment.from)); i < sampled.length; i += 1) {
    const step = sampled[i] as number;
    if (step >= moment.to) break;
    const x = Math.round(xOf(moment, step + 0.5, plot) * ratio) / ratio;
    if (step < moment.from || x === before) continue;
    pen.fillRect(x, BASE - 6, 1 / ratio, 6);
    before = x;
  }
}

function drawAlerts({ pen, palette }: Drawing, moment: Moment, plot: Plot): void {
  for (const alert of moment.data.payload.alerts) {
    if (alert.step < moment.from || alert.step >= moment.to) continue;
    const x = xOf(moment, alert.step + 0.5, plot);
    pen.fillStyle = alert.over ? palette.faint : palette.broken;
    pen.beginPath();
    pen.moveTo(x, BASE + 2);
    pen.lineTo(x + 4.5, BASE + 10);
    pen.lineTo(x - 4.5, BASE + 10);
    pen.fill();
  }
}

/** "step 6,210 of 9,640", and which slot that is where slots are wider. */
export function cursorText({ data: { end, first, last }, data: all, step }: Moment): string {
  const slot = all.slotOf(step);
  const [from = 0, to = 0] = [first[slot], last[slot]];
  const where = slot >= 0 && to > from ? `, measured in ${named(from)} – ${named(to)}` : slot >= 0 && from !== step ? `, measured at ${named(from)}` : "";
  return `step ${named(step)} of ${counted(end, "step")}${where}`;
}
