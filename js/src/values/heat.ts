/** A larger tensor as a heat map: one cell a number, read by pointer or arrow keys, with a legend. */
import { css } from "../colour";
import { PAINT, type Context } from "../context";
import { element, OURS } from "../elements";
import { fillLegend } from "../legend";
import { shade, written } from "./matrix";
import { PALETTES } from "../palette";
import type { Grid, Numbers } from "../payload";

const WIDE = 320;
const HIGH = 240;

interface Map2 {
  canvas: HTMLCanvasElement;
  values: ArrayLike<number>;
  rows: number;
  columns: number;
  /** Pixels a cell. */
  size: number;
  grid: Grid;
}

export function heat(grid: Grid, numbers: Numbers, context: Context): HTMLElement {
  const values = numbers(grid.array);
  const [rows = 0, columns = 0] = values.shape;
  const size = Math.max(1, Math.min(12, Math.floor(Math.min(WIDE / columns, HIGH / rows))));
  const label = `${rows} by ${columns} numbers${grid.slice && `, ${grid.slice} of ${grid.shapeText}`}; arrow keys read single cells`;
  const canvas = element("canvas", { class: "heat", width: columns * size, height: rows * size, tabindex: 0, role: "application", "aria-roledescription": "heat map", "aria-label": label, "data-paint": true, ...OURS });
  const map: Map2 = { canvas, values, rows, columns, size, grid };
  const readout = element("div", { class: "readout" }, "point at a cell, or use the arrow keys");
  const legend = element("div", { class: "legend", "aria-hidden": "true" });
  const paint = (): void => {
    drawCells(map, context.isDark());
    drawLegend(legend, grid, context.isDark());
  };
  canvas.addEventListener(PAINT, paint);
  paint();
  follow(map, readout, context);
  return element("div", { class: "heatmap" }, canvas, legend, readout);
}

function drawCells({ canvas, values, rows, columns, size, grid }: Map2, dark: boolean): void {
  const pen = canvas.getContext("2d");
  if (!pen) return;
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      const value = values[row * columns + column] ?? 0;
      if (Number.isFinite(value)) {
        pen.fillStyle = css(shade(value, grid, dark));
        pen.fillRect(column * size, row * size, size, size);
      } else drawMissing(pen, column * size, row * size, size, dark);
    }
  }
}

/** Hatched where a cell is large enough, so that not colour alone says it. */
function drawMissing(pen: CanvasRenderingContext2D, left: number, top: number, size: number, dark: boolean): void {
  const palette = dark ? PALETTES.dark : PALETTES.light;
  pen.fillStyle = palette.missing;
  pen.fillRect(left, top, size, size);
  pen.fillStyle = palette.panel;
  for (let step = 0; size > 3 && step < size; step += 1) pen.fillRect(left + step, top + ((size - step) % size), 1, 1);
}

function drawLegend(legend: HTMLElement, grid: Grid, dark: boolean): void {
  const low = grid.signed ? -grid.limit : 0;
  const [first, last] = [low, grid.limit].map((end) => written(Number(end.toPrecision(3)))) as [string, string];
  fillLegend(legend, first, last, (share) => shade(low + (grid.limit - low) * share, grid, dark));
}

/** The cell under the pointer is written; the cell that keys went to is spoken too. */
function follow(map: Map2, readout: HTMLElement, context: Context): void {
  const { canvas, rows, columns } = map;
  let [row, column] = [-1, -1];
  const read = (toRow: number, toColumn: number): void => {
    row = Math.min(rows - 1, Math.max(0, toRow));
    column = Math.min(columns - 1, Math.max(0, toColumn));
    const [first, second] = origin(map.grid.slice);
    readout.textContent = `[${first[0] + row * first[1]}, ${second[0] + column * second[1]}]  ${written(map.values[row * columns + column] ?? 0)}`;
  };
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    read(Math.floor(((event.clientY - box.top) / box.height) * rows), Math.floor(((event.clientX - box.left) / box.width) * columns));
  });
  canvas.addEventListener("keydown", (event) => {
    const move = MOVES[event.key];
    if (!move) return;
    event.preventDefault();
    if (row < 0) read(0, 0);
    else read(row + move[0] * (event.shiftKey ? 10 : 1), column + move[1] * (event.shiftKey ? 10 : 1));
    context.announce(readout.textContent ?? "");
  });
}

const MOVES: Record<string, readonly [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

/** Where a slice begins and how it steps, for rows and columns: "[0:6, 4:20:2]" → [0, 1], [4, 2]. */
export function origin(slice: string): [[number, number], [number, number]] {
  const parts = slice.replace(/[[\]\s]/g, "").split(",").filter((part) => part.includes(":")).slice(-2);
  const [rows, columns] = parts.length === 2 ? parts : ["", parts[0] ?? ""];
  return [step(rows ?? ""), step(columns ?? "")];
}

function step(part: string): [number, number] {
  const [start, , by] = part.split(":");
  return [Number(start) || 0, Number(by) || 1];
}
