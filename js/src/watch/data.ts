/** What a watch has seen, whole: a first payload, and updates that replace the end of what is there. */
import { filled, list } from "../fields";
import { decode, type Category, type Numbers } from "../payload";

export const ROLES = ["activation", "gradient", "parameter", "parameter gradient", "update"] as const;
export type Role = (typeof ROLES)[number];

export const COLUMNS = ["mean", "std", "low", "high", "zeros", "bad", "stuck"] as const;
export type Column = (typeof COLUMNS)[number];

/** Bins of a histogram: 32 negative, falling in size; one about zero; 32 positive, growing. */
export const BINS = 65;

export interface Series {
  path: string;
  role: Role;
  count: number;
  shape: string;
  category: Category;
  note: string;
}

export interface Rung {
  name: string;
  state: "passed" | "broken" | "careful" | "not seen";
  text: string;
  fix: string;
  path: string;
}

export interface Alert {
  kind: string;
  path: string;
  unit: number | null;
  step: number;
  last: number;
  over: boolean;
  text: string;
  fix: string;
  steps: number;
  inputs: number;
  trace: string;
}

export interface Layer {
  path: string;
  weight: string;
  units: number;
  inputs: number;
}

export type State = "waiting" | "running" | "ended" | "stopped" | "interrupted" | "failed";

export interface WatchPayload {
  schema: number;
  version: string;
  view: string;
  headline: readonly [string, string];
  model: string;
  variable: string;
  code: string;
  foot: string;
  live: boolean;
  state: State;
  error: string;
  steps: number;
  samples: number;
  inputs: number;
  cost: number;
  budget: number;
  optimizer: string;
  series: readonly Series[];
  verdict: readonly Rung[];
  alerts: readonly Alert[];
  scalars: readonly { name: string; count: number; final: string }[];
  units: readonly { path: string; read: string; units: number }[];
  neurons: { layers: readonly Layer[] } | null;
  remarks: readonly string[];
}

export interface Scalar {
  first: Uint32Array;
  last: Uint32Array;
  mean: Float32Array;
  low: Float32Array;
  high: Float32Array;
}

export interface Units {
  first: Uint32Array;
  last: Uint32Array;
  inputs: Uint32Array;
  /** One after the other, window by window. */
  fired: Uint32Array;
  silent: Uint32Array;
  flat: Uint8Array;
  count: number;
}

export interface Neurons {
  /** One unit after the other; each with its inputs. */
  weights(slot: number): Float32Array;
  activations(slot: number): Float32Array;
  gradients(slot: number): Float32Array;
}

interface From {
  history: number;
  bins: number;
  scalars: readonly number[];
  units: readonly number[];
  neurons: number;
}

type Typed = Float32Array | Uint32Array | Uint8Array;

/** Numbers in rows of equal width, whose end can be replaced: room is kept, so that an update copies only what is new. */
class Growing<T extends Typed> {
  #room: T;
  #used = 0;
  #view: T;

  constructor(
    readonly make: new (size: number) => T,
    public width = 1,
  ) {
    this.#room = new make(0);
    this.#view = this.#room;
  }

  get rows(): number {
    return this.width ? this.#used / this.width : 0;
  }

  get all(): T {
    return this.#view;
  }

  row(index: number): T {
    return this.#view.subarray(index * this.width, (index + 1) * this.width) as T;
  }

