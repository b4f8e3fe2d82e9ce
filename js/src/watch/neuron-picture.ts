/** Draws a small net: units as discs with rings, weights as lines. Everything it needs was computed before. */
import { css, signed, type Rgb } from "../colour";
import type { Palette } from "../palette";
import type { WatchData } from "./data";
import { percent } from "./figures";
import { layerName, type Pair, type Trouble } from "./neuron-facts";
import { yOf, type Column, type Layout, type Spot } from "./neuron-layout";
import { codeFont, fitted, type Drawing } from "./pen";

/** The largest magnitudes up to a moment: they never fall, so that the picture does not rescale when what was large has gone. */
export interface Limits {
  weight: number;
  activation: number;
  gradient: number;
}

export interface Scene {
  data: WatchData;
  slot: number;
  layout: Layout;
  limits: Limits;
  troubles: readonly Trouble[];
  pairs: readonly Pair[];
  /** The unit that keys or pointer are on: only its weights stand out. */
  spot: Spot | null;
  pinned: boolean;
  focused: boolean;
}

/** More lines than this are a grey mist. */
export const MOST_LINES = 240;
const LEVELS = 256;

export function drawNet(drawing: Drawing, scene: Scene): void {
  const { layout } = scene;
  for (let to = 1; to < layout.columns.length; to += 1) drawWeights(drawing, scene, to);
  if (scene.spot) for (let to = 1; to < layout.columns.length; to += 1) drawWeights(drawing, scene, to, scene.spot);
  layout.columns.forEach((column, index) => {
    drawName(drawing, scene, column, index);
    for (let unit = 0; unit < column.count; unit += 1) drawUnit(drawing, scene, index, unit);
  });
  for (const pair of scene.pairs) drawPair(drawing, scene, pair);
  drawWords(drawing, scene);
  if (scene.spot) drawSpot(drawing, scene, scene.spot);
}

/** How much of the full size: small ones stay visible. */
export function sized(value: number, limit: number): number {
  return limit > 0 ? Math.min(1, Math.sqrt(Math.abs(value) / limit)) : 0;
}

/** The least share of the largest weight that is drawn, so that there are not too many lines. */
export function leastDrawn(weights: ArrayLike<number>, limit: number): number {
  if (weights.length <= MOST_LINES || !(limit > 0)) return 0;
  const counts = new Uint32Array(LEVELS + 1);
  for (let index = 0; index < weights.length; index += 1) {
    const at = Math.floor((LEVELS * Math.abs(weights[index] as number)) / limit);
    counts[Math.min(LEVELS, at) || 0] = (counts[Math.min(LEVELS, at) || 0] as number) + 1;
  }
  let [bin, sum] = [LEVELS, 0];
  for (; bin > 0; bin -= 1) if ((sum += counts[bin] as number) > MOST_LINES) break;
  return (bin + 1) / LEVELS;
}

/** The lines into one column: all, the larger over the smaller; or those of one unit alone. */
function drawWeights(drawing: Drawing, scene: Scene, to: number, only: Spot | null = null): void {
  const { pen, palette } = drawing;
  const { data, slot, layout, limits } = scene;
  const [before, here] = [layout.columns[to - 1] as Column, layout.columns[to] as Column];
  const weights = data.neurons(to - 1).weights(slot);
  const least = only ? 0 : leastDrawn(weights, limits.weight);
  const quiet = scene.spot !== null && !only;
  const dead = (column: number, unit: number): boolean => scene.troubles.some((some) => some.kind === "dead" && some.layer === column - 1 && some.unit === unit);
  const deadIn = Array.from({ length: before.count }, (_, unit) => dead(to - 1, unit));
  pen.lineCap = "butt";
  // Inputs are drawn smaller than units. Where only the largest are drawn, all are alike: then they are faint, and lie over each other.
  const widest = Math.min(5, 1 + Math.min(to === 1 ? 2 * before.radius : before.radius, here.radius) / 3);
  const ink = least > 0 ? 0.35 : 0.6;
  for (const [low, high] of [[least, 0.33], [Math.max(least, 0.33), 0.66], [Math.max(least, 0.66), Number.POSITIVE_INFINITY]] as const) {
    for (let unit = 0; unit < here.count; unit += 1) {
      for (let input = 0; input < before.count; input += 1) {
        if (only && !(only[0] === to && only[1] === unit) && !(only[0] === to - 1 && only[1] === input)) continue;
        const weight = weights[unit * before.count + input];
        if (weight === undefined) continue;
        const finite = Number.isFinite(weight);
        const share = finite ? Math.min(1, Math.abs(weight) / (limits.weight || 1)) : 1;
        if (!(share >= low && share < high)) continue;
        pen.strokeStyle = !finite ? palette.missing : share < 0.01 ? palette.faint : weight < 0 ? palette.negative : palette.positive;
        pen.globalAlpha = quiet ? 0.1 : finite ? 0.3 + ink * share : 0.4;
        pen.lineWidth = finite ? 0.5 + share * widest : 1;
        pen.setLineDash(!finite ? [1, 7] : deadIn[input] || dead(to, unit) ? [5, 4] : []);
        pen.beginPath();
        pen.moveTo(before.x, yOf(before, input));
        pen.lineTo(here.x, yOf(here, unit));
        pen.stroke();
      }
    }
  }
  pen.setLineDash([]);
  pen.globalAlpha = 1;
}

