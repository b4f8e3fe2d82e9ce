/** A small net as units and weights at the time cursor: what is dead, starves or cancels is seen, and said. */
import { button, element, lines, OURS, words } from "../elements";
import { percent, steps } from "./figures";
import { Firing, layerShown } from "./firing";
import { countedIn, layerName, pairsAt, troublesAt, type Pair, type Trouble } from "./neuron-facts";
import { layoutOf, unitAt, walked, type Layout, type Spot } from "./neuron-layout";
import { drawNet, leastDrawn, MOST_LINES, type Limits } from "./neuron-picture";
import { factsOf, limitWords, netWords, unitWords, type Fact } from "./neuron-words";
import type { Hooks, Moment, Part, WatchContext } from "./part";
import { refill } from "./refill";
import { drawingOn } from "./pen";
import type { WatchData } from "./data";

const UNMEASURED = 640;

export class Neurons implements Part {
  readonly element: HTMLElement;
  readonly #canvas: HTMLCanvasElement;
  readonly #legend = element("div", { class: "net-legend" });
  readonly #facts = element("ul", { class: "net-facts" });
  readonly #readout = element("div", { class: "net-readout" });
  readonly #firing: Firing;
  readonly #context: WatchContext;
  readonly #hooks: Hooks;
  /** Of each slot those of all up to it, so that a blow-up hides nothing of what was before. */
  readonly #limits: Limits[] = [];
  #measured = 0;
  #revision = -1;
  #moment: Moment | null = null;
  #layout: Layout = layoutOf([], UNMEASURED);
  #slot = -1;
  #troubles: Trouble[] = [];
  #pairs: Pair[] = [];
  #paired = "";
  #said = "";
  #drawn = "";
  #spot: Spot | null = null;
  #pinned = false;
  #focused = false;

