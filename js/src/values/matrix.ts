/** A small tensor, written like a matrix: its numbers in cells coloured by sign and size. */
import { css, inkOn, magnitude, signed, type Rgb } from "../colour";
import { PAINT, type Context } from "../context";
import { element } from "../elements";
import { PALETTES } from "../palette";
import type { Grid, Numbers } from "../payload";

export function matrix(grid: Grid, numbers: Numbers, context: Context): HTMLElement {
  const values = numbers(grid.array);
  const [rows = 0, columns = 0] = values.shape;
  const table = element("table", { class: "matrix", "data-paint": true });
  table.append(element("caption", { class: "unseen" }, `the numbers ${grid.slice} of ${grid.shapeText}`));
  const body = element("tbody");
  for (let row = 0; row < rows; row += 1) {
    const cells = Array.from({ length: columns }, (_, column) => cell(grid.texts?.[row * columns + column] ?? "", values[row * columns + column] ?? 0));
    body.append(element("tr", {}, ...cells));
  }
  table.append(body);
  const paint = (): void => paintCells(body, values, grid, context.isDark());
  table.addEventListener(PAINT, paint);
  paint();
  return element("div", { class: "brackets" }, table);
}

function cell(text: string, value: number): HTMLElement {
  return element("td", { class: Number.isFinite(value) ? null : "nan" }, text || written(value));
}

function paintCells(body: HTMLElement, values: ArrayLike<number>, grid: Grid, dark: boolean): void {
  body.querySelectorAll("td").forEach((cell, index) => {
    const value = values[index] ?? 0;
    if (!Number.isFinite(value)) return;
    const ground = shade(value, grid, dark);
    cell.style.background = css(ground);
    cell.style.color = css(inkOn(ground));
  });
}

/** The colour of one finite number. */
export function shade(value: number, grid: Pick<Grid, "limit" | "signed">, dark: boolean): Rgb {
  const share = grid.limit > 0 ? value / grid.limit : 0;
  return grid.signed ? signed(share, dark ? PALETTES.dark : PALETTES.light) : magnitude(share);
}

/** A number as a person reads it: four digits, NaN and Inf by their names. */
export function written(value: number): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value < 0 ? "-Inf" : "Inf";
  return String(Number(value.toPrecision(4)));
}
