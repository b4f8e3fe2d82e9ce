/** The class of the selected module: what it says, its code, its tensors. Made from a tree; the selection comes from elsewhere. */
import type { Context, Panel } from "../context";
import { detailPanel } from "./detail";
import { element } from "../elements";
import { Outline } from "./outline";
import type { TreePayload } from "../payload";
import { stepsTo } from "./place";
import { hear } from "../selection";

export class SourcePanel implements Panel {
  readonly element = element("div", { class: "body detail" });
  readonly keys = "";
  readonly #tree: TreePayload;
  readonly #context: Context;

  constructor(tree: TreePayload, context: Context) {
    this.#tree = tree;
    this.#context = context;
    this.#show("");
  }

  arrived(): () => void {
    return hear(this.#tree.model, this, (path) => this.#show(path));
  }

  #show(path: string): void {
    const steps = stepsTo(this.#tree, path);
    const place = steps && new Outline(this.#tree).reveal(steps);
    if (!place) return;
    this.element.replaceChildren(...detailPanel(this.#tree, place, this.#context));
    for (const one of this.element.querySelectorAll("details")) one.open = true;
  }
}
