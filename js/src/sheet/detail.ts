/** What there is to know about one row of a sheet, and what columns had no room. */
import { blocks } from "./blocks";
import type { Context } from "../context";
import { element, lines, words } from "../elements";
import { pairs } from "../facts";
import { sign } from "./marks";
import { shown } from "../names";
import type { Numbers } from "../payload";
import { blocksOf, cellOf, saying, type SheetColumn, type SheetRow } from "./sheet";
import { cellText, isSaid } from "./row";

/** `gone` are the columns that are cut or have no room; what a detail tells is not told again. */
export function rowDetail(row: SheetRow, columns: readonly SheetColumn[], gone: readonly SheetColumn[], numbers: Numbers, context: Context): HTMLElement[] {
  const place = row.path === null ? null : shown(row.path);
  const isPlace = place?.endsWith(row.name) === true;
  const details = blocksOf(row.details);
  const known = new Set(details.flatMap(({ head, rows }) => (head.length ? [] : rows.map((row) => row?.[0]))));
  const isKnown = (text: string): boolean => details.some(({ prose, code }) => prose.includes(text) || code === text);
  const told = gone.map((column) => [column.title, cellText(cellOf(row, column)), saying(row, column)] as const)
    .filter(([name, text, said]) => text && !known.has(name) && !isKnown(said ?? text))
    .map(([name, text]) => [name, text] as const);
  if (place && !isPlace) told.unshift(["module", place]);
  const title = (isPlace ? place : row.name) || "row";
  const kind = row.kind === row.name ? "" : row.kind;
  const mark = isSaid(row, columns) ? "" : row.mark;
  const parts = [
    element("p", { class: "path" }, lines(title, "", 500)),
    kind || row.note
      ? element("p", {}, words(kind, "type"), " ", row.note ? sign(mark) : null, row.note && mark ? " " : null, lines(row.note, mark || "soft", 2000))
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
