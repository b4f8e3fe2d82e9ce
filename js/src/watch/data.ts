/** What a watch has seen, whole: a first payload, and updates that replace the end of what is there. */
import { filled, list } from "../fields";
import { COMMON, decode, type Category, type Headed, type Numbers } from "../payload";

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

/** A fix: a line that can be copied, and what else to do, or what to do instead. */
export interface Mending {
  fix: string;
  advice: string;
}

export interface Check extends Mending {
  name: string;
  /** What was found: several causes have one name. */
  kind: string;
  state: "passed" | "broken" | "careful" | "not seen";
  /** Whether it says why the training does not learn: the headline is about the first of these. */
  cause?: true;
  text: string;
  path: string;
}

export interface Alert extends Mending {
  kind: string;
  path: string;
  unit: number | null;
  /** Of an alert of several at once, all of them. */
  units?: readonly number[];
  step: number;
  last: number;
  over: boolean;
  /** How bad it is: a few dead units of many are a reason for care. */
  mark: "broken" | "careful";
  text: string;
  steps: number;
  inputs: number;
  /** Of a starving unit, how often it fired. */
  rate?: { first: number; now: number };
  trace: string;
}

export interface Layer {
  path: string;
  weight: string;
  units: number;
  inputs: number;
}

export type State = "waiting" | "running" | "ended" | "stopped" | "interrupted" | "failed";

export function isRunning(state: State): boolean {
  return state === "running" || state === "waiting";
}

/** A part of the training, run again with a change. */
export interface Fork {
  /** Its first step, the step of the change, the step behind its last one, and the one that it comes to. */
  began: number;
  at: number;
  end: number;
  until: number;
  running: boolean;
  changed: string;
  headline: readonly [string, string];
  notes: readonly string[];
}

/** From where a fork can be made, and what can be set there: one entry for each kept step. */
export interface Kept {
  steps: readonly number[];
  until: readonly number[];
  rates: readonly (number | null)[];
  groups: number;
  settings: readonly { name: string; kind: string; values: readonly (number | null)[] }[];
}

export interface WatchPayload extends Headed {
  state: State;
  error: string;
  steps: number;
  samples: number;
  inputs: number;
  cost: number;
  budget: number;
  optimizer: string;
  /** What was measured is this rank's part of a sharded model. */
  part: boolean;
  series: readonly Series[];
  verdict: readonly Check[];
  alerts: readonly Alert[];
  scalars: readonly { name: string; count: number; final: string; loss: boolean }[];
  units: readonly { path: string; read: string; units: number }[];
  neurons: { layers: readonly Layer[] } | null;
  remarks: readonly string[];
  forks: readonly Fork[];
  /** Null where no kernel answers that could make a fork. */
  kept: Kept | null;
  /** Why the last fork that was asked for could not be made. */
  refused: string;
}

/** What a curve reads in one slot: its value, the inner band, the outer band. NaN where there is none. */
export interface Reading {
  first: ArrayLike<number>;
  last: ArrayLike<number>;
  mid(slot: number): number;
  low?(slot: number): number;
  high?(slot: number): number;
  under?(slot: number): number;
  over?(slot: number): number;
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
  /** What is added to each unit; empty where that was not sent, NaN where it is not known. */
  biases(slot: number): Float32Array;
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

/** Columns of equal length, by the names of their arrays. */
type Columns = Readonly<Record<string, Growing<Typed>>>;

function splice(columns: Columns, at: number, numbers: Numbers, prefix = ""): void {
  for (const name in columns) columns[name]?.splice(at, numbers(prefix + name));
}

/** Numbers whose four bytes lie apart, series by series, as outputs at rest have them → slot by slot; null where there are none. */
function joined(planes: ReturnType<Numbers>): ReturnType<Numbers> | null {
  const [, series = 0, slots = 0] = planes.shape;
  const size = series * slots;
  if (!size) return null;
  const view = new DataView(new ArrayBuffer(4 * size));
  for (let at = 0; at < 4 * size; at += 1) {
    const place = at % size;
    const [row, slot] = [Math.floor(place / slots), place % slots];
    view.setUint8(4 * (slot * series + row) + Math.floor(at / size), planes[at] ?? 0);
  }
  return Object.assign(new Float32Array(view.buffer), { shape: [slots, series] });
}

let revisions = 0;

/** Everything of one watch. */
export class WatchData {
  payload: WatchPayload;
  /** Another one after every `apply`, of any watch: what was computed from the data before is out of date. */
  revision = 0;
  #history = historyOf(0);
  #bins = binsOf(0);
  #top: ArrayLike<number> = [];
  #sampled: ArrayLike<number> = [];
  #scalars: ReturnType<typeof scalarOf>[] = [];
  #units: ReturnType<typeof unitsOf>[] = [];
  #neurons = timesOf();
  #layers: ReturnType<typeof layerOf>[] = [];
  #forks: Record<"original" | "fork", ArrayLike<number>>[] = [];
  #rows = new Map<string, number>();
  /** Of each series' path the update and the parameter. */
  #pairs: (readonly [number, number])[] = [];

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
    this.#pairs = payload.series.map(({ path }) => [this.row(path, "update"), this.row(path, "parameter")]);
    this.#take(from, numbers);
    // What is found when the watch ends belongs to the last step.
    for (const alert of payload.alerts) (alert as { step: number }).step = Math.max(0, Math.min(alert.step, this.end - 1));
    this.revision = revisions += 1;
    return true;
  }

