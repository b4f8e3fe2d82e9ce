/** Facts about one thing: pairs of a name and what it is, tables, and code to copy. */
import type { Context } from "./context";
import { element, lines, OURS, words } from "./elements";
import { copyButton } from "./frame";
import { legibleLines } from "./names";

export function pairs(told: readonly (readonly [name: string, text: string])[]): HTMLElement {
  return element("dl", { class: "pairs" }, ...told.map(([name, text]) => element("div", {}, element("dt", {}, words(name)), element("dd", {}, lines(text, "", 1000)))));
}

/** A table that scrolls sideways where it is too wide; the rows are of `<tr>`. */
export function table(titles: readonly string[], rows: readonly HTMLElement[]): HTMLElement {
  const head = titles.length ? element("thead", {}, element("tr", {}, ...titles.map((title) => element("th", { scope: "col" }, words(title))))) : null;
  return element("div", { class: "sideways" }, element("table", { class: "facts" }, head, element("tbody", {}, ...rows)));
}

export function howToGet(code: string, context: Context, label = "c copies"): HTMLElement {
  const shown = code.includes("\n") ? element("pre", { tabindex: 0, ...OURS }, legibleLines(code)) : element("code", {}, lines(code));
  return element("div", { class: "get" }, shown, " ", copyButton(label, `copy ${code.slice(0, 200)}`, () => code, context));
}