  constructor(context: WatchContext, hooks: Hooks) {
    this.#context = context;
    this.#hooks = hooks;
    this.#canvas = element("canvas", { class: "plot", tabindex: 0, role: "application", "aria-roledescription": "net", ...OURS });
    this.#firing = new Firing(context, hooks, (unit) => this.#pin([this.#shown() + 1, unit]));
    const net = element("div", { class: "net" }, this.#canvas, this.#legend);
    const body = element("div", { class: "net-body" }, net, element("div", { class: "net-side" }, this.#facts, this.#firing.element, this.#readout));
    this.element = element("section", { class: "neurons", role: "group", "aria-label": "neurons" }, element("p", { class: "caption" }, "neurons"), body);
    this.#listen();
  }

  draw(moment: Moment): void {
    this.#moment = moment;
    const { data, step } = moment;
    // It is made of nets of 2 to 5 layers with at most 64 units each.
    this.element.hidden = !data.payload.neurons || !data.neuronSlots;
    if (this.element.hidden) return;
    this.#measure(data);
    this.#slot = data.neuronSlotOf(step);
    this.#judge(data, step);
    const layers = data.payload.neurons?.layers ?? [];
    const counts = [layers[0]?.inputs ?? 0, ...layers.map(({ units }) => units)];
    this.#layout = layoutOf(counts, this.#canvas.clientWidth || UNMEASURED);
    this.#describe(data, step);
    this.#paint(moment);
  }

  /** The largest magnitudes, of slots that were not measured yet; the last may still have grown. */
  #measure(data: WatchData): void {
    if (data.revision === this.#revision) return;
    this.#revision = data.revision;
    this.#drawn = "";
    this.#paired = "";
    const from = data.neuronSlots < this.#measured ? 0 : Math.max(0, this.#measured - 1);    // slots were merged
    this.#measured = data.neuronSlots;
    const layers = layersOf(data);
    for (let slot = from; slot < data.neuronSlots; slot += 1) {
      let { weight, activation, gradient } = this.#largest(slot - 1);
      for (const layer of layers) {
        weight = largest(layer.weights(slot), weight);
        activation = largest(layer.activations(slot), activation);
        gradient = largest(layer.gradients(slot), gradient);
      }
      this.#limits[slot] = { weight, activation, gradient };
    }
  }

  #largest(slot: number): Limits {
    return this.#limits[slot] ?? { weight: 0, activation: 0, gradient: 0 };
  }

  #judge(data: WatchData, step: number): void {
    this.#troubles = troublesAt(data, step);
    const key = `${this.#revision} ${this.#slot}`;
    if (this.#paired !== key) this.#pairs = pairsAt(data, this.#slot);
    this.#paired = key;
  }

  #describe(data: WatchData, step: number): void {
    const facts = factsOf(data, this.#slot, step, this.#troubles, this.#pairs);
    const limits = this.#largest(this.#slot);
    const said = JSON.stringify([facts, limits, this.#slot]);
    if (said !== this.#said) {
      this.#said = said;
      refill(this.#facts, facts.map((fact) => this.#fact(fact)));
      this.#legend.replaceChildren(...legend(data, this.#slot, limits));
    }
    this.#canvas.setAttribute("aria-label", netWords(data, step, facts));
    this.#read();
  }

  #fact({ kind, name, text, spot }: Fact): HTMLElement {
    const place = spot ? button("", { class: "plain unit-name" }, () => this.#pin(spot)) : element("span", { class: "unit-name" });
    place.append(words(name));
    return element("li", { class: kind, "data-key": `${kind} ${name} ${spot}` }, element("i", { class: `sign-${kind}`, "aria-hidden": "true" }), element("span", {}, place, " ", lines(text)));
  }

  #read(): void {
    const [moment, spot] = [this.#moment, this.#spot];
    if (!moment) return;
    const lines = spot ? unitWords(moment.data, this.#slot, moment.step, spot, this.#troubles, this.#pairs) : ["point at a unit, or use the arrow keys"];
    if (spot && this.#pinned) lines[0] += " · pinned";
    if (this.#readout.textContent !== lines.join("")) this.#readout.replaceChildren(...lines.map((line) => element("div", {}, words(line, "", 600))));
  }

  #shown(): number {
    const layers = this.#moment?.data.payload.neurons?.layers ?? [];
    const counted = layers.map((_, layer) => countedIn(this.#moment?.data as WatchData, layer));
    return layerShown(counted, (this.#spot?.[0] ?? 0) - 1, this.#troubles);
  }

  #paint(moment: Moment): void {
    const { data, step } = moment;
    const layer = this.#shown();
    const index = layer < 0 ? -1 : countedIn(data, layer);
    this.#firing.element.hidden = index < 0;
    if (index >= 0) this.#firing.draw(moment, index, layerName(data, layer), this.#troubles.filter((some) => some.layer === layer), this.#spot?.[0] === layer + 1 ? this.#spot[1] : -1);
    const key = [this.#slot, step, this.#canvas.clientWidth, this.#spot, this.#pinned, this.#focused, this.#context.isDark(), globalThis.devicePixelRatio].join(" ");
    if (key === this.#drawn) return;
    const drawing = drawingOn(this.#canvas, this.#layout.height, this.#context);
    if (!drawing) return;
    this.#drawn = key;
    drawNet(drawing, {
      data, slot: this.#slot, layout: this.#layout, limits: this.#largest(this.#slot), troubles: this.#troubles, pairs: this.#pairs,
      spot: this.#spot, pinned: this.#pinned, focused: this.#focused,
    });
  }

  #listen(): void {
    const canvas = this.#canvas;
    const at = (event: MouseEvent): Spot | null => unitAt(this.#layout, event.offsetX, event.offsetY);
    canvas.addEventListener("pointermove", (event) => {
      if (!this.#pinned) this.#go(at(event));
    });
    canvas.addEventListener("pointerleave", () => {
      if (!this.#pinned && !this.#focused) this.#go(null);
    });
    canvas.addEventListener("click", (event) => {
      const spot = at(event);
      if (spot) this.#pin(spot);
      else this.#free();
    });
    canvas.addEventListener("focus", () => {
      this.#focused = canvas.matches(":focus-visible");
      if (this.#focused && !this.#spot) this.#go(this.#start());
      this.#again();
    });
    canvas.addEventListener("blur", () => {
      this.#focused = false;
      this.#again();
    });
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event: KeyboardEvent): void {
    if (event.altKey || event.ctrlKey || event.metaKey || !this.#moment) return;
    const spot = this.#spot;
    if (event.key === "Enter" || event.key === " ") this.#pin(spot ?? this.#start());
    else if (event.key === "Escape" && this.#pinned) this.#free();
    else {
      const next = walked(this.#layout, spot ?? [0, 0], event.key);
      if (!next) return;
      this.#focused = true;
      this.#go(spot ? next : this.#start());
      this.#context.announce(this.#words());
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** The unit that is most worth a look. */
  #start(): Spot {
    const [trouble] = this.#troubles;
    return trouble ? [trouble.layer + 1, trouble.unit] : [Math.min(1, this.#layout.columns.length - 1), 0];
  }

  #go(spot: Spot | null): void {
    if (String(spot) === String(this.#spot)) return;
    this.#spot = spot;
    this.#read();
    if (this.#moment) this.#paint(this.#moment);
  }

  /** Keeps a unit, and selects its layer's activation; the same one again is let go. */
  #pin(spot: Spot): void {
    if (this.#pinned && String(spot) === String(this.#spot)) return this.#free();
    this.#pinned = true;
    this.#spot = spot;
    this.#again();
    const data = this.#moment?.data;
    const path = data?.payload.neurons?.layers[spot[0] - 1]?.path;
    const row = path === undefined ? -1 : (data?.row(path, "activation") ?? -1);
    this.#context.announce(`pinned; ${this.#words()}`);
    if (row >= 0) this.#hooks.onSelect(row);
  }

  #free(): void {
    this.#pinned = false;
    this.#again();
  }

  #words(): string {
    return [...this.#readout.children].map((line) => line.textContent).join("; ");
  }

  #again(): void {
    this.#drawn = "";
    this.#read();
    if (this.#moment && !this.element.hidden) this.#paint(this.#moment);
  }
}

function layersOf(data: WatchData): ReturnType<WatchData["neurons"]>[] {
  return (data.payload.neurons?.layers ?? []).map((_, layer) => data.neurons(layer));
}

function largest(values: ArrayLike<number>, least: number): number {
  let most = least;
  for (let index = 0; index < values.length; index += 1) {
    const size = Math.abs(values[index] as number);
    if (size > most && size < Number.POSITIVE_INFINITY) most = size;
  }
  return most;
}

function legend(data: WatchData, slot: number, limits: Limits): HTMLElement[] {
  const [weight, activation, gradient] = limitWords(limits);
  const sign = (name: string): HTMLElement => element("i", { class: name, "aria-hidden": "true" });
  const weights = layersOf(data).map((layer) => layer.weights(slot));
  const cut = Math.max(0, ...weights.map((some) => leastDrawn(some, limits.weight)));
  const unknown = weights.some((some) => some.some((one) => !Number.isFinite(one)));
  return [
    element("span", {}, sign("line-negative"), "− ", sign("line-positive"), `+ ${weight}`),
    element("span", {}, sign("disc"), activation),
    element("span", {}, sign("ring"), gradient),
    ...(unknown ? [element("span", {}, sign("line-unknown"), "NaN, Inf")] : []),
    ...(cut ? [element("span", {}, `about ${steps(MOST_LINES)} lines a layer: those from ${percent(cut)} of the largest weight on`)] : []),
  ];
}
