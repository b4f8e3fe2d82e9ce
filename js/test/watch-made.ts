/** Watches made by hand: just the series, units and neurons that a test needs; and a pen that remembers what it drew. */
import { vi } from "vitest";
import { BINS, WatchData, type Alert, type Role } from "../src/watch/data";
import type { Hooks, Moment, WatchContext } from "../src/watch/part";
import { common, pack, type Sample } from "./samples";

type Arrays = Parameters<typeof pack>[1] & object;

export interface MadeSeries {
  path: string;
  role?: Role;
  count?: number;
  /** Of each slot; std is zero, so the L2 norm is |mean|·√count. */
  means: readonly number[];
  bad?: readonly number[];
  /** Histograms of each bin slot, by bin. */
  bins?: readonly Readonly<Record<number, number>>[];
  top?: number;
}

export interface MadeLayer {
  path: string;
  /** Of each slot: one row of incoming weights a unit. */
  weights: readonly (readonly (readonly number[])[])[];
  activations: readonly (readonly number[])[];
  biases?: readonly (readonly number[])[];
  gradients?: readonly (readonly number[])[];
}

export interface MadeUnits {
  path: string;
  /** Of each window, by unit; a window is `width` steps and as many inputs. */
  fired: readonly (readonly number[])[];
  /** The window in which each input gives NaN. */
  spoilt?: number;
  width: number;
}

interface Made {
  steps?: number;
  series?: readonly MadeSeries[];
  layers?: readonly MadeLayer[];
  units?: readonly MadeUnits[];
  alerts?: readonly Partial<Alert>[];
  more?: Sample;
}

/** Slots are of equal width. */
export function made({ steps = 1000, series = [], layers = [], units = [], alerts = [], more = {} }: Made): WatchData {
  return new WatchData(madeBytes({ steps, series, layers, units, alerts, more }));
}

export function madeBytes({ steps = 1000, series = [], layers = [], units = [], alerts = [], more = {} }: Made): ArrayBuffer {
  const arrays: Arrays = {};
  const f32 = (name: string, shape: number[], data: readonly number[]): void => void (arrays[name] = { dtype: "float32", shape, data: Float32Array.from(data) });
  const u32 = (name: string, data: readonly number[]): void => void (arrays[name] = { dtype: "uint32", shape: [data.length], data: Uint32Array.from(data) });
  const times = (name: string, count: number): void => {
    u32(`${name}first`, Array.from({ length: count }, (_, slot) => Math.floor((slot * steps) / count)));
    u32(`${name}last`, Array.from({ length: count }, (_, slot) => Math.floor(((slot + 1) * steps) / count) - 1));
  };
  const slots = Math.max(0, ...series.map(({ means }) => means.length));
  times("", slots);
  const column = (name: string, of: (one: MadeSeries, slot: number) => number): void =>
    f32(name, [slots, series.length], Array.from({ length: slots }, (_, slot) => series.map((one) => of(one, slot))).flat());
  for (const name of ["mean", "low", "high"]) column(name, (one, slot) => one.means[slot] ?? Number.NaN);
  for (const name of ["std", "zeros", "stuck"]) column(name, (one, slot) => (Number.isNaN(one.means[slot] ?? Number.NaN) ? Number.NaN : 0));
  column("bad", (one, slot) => one.bad?.[slot] ?? 0);
  const binSlots = Math.max(0, ...series.map(({ bins }) => bins?.length ?? 0));
  times("bins ", binSlots);
  const bytes = new Uint8Array(binSlots * series.length * BINS);
  series.forEach((one, row) => one.bins?.forEach((shares, slot) => {
    for (const [bin, share] of Object.entries(shares)) bytes[(slot * series.length + row) * BINS + Number(bin)] = share;
  }));
  arrays.bins = { dtype: "uint8", shape: [binSlots, series.length, BINS], data: bytes };
  f32("top", [series.length], series.map(({ top = 0 }) => top));
  units.forEach(({ fired, width, spoilt }, index) => {
    u32(`units ${index} first`, fired.map((_, window) => window * width));
    u32(`units ${index} last`, fired.map((_, window) => (window + 1) * width - 1));
    u32(`units ${index} inputs`, fired.map((_, window) => (window === spoilt ? 0 : width)));
    u32(`units ${index} fired`, fired.flat());
    const silent = (fired[0] ?? []).map((_, unit) => fired.reduce((inputs, counts) => ((counts[unit] ?? 0) > 0 ? 0 : inputs + width), 0));
    u32(`units ${index} silent`, silent);
    arrays[`units ${index} flat`] = { dtype: "uint8", shape: [silent.length], data: Uint8Array.from(silent, Number) };
  });
  times("neurons ", layers[0]?.weights.length ?? 0);
  layers.forEach(({ weights, activations, gradients = activations, biases }, index) => {
    f32(`neurons ${index} weights`, [weights.flat(2).length], weights.flat(2));
    f32(`neurons ${index} activations`, [activations.flat().length], activations.flat());
    f32(`neurons ${index} gradients`, [gradients.flat().length], gradients.flat());
    if (biases) f32(`neurons ${index} biases`, [biases.flat().length], biases.flat());
  });
  return pack(
    common("watch", ["Nothing is wrong.", ""], {
      state: "ended", steps, samples: slots, inputs: steps,
      series: series.map(({ path, role = "activation", count = 4 }) => ({ path, role, count, shape: String(count), category: "linear", note: "" })),
      alerts: alerts.map((alert) => ({ kind: "", path: "", unit: null, step: 0, last: steps - 1, over: false, mark: "broken", text: "", fix: "", advice: "", steps, inputs: steps, trace: "", ...alert })),
      units: units.map(({ path, fired }) => ({ path, read: "the input of l1", units: fired[0]?.length ?? 0 })),
      neurons: layers.length ? { layers: layers.map(({ path, weights }) => ({ path, weight: `${path}.weight`, units: weights[0]?.length ?? 0, inputs: weights[0]?.[0]?.length ?? 0 })) } : null,
      ...more,
    }),
    arrays,
  );
}

