/** The histogram at the cursor: beside the map on the map's axis of values, or below it with values that run to the right. */
import type { BinAxis } from "./bins-axis";
import { figure, percent } from "./figures";
import { codeFont, hairline, hatch, type Drawing } from "./pen";
import { plotOf, type Plot } from "./time-axis";

/** Of the map and of the histogram beside it. */
export const HEIGHT = 140;
/** Of the histogram below. */
export const LOW = 84;
/** Above and below the bins of the map. */
export const EDGE = 8;
/** A large hatched field must not shout. */
export const FAINTLY = 0.3;
/** A smaller share is not written, however much room there is. */
const SLIGHT = 0.012;

export interface Slice {
  /** By the places of the axis. */
  shares: readonly number[];
  /** The share of the longest bar. */
  most: number;
  /** The place about zero. */
  zero: number;
  /** The place that is read; -1 is none. */
  chosen: number;
  /** No number is finite. */
  nothing: boolean;
}

export function drawSlice(drawing: Drawing, axis: BinAxis, { shares, most, zero, chosen, nothing }: Slice, below: boolean): void {
  const { pen, palette } = drawing;
  const frame = below ? uprightFrame(drawing, axis) : sidewaysFrame(drawing, axis);
  const { left, base, long, thick, across } = frame;
  pen.font = `10.5px ${codeFont(pen.canvas)}`;
  if (below) drawTicks(drawing, axis, frame);
  else hairline(drawing, left, 0, left, HEIGHT, palette.faint);
  if (nothing) return drawNothing(drawing, frame);
  const said = chosen < 0 ? shares.indexOf(Math.max(...shares)) : chosen;
  const sizes = shares.map((share) => share && Math.max(1, Math.min(1, share / most) * long));
  const near = Math.ceil(18 / thick);
  const wide = thick > 3 ? thick - 1 : thick;
  pen.textAlign = below ? "center" : "left";
  shares.forEach((share, place) => {
    const size = sizes[place] as number;
    pen.fillStyle = place === chosen ? palette.ink : place === zero ? palette.quiet : place < zero ? palette.negative : palette.positive;
    const middle = (place + 0.5) * thick;
    if (below) pen.fillRect(left + middle - wide / 2, base - size, Math.max(1, wide), size);
    else pen.fillRect(left, base - middle - wide / 2, size, wide);
    if (!share || !(place === said || (thick >= (below ? 40 : 11) && share >= SLIGHT))) return;
    pen.fillStyle = place === said ? palette.ink : palette.quiet;
    const clear = place === said ? Math.max(...sizes.slice(Math.max(0, place - near), place + near + 1)) : size;
    if (below) pen.fillText(percent(share), Math.max(left + 18, Math.min(left + across - 18, left + middle)), base - clear - 7);
    else pen.fillText(percent(share), left + size + 5, Math.min(HEIGHT - 6, Math.max(6, base - middle)));
  });
  pen.textAlign = "left";
}

/** Where bars stand: their beginning, the room for the longest, and how thick one is. */
interface Frame {
  left: number;
  base: number;
  long: number;
  thick: number;
  across: number;
}

function uprightFrame({ width }: Drawing, axis: BinAxis): Frame {
  const { left, width: across } = plotOf(width);
  return { left, base: LOW - 16, long: LOW - 32, thick: across / axis.length, across };
}

function sidewaysFrame({ width }: Drawing, axis: BinAxis): Frame {
  return { left: 6, base: HEIGHT - EDGE, long: Math.max(20, width - 6 - 56), thick: (HEIGHT - 2 * EDGE) / axis.length, across: width - 18 };
}

function drawTicks(drawing: Drawing, axis: BinAxis, { left, base, thick, across }: Frame): void {
  const { pen, palette } = drawing;
  pen.textAlign = "center";
  pen.fillStyle = palette.quiet;
  for (const tick of axis.ticks(48 / thick)) {
    const x = left + axis.position(tick) * thick;
    hairline(drawing, x, tick ? base : 4, x, base + 4, palette.faint);
    pen.fillText(figure(tick), Math.min(drawing.width - 18, x), base + 11);
  }
  hairline(drawing, left, base, left + across, base, palette.line);
}

function drawNothing(drawing: Drawing, { left, base, across }: Frame): void {
  const { pen, palette } = drawing;
  pen.fillStyle = hatch(drawing);
  pen.globalAlpha = FAINTLY;
  pen.fillRect(left, EDGE, across, base - EDGE);
  pen.globalAlpha = 1;
  pen.fillStyle = palette.missing;
  pen.textAlign = "left";
  pen.fillText("no finite number", left + 6, EDGE + 10);
}

/** Beside the axis: round numbers, and a line at zero. */
export function drawValues(drawing: Drawing & { plot: Plot }, axis: BinAxis, high: number): void {
  const { pen, palette, plot } = drawing;
  pen.font = `10.5px ${codeFont(pen.canvas)}`;
  pen.textAlign = "right";
  for (const tick of axis.ticks(13 / high)) {
    const y = EDGE + (axis.length - axis.position(tick)) * high;
    hairline(drawing, plot.left, y, plot.left + plot.width, y, tick === 0 ? palette.faint : palette.line);
    pen.fillStyle = palette.quiet;
    pen.fillText(figure(tick), plot.left - 6, Math.min(HEIGHT - 6, Math.max(6, y)));
  }
  pen.textAlign = "left";
}
