/** The rows of the state table as elements: the head, a tensor, and the lines between. */
import type { Column } from "../columns";
import { element, named, words } from "../elements";
import { mark } from "../list";
import { counted, shown } from "../names";
import { textOf, type Item, type Sorting, type StateRow, type StateTable } from "./table";

export interface Layout {
  /** The columns that have room, and all there are. */
  columns: readonly Column[];
  all: readonly Column[];
  grouped: boolean;
}

/** The id of a cell, by which the grid names the one that has the focus; row −1 is the head. */
export function cellId(row: number, column: number): string {
  return `cell-${row}-${column}`;
}

export function headCells({ columns, all }: Layout, sorting: Sorting | null): HTMLElement[] {
  return columns.map((column, index) => {
    const order = sorting?.column === column.key ? (sorting.down ? "descending" : "ascending") : "none";
    const sign = { none: "", ascending: " ▴", descending: " ▾" }[order];
    const attributes = { role: "columnheader", id: cellId(-1, index), "aria-colindex": all.indexOf(column) + 1, "aria-sort": order, "data-column": index, class: column.right ? "right" : null };
    return element("span", attributes, column.title + sign);
  });
}

export function itemRow(table: StateTable, item: Item, index: number, layout: Layout, selected: boolean): HTMLElement {
  const made = element("div", { role: "row", "aria-rowindex": index + 2, "data-index": index });
  if (item.kind === "tensor") {
    made.className = `row${item.row.signature.kind === "reserved" ? " reserved" : ""}`;
    made.append(...layout.columns.map((column, at) => cell(table, item.row, column, cellId(index, at), at, layout)));
    mark(made, selected);
  } else {
    made.className = `row ${item.kind}`;
    made.append(element("span", { role: "gridcell", id: cellId(index, 0), "aria-colspan": layout.all.length }, ...between(table, item)));
  }
  return made;
}

function between(table: StateTable, item: Item): (HTMLElement | string)[] {
  if (item.kind !== "group") return ["not in the state_dict"];
  const type = table.owners[item.owner]?.type ?? "";
  return [words(shown(table.ownerPath(item.owner)), "name"), " ", words(type, "type"), " ", element("span", { class: "faint" }, counted(item.count, "tensor"))];
}

function cell(table: StateTable, row: StateRow, column: Column, id: string, at: number, layout: Layout): HTMLElement {
  const { mark: wrong, saved } = row.signature;
  const tone = column.key === "group" && wrong ? " careful" : column.key === "saved" && !saved ? " soft" : "";
  const made = element("span", { role: "gridcell", id, "aria-colindex": layout.all.indexOf(column) + 1, "data-column": at, class: `cell-${column.key}${column.right ? " right" : ""}${tone}` });
  made.append(...(column.key === "tensor" ? tensorName(table, row, layout) : [words(textOf(table, row, column.key))]));
  return made;
}

/** The owner's path faint, the name bold; a mark whose column has no room stands here as its sign. */
function tensorName(table: StateTable, row: StateRow, { columns, grouped }: Layout): HTMLElement[] {
  const owner = grouped ? "" : table.ownerPath(row.owner);
  const parts = owner ? [element("span", { class: "owner" }, words(`${owner}.`))] : [];
  parts.push(named(row.name));
  const wrong = row.signature.mark;
  if (wrong && !columns.some(({ key }) => key === "group")) parts.push(element("span", { class: "careful", title: wrong, role: "img", "aria-label": wrong }, "⚠"));
  return parts;
}
