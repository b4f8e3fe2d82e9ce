/** What can be said of the units of a small net at one moment: which are dead, silent so far, starve, or cancel each other. */
import type { Alert, Units, WatchData } from "./data";
import { counted, percent, placeName, placeWords } from "./figures";
import { slotAt } from "./data";

export interface Trouble {
  kind: "dead" | "silent" | "starving";
  /** Of the net, from 0. */
  layer: number;
  unit: number;
  /** The evidence, without the name. */
  text: string;
  /** The inputs in a row on which a dead or a silent one was zero. */
  silent: number;
  rate: Rate | null;
}

export interface Pair {
  layer: number;
  units: readonly [number, number];
  cosine: number;
  /** What the two leave of each other, of 1. */
  left: number;
  text: string;
}

/** How often a unit fires: at first, and at the moment. */
export interface Rate {
  first: number;
  now: number;
}

/** A rate is of so much of all inputs at least, and of so many, for few say little: as the alerts have it, so that both say the same. */
const ENOUGH = 0.2;
const FEWEST = 200;

export function layerName(data: WatchData, layer: number): string {
  return layer < 0 ? "x" : placeName(data.payload.neurons?.layers[layer]?.path ?? "?");
}

export function unitName(data: WatchData, layer: number, unit: number): string {
  return `${layerName(data, layer)}[${unit}]`;
}

/** What was counted of a layer's units; -1 where nothing was. */
export function countedIn(data: WatchData, layer: number): number {
  const path = data.payload.neurons?.layers[layer]?.path;
  return data.payload.units.findIndex((some) => some.path === path);
}

export function rateOf(units: Units, unit: number, step: number): Rate | null {
  const windows = units.first.length;
  if (!windows || unit >= units.count) return null;
  const enough = Math.max(FEWEST, ENOUGH * inputsOf(units));
  const share = (from: number, by: 1 | -1): number => {
    let [seen, fired] = [0, 0];
    for (let window = from; window >= 0 && window < windows && seen < enough; window += by) {
      seen += units.inputs[window] as number;
      fired += units.fired[window * units.count + unit] as number;
    }
    return seen ? fired / seen : Number.NaN;
  };
  const here = slotAt(units.first, step);
  return { first: share(0, 1), now: units.inputs[here] ? share(here, -1) : Number.NaN };    // NaN neither fires nor is silent
}

function inputsOf({ inputs }: Units): number {
  return inputs.reduce((sum, some) => sum + some, 0);
}

/** The step from which on a unit never fired again; infinite if it did in the last window. */
export function silentFrom(units: Units, unit: number): number {
  let window = units.first.length;
  while (window > 0 && !units.fired[(window - 1) * units.count + unit]) window -= 1;
  return units.first[window] ?? Number.POSITIVE_INFINITY;
}

/** Which units are dead or starve at a step, by the alerts, dead ones from the moment they fell silent; and which others are silent so far. */
export function troublesAt(data: WatchData, step: number): Trouble[] {
  const judged = alertedAt(data, step);
  const isJudged = (layer: number, unit: number): boolean => judged.some((one) => one.layer === layer && one.unit === unit && one.kind === "dead");
  const silent = silentAt(data, step).filter(({ layer, unit }) => !isJudged(layer, unit));
  return [...judged.filter((one) => !silent.some(({ layer, unit }) => one.layer === layer && one.unit === unit)), ...silent];
}

/** A unit is called silent after so many inputs; one that has fired, after so many times those that it took, on the average, to fire once. */
const FEW_INPUTS = 20;
const RARE = 10;

function silentAt(data: WatchData, step: number): Trouble[] {
  return (data.payload.neurons?.layers ?? []).flatMap((_, layer) => {
    const index = countedIn(data, layer);
    if (index < 0) return [];
    const units = data.units(index);
    if (!units.inputs[slotAt(units.first, step)]) return [];
    return Array.from({ length: units.count }, (_, unit) => unit).flatMap((unit): Trouble[] => {
      const { silent, spacing } = silenceAt(units, unit, step);
      if (silent < Math.max(FEW_INPUTS, RARE * spacing)) return [];
      const text = spacing ? `for the last ${counted(silent, "input")}` : `so far: ${counted(silent, "input")}`;
      return [{ kind: "silent", layer, unit, text, silent, rate: null }];
    });
  });
}