  splice(from: number, values: ArrayLike<number>): void {
    const kept = from * this.width;
    const size = kept + values.length;
    if (size > this.#room.length) {
      const room = new this.make(Math.max(size, Math.min(2 * this.#room.length, size + (1 << 20))));
      room.set(this.#room.subarray(0, kept));
      this.#room = room;
    }
    this.#room.set(values, kept);
    this.#used = size;
    this.#view = this.#room.subarray(0, size) as T;
  }
}

const f32 = (width = 1): Growing<Float32Array> => new Growing(Float32Array, width);
const u32 = (width = 1): Growing<Uint32Array> => new Growing(Uint32Array, width);
const u8 = (width = 1): Growing<Uint8Array> => new Growing(Uint8Array, width);

interface History {
  first: Growing<Uint32Array>;
  last: Growing<Uint32Array>;
  columns: Record<Column, Growing<Float32Array>>;
  binsFirst: Growing<Uint32Array>;
  binsLast: Growing<Uint32Array>;
  bins: Growing<Uint8Array>;
}

interface ScalarRoom {
  first: Growing<Uint32Array>;
  last: Growing<Uint32Array>;
  mean: Growing<Float32Array>;
  low: Growing<Float32Array>;
  high: Growing<Float32Array>;
}

interface UnitsRoom {
  first: Growing<Uint32Array>;
  last: Growing<Uint32Array>;
  inputs: Growing<Uint32Array>;
  fired: Growing<Uint32Array>;
  silent: Uint32Array;
  flat: Uint8Array;
}

interface LayerRoom {
  weights: Growing<Float32Array>;
  activations: Growing<Float32Array>;
  gradients: Growing<Float32Array>;
}

/** Everything of one watch. */
export class WatchData {
  payload: WatchPayload;
  /** Grows with every `apply`: what was computed from the data before is out of date. */
  revision = 0;
  #history = historyOf(0);
  #top: ArrayLike<number> = [];
  #sampled: Uint32Array = new Uint32Array(0);
  #scalars: ScalarRoom[] = [];
  #units: UnitsRoom[] = [];
  #neuronsFirst = u32();
  #neuronsLast = u32();
  #layers: LayerRoom[] = [];
  #rows = new Map<string, number>();

  constructor(bytes?: ArrayBuffer) {
    this.payload = completeWatch({});
    if (bytes && !this.apply(bytes)) throw new Error("the first payload of a watch is only a part of one");
  }

  /** Takes a full payload or an update; false if it is an update of something else than what is here: ask for all. */
  apply(bytes: ArrayBuffer): boolean {
    const { json, numbers } = decode(bytes);
    const from = fromOf(json.from);
    const payload = completeWatch(from ? { ...this.payload, ...json } : json);
    if (from && (payload.series.length !== this.payload.series.length || from.history > this.slots || from.bins > this.binSlots)) return false;
    if (from && from.neurons > this.neuronSlots) return false;
    if (!from) this.#clear(payload);
    this.payload = payload;
    this.#rows = new Map(payload.series.map((one, index) => [`${one.role} ${one.path}`, index]));
    this.#takeHistory(from, numbers);
    payload.scalars.forEach((_, index) => this.#takeScalar(index, from?.scalars[index] ?? 0, numbers));
    payload.units.forEach((one, index) => this.#takeUnits(index, one.units, from?.units[index] ?? 0, numbers));
    this.#takeNeurons(from?.neurons ?? 0, numbers);
    // What is found when the watch ends belongs to the last step.
    for (const alert of payload.alerts) (alert as { step: number }).step = Math.max(0, Math.min(alert.step, this.end - 1));
    this.revision += 1;
    return true;
  }

  get slots(): number {
    return this.#history.first.rows;
  }

  get first(): Uint32Array {
    return this.#history.first.all;
  }

  get last(): Uint32Array {
    return this.#history.last.all;
  }

  /** NaN where the series was not sampled in the slot. */
  value(column: Column, slot: number, row: number): number {
    return this.#history.columns[column].all[slot * this.payload.series.length + row] ?? Number.NaN;
  }

  /** All of a column, slot by slot: for who draws many. */
  column(column: Column): Float32Array {
    return this.#history.columns[column].all;
  }

  norm(slot: number, row: number): number {
    const [mean, std] = [this.value("mean", slot, row), this.value("std", slot, row)];
    return Math.sqrt((std * std + mean * mean) * (this.payload.series[row]?.count ?? 0));
  }

  /** ‖update‖ / ‖parameter‖ in one slot, for a row of any of a parameter's roles. */
  ratio(slot: number, row: number): number {
    const path = this.payload.series[row]?.path ?? "";
    const [update, parameter] = [this.row(path, "update"), this.row(path, "parameter")];
    if (update < 0 || parameter < 0) return Number.NaN;
    return this.norm(slot, update) / this.norm(slot, parameter);
  }

  row(path: string, role: Role): number {
    return this.#rows.get(`${role} ${path}`) ?? -1;
  }

  /** The slot that holds a step or is the last before it; -1 where there is none at all. */
  slotOf(step: number): number {
    return slotAt(this.first, step);
  }

  get binSlots(): number {
    return this.#history.binsFirst.rows;
  }

  get binsFirst(): Uint32Array {
    return this.#history.binsFirst.all;
  }

  get binsLast(): Uint32Array {
    return this.#history.binsLast.all;
  }

  binSlotOf(step: number): number {
    return slotAt(this.binsFirst, step);
  }

  /** The shares of the 65 bins, of 255. */
  bins(binSlot: number, row: number): Uint8Array {
    const start = (binSlot * this.payload.series.length + row) * BINS;
    return this.#history.bins.all.subarray(start, start + BINS);
  }

  /** The last bin begins at 2 ** (top / 2). */
  top(row: number): number {
    return this.#top[row] ?? 0;
  }

  /** Steps at which samples were taken. */
  get sampled(): Uint32Array {
    return this.#sampled;
  }

  scalar(index: number): Scalar {
    const room = this.#scalars[index] ?? scalarRoom();
    return { first: room.first.all, last: room.last.all, mean: room.mean.all, low: room.low.all, high: room.high.all };
  }

  units(index: number): Units {
    const count = this.payload.units[index]?.units ?? 0;
    const room = this.#units[index] ?? unitsRoom(count);
    const { silent, flat } = room;
    return { first: room.first.all, last: room.last.all, inputs: room.inputs.all, fired: room.fired.all, silent, flat, count };
  }

  get neuronSlots(): number {
    return this.#neuronsFirst.rows;
  }

  get neuronsFirst(): Uint32Array {
    return this.#neuronsFirst.all;
  }

  get neuronsLast(): Uint32Array {
    return this.#neuronsLast.all;
  }

  neuronSlotOf(step: number): number {
    return slotAt(this.neuronsFirst, step);
  }

  neurons(layer: number): Neurons {
    const room = this.#layers[layer] ?? layerRoom({ path: "", weight: "", units: 0, inputs: 0 });
    return {
      weights: (slot) => room.weights.row(slot),
      activations: (slot) => room.activations.row(slot),
      gradients: (slot) => room.gradients.row(slot),
    };
  }

  /** How many steps there are to show. */
  get end(): number {
    let end = Math.max(this.payload.steps, (this.last[this.slots - 1] ?? -1) + 1);
    for (const room of this.#scalars) end = Math.max(end, (room.last.all[room.last.rows - 1] ?? -1) + 1);
    return end;
  }

  #clear(payload: WatchPayload): void {
    this.#history = historyOf(payload.series.length);
    this.#scalars = [];
    this.#units = [];
    this.#neuronsFirst = u32();
    this.#neuronsLast = u32();
    this.#layers = (payload.neurons?.layers ?? []).map(layerRoom);
  }

  #takeHistory(from: From | null, numbers: Numbers): void {
    const [history, at, binsAt] = [this.#history, from?.history ?? 0, from?.bins ?? 0];
    history.first.splice(at, numbers("first"));
    history.last.splice(at, numbers("last"));
    for (const name of COLUMNS) history.columns[name].splice(at, numbers(name));
    history.binsFirst.splice(binsAt, numbers("bins first"));
    history.binsLast.splice(binsAt, numbers("bins last"));
    history.bins.splice(binsAt, numbers("bins"));
    this.#top = numbers("top");
    this.#sampled = Uint32Array.from(numbers("sampled"));
  }

  #takeScalar(index: number, from: number, numbers: Numbers): void {
    const room = (this.#scalars[index] ??= scalarRoom());
    const at = Math.min(from, room.first.rows);
    const values = numbers(`scalar ${index}`);
    room.first.splice(at, numbers(`scalar ${index} first`));
    room.last.splice(at, numbers(`scalar ${index} last`));
    [room.mean, room.low, room.high].forEach((part, which) => {
      part.splice(at, Float32Array.from({ length: values.length / 3 }, (_, slot) => values[slot * 3 + which] as number));
    });
  }

  #takeUnits(index: number, count: number, from: number, numbers: Numbers): void {
    const room = (this.#units[index] ??= unitsRoom(count));
    const at = Math.min(from, room.first.rows);
    room.first.splice(at, numbers(`units ${index} first`));
    room.last.splice(at, numbers(`units ${index} last`));
    room.inputs.splice(at, numbers(`units ${index} inputs`));
    room.fired.splice(at, numbers(`units ${index} fired`));
    room.silent = Uint32Array.from(numbers(`units ${index} silent`));
    room.flat = Uint8Array.from(numbers(`units ${index} flat`));
  }

  #takeNeurons(at: number, numbers: Numbers): void {
    this.#neuronsFirst.splice(at, numbers("neurons first"));
    this.#neuronsLast.splice(at, numbers("neurons last"));
    this.#layers.forEach((room, index) => {
      room.weights.splice(at, numbers(`neurons ${index} weights`));
      room.activations.splice(at, numbers(`neurons ${index} activations`));
      room.gradients.splice(at, numbers(`neurons ${index} gradients`));
    });
  }
}

/** The last of `first` that is not after `step`; the first one where all are; -1 where there is none. */
export function slotAt(first: ArrayLike<number>, step: number): number {
  let [low, high] = [0, first.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((first[middle] as number) <= step) low = middle + 1;
    else high = middle;
  }
  return first.length ? Math.max(0, low - 1) : -1;
}

function historyOf(series: number): History {
  return {
    first: u32(),
    last: u32(),
    columns: Object.fromEntries(COLUMNS.map((name) => [name, f32(series)])) as History["columns"],
    binsFirst: u32(),
    binsLast: u32(),
    bins: u8(series * BINS),
  };
}

function scalarRoom(): ScalarRoom {
  return { first: u32(), last: u32(), mean: f32(), low: f32(), high: f32() };
}

function unitsRoom(units: number): UnitsRoom {
  return { first: u32(), last: u32(), inputs: u32(), fired: u32(units), silent: new Uint32Array(0), flat: new Uint8Array(0) };
}

function layerRoom({ units, inputs }: Layer): LayerRoom {
  return { weights: f32(units * inputs), activations: f32(units), gradients: f32(units) };
}

function fromOf(given: unknown): From | null {
  return given && typeof given === "object" ? filled({ history: 0, bins: 0, scalars: [], units: [], neurons: 0 }, given) : null;
}

/** Every field in place. */
export function completeWatch(json: Record<string, unknown>): WatchPayload {
  const made = filled(WATCH, { ...json }) as unknown as WatchPayload & Record<string, unknown>;
  made.headline = [String(made.headline[0] ?? ""), String(made.headline[1] ?? "")];
  made.series = list(made.series).map((one) => filled(SERIES, one));
  made.verdict = list(made.verdict).map((one) => filled(RUNG, one));
  made.alerts = list(made.alerts).map((one) => filled(ALERT, one));
  made.scalars = list(made.scalars).map((one) => filled({ name: "", count: 0, final: "" }, one));
  made.units = list(made.units).map((one) => filled({ path: "", read: "", units: 0 }, one));
  const neurons = made.neurons as { layers?: unknown } | null;
  const layers = list(neurons?.layers).map((one) => filled({ path: "", weight: "", units: 0, inputs: 0 }, one));
  made.neurons = layers.length ? { layers } : null;
  return made;
}

const WATCH = {
  schema: 1, version: "", view: "watch", headline: ["", ""], model: "", variable: "w", code: "", foot: "", live: false,
  state: "ended", error: "", steps: 0, samples: 0, inputs: 0, cost: 0, budget: 0, optimizer: "",
  series: [], verdict: [], alerts: [], scalars: [], units: [], neurons: null, remarks: [],
};

const SERIES: Series = { path: "", role: "activation", count: 0, shape: "", category: "own", note: "" };
const RUNG: Rung = { name: "", state: "not seen", text: "", fix: "", path: "" };
const ALERT: Alert = { kind: "", path: "", unit: null, step: 0, last: -1, over: false, text: "", fix: "", steps: 0, inputs: 0, trace: "" };
