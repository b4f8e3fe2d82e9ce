/** Numbers as a person reads them, and the scales that they are drawn on. */

import { legible, ROOT } from "../names";

export { counted } from "../names";

const LONGEST = 120;

/** A path as it is shown: unseen characters made visible, of a very long one the end. */
export function placeName(path: string): string {
  return path.length > LONGEST ? `…${legible(path.slice(-LONGEST))}` : legible(path) || ROOT;
}

/** The same in a sentence, where a bare number would read as one: a module of an `nn.Sequential` is a layer, as in Python's words. */
export function placeWords(path: string): string {
  return /^\d+(\.\d+)*$/.test(path) ? `layer ${path}` : placeName(path);
}

/** A number of three digits: 0.0123, −4.56, 1.2e-7; NaN and Inf by their names. */
export function figure(value: number, digits = 3): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value < 0 ? "−Inf" : "Inf";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e5 || size < 1e-3 ? value.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e") : fixed(value, digits);
  return text.replace("-", "−").replace("e−", "e-").replace(/^e-/, "e-");
}

function fixed(value: number, digits: number): string {
  const rounded = Number(value.toPrecision(digits));
  return Math.abs(rounded) >= 1000 ? rounded.toLocaleString("en") : String(rounded);
}

/** A share as percent. */
export function percent(share: number): string {
  if (!Number.isFinite(share)) return "–";
  const value = share * 100;
  return `${value > 0 && value < 0.1 ? "< 0.1" : value < 10 ? Number(value.toFixed(1)) : value > 99.9 && value < 100 ? "> 99.9" : Math.round(value)} %`;
}

export function steps(step: number): string {
  return step.toLocaleString("en");
}

/** From values to shares of a height, 0 at the bottom. */
export interface Scale {
  readonly kind: "linear" | "log" | "signed log";
  readonly low: number;
  readonly high: number;
  share(value: number): number;
  /** Round values, about `most` steps apart at most. */
  ticks(most?: number): number[];
}

export function linear(low: number, high: number): Scale {
  const [from, to] = niced(low, high);
  return { kind: "linear", low: from, high: to, share: (value) => (value - from) / (to - from), ticks: (most = 4) => linearTicks(from, to, most) };
}

/** For magnitudes over decades; what is not above zero lies at the bottom. */
export function logarithmic(low: number, high: number): Scale {
  const [from, to] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high) - 1e-9)];
  const span = Math.max(1, to - from);
  return {
    kind: "log",
    low: 10 ** from,
    high: 10 ** (from + span),
    share: (value) => (value > 0 ? Math.max(0, (Math.log10(value) - from) / span) : 0),
    ticks: (most = 3) => decades(from, from + span, most),
  };
}

/** For signed values with far extremes: linear about zero up to `core`, logarithmic beyond. */
export function signedLog(low: number, high: number, core: number): Scale {
  const bent = (value: number): number => Math.asinh(value / core);
  const [from, to] = [bent(low), bent(high)];
  const powers = decades(Math.ceil(Math.log10(core)), Math.floor(Math.log10(Math.max(-low, high))));
  return {
    kind: "signed log", low, high,
    share: (value) => (bent(value) - from) / (to - from || 1),
    ticks: () => [...powers.map((power) => -power).reverse(), 0, ...powers].filter((tick) => tick >= low && tick <= high),
  };
}

function decades(from: number, to: number, most = 3): number[] {
  const by = Math.max(1, Math.ceil((to - from) / most));
  const made: number[] = [];
  for (let power = to; power >= from; power -= by) made.unshift(10 ** power);
  return made;
}

/** Round ends outside of two values, so that an axis grows seldom. */
function niced(low: number, high: number): [number, number] {
  if (!(high > low)) {
    const about = Math.abs(low) || 1;
    return [low - about / 2, low + about / 2];
  }
  const by = roundUp((high - low) / 4);
  return [Math.floor(low / by + 1e-9) * by, Math.ceil(high / by - 1e-9) * by];
}

/** Numbers side by side, with as many digits as tell them apart. */
export function figures(values: readonly number[]): string[] {
  for (let digits = 2; ; digits += 1) {
    const made = values.map((value) => figure(value, digits));
    if (new Set(made).size === values.length || digits > 5) return made;
  }
}

function linearTicks(low: number, high: number, most: number): number[] {
  const by = roundUp((high - low) / most);
  const made: number[] = [];
  for (let at = Math.ceil(low / by - 1e-9) * by; at <= high + by * 1e-6; at += by) made.push(Number(at.toPrecision(12)));
  return made;
}

/** The next of some round numbers × a power of ten. */
export function roundUp(rough: number, mantissas: readonly number[] = [1, 2, 5]): number {
  const power = 10 ** Math.floor(Math.log10(rough));
  return (mantissas.find((one) => one * power >= rough * (1 - 1e-9)) ?? 10) * power;
}

/** The scale that fits: of magnitudes over more than `most` fold a logarithmic one, of signed ones with far extremes too. */
export function scaleFor(low: number, high: number, least: number, core: number, most = 60): Scale {
  if (!(Number.isFinite(low) && Number.isFinite(high))) return linear(0, 1);
  if (low >= 0 && least > 0 && high / least > most) return logarithmic(least, high);
  if (core > 0 && Math.max(-low, high) / core > 60) return signedLog(low, high, core);
  return linear(low, high);
}
