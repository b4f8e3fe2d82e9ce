/** How wide the columns of a sheet are: by what stands in them. What decides never gives way first. */
import type { Column } from "../columns";
import { flowLength } from "./flow";
import { cellOf, saying, type SheetColumn, type SheetPayload, type SheetRow } from "./sheet";

/** Pixels of one character in the fonts of a row, where they are wide: of what can be typed, of words, of notes, of heads. */
const CODE = 7.3;
const WORDS = 8;
const NOTE = 7;
const HEAD = 7.5;
const SIGN = 17;
/** A bar beside its number, and what it is cut to. */
const [BAR, SHORTEST] = [40, 18];
const GAP = 10;
/** At both ends of a row. */
const EDGES = 20;
/** An indent, and what it is where the sheet is narrower than so many pixels (as sheet.css has it). */
const [STEP, SHORT_STEP, NARROW] = [16, 9, 430];
const STEPS = 12;
/** From so many pixels on, one column beside the names stays, and the names are cut: alone they tell nothing. */
const CRAMPED = 200;
/** No cell asks for more. */
const MOST = 700;
/** What may be asked of a narrow sheet: by the names alone, by them where no other column decides, by them with their kinds; */
const [NAMES, ALONE, KINDS] = [0.5, 0.66, 0.36];
/** by what decides, by any other column. */
const [DECIDES, OTHER] = [0.45, 0.3];
/** Of what a thing is, so many characters do not give way. */
const KIND = 12;
/** So many rows are looked at: of more, what the others need is not asked. */
const ROWS = 2000;

/** Pixels that a column cannot do without, and that show all of it; of the first column, those of the bare names. */
interface Need {
  least: number;
  whole: number;
  names: number;
}

export class SheetColumns {
  readonly #sheet: SheetPayload;
  readonly #levels: ArrayLike<number>;
  #needs: ReadonlyMap<SheetColumn, Need> = new Map();
  #step = 0;
  /** Whether a column beside the names stays always. */
  readonly #decided: boolean;
  /** Pixels of the columns that have room; what gives way, equals together, is told beside the table. */
  shown: ReadonlyMap<SheetColumn, number> = new Map();

  /** `levels`: of each row, how many it is inside of. */
  constructor(sheet: SheetPayload, levels: ArrayLike<number>, width: number) {
    this.#sheet = sheet;
    this.#levels = levels;
    this.#decided = sheet.columns.some((column) => column.key !== "name" && column.yields <= 0);
    this.fit(width);
  }

