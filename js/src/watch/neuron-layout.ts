/** Where the units of a small net stand: one column a layer, the inputs first, each column in the middle. */

/** Units of one layer, at equal distances. */
export interface Column {
  x: number;
  /** The middle of the first unit. */
  top: number;
  pitch: number;
  count: number;
  radius: number;
}

export interface Layout {
  width: number;
  height: number;
  columns: readonly Column[];
  /** The room between two columns. */
  gap: number;
  /** Words have room under each unit. */
  roomy: boolean;
}

const HIGHEST = 448;
const WIDEST_GAP = 230;
const NAMES = 22;
/** Under the lowest unit. */
const WORDS = 14;
const MARGIN = 24;

/** `counts` begins with the inputs. */
export function layoutOf(counts: readonly number[], width: number): Layout {
  const most = Math.max(1, ...counts);
  const pitch = Math.min(60, Math.max(7, HIGHEST / most));
  const inner = Math.max((most - 1) * pitch, Math.min(80, pitch));
  const side = Math.min(64, width * 0.1);
  const gap = Math.min(WIDEST_GAP, (width - 2 * side) / Math.max(1, counts.length - 1));
  const left = (width - gap * (counts.length - 1)) / 2;
  const columns = counts.map((count, index): Column => {
    const own = count < 2 ? pitch : Math.min(60, inner / (count - 1));
    const radius = Math.min(13, Math.max(2.4, own * 0.33), gap / 5);
    return { x: left + index * gap, top: MARGIN + (inner - own * Math.max(0, count - 1)) / 2, pitch: own, count, radius: index ? radius : radius * 0.55 };
  });
  const roomy = pitch >= 44 && gap >= 90;
  return { width, height: inner + 1.5 * MARGIN + NAMES + (roomy ? WORDS : 0), columns, gap, roomy };
}

export function yOf(column: Column, unit: number): number {
  return column.top + unit * column.pitch;
}

export type Spot = readonly [column: number, unit: number];

/** The unit at or next to a point, if one is near. */
export function unitAt({ columns }: Layout, x: number, y: number): Spot | null {
  let [found, least]: [Spot | null, number] = [null, Number.POSITIVE_INFINITY];
  columns.forEach((column, index) => {
    const unit = Math.min(column.count - 1, Math.max(0, Math.round((y - column.top) / column.pitch)));
    const away = Math.hypot(x - column.x, y - yOf(column, unit));
    if (column.count > 0 && away < least && away <= Math.max(10, column.radius + 5)) [found, least] = [[index, unit], away];
  });
  return found;
}

/** From one unit to the next by an arrow key: to the unit at the same height in the next layer. */
export function walked({ columns }: Layout, [column, unit]: Spot, key: string): Spot | null {
  const here = columns[column];
  if (!here) return null;
  const within = (to: number): Spot => [column, Math.min(here.count - 1, Math.max(0, to))];
  if (key === "ArrowUp") return within(unit - 1);
  if (key === "ArrowDown") return within(unit + 1);
  if (key === "Home") return within(0);
  if (key === "End") return within(here.count - 1);
  if (key !== "ArrowLeft" && key !== "ArrowRight") return null;
  const next = Math.min(columns.length - 1, Math.max(0, column + (key === "ArrowLeft" ? -1 : 1)));
  const there = columns[next] as Column;
  if (next === column || !there.count) return [column, unit];
  return [next, Math.min(there.count - 1, Math.max(0, Math.round((yOf(here, unit) - there.top) / there.pitch)))];
}
