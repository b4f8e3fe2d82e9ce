/** The widget: the same views as at rest, and a kernel that answers. */
import type { Asked } from "./context";
import { button, element } from "./elements";
import { Kernel, type WidgetModel } from "./kernel";
import { nameKnobs } from "./knobs";
import { showLab } from "./lab/lab";
import { models } from "./models";
import { completeValues, decode } from "./payload";
import { sheets } from "./sheet/views";
import { show } from "./view";
import { type TraitModel, Traits } from "./traits";
import { remember } from "./watch/behind";
import { showWatch, type Shown } from "./watch/show";

interface RenderContext {
  model: WidgetModel & TraitModel;
  el: HTMLElement;
}

export function render({ model, el }: RenderContext): () => void {
  const place = element("div", { class: "modlab-live mathjax_ignore tex2jax_ignore" });
  const status = element("p", { class: "modlab-status", role: "status", style: "white-space:pre-line" });
  let watch: Shown | null = null;
  let lab: Shown | null = null;
  let asking = false;
  const traits = new Traits(model);
  const kernel = new Kernel(model, (action, bytes) => (action === "hello" ? draw(bytes) : watch?.late?.(action, bytes)), (bytes) => update(bytes));
  const way = Object.assign((unasked: (bytes: ArrayBuffer) => void): Kernel => new Kernel(model, () => {}, unasked), { entered: {} });
  const values = async (path: string): Promise<Asked> => {
    const { json, numbers } = decode(await kernel.ask("values", { path }));
    return { values: completeValues(json.values), numbers };
  };
  const draw = (bytes: ArrayBuffer): void => {
    try {
      const { view, model: name } = decode(bytes).json;
      if (view === "lab") lab?.take(bytes) || (watch = lab = showLab(place, bytes, kernel, values));
      else if (view !== "watch") show(place, bytes, [models, sheets], values);
      else if (!watch?.take(bytes)) watch = showWatch(place, bytes, (action, more) => kernel.tell(action, more), (trait, value) => traits.told(trait, value), way.entered);
      traits.show(String(name ?? ""), view === "watch" ? watch : null);
      nameKnobs(el);
      if (view === "watch") remember(el, way);
      status.remove();
    } catch (error) {
      say(`this view could not be drawn: ${reason(error)}`);
    }
  };
  // What fits nothing that is here leaves a gap: all is asked for again, once.
  const update = (bytes: ArrayBuffer): void => {
    nameKnobs(el);
    try {
      if (watch?.take(bytes)) return void (watch !== lab && remember(el, way));
      if (!decode(bytes).json.from) draw(bytes);
      else if (!asking) again();    // or the first question waits behind the cell, asked before it had a way round
    } catch (error) {
      console.warn("modlab: an update could not be read:", error);
    }
  };
  const again = (): void => {
    asking = true;
    kernel.ask("hello").then(draw, () => {}).finally(() => (asking = false));
  };
  const say = (text: string, again = false): void => {
    status.replaceChildren(text);
    if (again) {
      status.append(" ", button("ask again", {}, ask));
    }
  };
  const ask = (): void => {
    say("asking the kernel…");
    kernel.ask("hello").then(draw, (error) => watch || say(reason(error), true));
  };
  el.replaceChildren(status, place);
  ask();
  return () => {
    kernel.close();
    traits.close();
    el.replaceChildren();
  };
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