  /** Shares `width` pixels; whether other columns have room than before. */
  fit(width: number): boolean {
    const step = width < NARROW ? SHORT_STEP : STEP;
    if (step !== this.#step) {
      this.#step = step;
      this.#needs = new Map(this.#sheet.columns.map((column) => [column, this.#need(column)] as const).filter(([column, { whole }]) => whole > 0 || column.key === "name"));
    }
    const before = [...this.shown.keys()];
    const left = [...this.#needs.keys()];
    // What is merely good to know gives way to the names with their notes, what matters to the names alone.
    const fewest = width < CRAMPED ? 1 : 2;
    for (const [above, names] of [[1, NAMES * width], [0, 0]] as const) {
      while (left.length > fewest && this.#least(left, width, names) > width) {
        const yields = left.map((column) => column.yields);
        const most = Math.max(...yields);
        if (most <= above) break;
        // Two sides of one thing go together.
        for (let at = left.length - 1; at >= 0 && left.length > fewest; at -= 1) if (yields[at] === most) left.splice(at, 1);
      }
    }
    this.shown = this.#shared(left, width);
    return before.length !== left.length || before.some((column, index) => column !== left[index]);
  }

  template(): string {
    return [...this.shown].map(([{ grows }, width]) => (grows ? `minmax(0,${Math.round(width)}fr)` : `${Math.round(width)}px`)).join(" ");
  }

  /** Whether a column of a row is not to be seen whole; a bar may be short. */
  isCut(number: number, column: SheetColumn): boolean {
    return (this.shown.get(column) ?? 0) < this.#asked(number, column) - (column.kind === "bar" ? BAR - SHORTEST : 0);
  }

  /** `names`: what the names may ask for, where it is more than they need at least. */
  #least(columns: readonly SheetColumn[], width: number, names: number): number {
    const asked = (column: SheetColumn): number => (column.key === "name" ? Math.min(names, (this.#needs.get(column) as Need).whole) : 0);
    return columns.reduce((sum, column) => sum + Math.max(asked(column), this.#floor(column, width)) + GAP, EDGES - GAP);
  }

  #floor(column: SheetColumn, width: number): number {
    const { least, names } = this.#needs.get(column) as Need;
    if (column.key === "name") return Math.max(Math.min(names, (this.#decided ? NAMES : ALONE) * width), Math.min(least, KINDS * width));
    return Math.min(least, (column.yields ? OTHER : DECIDES) * width);
  }

  /** Who needs little gets it; who needs more shares what is left of that, and nobody gets less than the least. */
  #shared(columns: readonly SheetColumn[], width: number): Map<SheetColumn, number> {
    const free = width - EDGES - GAP * (columns.length - 1);
    const wanted = columns.map((column): [number, number] => {
      const floor = this.#floor(column, width);
      return [floor, Math.max(floor, (this.#needs.get(column) as Need).whole)];
    });
    const over = wanted.reduce((sum, [floor]) => sum + floor, -free);
    const [first] = wanted;
    if (first && over > 0) first[0] = Math.max(0, first[0] - over);
    if (first && over > 0) first[1] = first[0];
    const given = (level: number): number[] => wanted.map(([floor, whole]) => Math.min(whole, Math.max(floor, level)));
    const sum = (widths: readonly number[]): number => widths.reduce((all, one) => all + one, 0);
    let [low, high] = [0, MOST];
    for (let turn = 0; turn < 12; turn += 1) {
      const middle = (low + high) / 2;
      if (sum(given(middle)) > free) high = middle;
      else low = middle;
    }
    const widths = given(low);
    const spare = Math.max(0, free - sum(widths));
    const grows = columns.reduce((all, column) => all + (column.grows ?? 0), 0);
    return new Map(columns.map((column, index) => [column, (widths[index] as number) + (grows ? (spare * (column.grows ?? 0)) / grows : 0)]));
  }

  #need(column: SheetColumn): Need {
    const need = { least: 0, whole: 0, names: 0 };
    for (let number = 0; number < Math.min(ROWS, this.#sheet.rows.length); number += 1) {
      need.whole = Math.max(need.whole, this.#asked(number, column));
      if (column.key !== "name") continue;
      need.least = Math.max(need.least, this.#bareName(number, KIND));
      need.names = Math.max(need.names, this.#bareName(number, 0));
    }
    if (!need.whole) return need;
    need.whole = Math.max(need.whole, HEAD * column.title.length + 2);
    if (column.key !== "name") need.least = Math.min(column.width, need.whole - (column.kind === "bar" ? BAR - SHORTEST : 0));
    return need;
  }

  #asked(number: number, column: SheetColumn): number {
    const row = this.#sheet.rows[number] as SheetRow;
    return Math.min(MOST, column.key === "name" ? this.#name(number, row) : cellLength(row, column));
  }

  /** What stands before a name, the name, and what it is. */
  #bareName(number: number, most = MOST): number {
    const { name, kind, symbol } = this.#sheet.rows[number] as SheetRow;
    const before = Math.min(STEPS, this.#levels[number] ?? 0) * this.#step + 14 + 5 + (symbol ? 15 : SIGN);
    return before + CODE * name.length + (most && kind && kind !== name ? 5 + WORDS * Math.min(most, kind.length) : 0);
  }

  #name(number: number, row: SheetRow): number {
    const sign = row.mark && row.symbol ? SIGN : 0;
    return this.#bareName(number) + sign + (row.note ? 8 + NOTE * row.note.length : 0);
  }
}

function cellLength(row: SheetRow, column: Column & { kind: string }): number {
  const cell = cellOf(row, column);
  if (column.kind === "flow") return cell.flow.length ? flowLength(cell, saying(row, column) !== null, CODE, NOTE) : NOTE * cell.text.length;
  const text = (cell.mark ? SIGN : 0) + (column.kind === "words" ? WORDS : CODE) * cell.text.length;
  return column.kind === "bar" ? (cell.text ? Math.max(7 * CODE, text) + BAR : 0) : text;
}