/** The inputs in a row, up to a step, on which a unit was zero; and how many it took before that to fire once, 0 if it never did. */
function silenceAt(units: Units, unit: number, step: number): { silent: number; spacing: number } {
  const last = units.first.length - 1;
  const here = slotAt(units.first, step);
  let [silent, seen, fired] = [0, 0, 0];
  for (let window = here; window >= 0; window -= 1) {
    const [some, inputs] = [units.fired[window * units.count + unit] as number, units.inputs[window] as number];
    // What is not over at the step is not counted whole, and so not at all.
    const isOver = window < here || step >= (units.last[window] as number);
    if (some || fired) seen += inputs;
    else if (isOver) silent += inputs;
    fired += some;
  }
  // Of the newest window it is known where it last fired.
  if (here === last && step >= (units.last[last] as number) && units.silent[unit]) silent = units.silent[unit] as number;
  return { silent, spacing: fired ? seen / fired : 0 };
}

function alertedAt(data: WatchData, step: number): Trouble[] {
  const layers = data.payload.neurons?.layers ?? [];
  return data.payload.alerts.flatMap((alert): Trouble[] => {
    const layer = layers.findIndex((some) => some.path === alert.path);
    if (layer < 0) return [];
    const accused = alert.unit === null ? alert.units ?? [] : [alert.unit];
    return accused.filter((unit) => unit < (layers[layer]?.units ?? 0)).flatMap((unit) => alerted(data, layer, unit, alert, step));
  });
}

function alerted(data: WatchData, layer: number, unit: number, alert: Alert, step: number): Trouble[] {
  if (alert.kind !== "dead" && alert.kind !== "starving") return [];
  const index = countedIn(data, layer);
  const units = index < 0 ? null : data.units(index);
  if (!holds(alert, units, unit, step)) return [];
  const newest = !alert.over && (!units || slotAt(units.first, step) === units.first.length - 1);
  // The counts go on between two verdicts: what is said in two places is said of one moment.
  const rate = (newest && alert.rate) || (units && rateOf(units, unit, step));
  const silent = alert.over ? units?.silent[unit] || alert.inputs : alert.inputs;
  const text = alert.kind === "dead" ? deadText(silent, units, unit) : starvingText(rate);
  return [{ kind: alert.kind, layer, unit, text, silent, rate }];
}

function holds(alert: Alert, units: Units | null, unit: number, step: number): boolean {
  if (alert.over && step > alert.last) return false;
  const since = alert.kind === "dead" && units && !alert.over ? Math.min(alert.step, silentFrom(units, unit)) : alert.step;
  return step >= since;
}

function deadText(silent: number, units: Units | null, unit: number): string {
  const always = !units?.fired.some((fired, at) => at % units.count === unit && fired > 0);
  const evidence = silent > 0 ? `0 for ${always ? "all of" : "the last"} ${counted(silent, "input")}` : "0 for every input";
  return units?.flat[unit] ? `${evidence}, its gradient too` : evidence;
}

function starvingText(rate: Rate | null): string {
  return rate ? `fires on ${percent(rate.now)} of the inputs, on ${percent(rate.first)} at first` : "fires ever more rarely";
}

const PARALLEL = 0.98;
/** What two leave of each other at most, to be said to cancel. */
const LEFT = 0.25;
/** Of the largest contribution of a unit in the layer: less is no matter. */
const SLIGHT = 0.02;

/** How far apart the numbers of inputs are that two fire on, of the greater, which fire on the same ones. */
const APART = 0.05;

/**
 * Units of one layer that do the same and are weighed against each other by the next.
 *
 * Their incoming weights are parallel (cosine > 0.98), with their biases and without, and what they add to the next layer is opposite and
 * nearly equal. That they are rectified, and alike often, shows in what was counted: of other functions nothing is said.
 */
