/** A sheet: rows with depth, columns, details and notes, by which a view describes itself (`modlab/views/sheets/layout.py`). */
import type { Column } from "../columns";
import { filled, list } from "../fields";
import { COMMON, type Common, type Values } from "../payload";

/** What a row is at a glance, each with its sign; or nothing. */
export const SIGNS: Readonly<Record<Mark, string>> = { "": "", fine: "✓", careful: "⚠", broken: "✕", absent: "◌" };
export type Mark = "" | "fine" | "careful" | "broken" | "absent";

/** A word, or the sizes of a tensor; of one that does not fit, null stands behind them. */
export type Part = string | readonly (number | null | string | readonly number[])[];

export interface SheetColumn extends Column {
  kind: string;
}

export interface Cell {
  text: string;
  /** 0 to 1; below 0 where there is none. */
  share: number;
  flow: readonly Part[];
  mark: Mark;
}

export interface Block {
  /** Its rows are the numbers of a matrix: none is a name. */
  grid: boolean;
  caption: string;
  prose: string;
  code: string;
  /** Below the table, the key that copies the code. */
  key: string;
  mark: Mark;
  head: readonly string[];
  rows: readonly (readonly string[])[];
  values: readonly Values[];
}

/** Its cells and its details are completed where they are shown: there may be 10,000 rows. */
export interface SheetRow {
  name: string;
  depth: number;
  cells: readonly unknown[];
  /** The dotted name of the module that it is about; null: of no module. */
  path: string | null;
  kind: string;
  note: string;
  symbol: string;
  mark: Mark;
  closed: boolean;
  details: readonly unknown[];
}

export interface SheetPayload extends Common {
  layout: "sheet";
  view: string;
  title: string;
  empty: string;
  /** The column of names first. */
  columns: readonly SheetColumn[];
  rows: readonly SheetRow[];
  notes: readonly unknown[];
}

export function completeSheet(json: Record<string, unknown>): SheetPayload {
  const common = filled(COMMON, json);
  const { title, empty } = filled({ title: "module", empty: "" }, json);
  const rows = list(json.rows).map(completeRow);
  const columns = list(json.columns).map((given, index): SheetColumn => {
    const column = filled({ title: "", kind: "words", width: 80, grows: 0, yields: 1 }, given);
    const kind = KINDS.has(column.kind) ? column.kind : "words";
    return { ...column, kind, key: String(index), right: kind === "number" };
  });
  const names = { key: "name", title, kind: "name", width: rows.some((row) => row.note) ? 220 : 170, grows: 3, yields: 0 };
  return { ...common, layout: "sheet", title, empty, columns: [names, ...columns], rows, notes: list(json.notes) };
}

function completeRow(given: unknown): SheetRow {
  const row = marked(filled<Omit<SheetRow, "path">>(ROW, given) as SheetRow);
  if (typeof row.path !== "string") row.path = null;
  return row;
}

/** What stands in one column of a row; a plain cell comes as its text. */
export function cellOf(row: SheetRow, column: Column): Cell {
  const given = row.cells[Number(column.key)];
  return typeof given === "string" ? { ...CELL, text: given } : marked(filled(CELL, given));
}

/** So many characters of what went wrong stand in the line; more have a line of their own below it. */
const SHORT = 24;

/** What a broken row says at length, without its sign; null: it is said in the line. */
export function saying(row: SheetRow, column: SheetColumn): string | null {
  if (row.mark !== "broken" || column.kind !== "flow") return null;
  const last = cellOf(row, column).flow.at(-1);
  const text = typeof last === "string" && last.startsWith(SIGNS.broken) ? last.slice(SIGNS.broken.length).trim() : "";
  return text.length > SHORT ? text : null;
}

export function blocksOf(given: readonly unknown[]): Block[] {
  return given.map((block) => marked(filled(BLOCK, block)));
}

/** A mark that is not known is none: what is unknown must not become a class. */
function marked<T extends { mark: Mark }>(given: T): T {
  if (!Object.hasOwn(SIGNS, given.mark)) given.mark = "";
  return given;
}

const KINDS = new Set(["words", "code", "number", "flow", "bar"]);
const ROW: Omit<SheetRow, "path"> = { name: "", depth: 0, cells: [], kind: "", note: "", symbol: "", mark: "", closed: false, details: [] };
const CELL: Cell = { text: "", share: -1, flow: [], mark: "" };
const BLOCK: Block = { caption: "", prose: "", code: "", key: "", mark: "", head: [], rows: [], values: [], grid: false };
