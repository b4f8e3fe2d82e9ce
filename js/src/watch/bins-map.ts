/** Histograms over time of the selected series: how the numbers spread, step by step, and the one at the cursor beside it. */
import { magnitude } from "../colour";
import { element, OURS } from "../elements";
import { fillLegend } from "../legend";
import { BinAxis, Reach, ZERO } from "./bins-axis";
import { drawSlice, drawValues, EDGE, FAINTLY, HEIGHT, LOW } from "./bins-slice";
import { ROOT } from "../names";
import { slotAt, type WatchData } from "./data";
import { percent, placeWords, steps } from "./figures";
import type { Hooks, Moment, Part, WatchContext } from "./part";
import { bytesOf, drawingOn, hatch, painted, type Drawing } from "./pen";
import { Strip } from "./strip";
import { plotOf, xOf, type Plot } from "./time-axis";

const WHOLE = 255;
/** The darkest end is kept apart from the ground: what is not there has no colour. */
const DIMMEST = 0.06;

type Plotted = Drawing & { plot: Plot };

export class BinsMap implements Part {
  readonly element: HTMLElement;
  readonly #strip: Strip;
  readonly #slice: HTMLCanvasElement;
  readonly #absent = element("p", { class: "absent" });
  readonly #body: HTMLElement;
  readonly #legend = element("span", { class: "legend", role: "img" });
  readonly #readout = element("span", { class: "bins-readout" });
  readonly #context: WatchContext;
  readonly #reaches = new Map<string, Reach>();
  readonly #tile = element("canvas");
  #moment: Moment | null = null;
  #axis = new BinAxis(new Reach(), 0);
  #most = 1;
  #key = "";
  #place = -1;

