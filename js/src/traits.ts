/** What a widget shares with Python and with other widgets: the selected module, and a watch's step. */
import { hear, tell } from "./selection";

/** What anywidget gives: traits that are kept equal here and in the kernel. */
export interface TraitModel {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, listener: () => void): void;
  off(event: string, listener: () => void): void;
}

/** A view that is told of a trait, and takes one. */
interface Steered {
  choose?(path: string): boolean;
  goTo?(step: number): void;
}

export class Traits {
  readonly #model: TraitModel;
  #view: Steered | null = null;
  #name = "";
  #deaf: () => void = () => {};
  readonly #selected = (): void => this.#choose();
  readonly #step = (): void => this.#view?.goTo?.(this.#number);

  constructor(model: TraitModel) {
    this.#model = model;
    model.on("change:selected", this.#selected);
    model.on("change:step", this.#step);
  }

  /** A view was drawn: of a watch, which is told itself; or of the model called `name`, whose views share what is selected. */
  show(name: string, view: Steered | null): void {
    this.#view = view;
    if (name !== this.#name) {
      this.#deaf();
      this.#name = name;
      this.#deaf = name ? hear(name, this, (path) => this.told("selected", path)) : () => {};
    }
    this.#choose();
    if (this.#number >= 0) this.#step();
  }

  /** The view has changed what it shows. */
  told(trait: "selected" | "step", value: string | number): void {
    if (this.#model.get(trait) === value) return;
    this.#model.set(trait, value);
    this.#model.save_changes();
  }

  close(): void {
    this.#deaf();
    this.#model.off("change:selected", this.#selected);
    this.#model.off("change:step", this.#step);
  }

  get #number(): number {
    return Number(this.#model.get("step") ?? -1);
  }

  #choose(): void {
    const path = this.#model.get("selected");
    if (typeof path !== "string" || !path || this.#view?.choose?.(path)) return;
    tell({ model: this.#name, path, source: this });
  }
}
