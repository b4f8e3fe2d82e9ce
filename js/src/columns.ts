/** The columns of a table: what they are called, how wide they are, and which give way first. */

export interface Column {
  key: string;
  title: string;
  /** Pixels it needs at least. */
  width: number;
  /** Takes a share of what is left. */
  grows?: number;
  /** Numbers stand at the right. */
  right?: boolean;
  /** The higher, the earlier it gives way; 0 stays always. */
  yields: number;
}

const ALWAYS: readonly Column[] = [
  { key: "tensor", title: "tensor", width: 160, grows: 4, yields: 0 },
  { key: "kind", title: "kind", width: 74, yields: 2.5 },
  { key: "shape", title: "shape", width: 76, yields: 1 },
  { key: "dtype", title: "dtype", width: 52, yields: 5 },
  { key: "device", title: "device", width: 58, yields: 10 },
  { key: "bytes", title: "bytes", width: 70, right: true, yields: 2.3 },
  { key: "saved", title: "in state_dict", width: 92, yields: 8 },
  { key: "trained", title: "trained", width: 58, yields: 4 },
  { key: "gradient", title: "gradient", width: 66, yields: 3.5 },
];

const OPTIMIZER: readonly Column[] = [
  { key: "group", title: "optimizer", width: 104, grows: 1, yields: 3 },
  { key: "lr", title: "lr", width: 60, right: true, yields: 8.5 },
  { key: "decay", title: "weight decay", width: 90, right: true, yields: 11 },
  { key: "state", title: "its state", width: 110, grows: 1, yields: 12 },
];

/** Of tensors that lie over several ranks: what this rank holds, and how they lie. */
const SHARDED: readonly Column[] = [
  { key: "here", title: "here", width: 70, yields: 1.2 },
  { key: "placement", title: "placement", width: 110, yields: 2.4 },
];

const NOTE: Column = { key: "note", title: "tied to, notes", width: 100, grows: 1, yields: 2 };

/** Where tensors of a model differ in these, that is news: only what is shown for its own sake stays longer. */
const NEWS: Readonly<Record<string, number>> = { device: 2.1, dtype: 2.2 };
const UNIFORM = 20;

/** Pixels of a character in a cell; and what a cell may ask for that is shown whole. */
const CODE = 7.3;
const WIDEST = 190;

/**
 * `differs`: whether rows say different things in a column; one where all say the same gives way before any other.
 * `longest`: characters of the longest thing that is said in one; what does not grow is wide enough for it.
 */
export function columnsOf(optimizer: boolean, notes: boolean, differs: (key: string) => boolean, sharded = false, longest: (key: string) => number = () => 0): Column[] {
  const [tensor, kind, shape, ...rest] = ALWAYS as readonly [Column, Column, Column, ...Column[]];
  const columns = [tensor, kind, shape, ...(sharded ? SHARDED : []), ...rest, ...(optimizer ? OPTIMIZER : []), ...(notes ? [NOTE] : [])];
  return columns.map((column) => {
    const { key, grows, yields } = column;
    const width = grows ? column.width : Math.max(column.width, Math.min(WIDEST, CODE * longest(key)));
    return { ...column, width, yields: yields && (differs(key) ? (NEWS[key] ?? yields) : yields + UNIFORM) };
  });
}

const GAP = 10;
/** What a column that grows may ask of a narrow table. */
const MOST = 0.45;

/** Pixels of a table that has not been measured. */
export const UNMEASURED = 900;

/** What a column beside the names is cut to before it gives way as the last one. */
const LEAST = 64;

/**
 * The columns that have room in `width` pixels; what gives way, of equals the last first, is told in the panel beside the table.
 * A narrow one that tells news comes back where a wide one that yields later had to go as well.
 * The last one beside the names is cut rather than dropped: names alone tell nothing.
 */
export function fitting<C extends Column>(columns: readonly C[], width: number): C[] {
  let left = [...columns];
  const gone: C[] = [];
  const need = (some: readonly C[]): number => some.reduce((sum, column) => sum + (column.grows ? Math.min(column.width, MOST * width) : column.width) + GAP, GAP);
  const kept = (1 - MOST) * width < LEAST + 2 * GAP ? 1 : 2;
  while (need(left) > width && left.length > kept) {
    const yields = left.map((column) => column.yields);
    const most = Math.max(...yields);
    if (most <= 0) break;
    gone.unshift(...left.splice(yields.lastIndexOf(most), 1));
  }
  for (const column of gone) {
    const more = columns.filter((some) => some === column || left.includes(some));
    if (column.yields < UNIFORM && need(more) <= width) left = more;
  }
  return left;
}

/** Calls `changed` when the width of an element may have changed; gives what ends it. */
export function whenResized(target: HTMLElement, changed: () => void): () => void {
  const observer = typeof ResizeObserver === "function" ? new ResizeObserver(changed) : null;
  observer?.observe(target);
  return () => observer?.disconnect();
}

export function template(columns: readonly Column[]): string {
  return columns.map(({ width, grows }) => (grows ? `minmax(min(${width}px,${100 * MOST}%),${grows}fr)` : `minmax(${Math.min(LEAST, width)}px,${width}px)`)).join(" ");
}
