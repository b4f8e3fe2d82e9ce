/** Canvas drawing that is sharp on every screen, in the colours of the theme. */
import type { Rgb } from "../colour";
import type { Context } from "../context";
import { PALETTES, type Palette } from "../palette";

export interface Drawing {
  pen: CanvasRenderingContext2D;
  /** In CSS pixels, as everything that is drawn. */
  width: number;
  height: number;
  /** Device pixels for one of them. */
  ratio: number;
  palette: Palette;
}

/** An empty canvas of the given height, as wide as its place; null where nothing can be drawn (no room, no canvas). */
export function drawingOn(canvas: HTMLCanvasElement, height: number, context: Context): Drawing | null {
  const width = canvas.clientWidth;
  const pen = width > 0 && height > 0 ? canvas.getContext("2d") : null;
  if (!pen) return null;
  const ratio = Math.min(3, globalThis.devicePixelRatio || 1);
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.height = `${height}px`;
  }
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = `10.5px ${codeFont(canvas)}`;
  pen.textBaseline = "middle";
  return { pen, width, height, ratio, palette: PALETTES[context.isDark() ? "dark" : "light"] };
}

const fonts = new WeakMap<HTMLCanvasElement, string>();

/** The family that the page gives to code; asked for once, for the question makes the page compute its styles. */
export function codeFont(canvas: HTMLCanvasElement): string {
  const known = fonts.get(canvas);
  if (known) return known;
  const family = getComputedStyle(canvas).fontFamily || "monospace";
  fonts.set(canvas, family);
  return family;
}

/** A hairline: one device pixel, between whole pixels so that it is not smeared. */
export function hairline({ pen, ratio }: Drawing, x0: number, y0: number, x1: number, y1: number, colour: string): void {
  const sharp = (at: number): number => (Math.floor(at * ratio) + 0.5) / ratio;
  pen.strokeStyle = colour;
  pen.lineWidth = 1 / ratio;
  pen.beginPath();
  pen.moveTo(sharp(x0), sharp(y0));
  pen.lineTo(sharp(x1), sharp(y1));
  pen.stroke();
}

let [hatchOf, hatched]: [string, CanvasPattern | string] = ["", ""];

/** The pattern for "not a number", so that not colour alone says it. */
export function hatch(drawing: Drawing): CanvasPattern | string {
  const key = `${drawing.palette.missing} ${drawing.ratio}`;
  if (key !== hatchOf) [hatchOf, hatched] = [key, hatchMade(drawing)];
  return hatched;
}

function hatchMade({ pen, palette, ratio }: Drawing): CanvasPattern | string {
  const size = Math.round(4 * ratio);
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const brush = tile.getContext("2d");
  if (!brush) return palette.missing;
  brush.fillStyle = palette.missing;
  brush.fillRect(0, 0, size, size);
  brush.strokeStyle = palette.panel;
  brush.lineWidth = ratio;
  brush.beginPath();
  for (const shift of [-size, 0, size]) {
    brush.moveTo(shift, size);
    brush.lineTo(shift + size, 0);
  }
  brush.stroke();
  const pattern = pen.createPattern(tile, "repeat");
  // Patterns follow the pen's scale; the tile is in device pixels already.
  pattern?.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern ?? palette.missing;
}

/** The end of a text that has no room: neighbours often begin alike. */
export function fitted(pen: CanvasRenderingContext2D, text: string, room: number): string {
  if (pen.measureText(text).width <= room) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (pen.measureText(`…${text.slice(middle + 1)}`).width <= room) high = middle;
    else low = middle + 1;
  }
  return `…${text.slice(low + 1)}`;
}

/** 256 colours as the bytes of an image. */
export function bytesOf(colour: (share: number) => Rgb): Uint32Array {
  return Uint32Array.from({ length: 256 }, (_, index) => {
    const [red, green, blue] = colour(index / 255).map(Math.round) as unknown as Rgb;
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  });
}

/** A small picture, pixel by pixel, to be drawn in the size of a plot. */
export function painted(tile: HTMLCanvasElement, width: number, height: number, fill: (pixels: Uint32Array) => void): HTMLCanvasElement | null {
  if (tile.width !== width) tile.width = width;
  if (tile.height !== height) tile.height = height;
  const pen = tile.getContext("2d", { willReadFrequently: true });
  if (!pen) return null;
  const image = pen.createImageData(width, height);
  fill(new Uint32Array(image.data.buffer));
  pen.putImageData(image, 0, 0);
  return tile;
}
