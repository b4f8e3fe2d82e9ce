/** What the search box finds in a sheet: words in names, kinds, notes, paths and cells, sizes of tensors, marks. */
import { sizesOf } from "./flow";
import { shown } from "../names";
import { hasSizes, type Word } from "../search/query";
import { cellOf, type SheetPayload, type SheetRow } from "./sheet";
import { cellText } from "./row";

export class SheetSearch {
  readonly #sheet: SheetPayload;
  /** Made when first asked for. */
  #texts: string[] | null = null;

  constructor(sheet: SheetPayload) {
    this.#sheet = sheet;
  }

  /** Whether all words hold for a row, and one of the marks if there are any. */
  holds(index: number, words: readonly Word[], marks: readonly string[]): boolean {
    const row = this.#sheet.rows[index] as SheetRow;
    this.#texts ??= this.#sheet.rows.map((some) => textOf(this.#sheet, some));
    const text = this.#texts[index] ?? "";
    return (!marks.length || marks.some((mark) => marksOf(row).includes(mark))) && words.every((word) => says(this.#sheet, row, text, word));
  }
}

/** The marks of a row and of its cells. */
export function marksOf(row: SheetRow): string[] {
  return [row.mark, ...row.cells.map((cell) => (cell as { mark?: string } | null)?.mark ?? "")];
}

function textOf(sheet: SheetPayload, row: SheetRow): string {
  const cells = sheet.columns.slice(1).map((column) => cellText(cellOf(row, column)));
  return [row.name, row.kind, row.note, row.path === null ? "" : shown(row.path), row.mark, ...cells].join("\n").toLowerCase();
}

function says(sheet: SheetPayload, row: SheetRow, text: string, word: Word): boolean {
  if (word.path?.glob) return word.path.matches(row.path ?? row.name);
  const { sizes } = word;
  return text.includes(word.text) || (sizes !== null && sheet.columns.some((column) => cellOf(row, column).flow.some((part) => typeof part !== "string" && hasSizes(sizesOf(part), sizes))));
}
