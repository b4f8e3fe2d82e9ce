/** Blocks of a sheet: what is said of the selected row, and below the table. */
import type { Context } from "./context";
import { apart, element, lines, words } from "./elements";
import { howToGet, pairs, table } from "./facts";
import { sign } from "./marks";
import { completeValues, type Numbers } from "./payload";
import { blocksOf, type Block } from "./sheet";
import { valuesPanel } from "./values-panel";

const PROSE = 4000;
/** A caption that is all words; a name or a shape in one keeps its letters. */
const PLAIN = /^[a-z]{3}[a-z ,]*$/i;

/** Below a `title`, which is not said again; the first code there is what the key copies. */
export function blocks(given: readonly unknown[], numbers: Numbers, context: Context, title = ""): HTMLElement[] {
  const all = blocksOf(given);
  const copied = title ? all.find((block) => block.code) : null;
  return all.map((block) => {
    const { mark, prose, code, head, rows } = block;
    const caption = block.caption === title ? "" : block.caption;
    return element(
      "section",
      { class: "block" },
      caption || mark ? element("h3", { class: "caption" }, sign(mark), mark ? " " : null, words(caption, PLAIN.test(caption) ? "plainly" : "")) : null,
      ...prose.split("\n").map((line) => line && element("p", { class: "prose" }, lines(line, "", PROSE))),
      head.length || rows.length ? listed(head, rows) : null,
      code ? howToGet(code, context, block === copied ? "c copies" : "copy") : null,
      values(block, numbers, context),
    );
  });
}

function listed(head: readonly string[], rows: readonly (readonly string[])[]): HTMLElement {
  const texts = rows.map((row) => (Array.isArray(row) ? row.map(String) : []));
  if (!head.length && texts.every((row) => row.length === 2)) return pairs(texts as unknown as [string, string][]);
  return table(head, texts.map((row) => element("tr", {}, ...row.map((text) => element("td", {}, apart(text))))));
}

function values({ values }: Block, numbers: Numbers, context: Context): HTMLElement | null {
  const complete = values.map(completeValues).filter((one) => one !== null);
  return complete.length ? element("div", { class: "values" }, ...complete.map((one) => element("div", {}, ...valuesPanel(one.title || "values", one, numbers, context)))) : null;
}
