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
  const frame = below ? uprightFrame(drawing, axis) : sidewaysFrame(drawing, (HEIGHT - 2 * EDGE) / axis.length);
  pen.font = `10.5px ${codeFont(pen.canvas)}`;
  if (below) drawTicks(drawing, axis, frame);
  else hairline(drawing, frame.left, 0, frame.left, HEIGHT, palette.faint);
  if (nothing) return drawNothing(drawing, frame);
  const said = chosen < 0 ? shares.indexOf(Math.max(...shares)) : chosen;
  const sizes = shares.map((share) => share && Math.max(1, Math.min(1, share / most) * frame.long));
  const near = Math.ceil(18 / frame.thick);
  shares.forEach((share, place) => {
    const size = sizes[place] as number;
    const clear = place === said ? Math.max(...sizes.slice(Math.max(0, place - near), place + near + 1)) : size;
    pen.fillStyle = place === chosen ? palette.ink : place === zero ? palette.quiet : place < zero ? palette.negative : palette.positive;
    (below ? drawUpright : drawSideways)(drawing, frame, { place, share, size, clear, said: place === said });
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

interface Bar {
  place: number;
  share: number;
  size: number;
  /** Above this is room for words. */
  clear: number;
  /** Its share is written beside it. */
  said: boolean;
}

function uprightFrame({ width }: Drawing, axis: BinAxis): Frame {
  const { left, width: across } = plotOf(width);
  return { left, base: LOW - 16, long: LOW - 32, thick: across / axis.length, across };
}

function sidewaysFrame({ width }: Drawing, thick: number): Frame {
  return { left: 6, base: HEIGHT - EDGE, long: Math.max(20, width - 6 - 56), thick, across: width - 18 };
}

function drawUpright({ pen, palette }: Drawing, { left, base, thick, across }: Frame, { place, share, size, clear, said }: Bar): void {
  pen.fillRect(left + place * thick + 0.5, base - size, Math.max(1, thick - 1), size);
  if (!share || !(said || (thick >= 40 && share >= SLIGHT))) return;
  pen.fillStyle = said ? palette.ink : palette.quiet;
  pen.textAlign = "center";
  pen.fillText(percent(share), Math.max(left + 18, Math.min(left + across - 18, left + (place + 0.5) * thick)), base - clear - 7);
}

function drawSideways({ pen, palette }: Drawing, { left, base, thick }: Frame, { place, share, size, said }: Bar): void {
  const top = base - (place + 1) * thick;
  pen.fillRect(left, top + (thick > 3 ? 0.5 : 0), size, thick > 3 ? thick - 1 : thick);
  if (!share || !(said || (thick >= 11 && share >= SLIGHT))) return;
  pen.fillStyle = said ? palette.ink : palette.quiet;
  pen.textAlign = "left";
  pen.fillText(percent(share), left + size + 5, Math.min(HEIGHT - 6, Math.max(6, top + thick / 2)));
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
