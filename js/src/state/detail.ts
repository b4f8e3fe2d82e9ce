/** What there is to know about one tensor of a state: every column, its values, how to get it. */
import type { Column } from "../columns";
import type { Context } from "../context";
import { element, lines } from "../elements";
import { howToGet, pairs } from "../facts";
import { attribute, isPlain, partAt, quoted } from "../names";
import { completeValues, type Numbers, type StatePayload } from "../payload";
import { noteOf, textOf, type StateRow, type StateTable } from "./table";
import { askFor, noValues, valuesPanel } from "../values/panel";

export function tensorDetail(table: StateTable, row: StateRow, columns: readonly Column[], numbers: Numbers, context: Context): HTMLElement[] {
  const path = table.path(row);
  const values = element("div", { class: "values" });
  fill(table.payload, path, row, values, numbers, context);
  const get = row.signature.kind === "value" ? [] : [howToGet(codeFor(table, row), context)];  // a plain number of a file is all there
  return [element("p", { class: "path" }, lines(path, "", 500)), facts(table, row, columns), values, ...get];
}

/** All columns, those too that have no room in the table. */
function facts(table: StateTable, row: StateRow, columns: readonly Column[]): HTMLElement {
  const told = columns.filter(({ key }) => key !== "tensor" && key !== "note").map(({ key, title }) => [title, textOf(table, row, key)] as const);
  return pairs([...told, ...row.signature.sharding.filter(([name]) => !["shape", "placement", "this rank's part"].includes(name)), ["note", noteOf(table, row)] as const].filter(([, text]) => text && text !== "–"));
}

function fill(payload: StatePayload, path: string, row: StateRow, box: HTMLElement, numbers: Numbers, context: Context): void {
  const values = completeValues(payload.values[path]);
  if (values) box.replaceChildren(...valuesPanel("values", values, numbers, context));
  else if (row.signature.kind === "reserved") box.replaceChildren(...noValues("values", "a reserved name: it is None, there is nothing to measure"));
  else if (context.ask) void askFor("values", path, box, context);
  else box.replaceChildren(...noValues("values", payload.valuesNote || "the values are not in this output"));
}

/** The line that gets what stands in a row. */
export function codeFor(table: StateTable, row: StateRow): string {
  const { variable, code } = table.payload;
  const { kind, saved } = row.signature;
  const path = quoted(table.path(row));
  if (kind === "value") return code;
  if (kind === "parameter" || kind === "buffer") return partAt(table.payload, kind, table.path(row));
  if (kind === "reserved" || (kind === "attribute" && isPlain(row.name))) return attribute(partAt(table.payload, "submodule", table.ownerPath(row.owner)), row.name);
  if (kind !== "tensor" && saved) return `${variable}.state_dict()[${path}]`;  // written by the module itself
  return `${code}[${path}]`;
}
