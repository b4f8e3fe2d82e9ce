/** Curves and pictures, small and with words beside them. */
import { element, svg } from "../elements";
import type { Picture } from "./data";

const HEIGHT = 180;
const LEFT = 58;
const BOTTOM = 34;
const TOP = 10;
const RIGHT = 12;
/** From which ratio of its ends on an axis goes by factors. */
const WIDE = 300;

type Value = number | null;

/** A curve over steps, drawn anew when its place changes its width. */
export function curve(title: string, x: number[], y: Value[], says: string): HTMLElement {
  const host = element("div", { class: "curve" });
  const draw = (width: number): void => host.replaceChildren(plot(title, x, y, says, Math.min(600, Math.max(260, width))));
  draw(520);
  if (typeof ResizeObserver === "function") new ResizeObserver(([entry]) => entry && draw(entry.contentRect.width)).observe(host);
  return host;
}

function plot(title: string, x: number[], y: Value[], says: string, width: number): SVGElement {
  const axis = axisOf(y);
  const [start, end] = [x[0] ?? 0, x[x.length - 1] ?? 1];
  const across = (step: number): number => LEFT + ((step - start) / (end - start || 1)) * (width - LEFT - RIGHT);
  const down = (value: number): number => TOP + (1 - axis.place(value)) * (HEIGHT - TOP - BOTTOM);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": `${title}: ${says}` });
  for (const tick of axis.ticks) {
    picture.append(svg("line", { x1: LEFT, x2: width - RIGHT, y1: down(tick), y2: down(tick), class: "grid" }));
    picture.append(svg("text", { x: LEFT - 6, y: down(tick) + 4, "text-anchor": "end" }, short(tick)));
  }
  for (const step of new Set([start, Math.round((start + end) / 2), end])) {
    picture.append(svg("text", { x: across(step), y: HEIGHT - BOTTOM + 16, "text-anchor": step === end ? "end" : step === start ? "start" : "middle" }, step.toLocaleString("en")));
  }
  picture.append(svg("text", { x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 4, "text-anchor": "middle", class: "caption" }, axis.log ? "step (the scale on the left goes by factors)" : "step"));
  for (const part of runs(x, y)) {
    const points = part.map(([step, value]) => `${across(step).toFixed(1)},${down(value).toFixed(1)}`).join(" ");
    picture.append(part.length > 1 ? svg("polyline", { points, class: "line" }) : svg("circle", { cx: across(part[0]![0]), cy: down(part[0]![1]), r: 2, class: "dot" }));
  }
  const lost = y.findIndex((value) => value === null);
  if (lost >= 0) picture.append(...missing(across(x[lost] ?? start), width - RIGHT));
  return picture;
}

/** Where there is no finite number: a dotted box that says so. */
function missing(from: number, to: number): SVGElement[] {
  const left = Math.min(from, to - 76);
  const box = svg("rect", { x: from, y: TOP, width: Math.max(2, to - from), height: HEIGHT - TOP - BOTTOM, class: "missing" });
  return [box, svg("text", { x: left + 4, y: TOP + 14, class: "lost" }, "not finite")];
}

/** The finite stretches of a curve. */
export function runs(x: number[], y: Value[]): [number, number][][] {
  const found: [number, number][][] = [];
  let open: [number, number][] = [];
  y.forEach((value, index) => {
    if (value !== null) {
      if (!open.length) found.push(open);
      open.push([x[index] ?? index, value]);
    } else open = [];
  });
  return found;
}

interface Axis {
  log: boolean;
  ticks: number[];
  /** From 0 (bottom) to 1. */
  place(value: number): number;
}

export function axisOf(y: Value[]): Axis {
  const finite = y.filter((value): value is number => value !== null);
  const low = Math.min(...finite, Infinity);
  const high = Math.max(...finite, -Infinity);
  if (!finite.length) return { log: false, ticks: [], place: () => 0.5 };
  if (low > 0 && high / low > WIDE) {
    const [least, most] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
    const every = Math.max(1, Math.ceil((most - least) / 4));
    const ticks = Array.from({ length: Math.floor((most - least) / every) + 1 }, (_, index) => 10 ** (least + index * every));
    return { log: true, ticks, place: (value) => (Math.log10(value) - least) / (most - least || 1) };
  }
  const base = low >= 0 && low < 0.6 * high ? 0 : low;
  const step = nice((high - base || Math.abs(high) || 1) / 3);
  const bottom = Math.floor(base / step + 1e-9) * step;
  const top = Math.max(bottom + step, Math.ceil(high / step - 1e-9) * step);
  const ticks = Array.from({ length: Math.round((top - bottom) / step) + 1 }, (_, index) => bottom + index * step);
  return { log: false, ticks, place: (value) => (value - bottom) / (top - bottom) };
}

/** The next of 1, 2, 5, 10, … */
function nice(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return power * ([1, 2, 5, 10].find((one) => one * power >= value * 0.999) ?? 10);
}

export function short(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e5 || size < 1e-3) return value.toExponential(0).replace("e+", "e");
  return Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
}

/** A curve in a cell; its numbers are told to those who do not see it. */
export function spark(values: Value[]): SVGElement {
  const [width, height] = [96, 20];
  const axis = axisOf(values);
  const x = values.map((_, index) => index);
  const across = (index: number): number => 2 + (index / Math.max(1, values.length - 1)) * (width - 4);
  const ends = [values[0], values[values.length - 1]].map((value) => (value === null || value === undefined ? "none" : short(value)));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `from ${ends[0]} to ${ends[1]}`, class: "spark" });
  for (const part of runs(x, values)) {
    const points = part.map(([index, value]) => `${across(index).toFixed(1)},${(height - 2 - axis.place(value) * (height - 4)).toFixed(1)}`).join(" ");
    picture.append(svg("polyline", { points, class: "line" }));
  }
  if (!values.some((value) => value !== null)) picture.append(svg("line", { x1: 2, x2: width - 2, y1: height / 2, y2: height / 2, class: "absent" }));
  return picture;
}

/** A small picture in shades of grey, with its target below. */
export function picture({ label, size, shades, says }: Picture): HTMLElement {
  const canvas = element("canvas", { width: size, height: size, role: "img", "aria-label": says });
  const pen = canvas.getContext("2d");
  shades.forEach((shade, index) => {
    if (!pen) return;
    const grey = Math.round(20 + shade * 2.3);
    pen.fillStyle = `rgb(${grey},${grey},${grey})`;
    pen.fillRect(index % size, Math.floor(index / size), 1, 1);
  });
  return element("figure", {}, canvas, element("figcaption", {}, `target ${label}`));
}