/** The note's seeds: 63 (unit 1 dead, unit 2 starving), 2 (unit 0 starving), 6 (units 0 and 1 cancel), 0 (all well); weights rounded. */
export function note(seed: 0 | 2 | 6 | 63): WatchData {
  const { incoming, outgoing, fired, alerts } = SEEDS[seed];
  return made({
    steps: 10_000,
    series: [{ path: "l0", count: 3, means: [0.5, 0.5] }, { path: "l1", count: 1, means: [0.1, 0] }],
    layers: [
      { path: "l0", weights: [incoming, incoming], activations: [fired.map((per) => ((per[0] ?? 0) ? 0.4 : 0)), fired.map((per) => ((per.at(-1) ?? 0) > 100 ? 0.4 : 0))], gradients: [[0.2, 0, -0.1], [0, 0, 0.01]], biases: [[-0.08, -0.087, -0.98], [-0.08, -0.087, -0.98]] },
      { path: "l1", weights: [[outgoing], [outgoing]], activations: [[0.3], [-0.001]], gradients: [[1], [-1]] },
    ],
    units: [{ path: "l0", width: 1000, fired: Array.from({ length: 10 }, (_, window) => fired.map((per) => per[window] ?? per[0] ?? 0)) }],
    alerts,
  });
}

const STEADY = [500];
const SEEDS: Record<0 | 2 | 6 | 63, { incoming: number[][]; outgoing: number[]; fired: number[][]; alerts: Partial<Alert>[] }> = {
  0: { incoming: [[1.4, 0.52, 0.36, -0.37], [-0.28, -0.96, 0.72, -0.51], [-1.95, -1.27, -0.64, 0.17]], outgoing: [0.0012, -0.0007, -0.0004], fired: [STEADY, STEADY, [86]], alerts: [] },
  2: {
    incoming: [[0.19, -0.54, 0.27, -0.5], [-0.17, 0.78, 0.39, 1.03], [-0.28, -0.53, -0.34, 0.68]], outgoing: [-0.4285, 0.0003, 0.0003],
    fired: [[184, 129, 100, 105, 68, 43, 33, 38, 24, 17], STEADY, STEADY],
    alerts: [{ kind: "starving", path: "l0", unit: 0, step: 6000 }],
  },
  6: { incoming: [[-1.0696, -0.9391, 0.8239, -0.4063], [-1.2066, -1.0693, 0.9298, -0.4582], [0.53, 0.15, 1.77, 0.29]], outgoing: [-1.0967, 0.9646, -0.0001], fired: [STEADY, STEADY, [304]], alerts: [] },
  63: {
    incoming: [[-0.71, -0.17, -0.11, -0.59], [0.2, -0.16, 0.15, 0.16], [-0.295, -0.044, -0.028, -0.235]], outgoing: [-0.0003, 0.3722, 0.8849],
    fired: [[900], [0], [330, 270, 220, 170, 130, 100, 70, 50, 30, 20]],
    alerts: [{ kind: "dead", path: "l0", unit: 1, step: 1100 }, { kind: "starving", path: "l0", unit: 2, step: 7000 }],
  },
};