export function pairsAt(data: WatchData, slot: number): Pair[] {
  const layers = data.payload.neurons?.layers ?? [];
  if (slot < 0) return [];
  return layers.slice(0, -1).flatMap((layer, index) => {
    const next = layers[index + 1];
    const counted = countedIn(data, index);
    if (!next || next.inputs !== layer.units || counted < 0) return [];
    const units = data.units(counted);
    const incoming = rowsOf(data.neurons(index).weights(slot), layer.units, layer.inputs);
    const weights = data.neurons(index + 1).weights(slot);
    const outgoing = incoming.map((_, unit) => Float32Array.from({ length: next.units }, (__, to) => weights[to * layer.units + unit] ?? 0));
    const rates = incoming.map((_, unit) => rateOf(units, unit, data.neuronsEnd(slot))?.now ?? Number.NaN);
    return disjoint(pairsIn(incoming, outgoing, data.neurons(index).biases(slot), rates)).map((pair) => described(data, index, pair));
  });
}

interface Found {
  units: readonly [number, number];
  cosine: number;
  left: number;
}

export function pairsIn(incoming: readonly ArrayLike<number>[], outgoing: readonly ArrayLike<number>[], biases: ArrayLike<number>, rates: readonly number[]): Found[] {
  const sizes = incoming.map((row) => Math.sqrt(dot(row, row)));
  const all = incoming.map((row, unit) => [...Array.from(row), biases[unit] ?? Number.NaN]);
  const added = outgoing.map((row, unit) => Array.from(row, (weight) => weight * (sizes[unit] as number)));
  const most = Math.max(0, ...added.map((row) => Math.sqrt(dot(row, row))));
  const found: Found[] = [];
  for (let one = 0; one < incoming.length; one += 1) {
    for (let other = one + 1; other < incoming.length; other += 1) {
      const cosine = cosineOf(incoming[one] ?? [], incoming[other] ?? []);
      if (!(cosine > PARALLEL && cosineOf(all[one] ?? [], all[other] ?? []) > PARALLEL)) continue;
      const [low, high] = [Math.min(rates[one] as number, rates[other] as number), Math.max(rates[one] as number, rates[other] as number)];
      if (!(low > 0 && high < 1 && high - low <= APART * high)) continue;
      const [a, b] = [added[one] ?? [], added[other] ?? []];
      const sum = Math.sqrt(dot(a, a)) + Math.sqrt(dot(b, b));
      const rest = Math.sqrt(dot(a, a) + dot(b, b) + 2 * dot(a, b));
      if (sum > 2 * SLIGHT * most && rest <= LEFT * sum) found.push({ units: [one, other], cosine, left: rest / sum });
    }
  }
  return found.sort((a, b) => a.left - b.left);
}

function cosineOf(one: ArrayLike<number>, other: ArrayLike<number>): number {
  return dot(one, other) / Math.sqrt(dot(one, one) * dot(other, other));
}

/** Each unit in one pair at most, the best first. */
function disjoint(pairs: readonly Found[]): Found[] {
  const taken = new Set<number>();
  return pairs.filter(({ units }) => !units.some((unit) => taken.has(unit)) && units.every((unit) => taken.add(unit)));
}

function described(data: WatchData, layer: number, { units, cosine, left }: Found): Pair {
  const same = `their incoming weights are parallel (cosine ${cosine.toFixed(3)}), so both see the same`;
  return { layer, units, cosine, left, text: `${same}; ${placeWords(data.payload.neurons?.layers[layer + 1]?.path ?? "?")} weighs one against the other, and ${percent(left)} is left` };
}

function rowsOf(values: Float32Array, rows: number, width: number): Float32Array[] {
  return Array.from({ length: rows }, (_, row) => values.subarray(row * width, (row + 1) * width));
}

function dot(one: ArrayLike<number>, other: ArrayLike<number>): number {
  let sum = 0;
  for (let index = 0; index < one.length; index += 1) sum += (one[index] as number) * (other[index] as number);
  return sum;
}
