/** Blocks of a sheet: what is said of the selected row, and below the table. */
import type { Context } from "../context";
import { apart, element, lines, words } from "../elements";
import { howToGet, pairs, table } from "../facts";
import { sign } from "./marks";
import { completeValues, type Numbers } from "../payload";
import { blocksOf, type Block } from "./sheet";
import { valuesPanel } from "../values/panel";

const PROSE = 4000;
/** A caption that is all words; a name or a shape in one keeps its letters. */
const PLAIN = /^[a-z]{3}[a-z ,]*$/i;

/** Below a `title`, which is not said again; the first code there is what the key copies. */
export function blocks(given: readonly unknown[], numbers: Numbers, context: Context, title = ""): HTMLElement[] {
  const all = blocksOf(given);
  const copied = title ? all.find((block) => block.code) : null;
  return all.map((block) => {
    const { mark, prose, code, key, head, rows, grid } = block;
    const caption = block.caption === title ? "" : block.caption;
    return element(
      "section",
      { class: "block" },
      caption || mark ? element("p", { class: "caption" }, sign(mark), mark ? " " : null, words(caption, PLAIN.test(caption) ? "plainly" : "")) : null,
      ...prose.split("\n").map((line) => line && element("p", { class: "prose" }, lines(line, "", PROSE))),
      head.length || rows.length ? (grid ? numbered(rows) : listed(head, rows)) : null,
      code ? howToGet(code, context, block === copied ? "c copies" : key ? `${key} copies` : "copy") : null,
      values(block, numbers, context),
    );
  });
}

type Rows = readonly (readonly string[])[];

/** So many characters of a cell stay in one line. */
const WHOLE = 32;

function listed(head: readonly string[], rows: Rows): HTMLElement {
  const texts = textsOf(rows);
  if (!head.length && texts.every((row) => row.length === 2)) return pairs(texts as unknown as [string, string][]);
  const cell = (text: string, column: number): HTMLElement => element("td", { "data-title": head[column] || null, class: text.length > WHOLE ? "long" : text ? null : "none" }, text.length > WHOLE ? apart(text) : words(text));
  const made = table(head, texts.map((row) => element("tr", {}, ...row.map(cell))));
  if (head.length) made.classList.add("listed");
  return made;
}

/** The numbers of a matrix, in brackets. */
function numbered(rows: Rows): HTMLElement {
  const body = element("tbody", {}, ...textsOf(rows).map((row) => element("tr", {}, ...row.map((text) => element("td", {}, words(text))))));
  return element("div", { class: "brackets" }, element("table", { class: "matrix" }, body));
}

function textsOf(rows: Rows): string[][] {
  return rows.map((row) => (Array.isArray(row) ? row.map(String) : []));
}

/** A table that has no room side by side is set row by row; it must be in the document. */
export function settle(root: HTMLElement): void {
  const tables = [...root.querySelectorAll(".listed")];
  for (const one of tables) one.classList.remove("stacked");
  const tight = tables.filter((one) => one.scrollWidth > one.clientWidth + 1);
  for (const one of tight) one.classList.add("stacked");
}

function values({ values }: Block, numbers: Numbers, context: Context): HTMLElement | null {
  const complete = values.map(completeValues).filter((one) => one !== null);
  return complete.length ? element("div", { class: "values" }, ...complete.map((one) => element("div", {}, ...valuesPanel(one.title || "values", one, numbers, context)))) : null;
}