  constructor(context: WatchContext, hooks: Hooks) {
    this.#context = context;
    this.#strip = new Strip(context, hooks, HEIGHT, "bins");
    this.#slice = element("canvas", { class: "plot", tabindex: 0, role: "application", "aria-roledescription": "histogram", ...OURS });
    this.#body = element("div", { class: "bins-body" }, this.#strip.element, this.#slice, element("div", { class: "bins-foot" }, this.#legend, this.#readout));
    this.element = element("section", { class: "binsmap", role: "group", "aria-label": "histograms over time" }, this.#absent, this.#body);
    this.#listen(this.#slice);
  }

  draw(moment: Moment): void {
    const { data, row, seen } = moment;
    this.#moment = moment;
    this.element.hidden = !data.binSlots || row < 0;
    const why = this.element.hidden ? "" : absence(data, row);
    this.#absent.textContent = why;
    this.#absent.hidden = !why;
    this.#body.hidden = Boolean(why);
    if (why || this.element.hidden) return;
    this.#measure(data, row);
    const slot = seenIn(data, row, data.binSlotOf(seen));
    const series = data.payload.series[row];
    this.#strip.title(`histogram${data.ofPart}`, series?.path || ROOT, [series?.role, series?.shape, series?.note].filter(Boolean).join(", "));
    this.#say(slot);
    const drawing = this.#strip.begin(moment);
    if (drawing) {
      drawValues(drawing, this.#axis, this.#rowHigh());
      this.#drawMap(drawing, moment);
      this.#strip.end(drawing, moment);
    }
    this.#drawSlice(moment, slot);
  }

  /** What the axis must hold and how deep the colours go; both only grow while a series is shown. */
  #measure(data: WatchData, row: number): void {
    const key = `${data.revision} ${row}`;
    if (key === this.#key) return;
    this.#key = key;
    const series = data.payload.series[row];
    const name = `${series?.role} ${series?.path} ${data.top(row)}`;
    const reach = this.#reaches.get(name) ?? new Reach();
    this.#reaches.set(name, reach);
    reach.takeAll(data.binSlots, (slot) => data.bins(slot, row));
    const before = this.#axis.length;
    this.#axis = new BinAxis(reach, data.top(row));
    if (before !== this.#axis.length) this.#place = -1;
    this.#most = reach.most || 1;
    const most = `${percent(this.#most / WHOLE)} of the numbers${reach.fuller ? " or more" : ""}`;
    fillLegend(this.#legend, "0", most, (share) => magnitude(DIMMEST + (1 - DIMMEST) * share));
    this.#legend.setAttribute("aria-label", `colours: from none to ${most}`);
  }

  #rowHigh(): number {
    return (HEIGHT - 2 * EDGE) / this.#axis.length;
  }

  /** One pixel a bin and slot, drawn in the size of the plot. */
  #drawMap(drawing: Plotted, moment: Moment): void {
    const { pen, plot } = drawing;
    const { data, row } = moment;
    const [from, to] = [Math.max(0, slotAt(data.binsFirst, moment.from)), slotAt(data.binsFirst, moment.to - 1)];
    const [wide, high] = [Math.max(1, to - from + 1), this.#axis.length];
    const colours = ramp(this.#most);
    const tile = painted(this.#tile, wide, high, (pixels) => {
      for (let slot = from; slot <= to; slot += 1) {
        const bins = data.bins(slot, row);
        for (let place = 0; place < high; place += 1) pixels[(high - 1 - place) * wide + slot - from] = colours[bins[this.#axis.bins[place] as number] as number] as number;
      }
    });
    if (!tile) return;
    pen.save();
    pen.beginPath();
    pen.rect(plot.left, 0, plot.width, HEIGHT);
    pen.clip();
    pen.imageSmoothingEnabled = false;
    const seen = seenIn(data, row, data.binSlots - 1);    // behind it nothing is known
    for (let slot = from; slot <= Math.min(to, seen); slot += 1) {
      const x = xOf(moment, data.binsFirst[slot] as number, plot);
      const end = Math.max(x + 1, xOf(moment, slot < seen ? (data.binsFirst[slot + 1] as number) : (data.binsLast[slot] as number) + 1, plot));
      // An overlap of a hair, or the ground shines through between two columns.
      pen.drawImage(tile, slot - from, 0, 1, high, x, EDGE, end - x + 0.4, HEIGHT - 2 * EDGE);
      const bad = badIn(data, row, slot);
      if (!bad) continue;
      pen.fillStyle = hatch(drawing);
      pen.globalAlpha = bad === "all" ? FAINTLY : 1;
      pen.fillRect(x, bad === "all" ? EDGE : 0, Math.max(2, end - x), bad === "all" ? HEIGHT - 2 * EDGE : EDGE - 2);
      pen.globalAlpha = 1;
    }
    pen.restore();
    if (this.#place >= 0) this.#drawPlace(drawing, plot.left, plot.width);
  }

  #drawPlace({ pen, palette }: Drawing, left: number, width: number): void {
    const high = this.#rowHigh();
    pen.strokeStyle = palette.ink;
    pen.lineWidth = 1;
    pen.globalAlpha = 0.7;
    pen.strokeRect(left + 0.5, EDGE + (this.#axis.length - 1 - this.#place) * high, width - 1, high);
    pen.globalAlpha = 1;
  }

  /** Narrow views have the slice below the map. */
  get #below(): boolean {
    return this.#slice.offsetTop > this.#strip.element.offsetTop + 4;
  }

  /** The histogram at the cursor: beside the map on its axis of values; below it values run to the right. */
  #drawSlice(moment: Moment, slot: number): void {
    const below = this.#below;
    const drawing = drawingOn(this.#slice, below ? LOW : HEIGHT, this.#context);
    if (!drawing) return;
    const { data, row } = moment;
    const { bins, zero } = this.#axis;
    const shares = data.bins(slot, row);
    drawSlice(drawing, this.#axis, { shares: bins.map((bin) => (shares[bin] as number) / WHOLE), most: this.#most / WHOLE, zero, chosen: this.#place, nothing: badIn(data, row, slot) === "all" }, below);
  }

  #say(slot: number): void {
    const { data, row } = this.#moment as Moment;
    this.#strip.figures([], `histograms over time of ${placeWords(data.payload.series[row]?.path ?? "")}`);
    const text = this.#words(slot);
    this.#readout.textContent = text;
    this.#slice.setAttribute("aria-label", `histogram at the cursor: ${text}; arrow keys go from bin to bin`);
  }

  #words(slot: number): string {
    const { data, row } = this.#moment as Moment;
    const [first, last] = [data.binsFirst[slot] ?? 0, data.binsLast[slot] ?? 0];
    const when = `${data.payload.series[row]?.role}, ${first === last ? `step ${steps(first)}` : `steps ${steps(first)} – ${steps(last)}`}`;
    const bins = data.bins(slot, row);
    if (this.#place >= 0) return `${when}: ${percent((bins[this.#axis.bins[this.#place] as number] as number) / WHOLE)} are ${this.#axis.named(this.#place)}`;
    if (badIn(data, row, slot) === "all") return `${when}: no finite number`;
    const [below, about, above] = signs(bins);
    if (below + about + above === 0) return `${when}: not sampled`;
    return `${when}: ${percent(below)} negative, ${percent(about)} about zero, ${percent(above)} positive`;
  }

  #listen(slice: HTMLCanvasElement): void {
    const within = (place: number): number => (place >= 0 && place < this.#axis.length ? place : -1);
    const { canvas } = this.#strip;
    canvas.addEventListener("pointermove", (event) => this.#go(within(this.#axis.length - 1 - Math.floor((event.offsetY - EDGE) / this.#rowHigh()))));
    slice.addEventListener("pointermove", (event) => {
      const { left, width } = plotOf(slice.clientWidth);
      this.#go(within(this.#below ? Math.floor(((event.offsetX - left) / width) * this.#axis.length) : this.#axis.length - 1 - Math.floor((event.offsetY - EDGE) / this.#rowHigh())));
    });
    for (const left of [canvas, slice]) left.addEventListener("pointerleave", () => this.#go(-1));
    slice.addEventListener("blur", () => this.#go(-1));
    slice.addEventListener("keydown", (event) => {
      if (!this.#moment || event.altKey || event.ctrlKey || event.metaKey) return;
      const last = this.#axis.length - 1;
      const at = this.#place < 0 ? this.#axis.zero : this.#place;
      const to = ({ ArrowUp: at + 1, ArrowRight: at + 1, ArrowDown: at - 1, ArrowLeft: at - 1, Home: 0, End: last } as Record<string, number>)[event.key];
      if (to === undefined && !(event.key === "Escape" && this.#place >= 0)) return;
      this.#go(to === undefined ? -1 : this.#place < 0 && event.key.startsWith("Arrow") ? at : Math.min(last, Math.max(0, to)));
      this.#context.announce(this.#readout.textContent ?? "");
      event.preventDefault();
      event.stopPropagation();
    });
  }

  #go(place: number): void {
    if (place === this.#place) return;
    this.#place = place;
    this.#again();
  }

  #again(): void {
    if (this.#moment) this.draw(this.#moment);
  }
}

function absence(data: WatchData, row: number): string {
  for (let slot = 0; slot < data.binSlots; slot += 1) if (data.bins(slot, row).some((share) => share > 0) || badIn(data, row, slot)) return "";
  return "no histogram was taken of this series";
}

let [rampFor, rampMade]: [number, Uint32Array] = [-1, new Uint32Array(256)];

/** Colours for each share of 255; what is not there lets the ground through. */
function ramp(most: number): Uint32Array {
  if (rampFor === most) return rampMade;
  rampMade = bytesOf((share) => magnitude(DIMMEST + (1 - DIMMEST) * Math.sqrt(Math.min(1, (255 * share) / most))));
  rampMade[0] = 0;
  rampFor = most;
  return rampMade;
}

/** The last slot up to one in which the series has a histogram. */
function seenIn(data: WatchData, row: number, slot: number): number {
  for (let at = slot; at > 0; at -= 1) if (data.bins(at, row).some((share) => share > 0) || badIn(data, row, at)) return at;
  return slot;
}

/** Whether some numbers of a slot, or all of them, were NaN or infinite. */
function badIn(data: WatchData, row: number, binSlot: number): "" | "some" | "all" {
  const end = data.binsFirst[binSlot + 1] ?? (data.binsLast[binSlot] ?? 0) + 1;
  const count = data.payload.series[row]?.count ?? 0;
  let found = 0;
  for (let slot = Math.max(0, data.slotOf(data.binsFirst[binSlot] ?? 0)); slot < data.slots && (data.first[slot] as number) < end && found < count; slot += 1) {
    found = Math.max(found, data.value("bad", slot, row) || 0);
  }
  if (!found) return "";
  return found < count && data.bins(binSlot, row).some((share) => share > 0) ? "some" : "all";
}

function signs(bins: ArrayLike<number>): [below: number, about: number, above: number] {
  const sums: [number, number, number] = [0, 0, 0];
  for (let bin = 0; bin < bins.length; bin += 1) sums[bin < ZERO ? 0 : bin > ZERO ? 2 : 1] += bins[bin] as number;
  const all = sums[0] + sums[1] + sums[2] || 1;
  return [sums[0] / all, sums[1] / all, sums[2] / all];
}
