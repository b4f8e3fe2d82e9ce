/** The values of one tensor: statistics, a histogram, and the numbers themselves. */
import type { Context } from "../context";
import { element, words } from "../elements";
import { heat } from "./heat";
import { histogram } from "./histogram";
import { matrix } from "./matrix";
import { legibleLines } from "../names";
import type { Grid, Numbers, Values } from "../payload";

export function valuesPanel(title: string, values: Values, numbers: Numbers, context: Context): HTMLElement[] {
  const { bars, grid } = values;
  const summary = [
    element("p", { class: "caption" }, words(title)),
    bars ? histogram(bars, numbers) : null,
    values.stats.length ? statistics(values) : element("p", { class: "soft" }, "no statistics were taken"),
    values.note ? element("p", { class: "soft" }, words(values.note, "", 1000)) : null,
  ];
  const numbersShown = grid && [
    element("p", { class: "caption" }, words(gridTitle(grid))),
    grid.texts ? matrix(grid, numbers, context) : heat(grid, numbers, context),
  ];
  return [element("div", { class: "summary" }, ...summary), ...(numbersShown ? [element("div", { class: "grid" }, ...numbersShown)] : [])];
}

function statistics(values: Values): HTMLElement {
  const pairs = values.stats.map(([name, value]) => {
    const wrong = (name === "NaN" && values.nan > 0) || (name === "Inf" && values.inf > 0);
    return element("div", { class: wrong ? "wrong" : null }, element("dt", {}, words(name)), element("dd", {}, words(value)));
  });
  return element("dl", { class: "stats" }, ...pairs);
}

/** A cut matrix says which slice it is. */
export function gridTitle(grid: Grid): string {
  return grid.whole ? `all of it, ${grid.shapeText}` : `a corner, ${grid.slice} of ${grid.shapeText}`;
}

/** The place of values that are not here: with the reason, never empty. */
export function noValues(title: string, reason: string): HTMLElement[] {
  return [element("p", { class: "caption" }, words(title)), element("p", { class: "absent" }, legibleLines(reason.slice(0, 2000)))];
}

/** Shows values that the kernel is asked for, in `box`; an answer that comes too late is not shown. */
export async function askFor(title: string, path: string, box: HTMLElement, context: Context): Promise<void> {
  if (!context.ask) return;
  box.dataset.path = path;
  box.replaceChildren(...noValues(title, "asking the kernel…"));
  let shown: HTMLElement[];
  try {
    const { values, numbers } = await context.ask(path);
    shown = values ? valuesPanel(title, values, numbers, context) : noValues(title, "the kernel sent no values");
  } catch (error) {
    shown = noValues(title, error instanceof Error ? error.message : String(error));
  }
  if (box.dataset.path === path) box.replaceChildren(...shown);
}
