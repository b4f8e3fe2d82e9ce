/** How often each unit of a layer fires, over time: one thin line a unit, with its first share and the one at the cursor. */
import { element, OURS } from "../elements";
import type { Units } from "./data";
import { percent } from "./figures";
import { rateOf, type Trouble } from "./neuron-facts";
import { colourOf } from "./neuron-picture";
import type { Hooks, Moment, WatchContext } from "./part";
import { codeFont, drawingOn, hairline, type Drawing } from "./pen";
import { drawCursor, stepAt, xOf, type Plot } from "./time-axis";

const ROW = 22;
const TOP = 2;
const MOST = 16;
const LEFT = 34;
const RIGHT = 92;

export class Firing {
  readonly element: HTMLElement;
  readonly #canvas: HTMLCanvasElement;
  readonly #title = element("p", { class: "caption" });
  readonly #context: WatchContext;
  #rows: number[] = [];
  #moment: Moment | null = null;

  constructor(context: WatchContext, hooks: Pick<Hooks, "onStep">, onUnit: (unit: number) => void) {
    this.#context = context;
    this.#canvas = element("canvas", { class: "plot", role: "img", ...OURS });
    this.element = element("div", { class: "firing" }, this.#title, this.#canvas);
    this.#canvas.addEventListener("click", (event) => {
      const unit = this.#rows[Math.floor((event.offsetY - TOP) / ROW)];
      const plot = plotOf(this.#canvas.clientWidth);
      const inside = event.offsetX >= plot.left && event.offsetX <= plot.left + plot.width;
      if (this.#moment && plot.width > 0 && inside) hooks.onStep(stepAt(this.#moment, event.offsetX, plot));
      if (unit !== undefined) onUnit(unit);
    });
  }

  draw(moment: Moment, index: number, name: string, troubles: readonly Trouble[], chosen: number): void {
    this.#moment = moment;
    const { data, step } = moment;
    const units = data.units(index);
    const of = (unit: number): Trouble | undefined => troubles.find((one) => one.unit === unit);
    const rates = Array.from({ length: units.count }, (_, unit) => of(unit)?.rate ?? rateOf(units, unit, step) ?? { first: Number.NaN, now: Number.NaN });
    this.#rows = shownOf(rates.map(({ now }) => now), chosen);
    const some = this.#rows.length < units.count ? `, ${this.#rows.length} of ${units.count}, the rarest` : "";
    const read = data.payload.units[index]?.read;
    this.#title.replaceChildren("fires on ", element("bdi", {}, `· ${name}${some}`));
    this.#title.title = read ? `read from ${read}` : "";
    this.#canvas.setAttribute("aria-label", `how often units of ${name} fire: ${this.#rows.map((unit) => `${unit}: ${percent(rates[unit]?.first ?? Number.NaN)} → ${percent(rates[unit]?.now ?? Number.NaN)}`).join(", ")}`);
    const drawing = drawingOn(this.#canvas, this.#rows.length * ROW + 2 * TOP, this.#context);
    if (!drawing) return;
    const top = highest(units);
    this.#rows.forEach((unit, row) => {
      const trouble = of(unit);
      drawRow(drawing, moment, units, unit, TOP + row * ROW, top, trouble, unit === chosen);
      const { first = Number.NaN, now = Number.NaN } = rates[unit] ?? {};
      drawNumbers(drawing, unit, TOP + (row + 0.5) * ROW, trouble, first === now ? percent(now) : `${percent(first)} → ${percent(now)}`);
    });
    drawCursor(drawing, moment, plotOf(drawing.width), 0, drawing.height);
  }
}

function plotOf(width: number): Plot {
  return { left: LEFT, width: width - LEFT - RIGHT };
}

/** All units in their order; of many, those that fire most rarely and the chosen one. */
export function shownOf(rates: readonly number[], chosen: number): number[] {
  const order = rates.map((_, unit) => unit);
  if (order.length <= MOST) return order;
  const rarest = order.sort((a, b) => (rates[a] as number) - (rates[b] as number) || a - b).slice(0, MOST);
  if (chosen >= 0 && chosen < rates.length && !rarest.includes(chosen)) rarest[MOST - 1] = chosen;
  return rarest;
}

/** The largest share of any unit in any window, so that the lines can be compared. */
function highest({ fired, inputs, count }: Units): number {
  return fired.reduce((most, some, at) => Math.max(most, some / (inputs[Math.floor(at / count)] || Number.POSITIVE_INFINITY)), 0) || 1;
}

function drawRow(drawing: Drawing, moment: Moment, units: Units, unit: number, top: number, most: number, trouble: Trouble | undefined, chosen: boolean): void {
  const { pen, palette, width } = drawing;
  const plot = plotOf(width);
  const [right, base, high] = [width - RIGHT, top + ROW - 4, ROW - 7];
  if (chosen) {
    pen.fillStyle = palette.selected;
    pen.fillRect(0, top, width, ROW);
  }
  hairline(drawing, LEFT, base, right, base, palette.line);
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, top, plot.width, ROW);
  pen.clip();
  pen.strokeStyle = trouble ? colourOf(trouble, palette) : palette.negative;
  pen.lineWidth = 1.25;
  if (trouble?.kind === "dead") pen.setLineDash([3, 3]);
  pen.beginPath();
  for (let window = 0; window < units.first.length; window += 1) {
    const inputs = units.inputs[window] as number;
    if (!inputs) continue;
    const y = base - ((units.fired[window * units.count + unit] as number) / inputs / most) * high;
    const middle = xOf(moment, ((units.first[window] as number) + (units.last[window] as number) + 1) / 2, plot);
    if (window === 0) pen.moveTo(xOf(moment, units.first[window] as number, plot), y);
    pen.lineTo(middle, y);
    if (window === units.first.length - 1) pen.lineTo(xOf(moment, (units.last[window] as number) + 1, plot), y);
  }
  pen.stroke();
  pen.restore();
}

function drawNumbers({ pen, palette, width }: Drawing, unit: number, y: number, trouble: Trouble | undefined, text: string): void {
  pen.font = `11px ${codeFont(pen.canvas)}`;
  pen.textBaseline = "middle";
  pen.fillStyle = trouble ? colourOf(trouble, palette) : palette.soft;
  pen.textAlign = "right";
  pen.fillText(`[${unit}]`, LEFT - 6, y);
  pen.fillText(trouble && trouble.kind !== "starving" ? trouble.kind : text, width - 2, y);
}

/** The layer whose units are shown: that of the chosen unit, else the first with a trouble, else the first counted. */
export function layerShown(counted: readonly number[], chosen: number, troubles: readonly Trouble[]): number {
  if ((counted[chosen] ?? -1) >= 0) return chosen;
  const troubled = troubles.find(({ layer }) => (counted[layer] ?? -1) >= 0);
  return troubled ? troubled.layer : counted.findIndex((index) => index >= 0);
}

