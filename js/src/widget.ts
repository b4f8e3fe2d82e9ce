/** The widget: the same views as at rest, and a kernel that answers. */
import type { Asked } from "./context";
import { element } from "./elements";
import { Kernel, type WidgetModel } from "./kernel";
import { completeValues, decode } from "./payload";
import { show } from "./view";

interface RenderContext {
  model: WidgetModel;
  el: HTMLElement;
}

export function render({ model, el }: RenderContext): () => void {
  const place = element("div", { class: "modlab-live mathjax_ignore tex2jax_ignore" });
  const status = element("p", { class: "modlab-status", role: "status", style: "white-space:pre-line" });
  const kernel = new Kernel(model, (action, bytes) => {
    if (action === "hello") draw(bytes);
  });
  const values = async (path: string): Promise<Asked> => {
    const { json, numbers } = decode(await kernel.ask("values", { path }));
    return { values: completeValues(json.values), numbers };
  };
  const draw = (bytes: ArrayBuffer): void => {
    try {
      show(place, bytes, values);
      status.remove();
    } catch (error) {
      say(`this view could not be drawn: ${reason(error)}`);
    }
  };
  const say = (text: string, again = false): void => {
    status.replaceChildren(text);
    if (again) {
      const retry = element("button", { type: "button" }, "ask again");
      retry.addEventListener("click", ask);
      status.append(" ", retry);
    }
  };
  const ask = (): void => {
    say("asking the kernel…");
    kernel.ask("hello").then(draw, (error) => say(reason(error), true));
  };
  el.replaceChildren(status, place);
  ask();
  return () => {
    kernel.close();
    el.replaceChildren();
  };
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

