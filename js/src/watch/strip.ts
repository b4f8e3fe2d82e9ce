/** A plot over time: what it shows on the left, a canvas on the shared axis, the figures at the cursor on the right. */
import { element, lines } from "../elements";
import { figures, type Scale } from "./figures";
import { drawingOn, hairline, type Drawing } from "./pen";
import type { Hooks, Moment, WatchContext } from "./part";
import { drawCursor, followTime, plotOf, type Plot } from "./time-axis";

export type Figures = readonly (readonly [what: string, value: string, colour?: string | undefined])[];

/** The room above and below a curve. */
export const MARGIN = 7;

export class Strip {
  readonly element: HTMLElement;
  readonly canvas: HTMLCanvasElement;
  readonly #context: WatchContext;
  readonly #title = element("div", { class: "title" });
  readonly #figures = element("dl", { class: "figures" });
  #moment: Moment | null = null;
  #said = "";

  constructor(
    context: WatchContext,
    hooks: Hooks,
    readonly height: number,
    name: string,
  ) {
    this.#context = context;
    this.canvas = element("canvas", { role: "img" });
    this.canvas.style.height = `${height}px`;
    this.element = element("div", { class: `strip ${name}` }, element("div", { class: "side" }, this.#title), this.#figures, this.canvas);
    followTime(this.canvas, () => this.#moment, hooks);
  }

  /** Says what is shown: a caption in small capitals, and below it a path. */
  title(caption: string, path = "", note = ""): void {
    const said = `${caption}\n${path}\n${note}`;
    if (said === this.#said) return;
    this.#said = said;
    const name = path ? lines(path) : null;
    this.#title.title = note;
    this.#title.replaceChildren(...(caption ? [element("span", { class: "caption" }, caption)] : []), ...(name ? [" ", element("span", { class: "of", title: path }, name)] : []));
  }

  /** The figures at the cursor; `where` says of what, for those who do not see the plot. */
  figures(given: Figures, where: string): void {
    while (this.#figures.children.length > given.length) this.#figures.lastChild?.remove();
    given.forEach(([what, value, colour], index) => {
      let line = this.#figures.children[index] as HTMLElement | undefined;
      if (!line) this.#figures.append((line = element("div", {}, element("dt"), element("dd"))));
      const [term, number] = line.children as unknown as [HTMLElement, HTMLElement];
      put(term, what);
      put(number, value);
      line.className = colour ?? "";
    });
    this.canvas.setAttribute("aria-label", [where, ...given.map(([what, value]) => `${what} ${value}`)].join(", "));
  }

  /** A clean canvas; null where nothing can be drawn. */
  begin(moment: Moment): (Drawing & { plot: Plot }) | null {
    this.#moment = moment;
    const drawing = drawingOn(this.canvas, this.height, this.#context);
    return drawing && { ...drawing, plot: plotOf(drawing.width) };
  }

  end(drawing: Drawing & { plot: Plot }, moment: Moment): void {
    drawCursor(drawing, moment, drawing.plot, 0, this.height);
  }
}

export function put(target: HTMLElement, text: string): void {
  if (target.textContent !== text) target.textContent = text;
}

/** The hairlines of an axis of values, each with its number. */
export function drawScale(drawing: Drawing & { plot: Plot }, scale: Scale, top: number, bottom: number, write?: (value: number) => string): void {
  const { pen, palette, plot } = drawing;
  pen.textAlign = "right";
  let before = Number.POSITIVE_INFINITY;
  const ticks = scale.ticks(Math.max(1, Math.min(4, Math.round((bottom - top) / 20))));
  const written = write ? ticks.map(write) : figures(ticks);
  ticks.forEach((tick, index) => {
    const y = bottom - scale.share(tick) * (bottom - top);
    hairline(drawing, plot.left, y, plot.left + plot.width, y, palette.line);
    if (before - y < 12) return;
    before = y;
    pen.fillStyle = palette.quiet;
    pen.fillText(written[index] as string, plot.left - 6, Math.min(drawing.height - 6, Math.max(6, y)));
  });
  pen.textAlign = "left";
}