  /** What stands behind the name of numbers that are about this rank's part alone: a norm of it is none of the whole. */
  get ofPart(): string {
    return this.payload.part ? ", of this rank's part" : "";
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
    return this.#history[column].all[slot * this.payload.series.length + row] ?? Number.NaN;
  }

  /** All of a column, slot by slot: for who draws many. */
  column(column: Column): Float32Array {
    return this.#history[column].all;
  }

  norm(slot: number, row: number): number {
    const [mean, std] = [this.value("mean", slot, row), this.value("std", slot, row)];
    return Math.sqrt((std * std + mean * mean) * (this.payload.series[row]?.count ?? 0));
  }

  /** ‖update‖ / ‖parameter‖ in one slot, for a row of any of a parameter's roles. */
  ratio(slot: number, row: number): number {
    const [update, parameter] = this.#pairs[row] ?? [-1, -1];
    return update < 0 || parameter < 0 ? Number.NaN : this.norm(slot, update) / this.norm(slot, parameter);
  }

  row(path: string, role: Role): number {
    return this.#rows.get(`${role} ${path}`) ?? -1;
  }

  /** The slot that holds a step or is the last before it; -1 where there is none at all. */
  slotOf(step: number): number {
    return slotAt(this.first, step);
  }

  /** The slot in which a series was seen last up to a step: not every sample has all, and the last one has weights alone. */
  seenAt(step: number, row: number, read: (slot: number) => number = (slot) => this.value("mean", slot, row)): number {
    const slot = this.slotOf(step);
    for (let at = slot; at >= 0 && at > slot - BACK; at -= 1) {
      if (!Number.isNaN(read(at)) || this.value("bad", at, row) > 0) return at;
    }
    return slot;
  }

  get binSlots(): number {
    return this.#bins["bins first"].rows;
  }

  get binsFirst(): Uint32Array {
    return this.#bins["bins first"].all;
  }

  get binsLast(): Uint32Array {
    return this.#bins["bins last"].all;
  }

  binSlotOf(step: number): number {
    return slotAt(this.binsFirst, step);
  }

  /** The shares of the 65 bins, of 255. */
  bins(binSlot: number, row: number): Uint8Array {
    const start = (binSlot * this.payload.series.length + row) * BINS;
    return this.#bins.bins.all.subarray(start, start + BINS);
  }

  /** The last bin begins at 2 ** (top / 2). */
  top(row: number): number {
    return this.#top[row] ?? 0;
  }

  /** Steps at which samples were taken. */
  get sampled(): ArrayLike<number> {
    return this.#sampled;
  }

  scalar(index: number): Reading {
    const { first, last, "": values } = this.#scalars[index] ?? scalarOf();
    return { first: first.all, last: last.all, ...rangeIn(() => values.all) };
  }

  units(index: number): Units {
    const count = this.payload.units[index]?.units ?? 0;
    const { first, last, inputs, fired, silent, flat } = this.#units[index] ?? unitsOf(count);
    return { first: first.all, last: last.all, inputs: inputs.all, fired: fired.all, silent: silent.all, flat: flat.all, count };
  }

  /** The loss of a fork as it was, or as it would have been. */
  fork(index: number, which: "original" | "fork"): Reading {
    const { began = 0, end = 0 } = this.payload.forks[index] ?? {};
    const values = this.#forks[index]?.[which] ?? [];
    const bins = values.length / 3;
    const edge = (slot: number): number => began + Math.floor((slot * (end - began)) / Math.max(1, bins));
    const slots = Array.from({ length: bins }, (_, slot) => slot);
    return { first: slots.map(edge), last: slots.map((slot) => edge(slot + 1) - 1), ...rangeIn(() => values) };
  }

  get neuronSlots(): number {
    return this.#neurons.first.rows;
  }

  /** The step at which a slot ends. */
  neuronsEnd(slot: number): number {
    return this.#neurons.last.all[slot] ?? -1;
  }

