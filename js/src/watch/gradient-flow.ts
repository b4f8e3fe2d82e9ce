/** Along depth at the cursor: the size of each module's output, and of the gradient that comes back to it. */
import { button, element, OURS, words } from "../elements";
import { figure, placeName, placeWords } from "./figures";
import { flowRows, flowWords, sizeAt, Spans, type FlowRow, type Measure, type Size } from "./flow-rows";
import type { Hooks, Moment, Part, WatchContext } from "./part";
import { codeFont, drawingOn, fitted, hairline, hatch, type Drawing } from "./pen";

const MEASURES: readonly (readonly [Measure, string])[] = [["rms", "root mean square: of one number"], ["L2", "Euclidean norm: of all numbers together"]];
const HEAD = 30;
/** So that nets of two dozen modules are seen whole, and of more that there are more. */
const HIGHEST = HEAD + 24.5 * 17;
const RANGED = ["vanishing", "exploding", "no gradient"];

interface Lane {
  left: number;
  width: number;
  from: number;
  to: number;
}

export class GradientFlow implements Part {
  readonly element: HTMLElement;
  readonly #context: WatchContext;
  readonly #hooks: Hooks;
  readonly #canvas: HTMLCanvasElement;
  readonly #scroller: HTMLElement;
  readonly #room = element("div", { class: "flow-room" });
  readonly #words = element("div", { class: "flow-words" });
  readonly #chips: readonly HTMLButtonElement[];
  readonly #caption = element("p", { class: "caption" });
  readonly #spans = new Spans();
  #measure: Measure = "rms";
  #moment: Moment | null = null;
  #rows: FlowRow[] = [];
  #revision = -1;
  #hovered = -1;
  /** What is selected elsewhere comes into view, once. */
  #selected = -1;
  #lane: 0 | 1 = 1;