function shade(value: number, limit: number, palette: Palette): Rgb {
  return signed(Math.sign(value) * sized(value, limit), palette);
}

function drawUnit(drawing: Drawing, scene: Scene, column: number, unit: number): void {
  const { pen, palette } = drawing;
  const place = scene.layout.columns[column] as Column;
  const [x, y, radius] = [place.x, yOf(place, unit), place.radius];
  if (column === 0) return disc(pen, x, y, radius, palette.sunk, palette.soft, 1);
  const trouble = scene.troubles.find((some) => some.layer === column - 1 && some.unit === unit);
  if (trouble?.kind === "dead") return drawDead(drawing, x, y, radius);
  const neurons = scene.data.neurons(column - 1);
  const [activation, gradient] = [neurons.activations(scene.slot)[unit] ?? Number.NaN, neurons.gradients(scene.slot)[unit] ?? Number.NaN];
  const size = Number.isFinite(gradient) ? sized(gradient, scene.limits.gradient) : 0;
  const ring = size < 0.02 ? palette.soft : gradient < 0 ? palette.negative : palette.positive;
  // What lies behind a unit ends at its edge.
  const silent = trouble?.kind === "silent";
  disc(pen, x, y, radius + (trouble && !silent ? 6.5 : 2), palette.panel, null, 0);
  if (silent) pen.setLineDash([2, 2]);
  if (Number.isFinite(activation)) disc(pen, x, y, radius, css(shade(activation, scene.limits.activation, palette)), ring, 0.75 + size * Math.min(3, radius / 3));
  else drawUnknown(drawing, x, y, radius);
  pen.setLineDash([]);
  if (trouble && !silent) drawStarving(drawing, x, y, radius, trouble);
}

/** Broken, careful, or no more than a fact so far. */
export function colourOf({ kind }: Trouble, palette: Palette): string {
  return { dead: palette.broken, starving: palette.careful, silent: palette.soft }[kind];
}

function disc(pen: CanvasRenderingContext2D, x: number, y: number, radius: number, fill: string, ring: string | null, width: number): void {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fillStyle = fill;
  pen.fill();
  if (!ring) return;
  pen.strokeStyle = ring;
  pen.lineWidth = width;
  pen.stroke();
}

/** Nothing in it, and its edge comes apart. */
function drawDead({ pen, palette }: Drawing, x: number, y: number, radius: number): void {
  disc(pen, x, y, radius + 3, palette.panel, null, 0);
  const dashes = Math.max(4, Math.round(radius * 0.85));
  const dash = (2 * Math.PI * radius) / dashes / 2;
  pen.setLineDash([dash, dash]);
  pen.lineCap = "butt";
  disc(pen, x, y, radius, palette.panel, palette.broken, Math.max(1.25, Math.min(2.25, radius / 4)));
  pen.setLineDash([]);
}