  neuronSlotOf(step: number): number {
    return slotAt(this.#neurons.first.all, step);
  }

  neurons(layer: number): Neurons {
    const { weights, activations, gradients, biases } = this.#layers[layer] ?? layerOf(LAYER);
    return { weights: (slot) => weights.row(slot), activations: (slot) => activations.row(slot), gradients: (slot) => gradients.row(slot), biases: (slot) => biases.row(slot) };
  }

  /** How many steps there are to show. */
  get end(): number {
    return Math.max(this.payload.steps, ...[this.#history, ...this.#scalars].map(({ last }) => (last.all[last.rows - 1] ?? -1) + 1));
  }

  #clear({ series }: WatchPayload): void {
    this.#history = historyOf(series.length);
    this.#bins = binsOf(series.length);
    this.#scalars = [];
    this.#units = [];
    this.#neurons = timesOf();
    this.#layers = [];
  }

  #take(from: From | null, numbers: Numbers): void {
    splice(this.#history, from?.history ?? 0, (name) => joined(numbers(`${name} planes`)) ?? numbers(name));
    splice(this.#bins, from?.bins ?? 0, numbers);
    this.#top = numbers("top");
    this.#sampled = numbers("sampled");
    this.payload.scalars.forEach((_, index) => {
      const { "": values, ...times } = (this.#scalars[index] ??= scalarOf());
      const at = Math.min(from?.scalars[index] ?? 0, times.first.rows);
      values.splice(at, numbers(`scalar ${index}`));
      splice(times, at, numbers, `scalar ${index} `);
    });
    this.payload.units.forEach(({ units }, index) => {
      const { silent, flat, ...windows } = (this.#units[index] ??= unitsOf(units));
      splice(windows, Math.min(from?.units[index] ?? 0, windows.first.rows), numbers, `units ${index} `);
      splice({ silent, flat }, 0, numbers, `units ${index} `);
    });
    this.#forks = this.payload.forks.map((_, index) => ({ original: numbers(`fork ${index} original`), fork: numbers(`fork ${index} fork`) }));
    const at = from?.neurons ?? 0;
    splice(this.#neurons, at, numbers, "neurons ");
    // A net is found once sizes are known: it may come with an update.
    (this.payload.neurons?.layers ?? []).forEach((layer, index) => splice((this.#layers[index] ??= layerOf(layer)), at, numbers, `neurons ${index} `));
  }
}

/** How many slots back a series is looked for that is sampled seldom. */
const BACK = 64;

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

/** Of numbers in threes the mean, the least and the greatest. */
const rangeIn = (values: () => ArrayLike<number>) => {
  const part = (which: number) => (slot: number): number => values()[slot * 3 + which] ?? Number.NaN;
  return { mid: part(0), low: part(1), high: part(2) };
};
const timesOf = () => ({ first: u32(), last: u32() });
const historyOf = (series: number) => ({ ...timesOf(), ...(Object.fromEntries(COLUMNS.map((name) => [name, f32(series)])) as Record<Column, Growing<Float32Array>>) });
const binsOf = (series: number) => ({ "bins first": u32(), "bins last": u32(), bins: u8(series * BINS) });
/** The mean, the least and the greatest stand together. */
const scalarOf = () => ({ ...timesOf(), "": f32(3) });
const unitsOf = (units: number) => ({ ...timesOf(), inputs: u32(), fired: u32(units), silent: u32(), flat: u8() });
const layerOf = ({ units, inputs }: Layer) => ({ weights: f32(units * inputs), activations: f32(units), gradients: f32(units), biases: f32(units) });

function fromOf(given: unknown): From | null {
  return given && typeof given === "object" ? filled({ history: 0, bins: 0, scalars: [], units: [], neurons: 0 }, given) : null;
}

/** Every field in place. */
export function completeWatch(json: Record<string, unknown>): WatchPayload {
  const made = filled(WATCH, { ...json }) as unknown as WatchPayload & Record<string, unknown>;
  made.headline = [String(made.headline[0] ?? ""), String(made.headline[1] ?? "")];
  for (const [name, facts] of Object.entries(LISTS)) made[name] = list(made[name]).map((one) => filled(facts, one));
  const layers = list((made.neurons as { layers?: unknown } | null)?.layers).map((one) => filled(LAYER, one));
  made.neurons = layers.length ? { layers } : null;
  made.kept = made.kept ? keptOf(made.kept) : null;
  return made;
}

function keptOf(given: object): Kept | null {
  const made = filled({ steps: [], until: [], rates: [], groups: 0, settings: [] }, given) as unknown as Kept;
  const settings = list(made.settings).map((one) => filled({ name: "", kind: "", values: [] }, one));
  return made.steps.length ? { ...made, settings } : null;
}

const LAYER: Layer = { path: "", weight: "", units: 0, inputs: 0 };
const LISTS = {
  series: { path: "", role: "activation", count: 0, shape: "", category: "own", note: "" },
  verdict: { name: "", kind: "", state: "not seen", text: "", fix: "", advice: "", path: "" },
  alerts: { kind: "", path: "", unit: null, step: 0, last: -1, over: false, mark: "broken", text: "", fix: "", advice: "", steps: 0, inputs: 0, trace: "" },
  scalars: { name: "", count: 0, final: "", loss: false },
  units: { path: "", read: "", units: 0 },
  forks: { began: 0, at: 0, end: 0, until: 0, running: false, changed: "", headline: ["", ""], notes: [] },
};
const WATCH = {
  ...COMMON, view: "watch", variable: "w", state: "ended", error: "", steps: 0, samples: 0, inputs: 0, cost: 0, budget: 0, optimizer: "", part: false,
  neurons: null, remarks: [], kept: null, refused: "", ...Object.fromEntries(Object.keys(LISTS).map((name) => [name, []])),
};
