/**
 * What Python hands to the page: one byte string of JSON and numbers (schema 1).
 *
 * 4 bytes little-endian N, N bytes of UTF-8 JSON, zero bytes up to a multiple of 8, then the numbers.
 * Strings come from users: they reach the page as text nodes alone.
 */

import { filled, list } from "./fields";

export type Names = readonly string[] | { readonly from: number; readonly to: number };
export type Link = readonly [up: number, path: string];
export type Run = readonly [names: Names, subtree: number, link: Link | null];

export type Category = "container" | "linear" | "conv" | "norm" | "activation" | "dropout" | "embedding" | "own";

export interface Entry {
  name: string;
  kind: string;
  shape: readonly number[] | null;
  shapeText: string;
  dtype: string;
  device: string;
  count: number;
  countText: string;
  bytesText: string;
  trainable: boolean;
  persistent: boolean;
  tied: Link | null;
  note: string;
  /** Of a tensor that lies over several ranks: the shape that this rank holds, how it lies in words, and all facts. */
  here: string;
  placement: string;
  sharding: readonly (readonly [string, string])[];
}

export interface Ghost {
  name: string;
  what: string;
  /** "in a Python list"; empty where that needs no saying. */
  where: string;
  /** What follows from that. */
  reason: string;
  fix: string;
  /** What to do in words, where there is no line. */
  advice: string;
  parameters: number;
  parametersText: string;
  harmless: boolean;
}

export interface Subtree {
  type: string;
  category: Category;
  extra: string;
  class: number;
  training: boolean;
  flags: readonly string[];
  tensors: readonly number[];
  runs: readonly Run[];
  ghosts: readonly Ghost[];
  own: number;
  total: number;
  trainable: number;
  buffers: number;
  bytes: number;
  totalText: string;
  ownText: string;
  bytesText: string;
  dtypes: readonly string[];
  devices: readonly string[];
  lazy: number;
  modules: number;
  /** What FSDP or DDP makes of it. */
  unit: { readonly name: string; readonly text: string } | null;
}

export interface ClassFacts {
  name: string;
  where: string;
  signature: string;
  doc: string;
  code: string;
  codeNote: string;
}

export interface Values {
  title: string;
  stats: readonly (readonly [string, string])[];
  nan: number;
  inf: number;
  note: string;
  bars: Bars | null;
  grid: Grid | null;
}

/** Where all values are the same, `lo` says so, and `hi` is nothing. */
export interface Bars {
  counts: string;
  lo: string;
  hi: string;
  low: number;
  high: number;
  note: string;
}

export interface Grid {
  array: string;
  slice: string;
  whole: boolean;
  texts: readonly string[] | null;
  limit: number;
  signed: boolean;
  shapeText: string;
}

export interface OptimizerState {
  label: string;
  lr: string;
  decay: string;
  state: readonly string[];
}

export interface Signature {
  kind: string;
  shape: readonly number[] | null;
  shapeText: string;
  dtype: string;
  device: string;
  count: number;
  countText: string;
  bytes: number;
  bytesText: string;
  trainable: boolean;
  /** The word for it, which all faces share: "yes", "frozen", "no" or nothing. */
  trained: string;
  persistent: boolean;
  saved: boolean;
  grad: string;
  tied: Link | null;
  note: string;
  mark: string;
  optimizer: readonly OptimizerState[];
  here: string;
  placement: string;
  sharding: readonly (readonly [string, string])[];
}

export interface StateNode {
  type: string;
  slots: readonly (readonly [name: string, signature: number])[];
  runs: readonly (readonly [names: Names, node: number])[];
}

export interface Common {
  schema: number;
  version: string;
  headline: readonly [string, string];
  model: string;
  variable: string;
  /** TorchScript's modules cannot be asked for a part by its dotted name. */
  scripted: boolean;
  code: string;
  foot: string;
  live: boolean;
}

/** What is known of every payload, whichever view it is. */
export interface Headed extends Common {
  view: string;
}

export interface TreePayload extends Common {
  view: "tree";
  modules: number;
  places: number;
  subtrees: readonly Subtree[];
  entries: readonly Entry[];
  classes: readonly ClassFacts[];
}

export interface StatePayload extends Common {
  view: "state";
  nodes: readonly StateNode[];
  signatures: readonly Signature[];
  optimizer: boolean;
  orphans: readonly string[];
  remarks: readonly string[];
  summary: { rows: number; saved: number; text: string };
  values: Readonly<Record<string, Values>>;
  valuesNote: string;
}

export interface MeasurePayload extends Common {
  view: "measure";
  values: Readonly<Record<string, Values>>;
  valuesNote: string;
}

/** A view that is known by its name; all others describe themselves as sheets, or have a front end of their own. */
export type Payload = TreePayload | StatePayload | MeasurePayload;

