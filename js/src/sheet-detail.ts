/** What there is to know about one row of a sheet, and what columns had no room. */
import { blocks } from "./blocks";
import type { Context } from "./context";
import { element, lines, words } from "./elements";
import { pairs } from "./facts";
import { sign } from "./marks";
import { shown } from "./names";
import type { Numbers } from "./payload";
import { blocksOf, cellOf, type SheetColumn, type SheetRow } from "./sheet";
import { cellText } from "./sheet-row";

/** A column that a detail tells by the same name is not told again. */
export function rowDetail(row: SheetRow, gone: readonly SheetColumn[], numbers: Numbers, context: Context): HTMLElement[] {
  const place = row.path === null ? null : shown(row.path);
  const isPlace = place?.endsWith(row.name) === true;
  const known = new Set(blocksOf(row.details).flatMap(({ head, rows }) => (head.length ? [] : rows.map((row) => row?.[0]))));
  const told = gone.map((column) => [column.title, cellText(cellOf(row, column))] as const).filter(([name, text]) => text && !known.has(name));
  if (place && !isPlace) told.unshift(["module", place]);
  const title = (isPlace ? place : row.name) || "row";
  const parts = [
    element("h3", { class: "path" }, lines(title, "", 500)),
    row.kind || row.note
      ? element("p", {}, words(row.kind, "type"), " ", row.note ? sign(row.mark) : null, row.note && row.mark ? " " : null, lines(row.note, row.mark || "soft", 2000))
      : null,
    told.length ? pairs(told) : null,
    ...blocks(row.details, numbers, context, title),
  ];
  return parts.filter((part) => part !== null);
}

/** What the key copies: the first code that the details hold, else the row's path or name. */
export function codeOf(row: SheetRow): string {
  return blocksOf(row.details).find((block) => block.code)?.code ?? (row.path || row.name);
}