/** The ring that it began with, as a shadow, and what is left of it. */
function drawStarving({ pen, palette }: Drawing, x: number, y: number, radius: number, { rate }: Trouble): void {
  const full = Math.max(1.5, Math.min(4, radius / 3));
  const left = rate && rate.first > 0 ? Math.min(1, rate.now / rate.first) : 0.2;
  const around = radius + full / 2 + 1.5;
  pen.strokeStyle = palette.careful;
  for (const [width, alpha] of [[full, 0.25], [Math.max(0.8, full * left), 1]] as const) {
    pen.globalAlpha = alpha;
    pen.lineWidth = width;
    pen.beginPath();
    pen.arc(x, y, around + (width - full) / 2, 0, 2 * Math.PI);
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

function drawUnknown({ pen, palette }: Drawing, x: number, y: number, radius: number): void {
  disc(pen, x, y, radius, palette.panel, palette.missing, 1.25);
  pen.save();
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.clip();
  pen.lineWidth = 1;
  pen.beginPath();
  for (let shift = -2 * radius; shift <= 2 * radius; shift += 4) {
    pen.moveTo(x + shift - radius, y + radius);
    pen.lineTo(x + shift + radius, y - radius);
  }
  pen.stroke();
  pen.restore();
}

function drawName({ pen, palette, height, ...rest }: Drawing, scene: Scene, column: Column, index: number): void {
  pen.font = `11px ${codeFont(pen.canvas)}`;
  pen.fillStyle = palette.quiet;
  pen.textAlign = "center";
  const name = layerName(scene.data, index - 1);
  const room = Math.min(scene.layout.gap - 6, 2 * Math.min(column.x, rest.width - column.x));
  pen.fillText(fitted(pen, name, Math.max(24, room)), column.x, height - 9);
}

/** A bracket beside two units. */
function drawPair({ pen, palette }: Drawing, { layout }: Scene, { layer, units: [one, other] }: Pair): void {
  const column = layout.columns[layer + 1] as Column;
  const [top, bottom] = [yOf(column, one), yOf(column, other)];
  const [inner, outer] = [column.x + column.radius + 4, column.x + column.radius + Math.max(6, Math.min(12, column.radius))];
  const bracket = (): void => {
    pen.beginPath();
    pen.moveTo(inner, top);
    pen.lineTo(outer, top);
    pen.lineTo(outer, bottom);
    pen.lineTo(inner, bottom);
    pen.stroke();
  };
  pen.lineCap = "round";
  erasing(pen, 5, bracket);
  pen.strokeStyle = palette.careful;
  pen.lineWidth = 2;
  bracket();
}

/** Words beside what stands out, where there is room; the list below says all of them. */
function drawWords(drawing: Drawing, scene: Scene): void {
  const { pen, palette } = drawing;
  const { layout } = scene;
  const small = codeFont(pen.canvas);
  pen.font = `11px ${small}`;
  for (const { layer, units: [one, other] } of scene.pairs) {
    const column = layout.columns[layer + 1] as Column;
    pen.textAlign = "left";
    pen.fillStyle = palette.careful;
    const word = layout.gap >= 90 ? "cancel" : "";
    if (word) written(pen, word, column.x + 2 * column.radius + 8, (yOf(column, one) + yOf(column, other)) / 2);
  }
  let [lastColumn, lastY] = [-1, Number.NEGATIVE_INFINITY];
  const ordered = [...scene.troubles].sort((a, b) => a.layer - b.layer || a.unit - b.unit);
  for (const trouble of ordered) {
    const column = layout.columns[trouble.layer + 1] as Column;
    const y = yOf(column, trouble.unit);
    pen.fillStyle = colourOf(trouble, palette);
    if (layout.roomy && column.pitch >= 40) {
      pen.textAlign = "center";
      const word = trouble.kind !== "starving" ? trouble.kind : trouble.rate ? `starves: ${percent(trouble.rate.now)}` : "starves";
      written(pen, word, column.x, y + column.radius + 14);
    } else if (layout.gap >= 56) {
      if (trouble.layer === lastColumn && y - lastY < 11) continue;
      [lastColumn, lastY] = [trouble.layer, y];
      pen.textAlign = "right";
      written(pen, String(trouble.unit), column.x - column.radius - 7, y);
    }
  }
}

function written(pen: CanvasRenderingContext2D, text: string, x: number, y: number): void {
  erasing(pen, 4, () => pen.strokeText(text, x, y));
  pen.fillText(text, x, y);
}

/** Takes away what lies under a stroke, whatever the ground is. */
function erasing(pen: CanvasRenderingContext2D, width: number, stroke: () => void): void {
  pen.save();
  pen.globalCompositeOperation = "destination-out";
  pen.lineWidth = width;
  pen.strokeStyle = "#000";
  stroke();
  pen.restore();
}

function drawSpot({ pen, palette }: Drawing, { layout, pinned, focused }: Scene, [column, unit]: Spot): void {
  const place = layout.columns[column];
  if (!place) return;
  pen.strokeStyle = focused || pinned ? palette.negative : palette.soft;
  pen.lineWidth = pinned ? 2 : 1.5;
  pen.beginPath();
  pen.arc(place.x, yOf(place, unit), place.radius + 8, 0, 2 * Math.PI);
  pen.stroke();
}