/** The numbers beside the JSON, by name; an empty array stands for one that is missing. */
export type Numbers = (name: string) => ArrayLike<number> & { readonly shape: readonly number[] };

export interface Decoded<T> {
  json: T;
  numbers: Numbers;
}

interface ArrayPlace {
  dtype: string;
  shape: readonly number[];
  offset: number;
}

const TYPED = { float32: Float32Array, uint32: Uint32Array, uint8: Uint8Array } as const;

/** Reads the byte string; throws one sentence when it is cut or is none of ours. */
export function decode<T = Record<string, unknown>>(bytes: ArrayBuffer): Decoded<T> {
  if (bytes.byteLength < 4) throw new Error("the payload is empty");
  const length = new DataView(bytes).getUint32(0, true);
  if (4 + length > bytes.byteLength) throw new Error("the payload is cut off");
  const json = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length))) as T;
  const places = ((json as { arrays?: Record<string, ArrayPlace> }).arrays ?? {}) as Record<string, ArrayPlace>;
  const start = Math.ceil((4 + length) / 8) * 8;
  return { json, numbers: (name) => read(bytes, start, places[name]) };
}

function read(bytes: ArrayBuffer, start: number, place: ArrayPlace | undefined): ReturnType<Numbers> {
  const type = TYPED[place?.dtype as keyof typeof TYPED];
  if (!place || !type) return Object.assign([], { shape: [0] });
  const count = place.shape.reduce((product, size) => product * size, 1);
  const from = start + place.offset;
  const values = new type(bytes.slice(from, from + count * type.BYTES_PER_ELEMENT));
  return Object.assign(values, { shape: place.shape });
}

/** A payload with every field in place: what is missing or odd becomes empty, and is never `undefined` further on. */
export function complete(json: Record<string, unknown>): Payload {
  const common = filled(COMMON, json);
  if (json.view === "tree") {
    return {
      ...filled({ modules: 0, places: 0 }, common),
      subtrees: list(json.subtrees).map((subtree) => filled(SUBTREE, subtree)),
      entries: list(json.entries).map((entry) => filled(ENTRY, entry)),
      classes: list(json.classes).map((facts) => filled(CLASS, facts)),
    } as unknown as TreePayload;
  }
  if (json.view === "state") {
    return {
      ...filled({ optimizer: false, orphans: [], remarks: [], values: {}, valuesNote: "" }, common),
      nodes: list(json.nodes).map((node) => filled(NODE, node)),
      signatures: list(json.signatures).map(completeSignature),
      summary: filled({ rows: 0, saved: 0, text: "" }, json.summary),
    } as unknown as StatePayload;
  }
  return filled({ values: {}, valuesNote: "" }, common) as unknown as MeasurePayload;
}

/** The values of one tensor with every field in place; null when there are none. */
export function completeValues(values: unknown): Values | null {
  if (!values || typeof values !== "object") return null;
  return filled({ title: "", stats: [], nan: 0, inf: 0, note: "", bars: null, grid: null }, values);
}

/** Outputs made before Python gave the word `trained` have it from their kind. */
function completeSignature(given: unknown): Signature {
  const made = filled<Omit<Signature, "trained">>(SIGNATURE, given) as Signature;
  made.trained ??= made.kind !== "parameter" ? "" : made.trainable ? "yes" : "frozen";
  return made;
}

/** What every payload has. */
export const COMMON: Headed = { schema: 1, version: "", view: "", headline: ["", ""], model: "", variable: "model", scripted: false, code: "", foot: "", live: false };

const SUBTREE: Omit<Subtree, "type"> & { type: string } = {
  type: "?", category: "own", extra: "", class: -1, training: true, flags: [], tensors: [], runs: [], ghosts: [],
  own: 0, total: 0, trainable: 0, buffers: 0, bytes: 0, totalText: "", ownText: "", bytesText: "",
  dtypes: [], devices: [], lazy: 0, modules: 1, unit: null,
};

const ENTRY: Entry = {
  name: "?", kind: "parameter", shape: null, shapeText: "", dtype: "", device: "", count: 0, countText: "", bytesText: "",
  trainable: false, persistent: true, tied: null, note: "", here: "", placement: "", sharding: [],
};

const CLASS: ClassFacts = { name: "", where: "", signature: "", doc: "", code: "", codeNote: "" };

const NODE: StateNode = { type: "", slots: [], runs: [] };

const SIGNATURE: Omit<Signature, "trained"> = {
  kind: "parameter", shape: null, shapeText: "", dtype: "", device: "", count: 0, countText: "", bytes: 0, bytesText: "",
  trainable: false, persistent: true, saved: true, grad: "", tied: null, note: "", mark: "", optimizer: [],
  here: "", placement: "", sharding: [],
};