  constructor(context: WatchContext, hooks: Hooks) {
    this.#context = context;
    this.#hooks = hooks;
    this.#canvas = element("canvas", { class: "plot", tabindex: 0, role: "application", "aria-roledescription": "dots along depth", ...OURS });
    this.#scroller = element("div", { class: "flow-scroller" }, this.#room, this.#canvas);
    this.#chips = MEASURES.map(([measure, about]) => button(measure, { class: "chip", title: about, "aria-pressed": String(measure === this.#measure) }, () => this.#choose(measure)));
    const head = element("div", { class: "flow-head" }, this.#caption, element("span", { role: "group", "aria-label": "measured as" }, ...this.#chips));
    this.element = element("section", { class: "gradflow", role: "group", "aria-label": "flow along depth"}, head, this.#scroller, this.#words);
    this.#scroller.addEventListener("scroll", () => this.#again(), { passive: true });
    this.#listen();
  }

  draw(moment: Moment): void {
    this.#moment = moment;
    const { data, step } = moment;
    if (data.revision !== this.#revision) {
      this.#revision = data.revision;
      this.#rows = flowRows(data);
      this.#spans.take(data, this.#rows);
    }
    this.element.hidden = !this.#rows.length || !data.slots;
    if (this.element.hidden) return;
    const total = HEAD + this.#rows.length * this.#high;
    this.#scroller.style.maxHeight = `${HIGHEST}px`;
    this.#room.style.height = `${total}px`;
    if (moment.row !== this.#selected) this.#reveal(this.#rows.findIndex(({ series }) => series.includes(moment.row)));
    this.#selected = moment.row;
    this.#say(step);
    const drawing = drawingOn(this.#canvas, Math.min(HIGHEST, total), this.#context);
    if (drawing) this.#paint(drawing, moment);
  }

  get #high(): number {
    return this.#rows.length > 14 ? 17 : 22;
  }

  #lanes(width: number): [Lane, Lane] {
    const { data } = this.#moment as Moment;
    const names = Math.min(150, Math.max(60, width * 0.28));
    const each = (width - names - 22) / 2;
    return [0, 1].map((lane) => {
      const [from, to] = this.#spans.decades(data, this.#rows, lane as 0 | 1, this.#measure);
      return { left: names + 8 + lane * (each + 10), width: each - 4, from, to };
    }) as [Lane, Lane];
  }

  #paint(drawing: Drawing, moment: Moment): void {
    const { pen, palette, width, height } = drawing;
    const lanes = this.#lanes(width);
    const shift = this.#scroller.scrollTop;
    const [first, last] = [Math.max(0, Math.floor(shift / this.#high)), Math.min(this.#rows.length - 1, Math.ceil((shift + height - HEAD) / this.#high))];
    const y = (row: number): number => HEAD + (row + 0.5) * this.#high - shift;
    pen.font = `11px ${codeFont(this.#canvas)}`;
    pen.save();
    pen.beginPath();
    pen.rect(0, HEAD, width, height - HEAD);
    pen.clip();
    for (let row = first; row <= last; row += 1) this.#drawRow(drawing, moment, row, y(row), (lanes[0] as Lane).left - 12);
    lanes.forEach((lane, index) => {
      const by = Math.max(1, Math.ceil((lane.to - lane.from) / (lane.width / 22)));
      for (let power = lane.from; power <= lane.to; power += by) hairline(drawing, xOf(lane, 10 ** power), HEAD, xOf(lane, 10 ** power), height, palette.line);
      this.#drawLane(drawing, moment, lane, index as 0 | 1, [Math.max(0, first - 1), Math.min(this.#rows.length - 1, last + 1)], y);
    });
    pen.restore();
    lanes.forEach((lane, index) => drawHead(drawing, lane, index as 0 | 1));
  }

  #drawRow(drawing: Drawing, { data, row: chosen, step }: Moment, row: number, y: number, room: number): void {
    const { pen, palette, width } = drawing;
    const { path } = this.#rows[row] as FlowRow;
    const owner = data.payload.series[chosen];
    const isChosen = owner !== undefined && (owner.path === path || (owner.role !== "activation" && owner.role !== "gradient" && owner.path.replace(/\.?[^.]*$/, "") === path));
    if (isChosen || row === this.#hovered) {
      pen.fillStyle = isChosen ? palette.selected : palette.sunk;
      pen.fillRect(0, y - this.#high / 2, width, this.#high);
    }
    const wrong = data.payload.alerts.some((alert) => alert.path === path && RANGED.includes(alert.kind) && step >= alert.step && !(alert.over && step > alert.last));
    pen.textAlign = "left";
    pen.fillStyle = wrong ? palette.broken : isChosen ? palette.ink : palette.soft;
    pen.fillText(fitted(pen, `${wrong ? "✕ " : ""}${placeName(path)}`, room), 4, y);
  }

  /** Where it was over all time as a bar, where it is as a dot, and a line from dot to dot. */
  #drawLane(drawing: Drawing, { data, step }: Moment, lane: Lane, index: 0 | 1, [first, last]: readonly [number, number], y: (row: number) => number): void {
    const { pen, palette } = drawing;
    const colour = index ? palette.positive : palette.linear;
    const sizes: Size[] = [];
    for (let row = first; row <= last; row += 1) sizes.push(sizeAt(data, step, (this.#rows[row] as FlowRow).series[index], this.#measure));
    pen.fillStyle = colour;
    pen.globalAlpha = 0.16;
    for (let row = first; row <= last; row += 1) {
      const span = this.#spans.of(data, (this.#rows[row] as FlowRow).series[index], this.#measure);
      if (span) pen.fillRect(xOf(lane, span[0]), y(row) - 3, Math.max(1, xOf(lane, span[1]) - xOf(lane, span[0])), 6);
    }
    pen.globalAlpha = 0.5;
    pen.strokeStyle = colour;
    pen.lineWidth = 1.25;
    pen.beginPath();
    let drawn = false;
    sizes.forEach((size, at) => {
      if (size === "none" || !this.#rows[first + at]?.leaf) return;
      if (size === "bad") drawn = false;
      else if (drawn) pen.lineTo(xOf(lane, size), y(first + at));
      else pen.moveTo(xOf(lane, size), y(first + at));
      drawn = size !== "bad";
    });
    pen.stroke();
    pen.globalAlpha = 1;
    sizes.forEach((size, at) => drawSize(drawing, lane, index, size, y(first + at), this.#rows[first + at]?.leaf ?? false));
  }

  #say(step: number): void {
    const { data, row } = this.#moment as Moment;
    const sentences = flowWords(data, this.#rows, step, this.#measure);
    const at = this.#hovered >= 0 ? this.#hovered : this.#rows.findIndex(({ series }) => series.includes(row));
    const lines = [...(at >= 0 ? [this.#rowWords(step, at)] : []), ...sentences];
    if (this.#words.textContent !== lines.join("")) this.#words.replaceChildren(...lines.map((line) => element("div", {}, words(line, "", 400))));
    this.#caption.textContent = `flow along depth${data.ofPart}`;
    this.#canvas.setAttribute("aria-label", `${this.#measure} of ${this.#rows.length} modules${data.ofPart}, along depth; ${sentences.join("; ")}; up and down go from module to module, Enter selects`);
  }

  #rowWords(step: number, at: number): string {
    const { data } = this.#moment as Moment;
    const { path, series } = this.#rows[at] as FlowRow;
    const [activation, gradient] = series.map((row) => sizeWords(sizeAt(data, step, row, this.#measure)));
    return `${placeWords(path)}: activation ${activation}, gradient ${gradient} (${this.#measure})`;
  }

  #choose(measure: Measure): void {
    this.#measure = measure;
    this.#chips.forEach((chip, index) => chip.setAttribute("aria-pressed", String(MEASURES[index]?.[0] === measure)));
    this.#again();
  }

  #listen(): void {
    const canvas = this.#canvas;
    const rowAt = (event: MouseEvent): number => {
      const row = Math.floor((event.offsetY - HEAD + this.#scroller.scrollTop) / this.#high);
      return event.offsetY >= HEAD && row < this.#rows.length ? row : -1;
    };
    canvas.addEventListener("pointermove", (event) => this.#go(rowAt(event)));
    canvas.addEventListener("pointerleave", () => this.#go(-1));
    canvas.addEventListener("blur", () => this.#go(-1));
    canvas.addEventListener("click", (event) => {
      this.#lane = event.offsetX < (this.#moment ? this.#lanes(canvas.clientWidth)[1].left - 5 : 0) ? 0 : 1;
      this.#select(rowAt(event));
    });
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event: KeyboardEvent): void {
    if (event.altKey || event.ctrlKey || event.metaKey || !this.#moment || !this.#rows.length) return;
    const at = this.#hovered >= 0 ? this.#hovered : this.#rows.findIndex(({ series }) => series.includes(this.#moment?.row ?? -1));
    const page = Math.max(1, Math.floor(HIGHEST / this.#high) - 2);
    const moves: Record<string, number> = { ArrowUp: at - 1, ArrowDown: at + 1, PageUp: at - page, PageDown: at + page, Home: 0, End: this.#rows.length - 1 };
    const to = moves[event.key];
    if (to !== undefined) {
      this.#go(Math.min(this.#rows.length - 1, Math.max(0, to)));
      this.#reveal(this.#hovered);
      this.#again();
      this.#context.announce(this.#rowWords(this.#moment.step, this.#hovered));
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      this.#lane = event.key === "ArrowLeft" ? 0 : 1;
      this.#select(at);
    } else if (event.key === "Enter" || event.key === " ") this.#select(at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #select(at: number): void {
    const series = this.#rows[at]?.series;
    if (!series || !this.#moment) return;
    const row = series[this.#lane] >= 0 ? series[this.#lane] : (series[1 - this.#lane] as number);
    if (row < 0) return;
    const { path, role } = this.#moment.data.payload.series[row] ?? { path: "", role: "activation" };
    this.#context.announce(`selected: ${role} of ${placeWords(path)}`);
    this.#hooks.onSelect(row);
  }

  #reveal(row: number): void {
    if (row < 0) return;
    const [top, bottom] = [row * this.#high, (row + 1) * this.#high];
    const seen = Math.min(HIGHEST, this.#scroller.clientHeight || HIGHEST) - HEAD;
    if (top < this.#scroller.scrollTop) this.#scroller.scrollTop = top;
    else if (bottom > this.#scroller.scrollTop + seen) this.#scroller.scrollTop = bottom - seen;
  }

  #go(row: number): void {
    if (row === this.#hovered) return;
    this.#hovered = row;
    this.#again();
  }

  #again(): void {
    if (this.#moment) this.draw(this.#moment);
  }
}

function xOf({ left, width, from, to }: Lane, size: number): number {
  if (!(size > 0)) return left;
  return left + Math.min(1, Math.max(0, (Math.log10(size) - from) / (to - from))) * width;
}

/** What the lane shows, and the ends of its axis. */
function drawHead(drawing: Drawing, lane: Lane, index: 0 | 1): void {
  const { pen, palette } = drawing;
  pen.textAlign = "left";
  pen.fillStyle = index ? palette.positive : palette.linear;
  mark(pen, index, lane.left + 4, 8, 4);
  pen.fillStyle = palette.soft;
  pen.font = `11px ${codeFont(pen.canvas)}`;
  pen.fillText(index ? "gradient" : "activation", lane.left + 12, 8.5);
  pen.font = `10px ${codeFont(pen.canvas)}`;
  pen.fillStyle = palette.quiet;
  pen.fillText(figure(10 ** lane.from, 1), lane.left, 22);
  pen.textAlign = "right";
  pen.fillText(figure(10 ** lane.to, 1), lane.left + lane.width, 22);
  pen.textAlign = "left";
}

/** A disc goes forward, a triangle points back. */
function mark(pen: CanvasRenderingContext2D, index: 0 | 1, x: number, y: number, size: number): void {
  pen.beginPath();
  if (index === 0) pen.arc(x, y, size, 0, 2 * Math.PI);
  else {
    pen.moveTo(x - size, y);
    pen.lineTo(x + size * 0.8, y - size);
    pen.lineTo(x + size * 0.8, y + size);
  }
  pen.fill();
}

function drawSize(drawing: Drawing, lane: Lane, index: 0 | 1, size: Size, y: number, leaf: boolean): void {
  const { pen, palette } = drawing;
  pen.font = `10px ${codeFont(pen.canvas)}`;
  if (size === "none") {
    pen.fillStyle = palette.quiet;
    return pen.fillText("·", lane.left, y);
  }
  if (size === "bad") {
    pen.fillStyle = hatch(drawing);
    pen.globalAlpha = 0.4;
    pen.fillRect(lane.left + 26, y - 5, lane.width - 26, 10);
    pen.globalAlpha = 1;
    pen.fillStyle = palette.missing;
    return pen.fillText("NaN", lane.left, y);
  }
  pen.fillStyle = index ? palette.positive : palette.linear;
  if (size === 0) return pen.fillText("0", lane.left + 1, y);
  mark(pen, index, xOf(lane, size), y, leaf ? 4 : 2.6);
}

function sizeWords(size: Size): string {
  return size === "none" ? "not sampled" : size === "bad" ? "NaN or Inf" : figure(size);
}
