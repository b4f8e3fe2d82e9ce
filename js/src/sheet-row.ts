/** The rows of a sheet as elements: the head, and a row with its name and its cells. */
import { element, named, words } from "./elements";
import { flow, flowText } from "./flow";
import type { Folds } from "./folds";
import { sign } from "./marks";
import { chevron, indent, symbol } from "./row-head";
import { cellOf, type Cell, type SheetColumn, type SheetPayload, type SheetRow } from "./sheet";
import { rowId } from "./walker";

export function sheetHeads(sheet: SheetPayload, columns: readonly SheetColumn[]): HTMLElement[] {
  return columns.map((column) => element("span", { role: "columnheader", "aria-colindex": sheet.columns.indexOf(column) + 1, class: column.right ? "right" : null }, words(column.title)));
}

/** A name of several words and no sign: none that could be typed. */
const WORDED = /^[\p{L}\d',-]+( [\p{L}\d',-]+)+$/u;

/** The row that stands at `index` in the list. */
export function sheetRow(sheet: SheetPayload, columns: readonly SheetColumn[], folds: Folds, index: number, selected: boolean): HTMLElement {
  const number = folds.rows[index] as number;
  const row = sheet.rows[number] as SheetRow;
  const level = folds.levels[number] as number;
  const open = folds.isOpen(number);
  return element(
    "div",
    {
      role: "row",
      id: rowId(index),
      "data-index": index,
      class: `row${selected ? " selected" : ""}${row.mark && ` is-${row.mark}`}`,
      "aria-rowindex": index + 2,
      "aria-level": level + 1,
      "aria-posinset": folds.positions[number],
      "aria-setsize": folds.below(folds.parents[number] as number),
      "aria-expanded": open === null ? null : String(open),
      "aria-selected": String(selected),
      "aria-label": spoken(sheet, row),
    },
    ...columns.map((column) => {
      const attributes = { role: "gridcell", "aria-colindex": sheet.columns.indexOf(column) + 1 };
      return column.key === "name" ? element("span", { ...attributes, class: "module", title: [row.name, row.kind, row.note].filter(Boolean).join(" ").slice(0, 2000) }, ...nameCell(row, columns, level, open)) : filledCell(element("span", attributes), row, column);
    }),
  );
}

/** The sign takes the place of the symbol where there is none; it stands before the note unless a cell has it. */
function nameCell(row: SheetRow, columns: readonly SheetColumn[], level: number, open: boolean | null): (HTMLElement | null)[] {
  const said = columns.some((column) => cellOf(row, column).mark === row.mark);
  const absent = row.symbol === "ghost" || row.mark === "absent";
  return [
    indent(level),
    chevron(open),
    row.symbol ? symbol(absent ? "dashed" : row.symbol) : sign(row.mark),
    WORDED.test(row.name) ? words(row.name, "name worded") : named(row.name),
    row.kind ? words(row.kind, "type") : null,
    row.symbol && !said && !absent ? sign(row.mark) : null,
    row.note ? words(row.note, "remark") : null,
  ];
}

function filledCell(made: HTMLElement, row: SheetRow, column: SheetColumn): HTMLElement {
  const cell = cellOf(row, column);
  made.className = `cell cell-${column.kind} ${column.right ? "right" : ""} ${cell.flow.length ? "" : cell.mark}`;
  made.title = (flowText(cell.flow) || cell.text).slice(0, 2000);
  if (column.kind === "flow") made.append(...flow(cell));
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