export interface Told {
  context: WatchContext;
  hooks: Hooks;
  said: string[];
  steps: number[];
  rows: number[];
}

export function told(dark = false): Told {
  const [said, steps, rows]: [string[], number[], number[]] = [[], [], []];
  const context = { root: document.createElement("div").attachShadow({ mode: "open" }), ask: null, control: null, announce: (text: string) => void said.push(text), isDark: () => dark };
  return { context, hooks: { onStep: (step) => void steps.push(step), onSelect: (row) => void rows.push(row), onHover: () => {}, onZoom: () => {} }, said, steps, rows };
}

export function momentOf(data: WatchData, more: Partial<Moment> = {}): Moment {
  const step = more.step ?? data.end - 1;
  return { data, step, seen: step, row: 0, following: false, from: 0, to: data.end, ...more };
}

export function pressed(target: Element, key: string): { prevented: boolean; left: boolean } {
  let left = false;
  const outside = (): void => void (left = true);
  document.addEventListener("keydown", outside);
  const event = new KeyboardEvent("keydown", { key, bubbles: true, composed: true, cancelable: true });
  target.dispatchEvent(event);
  document.removeEventListener("keydown", outside);
  return { prevented: event.defaultPrevented, left };
}

export interface Ink {
  calls: [name: string, ...given: unknown[]][];
  of(name: string): unknown[][];
  words(): string[];
}

/** Canvases of so many pixels whose pen writes down what is drawn, and refuses what no canvas could draw. */
export function inked(width: number): Ink {
  const calls: Ink["calls"] = [];
  const state: Record<string, unknown> = {};
  const pens = new WeakMap<HTMLCanvasElement, unknown>();
  const call = (name: string, ...given: unknown[]): unknown => {
    for (const value of given) if (typeof value === "number" && !Number.isFinite(value)) throw new Error(`${name} was given ${String(value)}`);
    calls.push([name, ...given]);
    if (name === "measureText") return { width: 6 * String(given[0]).length };
    if (name === "createImageData") return { data: new Uint8ClampedArray(4 * (given[0] as number) * (given[1] as number)) };
    return null;
  };
  const penOf = (canvas: HTMLCanvasElement): unknown =>
    new Proxy(state, {
      get: (_, name) => (name === "canvas" ? canvas : name in state ? state[name as string] : (...given: unknown[]) => call(String(name), ...given)),
      set: (_, name, value) => {
        if (typeof value === "number" && !Number.isFinite(value)) throw new Error(`${String(name)} became ${value}`);
        state[name as string] = value;
        calls.push(["set", name, value]);
        return true;
      },
    });
  vi.spyOn(HTMLCanvasElement.prototype, "clientWidth", "get").mockReturnValue(width);
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockImplementation(function (this: HTMLCanvasElement) {
    if (!pens.has(this)) pens.set(this, penOf(this));
    return pens.get(this) as never;
  });
  const of = (name: string): unknown[][] => calls.filter(([called]) => called === name).map(([, ...given]) => given);
  return { calls, of, words: () => of("fillText").map(([text]) => String(text)) };
}
