/** The rows of a sheet as elements: the head, and a row with its name and its cells. */
import { element, named, words } from "../elements";
import { flow, flowText } from "./flow";
import { sign } from "./marks";
import { chevron, indent, symbol } from "../row-head";
import { cellOf, saying, type Cell, type SheetColumn, type SheetPayload, type SheetRow } from "./sheet";

export function sheetHeads(sheet: SheetPayload, columns: readonly SheetColumn[]): HTMLElement[] {
  return columns.map((column) => element("span", { role: "columnheader", "aria-colindex": sheet.columns.indexOf(column) + 1, class: column.right ? "right" : null }, words(column.title)));
}

/** A name of several words and no sign: none that could be typed. */
const WORDED = /^[\p{L}\d',-]+( [\p{L}\d',-]+)+$/u;

/** `level`: how many rows it is inside of. */
export function sheetRow(sheet: SheetPayload, columns: readonly SheetColumn[], row: SheetRow, level: number): HTMLElement {
  return element(
    "div",
    { role: "row", class: `row${row.mark && ` is-${row.mark}`}${isSaid(row, columns) ? " said" : ""}`, "aria-label": spoken(sheet, row) },
    ...columns.flatMap((column) => {
      const attributes = { role: "gridcell", "aria-colindex": sheet.columns.indexOf(column) + 1 };
      if (column.key === "name") return [element("span", { ...attributes, class: "module", title: [row.name, row.kind, row.note].filter(Boolean).join(" ").slice(0, 2000) }, ...nameCell(row, columns, level))];
      const cell = filledCell(element("span", attributes), row, column);
      const below = saying(row, column);
      return below === null ? [cell] : [cell, element("span", { ...attributes, class: "below broken", title: below.slice(0, 2000), style: `--depth:${level}` }, words(below, "", BELOW))];
    }),
  );
}

/** Characters of what went wrong that stand below a row. */
const BELOW = 400;
/** Pixels of a line there, of one of its characters, of what stands before it, and of one indent. */
const [LINE, LETTER, BESIDE, STEP] = [18, 7, 56, 16];
const LINES = 3;

/** Pixels that a row, inside of `level` others, needs beyond its first line where it is `width` pixels wide. */
export function extra(sheet: SheetPayload, row: SheetRow, level: number, width: number): number {
  const text = sheet.columns.reduce((found, column) => found || (saying(row, column) ?? ""), "").slice(0, BELOW);
  return text ? LINE * Math.min(LINES, Math.ceil((LETTER * text.length) / Math.max(100, width - BESIDE - Math.min(0.32 * width, STEP * level)))) + 4 : 0;
}

/** Whether a cell says what the row's mark stands for. */
export function isSaid(row: SheetRow, columns: readonly SheetColumn[]): boolean {
  return row.mark !== "" && columns.some((column) => cellOf(row, column).mark === row.mark || saying(row, column) !== null);
}

/** The sign takes the place of the symbol where there is none; it stands before the note unless a cell has it. */
function nameCell(row: SheetRow, columns: readonly SheetColumn[], level: number): (HTMLElement | null)[] {
  const said = isSaid(row, columns);
  const absent = row.symbol === "ghost" || row.mark === "absent";
  return [
    indent(level),
    chevron(),
    row.symbol ? symbol(absent ? "dashed" : row.symbol) : sign(row.mark),
    WORDED.test(row.name) ? words(row.name, "name worded") : row.name.includes(".") ? named(row.name) : words(row.name, "name"),
    row.kind && row.kind !== row.name ? words(row.kind, "type") : null,
    row.symbol && !said && !absent ? sign(row.mark) : null,
    row.note ? words(row.note, "remark") : null,
  ];
}

function filledCell(made: HTMLElement, row: SheetRow, column: SheetColumn): HTMLElement {
  const cell = cellOf(row, column);
  made.className = `cell cell-${column.kind} ${column.right ? "right" : ""} ${cell.flow.length ? "" : cell.mark}`;
  made.title = (flowText(cell.flow) || cell.text).slice(0, 2000);
  if (column.kind === "flow") made.append(...flow(cell, saying(row, column) !== null));
  else {
    const marked = sign(cell.mark);
    made.append(...(marked ? [marked, " "] : []), words(cell.text, "text"));
  }
  if (cell.share >= 0) share(made, cell.share, row.symbol, column.kind === "bar");
  return made;
}

/** Beside the text where the column is there for it, else behind it. */
function share(cell: HTMLElement, part: number, kind: string, beside: boolean): void {
  const percent = `${(100 * Math.min(1, part)).toFixed(2)}%`;
  if (!beside) {
    cell.classList.add("shared");
    return cell.style.setProperty("--share", percent);
  }
  const bar = element("i", { class: kind.slice(0, 20) });
  bar.style.width = part ? `max(1px, ${percent})` : "0";
  cell.append(element("span", { class: "share" }, bar));
}

/** What a cell says. */
export function cellText({ text, flow }: Cell): string {
  return text || flowText(flow);
}

/** The row in words, for a screen reader. */
function spoken(sheet: SheetPayload, row: SheetRow): string {
  const cells = sheet.columns.slice(1).map((column) => {
    const cell = cellOf(row, column);
    const text = cellText(cell);
    return text && [column.title, cell.mark, text.slice(0, 200)].filter(Boolean).join(" ");
  });
  return [row.name.slice(0, 200), row.kind.slice(0, 200), row.mark, row.note.slice(0, 300), ...cells].filter(Boolean).join(", ");
}
