/** Rows that have depth, as the reader has opened them. All of it is arrays of numbers: there may be 10,000 rows. */
import type { Listed, Standing } from "../walker";

export interface Folded {
  readonly depth: number;
  readonly closed: boolean;
}

/** A row that stays, and one that stays open. */
const KEPT = 1;
const WAY = 2;

export class Folds implements Listed<number> {
  readonly #kept: Uint8Array | null;
  /** The row above each, −1 at the top. */
  readonly parents: Int32Array;
  /** The first row behind all that is below each. */
  readonly ends: Int32Array;
  /** How many rows are above each. */
  readonly levels: Int32Array;
  /** The place of each among its neighbours, from 1. */
  readonly positions: Int32Array;
  /** How many children the row before each has; the first is how many stand at the top. */
  readonly #sizes: Int32Array;
  readonly #shut: Uint8Array;
  #made: number[] | null = null;

  /** Of all rows, or of those that are `kept`. */
  constructor(rows: readonly Folded[], kept: Uint8Array | null = null) {
    this.#kept = kept;
    const { length } = rows;
    this.parents = new Int32Array(length).fill(-1);
    this.ends = new Int32Array(length).fill(length);
    this.levels = new Int32Array(length);
    this.positions = new Int32Array(length);
    this.#sizes = new Int32Array(length + 1);
    this.#shut = Uint8Array.from(rows, ({ closed }, row) => Number(kept ? kept[row] !== WAY : closed));
    const above: number[] = [];
    rows.forEach(({ depth }, row) => {
      if (kept && !kept[row]) return;
      while (above.length && (rows[above[above.length - 1] as number] as Folded).depth >= depth) this.ends[above.pop() as number] = row;
      const parent = above[above.length - 1] ?? -1;
      this.parents[row] = parent;
      this.levels[row] = above.length;
      this.positions[row] = this.#sizes[parent + 1] = this.below(parent) + 1;
      above.push(row);
    });
  }

  /** The rows that are inside no closed one, in order. */
  get rows(): readonly number[] {
    return (this.#made ??= this.#listed());
  }

  get length(): number {
    return this.rows.length;
  }

  at(index: number): number | undefined {
    return this.rows[index];
  }

  standing(index: number): Standing {
    const row = this.rows[index] as number;
    return { level: (this.levels[row] as number) + 1, position: this.positions[row] as number, size: this.below(this.parents[row] as number) };
  }

  above(row: number): number | null {
    const parent = this.parents[row] as number;
    return parent < 0 ? null : parent;
  }

  /** Where a row stands among those, or −1. */
  indexOf(row: number): number {
    let low = 0;
    let high = this.rows.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.rows[middle] as number) < row) low = middle + 1;
      else high = middle;
    }
    return this.rows[low] === row ? low : -1;
  }

  /** How many children a row has; −1: how many rows stand at the top. */
  below(row: number): number {
    return this.#sizes[row + 1] ?? 0;
  }

  /** Whether a row is open; null where there is nothing to open. */
  isOpen(row: number): boolean | null {
    return this.below(row) ? !this.#shut[row] : null;
  }

  open(row: number, open = true): void {
    this.#shut[row] = Number(!open);
    this.#made = null;
  }

  openSiblings(row: number): void {
    const parent = this.parents[row];
    this.parents.forEach((above, other) => above === parent && this.open(other));
  }

  /** Opens all that a row is inside of; gives the row. */
  reveal(row: number): number {
    for (let above = this.above(row); above !== null; above = this.above(above)) this.open(above);
    return row;
  }

  #listed(): number[] {
    const rows: number[] = [];
    for (let row = 0; row < this.#shut.length; ) {
      const isHere = !this.#kept || this.#kept[row];
      if (isHere) rows.push(row);
      row = isHere && this.isOpen(row) === false ? (this.ends[row] as number) : row + 1;
    }
    return rows;
  }
}

/** The rows that hold, and what leads there; what is below one of them stays with it, closed. */
export function sifted(rows: readonly Folded[], whole: Folds, holds: (row: number) => boolean): { folds: Folds; hits: Uint8Array; count: number } {
  const kept = new Uint8Array(rows.length);
  const hits = new Uint8Array(rows.length);
  let count = 0;
  for (let row = rows.length - 1; row >= 0; row -= 1) {
    if (!holds(row)) continue;
    count += 1;
    hits[row] = 1;
    if (!kept[row]) kept.fill(KEPT, row, whole.ends[row]);
    for (let above = whole.above(row); above !== null && kept[above] !== WAY; above = whole.above(above)) kept[above] = WAY;
  }
  return { folds: new Folds(rows, kept), hits, count };
}
